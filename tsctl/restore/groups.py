"""Committed offsets of consumer groups, from the archived `__consumer_offsets` and from a snapshot of metadata.

Format of the records: Kafka's `OffsetCommitKey` and `OffsetCommitValue`. Keys of version 2 and above are of groups'
state. Each value begins with the offset; versions 0 to 4 differ in what follows.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.snapshots import GroupsSnapshot
from ts_common.errors import CorruptData
from ts_common.log_format.varints import read_unsigned_varint
from ts_common.model import TopicPartition
from tsctl.restore.documents import GroupsPlan, PartitionPlan

OFFSETS_TOPIC: Final = "__consumer_offsets"
_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_VALUE: Final = struct.Struct(">hq")  # version, offset
_NEWEST_KEY: Final = 1
_NEWEST_VALUE: Final = 4  # its texts are compact
_WITH_EPOCH: Final = 3
_EPOCH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset of a group in a partition.

    Attributes:
        time: ms since the epoch: when the coordinator or the agent of the snapshot had it.
        place: partition and offset of its record in `__consumer_offsets`; None if a snapshot has it.
        metadata: the text that the application committed with it.
        producer: id and epoch of the producer that committed the newest archived record of it; the id is `NO_PRODUCER`
            outside of transactions. None if no record is archived.
    """

    offset: int
    time: int
    place: tuple[int, int] | None = None
    producer: tuple[int, int] | None = None
    metadata: str = ""


Commits = Mapping[tuple[str, TopicPartition], Commit]


def decode_commit(key: bytes | None, value: bytes | None) -> tuple[str, TopicPartition, int, str] | None:
    """Return group, partition, offset and metadata of a record of `__consumer_offsets`; None for another kind.

    Raises:
        CorruptData: it is damaged, or of a later version of Kafka.
    """
    try:
        if key is None or value is None or _VERSION.unpack_from(key)[0] > _NEWEST_KEY:
            return None
        group, position = _string(key, _VERSION.size)
        topic, position = _string(key, position)
        (number,) = _PARTITION.unpack_from(key, position)
        version, offset = _VALUE.unpack_from(value)
        if not 0 <= version <= _NEWEST_VALUE:
            raise CorruptData(f"{OFFSETS_TOPIC}: a value of version {version}; 0 to {_NEWEST_VALUE} are expected")
        position = _VALUE.size + (_EPOCH_BYTES if version >= _WITH_EPOCH else 0)
        metadata, _ = _compact_string(value, position) if version == _NEWEST_VALUE else _string(value, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CorruptData(f"{OFFSETS_TOPIC}: a record that is no committed offset: {error}") from error
    return group, TopicPartition(topic, number), offset, metadata


def archived_commits(records: Iterable[tuple[bytes | None, bytes | None, int, int, int]]) -> Commits:
    """Return the offsets that archived records have.

    Args:
        records: key, value, timestamp in ms, partition and offset of the newest records of `__consumer_offsets`.

    Raises:
        CorruptData: as `decode_commit`.
    """
    found = {}
    for key, value, time, partition, offset in records:
        commit = decode_commit(key, value)
        if commit is not None:
            found[commit[0], commit[1]] = Commit(commit[2], time, (partition, offset), metadata=commit[3])
    return found


def newest_commits(archived: Commits, snapshot: GroupsSnapshot | None) -> Commits:
    """Return the later one of record and snapshot, of each group and partition."""
    found = dict(archived)
    if snapshot is None:
        return found
    for group, offsets in snapshot.groups.items():
        for partition, committed in offsets.items():
            former = found.get((group, partition))
            if former is None or former.time <= snapshot.time:
                producer = None if former is None else former.producer
                found[group, partition] = Commit(committed.offset, snapshot.time, None, producer, committed.metadata)
    return found


def plan_groups(
    archived: Commits, snapshot: GroupsSnapshot | None, partitions: Mapping[TopicPartition, PartitionPlan]
) -> GroupsPlan:
    """Return the newest offset of each group and partition that the plan restores.

    Args:
        archived: of `archived_commits`.
        snapshot: the newest one; None without one.
        partitions: of the plan. An offset is lowered to the end of its partition, and raised to its start.
    """
    sources = [OFFSETS_TOPIC] if archived else []
    times = [commit.time for commit in archived.values()]
    if snapshot is not None:
        sources.append("a snapshot of metadata")
        times.append(snapshot.time)
    planned: dict[str, dict[TopicPartition, int]] = {}
    texts: dict[str, dict[TopicPartition, str]] = {}
    for (group, partition), commit in newest_commits(archived, snapshot).items():
        if (plan := partitions.get(partition)) is not None:
            planned.setdefault(group, {})[partition] = max(plan.start, min(commit.offset, plan.end))
            if commit.metadata:
                texts.setdefault(group, {})[partition] = commit.metadata
    return GroupsPlan(" and ".join(sources) or "none", max(times, default=None), planned, metadata=texts)


def _string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _VERSION.unpack_from(data, position)
    return _text(data, position + _VERSION.size, length)


def _compact_string(data: bytes, position: int) -> tuple[str, int]:
    """Read a text that follows its length plus one, as a varint (KIP-482)."""
    length, start = read_unsigned_varint(data, position)
    return _text(data, start, length - 1)


def _text(data: bytes, start: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(data) - start:
        raise struct.error(f"a text of {length} bytes")
    return data[start : start + length].decode(), start + length
