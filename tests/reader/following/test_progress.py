"""The next offset of a stream from its position and a snapshot: what is new, what stays, what is lost."""

from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.read_log import ReadLog
from ts_common.model import TopicPartition
from ts_reader.following.commit_snapshot import CommitSnapshot, TopicSnapshot
from ts_reader.following.ends import PartitionEnd
from ts_reader.following.offset import StreamOffset
from ts_reader.following.progress import (
    advance,
    begins,
    lag,
    logs_of,
    losses_between,
    waiting,
    was_created_again,
)

KEYS = ClusterKeys("prod", 0)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
LINE = EpochHistory(((0, 0), (1, 60)))


def end(partition: TopicPartition, offset: int, shown: int | None = None, epochs: EpochHistory = LINE) -> PartitionEnd:
    return PartitionEnd(KEYS.partition(partition), offset, offset if shown is None else shown, ReadLog(epochs))


def snapshot(*ends: PartitionEnd, topic_id: str | None = "id", is_first: bool = True) -> CommitSnapshot:
    return CommitSnapshot(
        {"t": TopicSnapshot(topic_id, is_first, {each.keys.partition: each for each in ends}, Incarnations("t"))}
    )


def advanced(position: StreamOffset, look: CommitSnapshot) -> tuple[StreamOffset, list[str]]:
    return advance(position, look, lambda _: (20, 20))


def test_partitions_continue_and_new_ones_begin_at_their_first_offset() -> None:
    """The new one has its beginning in the offset, and both count as lag."""
    stands = StreamOffset({ZERO: 50}, {"t": "id"})
    furthest, losses = advanced(stands, snapshot(end(ZERO, 80), end(ONE, 30)))
    assert losses == []
    assert furthest == StreamOffset({ZERO: 80, ONE: 30}, {"t": "id"}, began={ONE: 20})
    assert begins(stands, furthest) == {ZERO: 50, ONE: 20}
    assert lag(stands, furthest) == 40


def test_a_lower_stable_offset_keeps_the_position() -> None:
    """With read_committed it may be lower than before; no row is read again."""
    furthest, losses = advanced(StreamOffset({ZERO: 50}, {"t": "id"}), snapshot(end(ZERO, 80, shown=40)))
    assert (furthest.positions, losses) == ({ZERO: 50}, [])


def test_what_is_missing_keeps_its_position() -> None:
    """A partition, a topic and a list of incarnations: each is one sentence."""
    stands = StreamOffset({ZERO: 50}, {"t": "id"})
    for look, told in (
        (snapshot(), "t-0: the stream is at offset 50, and its commit is missing"),
        (CommitSnapshot({}), "topic t is missing from the store, or the subscription no longer names it"),
        (snapshot(end(ZERO, 80), topic_id=None), "topic t: its list of incarnations is missing"),
    ):
        furthest, (loss,) = advanced(stands, look)
        assert furthest.positions == {ZERO: 50}
        assert loss.startswith(told)


def test_a_topic_that_was_created_again_starts_at_its_beginning() -> None:
    """Both offsets show it: another id, or a first id of a later incarnation."""
    for known in ({"t": "former"}, {}):
        stands = StreamOffset({ZERO: 50}, known)
        furthest, _ = advanced(stands, snapshot(end(ZERO, 80), is_first=False))
        assert furthest == StreamOffset({ZERO: 80}, {"t": "id"}, began={ZERO: 20})
        assert was_created_again(stands, furthest, "t")
        (loss,) = losses_between(stands, furthest)
        assert "was deleted and created again" in loss
    same, _ = advanced(StreamOffset({ZERO: 50}), snapshot(end(ZERO, 80)))
    assert not was_created_again(StreamOffset({ZERO: 50}), same, "t")


def test_a_position_above_the_archive_waits_and_a_warning_names_it() -> None:
    """A shorter log alone is no loss: a commit can be rebuilt."""
    stands = StreamOffset({ZERO: 100}, {"t": "id"}, {ZERO: ReadLog(LINE)})
    furthest, losses = advanced(stands, look := snapshot(end(ZERO, 80)))
    assert (furthest.positions, losses, losses_between(stands, furthest)) == ({ZERO: 100}, [], [])
    (waits,) = waiting(furthest, look)
    assert waits.startswith("t-0: the stream is at offset 100, above the end of the archive")
    assert waiting(furthest, snapshot(end(ZERO, 100))) == []


def test_an_election_that_removed_read_offsets_moves_the_position_back() -> None:
    """One step ends where the lines part, and the loss is one sentence."""
    stands = StreamOffset({ZERO: 100}, {"t": "id"}, {ZERO: ReadLog(EpochHistory(((0, 0),)))})
    furthest, losses = advanced(stands, snapshot(end(ZERO, 120)))
    assert (furthest.positions, losses) == ({ZERO: 60}, [])
    assert losses_between(stands, furthest) == [
        "t-0: offsets 60 to 99 are lost: an election removed them after they were read"
    ]


def test_logs_are_those_below_the_offsets() -> None:
    """Of an unchanged position the known one stays; an offset of 0 has nothing below it."""
    look, known = snapshot(end(ZERO, 80), end(ONE, 80)), ReadLog(EpochHistory(((9, 0),)))
    stands = StreamOffset({ZERO: 60, ONE: 70}, logs={ONE: known})
    assert logs_of(stands, StreamOffset({ZERO: 60, ONE: 70}), look) == {ZERO: ReadLog(LINE.below(60)), ONE: known}
    assert logs_of(stands, StreamOffset({ZERO: 61, ONE: 0}), look) == {ZERO: ReadLog(LINE)}
