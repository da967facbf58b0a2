"""Requests for groups and their offsets, which the broker that coordinates a group answers.

The messages are those of the files in Kafka's source, as `OffsetFetchRequest.json`; `?` is a value that may be null::

    ListGroups 2       -> throttle, error, groups [group, type]
    OffsetFetch 5      group, topics? (null: all)
                       -> throttle, topics [name, partitions [number, offset, epoch, metadata?, error]], error
"""

from typing import Final

from ts_common.archive.snapshots import GroupOffset
from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, string
from ts_common.broker_connection.failures import GROUP_DENIED, TOPIC_DENIED, UNKNOWN_TOPIC, request_failed
from ts_common.model import TopicPartition

_ALL: Final = b"\xff\xff\xff\xff"  # a null list
_GROUP_ID_NOT_FOUND: Final = 69


def list_groups(connection: BrokerConnection) -> list[str]:
    """Return the groups that this broker coordinates, and this identity may describe, by name.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: the broker has no list at this moment.
    """
    answer = connection.request(Api.LIST_GROUPS, 2, b"")
    answer.int32()
    if error := answer.int16():
        raise request_failed(connection, "ListGroups", error)
    return sorted(name or "" for name, _ in answer.array(lambda: (answer.string(), answer.string())))


def fetch_offsets(connection: BrokerConnection, group: str) -> dict[TopicPartition, GroupOffset] | None:
    """Return the committed offsets of a group that this broker coordinates; None if they are denied.

    A group that was removed since has no offsets.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: another broker coordinates the group now, or another error.
    """
    code, offsets = _offset_fetch(connection, group)
    if code == GROUP_DENIED:
        return None
    if code not in {0, _GROUP_ID_NOT_FOUND}:
        raise request_failed(connection, f"OffsetFetch of group {group}", code)
    return offsets


def may_fetch_offsets(connection: BrokerConnection, group: str) -> bool:
    """Return whether this identity may read the offsets of a group, which need not exist, nor be of this broker.

    A broker checks rights before it looks for the group.
    """
    return _offset_fetch(connection, group)[0] != GROUP_DENIED


def _offset_fetch(connection: BrokerConnection, group: str) -> tuple[int, dict[TopicPartition, GroupOffset]]:
    answer = connection.request(Api.OFFSET_FETCH, 5, string(group) + _ALL)
    answer.int32()
    found: dict[TopicPartition, GroupOffset] = {}
    failed: list[tuple[TopicPartition, int]] = []
    for topic, partitions in answer.array(lambda: (answer.string() or "", answer.array(lambda: _committed(answer)))):
        for number, committed, error in partitions:
            if error not in {0, UNKNOWN_TOPIC, TOPIC_DENIED}:
                failed.append((TopicPartition(topic, number), error))
            if not error and committed.offset >= 0:
                found[TopicPartition(topic, number)] = committed
    code = answer.int16()
    if failed and not code:
        raise request_failed(connection, f"OffsetFetch of group {group}, {failed[0][0]},", failed[0][1])
    return code, found


def _committed(answer: Reader) -> tuple[int, GroupOffset, int]:
    number, offset, epoch, metadata = answer.int32(), answer.int64(), answer.int32(), answer.string()
    return number, GroupOffset(offset, epoch, metadata or ""), answer.int16()
