"""A stream's decisions on a made archive: where it begins, where a step ends, and what a step reads."""

import pytest

from tests.asked_store import AskedStore
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.read_log import ReadLog
from ts_common.errors import DataLoss, QueryError
from ts_common.model import TopicPartition
from ts_reader.following.follower import Follower, StepPlan, limited
from ts_reader.following.offset import StreamOffset
from ts_reader.query.query import Bound, Edge, Offsets, Query, Subscription, Timestamp

ZERO = TopicPartition("t", 0)
FIRST = ReadLog(EpochHistory(((0, 0),)))


@pytest.fixture
def two(archive: MadeArchive) -> MadeArchive:
    """Return topic `t`: segments [0, 100) and [100, 200), the first one committed; offset `o` has the time 1000 + o."""
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 100)
    return archive


def follower(archive: MadeArchive, start: Bound = Edge.EARLIEST, *, fails: bool = True) -> tuple[Follower, list[str]]:
    """Return a follower of topic `t`, and its warnings; it learns the entropy bits from the store."""
    warnings: list[str] = []
    query = Query(archive.location, CLUSTER, None, Subscription(("t",)), start, fail_on_data_loss=fails)
    return Follower(archive.store, query, warnings.append), warnings


def step(following: Follower, stands: StreamOffset, most: int | None = None) -> StreamOffset:
    look = following.look()
    return following.end_of_step(stands, following.furthest(stands, look), look, most)


def offsets(planned: StepPlan) -> list[tuple[int, int]]:
    return [(part.start, part.end) for split in planned.splits for part in split.ranges]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Edge.EARLIEST, 0),
        (Edge.LATEST, 100),
        (Offsets({"t": {0: 42}}), 42),
        (Offsets({"t": {0: Edge.LATEST}}), 100),
        (Timestamp(1033), 33),
    ],
)
def test_a_stream_begins_where_its_query_starts(two: MadeArchive, start: Bound, first: int) -> None:
    """By offset, by edge and by timestamp."""
    logs = {ZERO: FIRST} if first else {}  # with the records that the stream does not read
    assert follower(two, start)[0].beginning() == StreamOffset({ZERO: first}, logs=logs)


def test_a_beginning_outside_the_view_is_data_loss(two: MadeArchive) -> None:
    """Or a warning; bounds by partition name each partition."""
    two.commit("t", 100, log_start=50)
    start = Offsets({"t": {0: 10}})
    with pytest.raises(DataLoss, match="t-0: offsets 10 to 49 are lost: below the log's start 50"):
        follower(two, start)[0].beginning()
    following, warnings = follower(two, start, fails=False)
    assert following.beginning() == StreamOffset({ZERO: 50}, logs={ZERO: FIRST})
    assert warnings == ["t-0: offsets 10 to 49 are lost: below the log's start 50"]
    with pytest.raises(QueryError, match="starting_offsets: nothing for t-0"):
        follower(two, Offsets({"t": {1: 10}}))[0].beginning()


def test_steps_of_bounded_size_reach_the_commit(two: MadeArchive) -> None:
    """Each has the log below its end; the last one ends at the commit."""
    following, _ = follower(two)
    stands, plans = following.beginning(), []
    while not (end := step(following, stands, most=40)).equals_in_position(stands):
        plans.append(following.plan(stands, end))
        assert end.logs == {ZERO: FIRST}
        stands = end
    assert [offsets(planned) for planned in plans] == [[(0, 40)], [(40, 80)], [(80, 100)]]
    assert [(planned.partitions, planned.offsets) for planned in plans] == [(1, 40), (1, 40), (1, 20)]
    assert all(planned.bytes > 0 for planned in plans)
    two.commit("t", 200, highest_base=100)
    assert offsets(following.plan(stands, step(following, stands))) == [(100, 200)]


def test_a_plan_depends_on_its_two_offsets_alone(two: MadeArchive) -> None:
    """Another process plans the same ranges, although the commit has moved."""
    following, _ = follower(two)
    begin = following.beginning()
    end = step(following, begin)
    planned = following.plan(begin, end)
    two.commit("t", 200, highest_base=100)
    assert follower(two)[0].plan(begin, end).splits == planned.splits


def test_losses_are_an_error_or_one_warning(two: MadeArchive) -> None:
    """The same warning is given once, however often it is found."""
    stands = StreamOffset({ZERO: 100}, logs={ZERO: FIRST})
    two.put_segment("t", 60, batches((60, 90), epoch=1))
    two.commit("t", 90, epochs=((0, 0), (1, 60)), highest_base=60)
    told = "t-0: offsets 60 to 99 are lost: an election removed them after they were read"
    with pytest.raises(DataLoss, match=told):
        step(follower(two)[0], stands)
    following, warnings = follower(two, fails=False)
    assert [step(following, stands).positions for _ in range(2)] == [{ZERO: 60}] * 2
    assert warnings == [told]


def test_a_partition_whose_commit_is_missing_or_damaged_is_a_loss(two: MadeArchive) -> None:
    """At the start and at each step, also next to a partition with news; a young one begins without a warning."""
    two.put_segment("t", 0, batches((0, 10)), partition=1)
    begun = follower(two)[0].beginning()
    assert begun.positions == {ZERO: 0}
    two.age(16 * 60)
    lost = "t-1: offsets 0 and later are not shown: no-commit"
    for decide in (lambda one: one.beginning(), lambda one: step(one, begun)):
        with pytest.raises(DataLoss, match=lost):
            decide(follower(two)[0])
    following, warnings = follower(two, fails=False)
    assert [step(following, begun).positions for _ in range(2)] == [{ZERO: 100}] * 2
    assert [each.partition(": 1 segment")[0] for each in warnings] == [lost]
    two.store.put(two.partition("t", 1).commit, b"what")
    with pytest.raises(DataLoss, match="t-1: offsets 0 and later are not shown: commit-damaged"):
        step(follower(two)[0], begun)


def damage_log_start(archive: MadeArchive) -> None:
    archive.store.put(archive.partition("t").log_start, b"what is this")


@pytest.mark.parametrize("start", [Edge.EARLIEST, Edge.LATEST, Offsets({"t": {0: 42}})])
def test_r12d_a_damaged_log_start_is_a_loss_at_the_start(two: MadeArchive, start: Bound) -> None:
    """The commit is good, and readers return no record; a tolerant stream reads from the start when it is mended."""
    damage_log_start(two)
    with pytest.raises(DataLoss, match="t-0: offsets 0 and later are not shown: commit-damaged"):
        follower(two, start)[0].beginning()
    following, warnings = follower(two, start, fails=False)
    begun = following.beginning()
    assert step(following, begun).positions == begun.positions == {}
    assert len(warnings) == 1
    two.commit("t", 100)
    assert offsets(following.plan(begun, step(following, begun))) == [(0, 100)]


@pytest.mark.parametrize("is_new", [False, True], ids=["same commit", "new commit"])
def test_a_log_start_that_is_damaged_later_keeps_the_position(two: MadeArchive, is_new: bool) -> None:
    """Also between two steps up to one commit; what it hid is read when it is mended."""
    following, warnings = follower(two, fails=False)
    first = step(following, following.beginning(), most=40)
    if is_new:
        two.commit("t", 200, highest_base=100)
    damage_log_start(two)
    with pytest.raises(DataLoss, match="not shown: commit-damaged"):
        step(follower(two)[0], first)
    assert step(following, first).positions == {ZERO: 40}
    assert ["commit-damaged" in each and "the stream is at offset 40" in each for each in warnings] == [True]
    two.commit("t", 200, highest_base=100)
    assert offsets(following.plan(first, step(following, first))) == [(40, 100), (100, 200)]


def test_an_idle_stream_costs_one_request_a_partition(two: MadeArchive) -> None:
    """Its commit; the state of `log.start` matters where the stream moves."""
    two.store = asked = AskedStore(two.store)
    following, _ = follower(two)
    stands = step(following, following.beginning())
    asked.opened.clear()
    assert step(following, stands).equals_in_position(stands)
    assert [key for key in asked.opened if key.startswith(two.partition("t").prefix)] == [two.partition("t").commit]


def test_limits_are_those_of_sparks_kafka_source() -> None:
    """Shares are rounded down, small ones up to one offset; what fell stays as it is."""
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert limited(10, {a: 0, b: 100, c: 50}, {a: 900, b: 200, c: 40}) == {a: 9, b: 101, c: 40}
    assert limited(10, {a: 0, b: 5}, {a: 4, b: 6}) == {a: 4, b: 6}
    assert limited(3, {a: 0, b: 0, c: 0}, {a: 9, b: 9, c: 9}) == {a: 1, b: 1, c: 1}
