"""Requests that librdkafka does not have, over one connection to a broker: transactions, offsets, a reassignment.

The messages are those of the files in Kafka's source, as `ListTransactionsRequest.json`; all are flexible, so each
structure ends with tagged fields; `?` is a value that may be null::

    AlterPartitionReassignments 0  ms, topics [topic, partitions [partition, replicas]]
                            -> throttle, error, message?, topics [topic, partitions [partition, error, message?]]
    DescribeTransactions 0  transactional ids
                            -> throttle, states [error, id, state, timeout, start, producer id, producer epoch,
                               topics [topic, partitions]]
    ListTransactions 0      states [] (all), producer ids [] (all)
                            -> throttle, error, unknown states, states [id, producer id, state]
"""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ts_common.broker_connection.connection import NO_TAGS, Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, compact_string
from ts_common.broker_connection.list_offsets import NO_EPOCH, list_offsets
from ts_common.errors import CorruptData, OperatorError, TransientError
from ts_common.log_format.varints import unsigned_varint
from ts_common.model import TopicPartition
from tsctl.restore.transactions import Coordinated

_NO_SUCH_ID: Final = 105  # TRANSACTIONAL_ID_NOT_FOUND: it expired meanwhile
# Errors that end by themselves: a broker does not have the topic yet; the leader, the coordinator or the controller
# moves or loads; a time-out; another request changes the same transaction.
_PASSING: Final = frozenset({3, 5, 6, 7, 14, 15, 16, 41, 51})
_MS: Final = 30_000
_T = TypeVar("_T")


class RequestRefused(OperatorError):
    """A broker answered with an error that repeating does not end."""


class RequestDelayed(TransientError):
    """A broker answered with an error that ends by itself."""


def list_transactions(connection: BrokerConnection) -> tuple[Coordinated, ...]:
    """Return the last transaction of each transactional id that a broker coordinates.

    A broker leaves out the ids that this identity may not describe.

    Raises:
        NoAnswer, CorruptData, UnsupportedRequest: as `BrokerConnection.request`.
        RequestRefused, RequestDelayed: the broker answered with an error.
    """
    answer = connection.request(Api.LIST_TRANSACTIONS, 0, _array(()) + _array(()) + NO_TAGS, flexible=True)
    answer.int32()
    _check(connection, "ListTransactions", answer.int16())
    answer.compact_array(answer.compact_string)

    def listed() -> str:
        found, _, _ = answer.compact_string() or "", answer.int64(), answer.compact_string()
        answer.tagged_fields()
        return found

    ids = answer.compact_array(listed)
    return _described(connection, ids) if ids else ()


def _described(connection: BrokerConnection, ids: Collection[str]) -> tuple[Coordinated, ...]:
    body = _array(map(compact_string, ids)) + NO_TAGS
    answer = connection.request(Api.DESCRIBE_TRANSACTIONS, 0, body, flexible=True)
    answer.int32()

    def topic() -> str:
        name, _ = answer.compact_string() or "", answer.compact_array(answer.int32)
        answer.tagged_fields()
        return name

    def state() -> tuple[int, Coordinated]:
        code, name, word = answer.int16(), answer.compact_string() or "", answer.compact_string() or ""
        answer.int32()
        start, producer_id, producer_epoch = answer.int64(), answer.int64(), answer.int16()
        found = Coordinated(name, producer_id, producer_epoch, word, start, frozenset(answer.compact_array(topic)))
        answer.tagged_fields()
        return code, found

    states = answer.compact_array(state)
    _check_all(connection, "DescribeTransactions", ids, (each.transactional_id for _, each in states))
    for code, each in states:
        if code != _NO_SUCH_ID:
            _check(connection, f"DescribeTransactions of {each.transactional_id}", code)
    return tuple(each for code, each in states if not code)


def offsets_of(
    connection: BrokerConnection, partitions: Iterable[TopicPartition], time: int
) -> dict[TopicPartition, int]:
    """Return an offset of each partition, which the broker leads.

    Args:
        time: `EARLIEST` or `LATEST`.

    Raises:
        As `list_transactions`.
    """
    found = list_offsets(connection, dict.fromkeys(partitions, NO_EPOCH), time)
    for name, answer in found.items():
        _check(connection, f"ListOffsets of {name}", answer.error)
    return {name: answer.offset for name, answer in found.items()}


def reassign(connection: BrokerConnection, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Begin to move partitions to other brokers; a repeated call changes nothing.

    Args:
        connection: to the controller; with KRaft to any broker.
        replicas: broker ids, the preferred leader first.

    Raises:
        As `list_transactions`.
    """

    def partition(number: int, brokers: Sequence[int]) -> bytes:
        return struct.pack(">i", number) + _array(struct.pack(">i", each) for each in brokers) + NO_TAGS

    topics = [
        compact_string(topic) + _array(partition(*each) for each in numbers.items()) + NO_TAGS
        for topic, numbers in _by_topic(replicas).items()
    ]
    body = struct.pack(">i", _MS) + _array(topics) + NO_TAGS
    answer = connection.request(Api.ALTER_PARTITION_REASSIGNMENTS, 0, body, flexible=True)
    answer.int32()
    _check(connection, "AlterPartitionReassignments", answer.int16(), answer.compact_string())
    answer.compact_array(lambda: _reassigned(connection, answer))
    answer.tagged_fields()


def _reassigned(connection: BrokerConnection, answer: Reader) -> None:
    topic = answer.compact_string()

    def partition() -> None:
        about = f"AlterPartitionReassignments of {topic}-{answer.int32()}"
        _check(connection, about, answer.int16(), answer.compact_string())
        answer.tagged_fields()

    answer.compact_array(partition)
    answer.tagged_fields()


def _check(connection: BrokerConnection, about: str, code: int, message: str | None = None) -> None:
    if code:
        text = f"{connection.name}: {about}: error code {code}" + (f" ({message})" if message else "")
        raise RequestDelayed(text) if code in _PASSING else RequestRefused(text)


def _check_all(connection: BrokerConnection, about: str, asked: Iterable[object], answered: Iterable[object]) -> None:
    if missing := {*asked} - {*answered}:
        raise CorruptData(f"{connection.name}: {about}: the answer lacks {len(missing)} of what was requested")


def _by_topic(values: Mapping[TopicPartition, _T]) -> dict[str, dict[int, _T]]:
    found: dict[str, dict[int, _T]] = {}
    for each, value in sorted(values.items(), key=lambda item: item[0]):
        found.setdefault(each.topic, {})[each.partition] = value
    return found


def _array(elements: Iterable[bytes]) -> bytes:
    found = list(elements)
    return unsigned_varint(len(found) + 1) + b"".join(found)
