"""The planner without Spark: a `Query` in, splits and messages in the words of its caller out."""

import gc
import pickle
import re
from pathlib import Path

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.errors import CorruptData, DataLoss, QueryError
from ts_reader.query.filters import QueryFilters
from ts_reader.query.plan_query import QueryPlan, collecting_less, plan_query
from ts_reader.query.query import CorruptionMode, Edge, Offsets, Query, Subscription, Timestamp, Tolerance, View
from ts_reader.query.read_split import read_split
from ts_reader.query.splits import Split


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Partitions 0 and 1 of topic `t`, 20 records each in two segments; record `o` has timestamp 1000 + `o`."""
    made = MadeArchive(tmp_path)
    for partition in (0, 1):
        made.put_segment("t", 0, batches((0, 5), (5, 10)), partition=partition)
        made.put_segment("t", 10, batches((10, 20)), partition=partition)
        made.commit("t", 20, partition=partition, highest_base=10)
    return made


def query(archive: MadeArchive, *topics: str, pattern: str | None = None) -> Query:
    subscription = Subscription(topics, None if pattern is None else re.compile(pattern))
    return Query(archive.location, CLUSTER, None, subscription)


def read(archive: MadeArchive, plan: QueryPlan, *names: str) -> list[tuple[object, ...]]:
    return [
        tuple(row.values())
        for split in plan.splits
        for rows in read_split(archive.store, split, names)
        for row in rows.to_pylist()
    ]


def changed(asked: Query, **fields: object) -> Query:
    return Query(**{**{name: getattr(asked, name) for name in Query.__slots__}, **fields})


def test_a_query_without_spark_returns_every_record_once(archive: MadeArchive) -> None:
    """The defaults read all of a topic, in the order of partitions and offsets."""
    plan = plan_query(archive.store, query(archive, "t"))
    assert read(archive, plan, "partition", "offset") == [(p, o) for p in (0, 1) for o in range(20)]
    assert (plan.segments, plan.all_segments, plan.warnings) == (4, 4, ())


def test_a_split_survives_pickling(archive: MadeArchive) -> None:
    """Engines send splits to other processes."""
    (first, _) = plan_query(archive.store, query(archive, "t")).splits
    copy = pickle.loads(pickle.dumps(first))  # made here
    assert isinstance(copy, Split)
    assert copy == first


def test_bounds_by_time_and_by_offset_are_planned_for_each_partition(archive: MadeArchive) -> None:
    """A timestamp starts at the first record that has it or a later one; offsets end before their number."""
    ends = Offsets({"t": {0: 15, 1: Edge.LATEST}})
    plan = plan_query(archive.store, changed(query(archive, "t"), start=Timestamp(1012), end=ends))
    assert read(archive, plan, "partition", "offset") == [
        *((0, offset) for offset in range(12, 15)),
        *((1, offset) for offset in range(12, 20)),
    ]


def test_selected_ranges_leave_out_what_filters_exclude(archive: MadeArchive) -> None:
    """Offsets and partitions that no filter wants are not planned."""
    wanted = QueryFilters(partitions=((1, 2),), offsets=((3, 4), (18, 30)))
    plan = plan_query(archive.store, query(archive, "t"), wanted)
    assert read(archive, plan, "partition", "offset") == [(1, 3), (1, 18), (1, 19)]


def test_the_newest_record_of_each_key_is_returned(archive: MadeArchive) -> None:
    """The view `latest` makes one split of a partition, and returns one row for each key."""
    archive.put_segment("t", 20, batches((20, 21)), partition=0)
    archive.commit("t", 21, partition=0, highest_base=20)
    plan = plan_query(archive.store, changed(query(archive, "t"), view=View.LATEST))
    assert len(plan.splits) == 2
    assert [offset for _, offset in read(archive, plan, "partition", "offset")] == [*range(21), *range(20)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subscription": Subscription(("u",))}, "topic u: cluster prod in .* has no such topic; it contains t$"),
        ({"subscription": Subscription(assigned={"t": (0, 7)})}, "partitions: the store has no partition 7 of topic"),
        ({"start": Offsets({"t": {0: 3}})}, r'starting_offsets: nothing for t-1 \("earliest" is earliest\)'),
        ({"end": Offsets({"t": {0: 3, 1: 4, 2: 5}})}, "ending_offsets: t-2, which this query does not read"),
        ({"start": Timestamp(9999)}, 'with starting_without_match="latest" such a partition returns no rows'),
        ({"entropy_bits": 5}, "prefix_entropy_bits=5"),
    ],
)
def test_messages_name_the_arguments_of_the_caller(
    archive: MadeArchive, fields: dict[str, object], message: str
) -> None:
    """A reader in Python gets messages with Python's arguments, not Spark's options."""
    with pytest.raises(QueryError, match=message):
        plan_query(archive.store, changed(query(archive, "t"), **fields))


def test_a_pattern_without_a_match_is_a_warning(archive: MadeArchive) -> None:
    """Topics that match may appear later."""
    plan = plan_query(archive.store, query(archive, pattern="z+"))
    assert plan.warnings == (f"topic=z+: no topic of cluster prod in {archive.location} matches",)
    assert plan.splits == ()


def test_lost_offsets_are_an_error_that_names_the_way_out(archive: MadeArchive) -> None:
    """A query fails on data loss unless it allows loss; then it returns the rest and the losses."""
    asked = changed(query(archive, "t"), end=Offsets({"t": {0: 25, 1: 20}}))
    with pytest.raises(DataLoss, match=r"t-0: offsets 20 to 24 are not in the store.*pass fail_on_data_loss=False"):
        plan_query(archive.store, asked)
    plan = plan_query(archive.store, changed(asked, fail_on_data_loss=False))
    assert len(read(archive, plan, "offset")) == 40
    assert [(str(loss.partition), loss.start, loss.end) for loss in plan.losses] == [("t-0", 20, 25)]


def test_a_corrupt_batch_is_an_error_or_a_row_of_its_own(tmp_path: Path) -> None:
    """FAILFAST names the way out; PERMISSIVE returns the raw bytes in a column between the intact rows."""
    archive = MadeArchive(tmp_path)
    log = bytearray(batches((0, 5), (5, 10), (10, 15)))
    middle, last = len(batches((0, 5))), len(batches((0, 5), (5, 10)))
    log[middle + 70] ^= 1
    archive.put_segment("t", 0, batches((0, 5), (5, 10), (10, 15)), body=bytes(log))
    archive.commit("t", 15)
    asked = query(archive, "t")
    with pytest.raises(CorruptData, match='To read what is intact, pass mode="DROPMALFORMED"'):
        read(archive, plan_query(archive.store, asked), "offset")
    dropped = changed(asked, tolerance=Tolerance(CorruptionMode.DROPMALFORMED))
    intact = [*range(5), *range(10, 15)]
    assert [offset for (offset,) in read(archive, plan_query(archive.store, dropped), "offset")] == intact
    permissive = changed(asked, tolerance=Tolerance(CorruptionMode.PERMISSIVE, "raw"))
    rows = read(archive, plan_query(archive.store, permissive), "offset", "raw")
    assert [offset for offset, raw in rows if raw is None] == intact
    assert [(offset, raw) for offset, raw in rows if raw is not None] == [(5, bytes(log[middle:last]))]


def test_the_settings_of_the_process_are_restored() -> None:
    """After the last plan, also after an error; inside, existing objects are frozen and collections are rare."""
    before = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(KeyError), collecting_less():
        assert gc.get_freeze_count() > 0
        with collecting_less():  # another thread's plan, for example, which ends earlier or later
            pass
        assert gc.get_threshold()[0] > before[0][0]
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_what_the_caller_froze_stays_frozen() -> None:
    """A host application may freeze its own objects before it forks."""
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with collecting_less():
            assert abs(gc.get_freeze_count() - count) < 10  # the plan replaces a few of its own
        assert abs(gc.get_freeze_count() - count) < 10
    finally:
        gc.unfreeze()
