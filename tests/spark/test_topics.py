"""Topics that are not there, not there yet, or there again."""

from pathlib import Path

import pytest

from tests.asked_store import AskedStore
from tests.made_archive import CLUSTER, batches
from tests.spark.archives import Archive
from ts_common.archive.layout import Layout
from ts_common.archive.object_keys import LOG_START_NAME
from ts_common.errors import BucketMissing, DataLoss, QueryError
from ts_reader.query.plan_query import plan_query
from ts_spark.options.parse import parse_options

ID_ONE, ID_TWO = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"


@pytest.mark.parametrize("bits", [0, 3])
def test_r12_a_topic_without_data_is_an_empty_table(tmp_path: Path, bits: int) -> None:
    """Its list of incarnations proves that it exists, even if its name looks like another topic's partition."""
    archive = Archive(tmp_path, bits)
    archive.put_incarnations("events-1", ID_ONE)
    assert archive.offsets(subscribe="events-1") == []
    assert archive.offsets(assign='{"events-1":[0,1]}', startingOffsets='{"events-1":{"0":-2,"1":0}}') == []
    with pytest.raises(QueryError, match=r"topic events: cluster prod in file:///.* has no such topic"):
        archive.plan(subscribe="events")


LOST = "no object in the store contains them; tsctl repair can put them back"


def test_a_partition_that_began_and_shipped_nothing_is_empty(archive: Archive) -> None:
    """The agent writes `log.start` before anything else."""
    archive.store.put(archive.partition("t").prefix + LOG_START_NAME, b"00000000000000000042\n")
    assert archive.offsets(subscribe="t") == []
    assert archive.offsets(subscribe="t", startingTimestamp="5") == []


def test_r12b_a_topic_that_never_was_is_refused(archive: Archive) -> None:
    """With the nearest name that is there."""
    archive.put_segment("page_views", 0, batches((0, 5)))
    archive.commit("page_views", 5)
    with pytest.raises(QueryError, match=r"topic page_view: .* has no such topic; did you mean page_views\?"):
        archive.plan(subscribe="page_view")
    with pytest.raises(QueryError, match=r"topic x: .* has no such topic; it contains page_views"):
        archive.plan(assign='{"x":[0]}')
    with pytest.raises(QueryError, match="assign: the store has no partition 3, 9 of topic page_views, only 0"):
        archive.plan(assign='{"page_views":[9,0,3]}')


def test_a_pattern_finds_as_sparks_kafka_source_does(archive: Archive) -> None:
    """Anywhere in a name, so that an alternation is no smaller table; without a match there are no rows."""
    for name in ("clicks", "page_views"):
        archive.put_segment(name, 0, batches((0, 5)))
        archive.commit(name, 5)
    shown = {pattern: archive.offsets(subscribePattern=pattern) for pattern in ("page|clicks", "lick", "^page", "s$")}
    assert {pattern: len(rows) for pattern, rows in shown.items()} == {
        "page|clicks": 10,
        "lick": 5,
        "^page": 5,
        "s$": 10,
    }
    plan = archive.plan(subscribePattern="nothing")
    assert plan.splits == ()
    (told,) = plan.warnings
    assert told.startswith("subscribePattern=nothing: no topic of cluster prod in file://")


@pytest.mark.parametrize(("bits", "named"), [(3, "prefixEntropyBits=3"), (0, "no prefixEntropyBits")])
def test_r12b_the_width_that_holds_the_cluster_is_named(tmp_path: Path, bits: int, named: str) -> None:
    """Wrong entropy bits are the likeliest mistake."""
    archive = Archive(tmp_path, bits)
    archive.put_segment("t", 0, batches((0, 5)))
    archive.commit("t", 5)
    with pytest.raises(
        QueryError, match=f"has no objects of cluster prod with prefixEntropyBits=5; found with {named}: set"
    ):
        archive.plan(subscribe="t", prefixEntropyBits="5")
    with pytest.raises(QueryError, match=r"has no objects of cluster test; it has .*; check the location"):
        archive.plan(subscribe="t", cluster="test")


@pytest.mark.parametrize("bits", [0, 3])
def test_u41_a_width_that_the_archive_has_need_not_be_given(tmp_path: Path, bits: int) -> None:
    """The layout is read where no width is given; one that is given and wrong is answered with the right one."""
    archive = Archive(tmp_path, bits)
    archive.put_segment("t", 0, batches((0, 5)))
    archive.commit("t", 5)
    archive.store.put(archive.keys.layout, Layout(bits, CLUSTER, 1).encode())
    options = archive.options(subscribe="t")
    options.pop("prefixEntropyBits", None)
    plan = plan_query(archive.store, parse_options(options).query)
    assert [(part.start, part.end) for split in plan.splits for part in split.ranges] == [(0, 5)]
    with pytest.raises(
        QueryError, match=rf"prefixEntropyBits=5: .* with {bits} entropy bits.* set prefixEntropyBits={bits}$"
    ):
        archive.plan(subscribe="t", prefixEntropyBits="5")


def test_a_width_that_is_given_costs_no_request_for_the_layout(tmp_path: Path) -> None:
    """A query that names it makes the same requests as before; a query that does not makes one more."""
    archive = Archive(tmp_path, 3)
    archive.put_segment("t", 0, batches((0, 5)))
    archive.commit("t", 5)
    with AskedStore(archive.store) as store:
        plan_query(store, parse_options(archive.options(subscribe="t")).query)
        assert archive.keys.layout not in store.opened
        archive.store.put(archive.keys.layout, Layout(3, CLUSTER, 1).encode())
        options = archive.options(subscribe="t")
        del options["prefixEntropyBits"]
        plan_query(store, parse_options(options).query)
        assert store.opened.count(archive.keys.layout) == 1


def test_a_location_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Nothing here creates it."""
    archive = Archive(tmp_path / "store")
    archive.location = (tmp_path / "nowhere").as_uri()
    (tmp_path / "store").rmdir()
    with pytest.raises(BucketMissing, match="store"):
        archive.plan(subscribe="t")


def test_r12c_segments_without_a_commit_are_data_loss_once_they_are_old(archive: Archive) -> None:
    """The end of their run is unknown; before that, their first upload may be under way."""
    archive.put_segment("t", 0, batches((0, 5)))
    plan = archive.plan(subscribe="t")
    assert (plan.splits, plan.losses) == ((), ())
    assert [each.partition(": 1 segment")[0] for each in plan.warnings] == ["t-0: beginning"]
    archive.age(15 * 60 + 1)
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 and later are not shown: no-commit: .* docs/repair.md"):
        archive.plan(subscribe="t")
    archive.put_segment("t", 0, batches((0, 5)), partition=1)
    archive.commit("t", 5, partition=1)
    options = {"subscribe": "t", "failOnDataLoss": "false"}
    assert ([str(each.partition) for each in archive.plan(**options).losses], archive.offsets(**options)) == (
        ["t-0"],
        [0, 1, 2, 3, 4],
    )
    both = {"subscribe": "t", "startingOffsets": '{"t": {"0": 0, "1": 0}}', "endingOffsets": '{"t": {"0": 0, "1": 5}}'}
    assert archive.offsets(**both) == [0, 1, 2, 3, 4]  # it requests no record of partition 0


def test_r12c_a_commit_without_its_segments_is_data_loss(archive: Archive) -> None:
    """All of it, or as much as is missing."""
    archive.commit("t", 50, log_start=None, epochs=((3, 20),))
    options = {"subscribe": "t", "failOnDataLoss": "false"}
    (lost,) = archive.plan(**options).losses
    assert str(lost) == f"t-0: offsets 20 to 49 are lost: {LOST}"
    archive.put_segment("t", 20, batches((20, 40), epoch=3))
    plan = archive.plan(**options)
    assert plan.warnings == (f"t-0: {CLUSTER}/t-0/log.start is missing; the view begins at the first stored segment",)
    assert [*map(str, plan.losses)] == [f"t-0: offsets 40 to 49 are lost: {LOST}"]
    assert archive.offsets(**options) == list(range(20, 40))


def test_the_newest_incarnation_is_read(archive: Archive) -> None:
    """No row of an older incarnation is returned, and its additional partitions are not read."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 9)), partition=partition)
        archive.commit("t", 9, partition=partition)
    archive.put_incarnations("t", ID_ONE, ID_TWO)
    assert archive.offsets(subscribe="t") == []
    keys = archive.partition("t")
    for info in list(archive.store.list(keys.prefix)):
        data, held = archive.store.get(info.key)
        key = info.key.replace("/t-0/", f"/t~{ID_TWO}-0/")
        archive.store.put(
            key,
            data if "offset.wm" in key or "log.start" in key else batches((0, 9), value=b"new"),
            metadata=held.metadata,
        )
    rows = archive.rows(subscribe="t", endingOffsets='{"t":{"0":3}}')
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, 0), (0, 1), (0, 2)]
