"""Requests offsets of partitions from the broker that leads them (ListOffsets).

Version 5 has the leader epoch (KIP-320), and an error of its own for a leader without a high watermark (KIP-207). Its
structures have no tagged fields, as in Kafka's `ListOffsetsRequest.json`::

    replica -1, isolation, topics [topic, partitions [partition, epoch, time]]
    -> throttle, topics [topic, partitions [partition, error, time, offset, epoch]]
"""

import struct
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import string
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
NO_EPOCH: Final = -1
_VERSION: Final = 5
_REPLICA_AND_ISOLATION: Final = struct.pack(">ib", -1, 0)
_COUNT: Final = struct.Struct(">i")
_WANTED: Final = struct.Struct(">iiq")
_ANSWER: Final = struct.Struct(">ihqqi")
_ERROR: Final = itemgetter(1)
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


class OffsetRequests:
    """Requests for one offset of each of some partitions, encoded once; `send` can be repeated.

    Args:
        leader_epochs: by partition, the leader epoch that its leader must have; `NO_EPOCH` for any.
        time: `EARLIEST` or `LATEST`; the latest one is the high watermark.
    """

    def __init__(self, leader_epochs: Mapping[TopicPartition, int], time: int) -> None:
        names = sorted(leader_epochs)
        self._requests = [
            (len(some), _REPLICA_AND_ISOLATION + _encoded({name: leader_epochs[name] for name in some}, time))
            for some in (names[first : first + _AT_ONCE] for first in range(0, len(names), _AT_ONCE))
        ]

        self._answers: list[bytes | None] = [None] * len(self._requests)  # the last ones; none that has an error

    def send(self, connection: BrokerConnection) -> Iterator[tuple[str, list[tuple[int, int, int, int, int]]]]:
        """Yield each topic of an answer, with number, error, time, offset and epoch of its partitions.

        The broker answers in any order, and may name a topic twice. Nothing is yielded of an answer that is equal to
        the last one to the same request, unless it has an error: most partitions of a broker are not written to.

        Raises:
            NoAnswer, CorruptData, UnsupportedRequest: as `BrokerConnection.request`; an answer of fewer partitions
                than requested is damaged.
        """
        for at, (wanted, body) in enumerate(self._requests):
            answer = connection.request(Api.LIST_OFFSETS, _VERSION, body)
            answer.int32()
            unread = answer.unread
            if unread == self._answers[at]:
                continue
            count, has_error = 0, False
            for _ in range(answer.int32()):
                topic = answer.string() or ""
                rows: list[Any] = [*answer.structs(_ANSWER)]
                count += len(rows)
                has_error |= any(map(_ERROR, rows))
                yield topic, rows
            if count < wanted:
                raise CorruptData(f"{connection.name}: ListOffsets: the answer has {count} of {wanted} partitions")
            self._answers[at] = None if has_error else unread


def list_offsets(
    connection: BrokerConnection, leader_epochs: Mapping[TopicPartition, int], time: int
) -> dict[TopicPartition, OffsetAnswer]:
    """Return an offset of each partition; the arguments and errors are those of `OffsetRequests`."""
    found = {
        TopicPartition(topic, number): OffsetAnswer(error, offset, epoch)
        for topic, rows in OffsetRequests(leader_epochs, time).send(connection)
        for number, error, _, offset, epoch in rows
    }
    if missing := leader_epochs.keys() - found.keys():
        raise CorruptData(f"{connection.name}: ListOffsets: the answer lacks {min(map(str, missing))}")
    return found


def _encoded(leader_epochs: Mapping[TopicPartition, int], time: int) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for name, epoch in leader_epochs.items():
        topics.setdefault(name.topic, []).append(_WANTED.pack(name.partition, epoch, time))
    parts = [_COUNT.pack(len(topics))]
    for topic, wanted in topics.items():
        parts += [string(topic), _COUNT.pack(len(wanted)), *wanted]
    return b"".join(parts)
