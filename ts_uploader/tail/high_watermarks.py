"""Requests the high watermarks of the partitions that a broker leads (tail rule 1, clause 2).

The broker answers in the leader epoch that the request names: a broker that has another one answers with an error. A
new leader does not answer before its high watermark reached the offset where its leadership begins.
"""

from collections.abc import Mapping

from ts_common.broker_connection.connection import BrokerConnection
from ts_common.broker_connection.list_offsets import LATEST, list_offsets
from ts_common.model import TopicPartition


def high_watermarks(
    connection: BrokerConnection, leader_epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the high watermark of each partition that the broker leads in a leader epoch; others are left out.

    Raises:
        NoAnswer, CorruptData, UnsupportedRequest: as `list_offsets`.
    """
    found = list_offsets(connection, leader_epochs, LATEST)
    return {
        name: answer.offset
        for name, answer in found.items()
        if name in leader_epochs and not answer.error and answer.epoch == leader_epochs[name]
    }
