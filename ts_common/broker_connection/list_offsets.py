"""Requests offsets of partitions from the broker that leads them (ListOffsets).

Version 4 has the leader epoch (KIP-320), and its structures no tagged fields, as in Kafka's `ListOffsetsRequest.json`::

    replica -1, isolation, topics [topic, partitions [partition, epoch, time]]
    -> throttle, topics [topic, partitions [partition, error, time, offset, epoch]]
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, string
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
NO_EPOCH: Final = -1
_VERSION: Final = 4
_REPLICA_AND_ISOLATION: Final = struct.pack(">ib", -1, 0)
_COUNT: Final = struct.Struct(">i")
_WANTED: Final = struct.Struct(">iiq")
_ANSWER: Final = struct.Struct(">ihqqi")
_AT_ONCE: Final = 1000  # partitions of one request: a broker answers it without delaying others


class OffsetAnswer(NamedTuple):
    """The answer for one partition.

    Attributes:
        error: Kafka's code; 0 without an error.
        offset: the one that was requested; of no meaning with an error.
        epoch: of the leader that answered.
    """

    error: int
    offset: int
    epoch: int


def list_offsets(
    connection: BrokerConnection, leader_epochs: Mapping[TopicPartition, int], time: int
) -> dict[TopicPartition, OffsetAnswer]:
    """Return an offset of each partition. The broker can answer in any order.

    Args:
        leader_epochs: by partition, the leader epoch that its leader must have; `NO_EPOCH` for any.
        time: `EARLIEST` or `LATEST`; the latest one is the high watermark.

    Raises:
        NoAnswer, CorruptData, UnsupportedRequest: as `BrokerConnection.request`.
    """
    found: dict[TopicPartition, OffsetAnswer] = {}
    names = sorted(leader_epochs)
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        body = _REPLICA_AND_ISOLATION + _encoded({name: leader_epochs[name] for name in some}, time)
        found |= _answered(connection.request(Api.LIST_OFFSETS, _VERSION, body))
        if missing := {*some} - found.keys():
            raise CorruptData(
                f"{connection.name}: ListOffsets: the answer lacks {len(missing)} of {len(some)} partitions"
            )
    return found


def _encoded(leader_epochs: Mapping[TopicPartition, int], time: int) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for name, epoch in leader_epochs.items():
        topics.setdefault(name.topic, []).append(_WANTED.pack(name.partition, epoch, time))
    parts = [_COUNT.pack(len(topics))]
    for topic, wanted in topics.items():
        parts += [string(topic), _COUNT.pack(len(wanted)), *wanted]
    return b"".join(parts)


def _answered(answer: Reader) -> dict[TopicPartition, OffsetAnswer]:
    answer.int32()

    def topic() -> dict[TopicPartition, OffsetAnswer]:
        name = answer.string() or ""
        return {
            TopicPartition(name, number): OffsetAnswer(error, offset, epoch)
            for number, error, _, offset, epoch in answer.structs(_ANSWER)
        }

    found: dict[TopicPartition, OffsetAnswer] = {}
    for each in answer.array(topic):
        found |= each
    return found
