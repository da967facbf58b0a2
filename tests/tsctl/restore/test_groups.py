"""Committed offsets of a plan: archived records, a snapshot, and the bounds of the restored partitions."""

import struct
from base64 import urlsafe_b64encode

import pytest

from tests.tsctl.restore.test_loss import part
from ts_common.archive.incarnations import Incarnation, Incarnations
from ts_common.archive.restored import Restored, RestoredTopic
from ts_common.archive.snapshots import GroupOffset, GroupsSnapshot
from ts_common.errors import CorruptData
from ts_common.log_format.varints import unsigned_varint
from ts_common.model import TopicPartition
from tsctl.restore.groups import Commit, Lifetime, archived_commits, decode_commit, plan_groups

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def key(group: str, topic: str, partition: int, version: int = 1) -> bytes:
    texts = b"".join(struct.pack(">h", len(text)) + text.encode() for text in (group, topic))
    return struct.pack(">h", version) + texts + struct.pack(">i", partition)


def value(offset: int, version: int = 3, metadata: bytes = b"", topic_id: bytes = bytes(16)) -> bytes:
    """Return a value as each version of Kafka writes it."""
    text = struct.pack(">h", len(metadata)) + metadata
    compact = unsigned_varint(len(metadata) + 1) + metadata
    ends = {
        0: text + struct.pack(">q", 9),
        1: text + struct.pack(">qq", 9, 9),
        2: text + struct.pack(">q", 9),
        3: struct.pack(">i", 7) + text + struct.pack(">q", 9),
        4: struct.pack(">i", 7) + compact + struct.pack(">q", 9) + b"\x01\x00\x10" + topic_id,
    }
    return struct.pack(">hq", version, offset) + ends[version]


@pytest.mark.parametrize("version", range(5))
def test_each_version_of_a_committed_offset_is_read(version: int) -> None:
    """Kafka 4.1 writes version 4; Kafka Streams has its own text in each commit, which can be longer than 127 bytes."""
    for text in ("", "AgAAAZ", "z" * 300):
        found = decode_commit(key("g", "t", 1), value(4711, version, text.encode()), 5, (3, 2))
        assert found == (("g", T1), Commit(4711, 5, (3, 2), metadata=text))


def test_state_of_groups_and_tombstones_are_no_offsets() -> None:
    """Keys of version 2 and above are of groups' members."""
    assert decode_commit(struct.pack(">h", 2) + b"anything", b"x", 1, (0, 0)) is None
    assert decode_commit(key("g", "t", 0), None, 1, (0, 0)) is None


@pytest.mark.parametrize(
    "damaged",
    [value(5, 3)[:6], value(5, 4)[:14], value(5, 4, b"cut")[:17], value(5, 3, b"cut")[:17], struct.pack(">hq", 9, 5)],
)
def test_a_damaged_offset_is_an_error(damaged: bytes) -> None:
    """It is truncated, or of a later version."""
    with pytest.raises(CorruptData, match="__consumer_offsets"):
        decode_commit(key("g", "t", 0), damaged, 1, (0, 0))


def test_the_later_of_record_and_snapshot_counts_within_the_partition() -> None:
    """Offsets are lowered to the end and raised to the start; partitions that are not restored are left out."""
    archived = [
        (key("old", "t", 0), value(40), 100, 0, 0),
        (key("new", "t", 0), value(60, 4, b"of new"), 300, 0, 1),
        (key("low", "t", 0), value(1), 300, 0, 2),
        (key("high", "t", 0), value(900), 300, 0, 3),
        (key("old", "gone", 0), value(5), 300, 0, 4),
    ]
    snapshot = GroupsSnapshot(200, {name: {T0: GroupOffset(50, 7, f"of {name}")} for name in ("old", "new", "listed")})
    found = plan_groups(archived_commits(archived), snapshot, {T0: part(10, 100)}, {})
    expected = {"old": 50, "new": 60, "low": 10, "high": 100, "listed": 50}
    assert ({group: offsets[T0] for group, offsets in found.offsets.items()}, found.time) == (expected, 300)
    assert found.metadata == {name: {T0: f"of {name}"} for name in ("old", "new", "listed")}


def test_an_offset_of_an_earlier_topic_of_the_name_does_not_count() -> None:
    """Lowered to the end of the new topic, it would hide all of its records from the group.

    Kafka 4.1 stores the topic id; before, the time of the commit decides. A restored topic continues the offsets.
    """
    ids = [bytes([n]) * 16 for n in (1, 2)]
    names = [urlsafe_b64encode(each).rstrip(b"=").decode() for each in ids]
    known = Incarnations("t", (Incarnation(names[0], 90, "t", 80), Incarnation(names[1], 900, "t~2", 800)))
    archived = archived_commits(
        [
            (key("of the first", "t", 0), value(70, 4, topic_id=ids[0]), 850, 0, 0),
            (key("of the second", "t", 0), value(20, 4, topic_id=ids[1]), 750, 0, 1),
            (key("before", "t", 0), value(60), 700, 0, 2),
            (key("after", "t", 0), value(30), 1000, 0, 3),
        ]
    )
    snapshot = GroupsSnapshot(1100, {"live": {T0: GroupOffset(40, 7, "")}})

    def planned(lifetime: Lifetime) -> dict[str, int]:
        groups = plan_groups(archived, snapshot, {T0: part(10, 50)}, {"t": lifetime})
        return {group: offsets[T0] for group, offsets in groups.offsets.items()}

    first, second = {"of the first": 50, "before": 50}, {"of the second": 20, "after": 30, "live": 40}
    assert planned(Lifetime.of(known, "t")) == first
    assert planned(Lifetime.of(known, "t~2")) == second
    topic = RestoredTopic(None, "prod", 0, "t", {})
    assert planned(Lifetime.of(known, "t~2", Restored(1, "", {"t~2": topic}))) == {**first, **second}
