"""Committed offsets of consumer groups, from the archived `__consumer_offsets` and from a snapshot of metadata.

Format of the records: Kafka's `OffsetCommitKey` and `OffsetCommitValue`. Keys of version 2 and above are of groups'
state. Each value begins with the offset; versions 0 to 4 differ in what follows.
"""

import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.incarnations import Incarnations
from ts_common.archive.restored import Restored
from ts_common.archive.snapshots import GroupsSnapshot
from ts_common.errors import CorruptData
from ts_common.log_format.varints import read_unsigned_varint
from ts_common.model import TopicPartition
from tsctl.restore.documents import GroupsPlan
from tsctl.restore.partition_plan import PartitionPlan

OFFSETS_TOPIC: Final = "__consumer_offsets"
_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_VALUE: Final = struct.Struct(">hq")  # version, offset
_NEWEST_KEY: Final = 1
_NEWEST_VALUE: Final = 4  # its texts are compact
_WITH_EPOCH: Final = 3
_EPOCH_BYTES: Final = 4
_TIME_BYTES: Final = 8
_TOPIC_ID: Final = 0  # tag
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset of a group in a partition.

    Attributes:
        time: ms since the epoch: when the coordinator or the agent of the snapshot had it.
        place: partition and offset of its record in `__consumer_offsets`; None if a snapshot has it.
        metadata: the text that the application committed with it.
        topic_id: of the topic, from Kafka 4.1 on; None if unknown.
        producer: id and epoch of the producer that committed the newest archived record of it; the id is `NO_PRODUCER`
            outside of transactions. None if no record is archived.
    """

    offset: int
    time: int
    place: tuple[int, int] | None = None
    producer: tuple[int, int] | None = None
    metadata: str = ""
    topic_id: str | None = None


Commits = Mapping[tuple[str, TopicPartition], Commit]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a topic existed. Others of its name had other records at the same offsets.

    Attributes:
        ids: its topic ids; empty if unknown.
        since: ms since the epoch: when it was created after another; None if it was the first, or unknown.
        until: when the next one was created; None without one, or if unknown.
    """

    ids: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, known: Incarnations, directory: str, restored: Restored | None = None) -> "Lifetime":
        """Return that of one incarnation; it begins with the oldest one of this archive that it was restored from."""
        lived = _restored_from(directory, known, restored)
        places = [n for n, each in enumerate(known.entries) if each.directory in lived]
        if not places:
            return cls()
        first, last = places[0], places[-1]
        later = (each.made for each in known.entries[last + 1 :])
        ids = frozenset(known.entries[n].topic_id for n in places)
        return cls(ids, known.entries[first].made if first else None, next(later, None))

    def has(self, commit: Commit) -> bool:
        """Return whether a committed offset is of this topic."""
        if commit.topic_id is not None and self.ids:
            return commit.topic_id in self.ids
        return (self.since or 0) <= commit.time and (self.until is None or commit.time < self.until)


def _restored_from(directory: str, known: Incarnations, restored: Restored | None) -> set[str]:
    """Return a directory and its former places among the same incarnations: they have the same offsets."""
    held, found = {each.directory for each in known.entries}, {directory}
    while restored is not None and (topic := restored.topics.get(directory)) is not None:
        directory = topic.directory
        if topic.url is not None or directory not in held - found:
            break
        found.add(directory)
    return found


Lifetimes = Mapping[str, Lifetime]  # by topic; one that is missing was the only one of its name


def decode_commit(
    key: bytes | None, value: bytes | None, time: int, place: tuple[int, int]
) -> tuple[tuple[str, TopicPartition], Commit] | None:
    """Return group and partition, and the offset that a record of `__consumer_offsets` has; None for another kind.

    Args:
        time: its timestamp.
        place: its partition and offset.

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
        is_newest = version == _NEWEST_VALUE
        metadata, position = _compact_string(value, position) if is_newest else _string(value, position)
        topic_id = _topic_id(value, position + _TIME_BYTES) if is_newest else None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CorruptData(f"{OFFSETS_TOPIC}: a record that is no committed offset: {error}") from error
    return (group, TopicPartition(topic, number)), Commit(offset, time, place, metadata=metadata, topic_id=topic_id)


def archived_commits(records: Iterable[tuple[bytes | None, bytes | None, int, int, int]]) -> Commits:
    """Return the offsets that archived records have.

    Args:
        records: key, value, timestamp in ms, partition and offset of the newest records of `__consumer_offsets`.

    Raises:
        CorruptData: as `decode_commit`.
    """
    found: dict[tuple[str, TopicPartition], Commit] = {}
    for key, value, time, partition, offset in records:
        if (commit := decode_commit(key, value, time, (partition, offset))) is not None:
            found |= [commit]
    return found


def newest_commits(archived: Commits, snapshot: GroupsSnapshot | None, lifetimes: Lifetimes) -> Commits:
    """Return the later one of record and snapshot, of each group and partition; both of the topic that is restored."""
    found = {name: commit for name, commit in archived.items() if _lifetime(lifetimes, name[1]).has(commit)}
    if snapshot is None:
        return found
    for group, offsets in snapshot.groups.items():
        for partition, committed in offsets.items():
            former = found.get((group, partition))
            producer = None if former is None else former.producer
            commit = Commit(committed.offset, snapshot.time, None, producer, committed.metadata)
            if (former is None or former.time <= snapshot.time) and _lifetime(lifetimes, partition).has(commit):
                found[group, partition] = commit
    return found


def _lifetime(lifetimes: Lifetimes, partition: TopicPartition) -> Lifetime:
    return lifetimes.get(partition.topic) or Lifetime()


def plan_groups(
    archived: Commits,
    snapshot: GroupsSnapshot | None,
    partitions: Mapping[TopicPartition, PartitionPlan],
    lifetimes: Lifetimes,
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
    for (group, partition), commit in newest_commits(archived, snapshot, lifetimes).items():
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


def _topic_id(data: bytes, position: int) -> str | None:
    """Return the topic id of tagged fields, as Kafka prints it; None without one."""
    count, position = read_unsigned_varint(data, position)
    for _ in range(min(count, len(data))):
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        if tag == _TOPIC_ID and size == _ID_BYTES and any(field := data[position : position + size]):
            return urlsafe_b64encode(field).rstrip(b"=").decode()
        position += size
    return None


def _text(data: bytes, start: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(data) - start:
        raise struct.error(f"a text of {length} bytes")
    return data[start : start + length].decode(), start + length
