"""Batches of a stream: where they begin and end, and that every row arrives once, also after a restart."""

import pytest

from tests.made_archive import CLUSTER, batches
from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, Query
from ts_common.errors import DataLoss, QueryError, StoreUnavailable
from ts_common.store.contract import ObjectInfo


def test_batches_follow_the_commit(two: Archive) -> None:
    """Segments that are not committed are not returned; without news the end is the same text."""
    query = Query(two, **EARLIEST)
    assert [offset for *_, offset in query.trigger()] == list(range(100))
    assert query.trigger() == []
    two.commit("t", 200, highest_base=100)
    assert [offset for *_, offset in query.trigger()] == list(range(100, 200))
    two.put_segment("t", 200, batches((200, 230)))
    two.commit("t", 230, highest_base=200)
    query.trigger()
    assert query.offsets_of() == list(range(230))
    assert query.positions() == {"t": {"0": 230}, "~epochs": {"t": {"0": [[0, 0]]}}}


def test_a_stream_begins_at_latest_by_default(two: Archive) -> None:
    """As Spark's Kafka source; later records are read."""
    query = Query(two, subscribe="t")
    assert query.trigger() == []
    two.commit("t", 150, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(100, 150))


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"startingOffsets": '{"t":{"0":42}}'}, 42),
        ({"startingOffsets": '{"t":{"0":-1}}'}, 100),
        ({"startingOffsets": '{"t":{"0":-2}}'}, 0),
        ({"startingTimestamp": "1033"}, 33),
        ({"startingOffsetsByTimestamp": '{"t":{"0":1077}}'}, 77),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, 100),
    ],
)
def test_a_stream_begins_at_the_position_that_the_options_select(
    two: Archive, start: dict[str, str], first: int
) -> None:
    """In the words of a batch query, and -1."""
    query = Query(two, subscribe="t", **start)
    query.trigger()
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(first, 200))


def test_a_start_outside_the_view_is_data_loss(two: Archive) -> None:
    """As in a batch query."""
    two.commit("t", 100, log_start=50)
    with pytest.raises(DataLoss, match="t-0: offsets 10 to 49 are lost: below the log's start 50"):
        Query(two, subscribe="t", startingOffsets='{"t":{"0":10}}').trigger()
    with pytest.raises(QueryError, match="startingOffsets: nothing for t-0"):
        Query(two, subscribe="t", startingOffsets='{"t":{"1":10}}').trigger()


@pytest.mark.parametrize("start", ["earliest", "latest", '{"t":{"0":30}}'])
@pytest.mark.parametrize("first", [True, False])
def test_a_batch_that_is_run_again_has_the_same_rows(two: Archive, start: str, first: bool) -> None:
    """A driver that was killed before a batch is committed repeats it, although the commit has moved.

    So does the first batch, although Spark stores only its end.
    """
    options = {"subscribe": "t", "startingOffsets": start}
    query = Query(two, **options)
    if not first:
        query.trigger()
        two.commit("t", 130, highest_base=100)
    query.trigger(dies=True)
    before = dict(query.sink)
    two.commit("t", 200, highest_base=100)
    query.start(**options)
    assert query.sink == before
    query.trigger()
    begin = {"earliest": 0, "latest": 100}.get(start, 30)
    assert query.offsets_of() == list(range(begin, 200))


def test_killed_20_times_every_row_arrives_once(two: Archive) -> None:
    """Before and after the sink has a batch, while the commit moves on."""
    query = Query(two, **EARLIEST, maxOffsetsPerTrigger="7")
    for number in range(20):
        two.commit("t", 100 + 5 * number, highest_base=100)
        query.trigger(dies=number % 3 != 0)
        query.start(**EARLIEST, maxOffsetsPerTrigger="7")
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(195))
    assert len(query.sink) == 21


def test_new_partitions_and_topics_begin_at_their_first_offset(two: Archive) -> None:
    """Also if the stream started at latest, or if the pattern matches only later; the others continue."""
    query = Query(two, subscribePattern="t|late", startingOffsets="latest")
    query.trigger()
    two.put_segment("t", 40, batches((40, 50)), partition=1)
    two.commit("t", 50, partition=1, log_start=40, highest_base=40)
    two.put_segment("late", 0, batches((0, 5)))
    two.commit("late", 5)
    two.commit("t", 120, highest_base=100)
    query.trigger(dies=True)
    query.start(subscribePattern="t|late")
    assert query.trigger() == []
    assert query.offsets_of("t", 1) == list(range(40, 50))
    assert query.offsets_of("late") == list(range(5))
    assert query.offsets_of() == list(range(100, 120))
    assert query.positions()["~began"] == {"late": {"0": 0}, "t": {"1": 40}}


def test_a_pattern_may_match_nothing_yet_and_a_name_may_not(two: Archive) -> None:
    """Topics that do not exist yet need a pattern; a wrong name is an error as in a batch query."""
    query = Query(two, subscribePattern="u.*")
    assert query.trigger() == []
    two.put_segment("u1", 0, batches((0, 5)))
    two.commit("u1", 5)
    query.trigger()
    assert query.offsets_of("u1") == list(range(5))
    with pytest.raises(QueryError, match=r"topic x: .* has no such topic; it contains t, u1"):
        Query(two, subscribe="x").trigger()
    with pytest.raises(QueryError, match="assign: the store has no partition 3 of topic t, only 0"):
        Query(two, assign='{"t":[0,3]}').trigger()


def test_only_assigned_partitions_are_followed(two: Archive) -> None:
    """A partition that appears later is not read."""
    query = Query(two, assign='{"t":[0]}', startingOffsets="earliest")
    two.put_segment("t", 0, batches((0, 5)), partition=1)
    two.commit("t", 5, partition=1)
    query.trigger()
    assert {partition for _, partition, _ in query.rows()} == {0}


def test_an_idle_stream_looks_once_a_second(two: Archive) -> None:
    """Without a trigger interval Spark polls at once, and each poll makes some requests."""
    query = Query(two, **EARLIEST)
    query.trigger()
    query.trigger()
    assert query.pauses == []
    query.now += 0.25
    query.trigger()
    assert query.pauses == [0.75]
    query.now += 5
    query.trigger()
    assert query.pauses == [0.75]


def test_segments_are_described_once(two: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `.log` never changes: later batches request the metadata of new ones only."""
    asked: list[str] = []

    def noted(key: str) -> ObjectInfo:
        asked.append(key)
        return head(key)

    query = Query(two, **EARLIEST)
    query.trigger()
    store = query._driver._store
    head = store.head
    monkeypatch.setattr(store, "head", noted)
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert asked == [f"{CLUSTER}/t-0/00000000000000000100.log"]


def test_r02_a_stream_of_committed_records_ends_at_the_last_stable_offset(two: Archive) -> None:
    """The stream continues when it moves; a lower one than before removes no row."""
    options = {**EARLIEST, "kafka.isolation.level": "read_committed"}
    two.commit("t", 100, last_stable_offset=70)
    query = Query(two, **options)
    query.trigger()
    two.commit("t", 150, highest_base=100, last_stable_offset=60)
    assert query.trigger() == []
    two.commit("t", 150, highest_base=100, last_stable_offset=120)
    query.trigger()
    assert query.offsets_of() == list(range(120))


def test_a_java_uploaders_commit_moves_a_stream(two: Archive) -> None:
    """It names a segment and no end."""
    two.store.put(two.partition("t").commit, b"%020d" % 0)
    query = Query(two, **EARLIEST)
    query.trigger()
    assert query.trigger() == []
    two.store.put(two.partition("t").commit, b"%020d" % 100)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_r09_a_query_that_the_store_failed_continues_after_a_restart(
    two: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised, and the checkpoint stays valid."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.commit("t", 200, highest_base=100)

    def fails(key: str) -> None:
        raise StoreUnavailable(f"{key}: 503")

    monkeypatch.setattr(query._driver._store, "open", fails)
    with pytest.raises(StoreUnavailable, match="503"):
        query.trigger()
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_an_offset_without_ids_and_epochs_is_one(two: Archive) -> None:
    """A checkpoint may hold positions only, as that of Spark's Kafka source."""
    query = Query(two, **EARLIEST)
    query.offsets, query.committed = ['{"t": {"0": 70}}'], 1
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(70, 100))


@pytest.mark.parametrize("text", ['{"version": 1}', '{"t": [1]}', '{"a b": {"0": 1}}'])
def test_another_sources_checkpoint_is_refused(two: Archive, text: str) -> None:
    """With the way out."""
    query = Query(two, **EARLIEST)
    query.offsets = [text]
    with pytest.raises(QueryError, match=r"the checkpoint holds no offset of kafka_segments .*; start with another"):
        query.start(**EARLIEST)
