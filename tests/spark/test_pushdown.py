"""Filters that Spark hands over leave out what no row can match, and nothing else."""

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.made_archive import batches, steps
from tests.made_views import view_of
from tests.spark.archives import Archive
from tests.spark.pushed import at, offsets, planned
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.errors import DataLoss
from ts_common.model import TopicPartition
from ts_reader.find.building import build, lacking
from ts_reader.query.filters import EVERYTHING
from ts_spark.options.filters import OPTION, filters_are_handed_over, query_filters
from ts_spark.options.schema import full_schema
from ts_spark.source import KafkaSegmentsSource

BEYOND = 1 << 63


def rows(archive: Archive, *filters: Filter, **options: str) -> list[dict[str, Any]]:
    return archive.rows(*filters, **{"subscribe": "t", **options})


@pytest.fixture
def three(archive: Archive) -> Archive:
    """Topic `t`: segments [0, 100), [100, 200), [200, 300); the record at offset `o` has the timestamp 1000 + o."""
    for base in (0, 100, 200):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 300, highest_base=200)
    return archive


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("offset",), 7)], ((7, 8),)),
        ([EqualNullSafe(("offset",), 7)], ((7, 8),)),
        ([GreaterThan(("offset",), 7)], ((8, BEYOND),)),
        ([GreaterThanOrEqual(("offset",), 7)], ((7, BEYOND),)),
        ([LessThan(("offset",), 7)], ((-BEYOND, 7),)),
        ([LessThanOrEqual(("offset",), 7)], ((-BEYOND, 8),)),
        ([In(("offset",), (9, 3, None, 4, 3))], ((3, 5), (9, 10))),
        ([In(("offset",), (None,))], ()),
        ([GreaterThan(("offset",), 3), LessThan(("offset",), 9), IsNotNull(("offset",))], ((4, 9),)),
        ([In(("offset",), (1, 5, 9)), GreaterThan(("offset",), 1)], ((5, 6), (9, 10))),
        ([EqualTo(("offset",), 7), EqualTo(("offset",), 8)], ()),
        ([EqualTo(("offset",), None)], ((-BEYOND, BEYOND),)),
        ([EqualTo(("offset",), "7")], ((-BEYOND, BEYOND),)),
        ([In(("offset",), (7, "8"))], ((-BEYOND, BEYOND),)),
        ([Not(EqualTo(("offset",), 7))], ((-BEYOND, BEYOND),)),
        ([EqualTo(("value", "offset"), 7)], ((-BEYOND, BEYOND),)),
    ],
)
def test_comparisons_of_offsets_become_ranges(filters: list[Filter], expected: object) -> None:
    """Joined by AND; what is not understood restricts nothing."""
    assert query_filters(filters).offsets == expected


@pytest.mark.parametrize(
    ("comparison", "milliseconds", "expected"),
    [
        (GreaterThan, 5, (6, BEYOND)),
        (GreaterThan, 5.001, (6, BEYOND)),
        (GreaterThan, 4.999, (5, BEYOND)),
        (GreaterThanOrEqual, 5, (5, BEYOND)),
        (GreaterThanOrEqual, 5.001, (6, BEYOND)),
        (LessThan, 5, (-BEYOND, 5)),
        (LessThan, 5.001, (-BEYOND, 6)),
        (LessThanOrEqual, 5, (-BEYOND, 6)),
        (LessThanOrEqual, 5.999, (-BEYOND, 6)),
        (EqualTo, 5, (5, 6)),
        (GreaterThanOrEqual, -0.5, (0, BEYOND)),
        (LessThanOrEqual, -0.5, (-BEYOND, 0)),
    ],
)
def test_timestamps_are_compared_in_microseconds(
    comparison: Callable[..., Filter], milliseconds: float, expected: tuple[int, int]
) -> None:
    """A record has whole milliseconds, a literal has not; both count from 1970 in UTC, whatever its time zone."""
    literal = at(milliseconds)
    assert query_filters([comparison(("timestamp",), literal)]).milliseconds == (expected,)
    elsewhere = literal.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert query_filters([comparison(("timestamp",), elsewhere)]).milliseconds == (expected,)


def test_a_timestamp_between_two_milliseconds_equals_none() -> None:
    """No record has it; one without a time zone is not understood."""
    assert query_filters([EqualTo(("timestamp",), at(5.001))]).milliseconds == ()
    assert query_filters([EqualTo(("timestamp",), datetime(2025, 1, 1))]) == EVERYTHING
    assert query_filters([In(("timestamp",), (at(3), at(5.5), at(4)))]).milliseconds == ((3, 5),)


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (EqualTo(("topic",), "b"), ["b"]),
        (EqualNullSafe(("topic",), "b"), ["b"]),
        (In(("topic",), ("a", "c", None)), ["a", "c"]),
        (GreaterThan(("topic",), "b"), ["c"]),
        (GreaterThanOrEqual(("topic",), "b"), ["b", "c"]),
        (LessThan(("topic",), "b"), ["a"]),
        (LessThanOrEqual(("topic",), "b"), ["a", "b"]),
        (StringStartsWith(("topic",), "b"), ["a", "b", "c"]),
        (EqualTo(("topic",), 5), ["a", "b", "c"]),
    ],
)
def test_topics_that_cannot_match_are_left_out(archive: Archive, each: Filter, expected: list[str]) -> None:
    """Whole, and still counted among what there is."""
    for topic in "abc":
        archive.put_segment(topic, 0, batches((0, 10)))
        archive.commit(topic, 10)
    plan = planned(archive, each, subscribe="a,b,c")
    assert [split.ranges[0].copies[0].keys.partition.topic for split in plan.splits] == expected
    assert (plan.segments, plan.all_segments) == (len(expected), 3)
    assert plan.bytes * 3 == plan.all_bytes * len(expected)


def test_partitions_that_cannot_match_are_left_out(archive: Archive) -> None:
    """What they lack is no loss to this query."""
    for partition in range(4):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
        archive.commit("t", 20 if partition == 3 else 10, partition=partition)
    found = rows(archive, In(("partition",), (0, 2)))
    assert [(row["partition"], row["offset"]) for row in found] == [(p, o) for p in (0, 2) for o in range(10)]
    with pytest.raises(DataLoss, match="t-3: offsets 10 to 19 are lost"):
        rows(archive, GreaterThan(("partition",), 1))


def test_offsets_narrow_what_is_read(three: Archive) -> None:
    """Down to the wanted offsets, in each partition."""
    assert offsets(three, In(("offset",), (5, 150, 151, 999))) == [5, 150, 151]
    plan = planned(three, GreaterThanOrEqual(("offset",), 150), LessThan(("offset",), 160))
    assert (plan.segments, plan.all_segments) == (1, 3)
    assert plan.bytes < plan.all_bytes / 20
    assert offsets(three, GreaterThan(("offset",), 300)) == []


def test_keys_narrow_what_is_read(three: Archive) -> None:
    """Certificates of an index leave out segments that cannot have a key; Spark's In and EqualTo return equal rows."""
    found = [row["key"] for row in rows(three, EqualTo(("offset",), 150))]
    same = [row["offset"] for row in rows(three) if row["key"] == found[0]]
    assert build(three.store, three.keys.find("t"), lacking(view_of(three), []), most_share=100).objects == 3
    assert offsets(three, EqualTo(("key",), bytearray(found[0]))) == same
    assert offsets(three, In(("key",), (found[0], None, b"nobody"))) == same
    assert offsets(three, In(("key",), (found[0], b"nobody")), In(("key",), (b"nobody",))) == []
    assert offsets(three, EqualTo(("key",), "text"), LessThan(("offset",), 3)) == [0, 1, 2]
    plan = planned(three, EqualTo(("key",), found[0]))
    assert (plan.segments, plan.all_segments) == (len({offset // 100 for offset in same}), 3)


def test_offsets_near_each_other_are_read_together(three: Archive) -> None:
    """A request costs more than what is between them; Spark drops the others."""
    wanted = tuple(range(0, 200, 2))
    assert offsets(three, In(("offset",), wanted)) == [*range(99), *range(100, 199)]


def test_filters_stay_inside_the_range_that_options_select(three: Archive) -> None:
    """Both hold."""
    options = {"startingOffsets": '{"t":{"0":50}}', "endingTimestamp": "1060"}
    assert offsets(three, GreaterThan(("offset",), 55), **options) == [56, 57, 58, 59]
    assert offsets(three, LessThan(("offset",), 52), **options) == [50, 51]


def test_r03_a_hole_counts_only_where_filters_select_it(three: Archive) -> None:
    """A hole outside of the wanted offsets is ignored; a wanted timestamp may be in any hole."""
    three.store.delete([three.partition("t").segment(SegmentName(100))])
    assert offsets(three, LessThan(("offset",), 100)) == list(range(100))
    assert offsets(three, GreaterThanOrEqual(("offset",), 200)) == list(range(200, 300))
    with pytest.raises(
        DataLoss, match=r"t-0: offsets 150 to 159 are lost: no object .* them; tsctl repair can put them back\. To read"
    ):
        planned(three, GreaterThanOrEqual(("offset",), 150), LessThan(("offset",), 160))
    with pytest.raises(DataLoss, match="t-0: offsets 100 to 199 are lost"):
        planned(three, GreaterThanOrEqual(("timestamp",), at(1250)))


def test_r03_offsets_below_the_log_start_count_only_where_filters_select_them(three: Archive) -> None:
    """As holes do."""
    three.commit("t", 300, highest_base=200, log_start=50)
    options = {"startingOffsets": '{"t":{"0":0}}'}
    assert offsets(three, GreaterThan(("offset",), 80), **options) == list(range(81, 300))
    with pytest.raises(DataLoss, match="t-0: offsets 40 to 49 are lost: below the log's start 50"):
        planned(three, GreaterThanOrEqual(("offset",), 40), **options)


def test_segments_whose_records_are_all_earlier_are_left_out(three: Archive) -> None:
    """By the greatest timestamp in their metadata."""
    plan = planned(three, GreaterThanOrEqual(("timestamp",), at(1200)))
    assert (plan.segments, plan.all_segments) == (1, 3)
    assert planned(three, GreaterThanOrEqual(("timestamp",), at(1199))).segments == 2
    assert planned(three, GreaterThan(("timestamp",), at(1199))).segments == 1
    assert planned(three, GreaterThan(("timestamp",), at(5000))).splits == ()


def test_segments_whose_records_are_all_later_are_left_out_where_that_is_proved(archive: Archive) -> None:
    """Only batches of one record, or of the broker's time, prove their least timestamp."""
    for base in (0, 100):
        archive.put_segment("one", base, batches(*steps(base, base + 100, step=1)))
        archive.put_segment("many", base, batches(*steps(base, base + 100)))
    for topic in ("one", "many"):
        archive.commit(topic, 200, highest_base=100)
    before = LessThan(("timestamp",), at(1100))
    assert planned(archive, before, subscribe="one").segments == 1
    assert planned(archive, before, subscribe="many").segments == 2
    assert planned(archive, LessThanOrEqual(("timestamp",), at(1100)), subscribe="one").segments == 2
    assert planned(archive, EqualTo(("timestamp",), at(1099)), subscribe="one").segments == 1


def test_a_batch_whose_first_record_is_its_latest_is_found(archive: Archive) -> None:
    """A base timestamp is no minimum: a later record of the batch can be earlier."""
    back = [record(0, b"k", b"v", timestamp_delta=0), record(1, b"k", b"v", timestamp_delta=-4000)]
    archive.put_segment("t", 0, batch(0, back, base_timestamp=5000, max_timestamp=5000))
    archive.commit("t", 2)
    assert offsets(archive, LessThan(("timestamp",), at(2000))) == [0, 1]


def test_a_segment_that_was_damaged_when_it_was_shipped_is_not_left_out(archive: Archive) -> None:
    """The timestamps of its damaged batches are unknown; the query reads it, as without a filter."""
    good = batches((0, 10), (10, 20))
    damaged = bytearray(good)
    damaged[len(good) // 2 + 70] ^= 1
    archive.put_segment("t", 0, bytes(damaged), end=20)
    archive.commit("t", 20)
    key = archive.partition("t").segment(SegmentName(0))
    fields = dict(archive.store.head(key).metadata)
    archive.store.put(key, bytes(damaged), metadata={**fields, "ts-corrupt": "1"})
    metadata = decode_metadata(archive.store.head(key).metadata, key)
    assert metadata is not None
    assert metadata.corruptions == 1
    assert planned(archive, GreaterThan(("timestamp",), at(9999))).segments == 1


def test_records_without_a_timestamp_are_found_and_left_out(archive: Archive) -> None:
    """Their timestamp is -1 ms, and a segment of such records has no greatest timestamp."""
    bare = batch(0, [record(0, b"k", b"v", timestamp_delta=0)], base_timestamp=-1, max_timestamp=-1)
    archive.put_segment("t", 0, bare)
    archive.commit("t", 1)
    assert offsets(archive, LessThan(("timestamp",), at(0))) == [0]
    assert offsets(archive, EqualTo(("timestamp",), at(-1))) == [0]
    assert planned(archive, GreaterThanOrEqual(("timestamp",), at(0))).splits == ()


def test_r05_of_several_copies_those_that_may_match_are_read(archive: Archive) -> None:
    """The other copies have no record that can match."""
    early = batches((0, 10), (20, 30))
    late = batch(10, [record(0, b"k", b"late", timestamp_delta=0)], base_timestamp=9000, max_timestamp=9000)
    archive.put_segment("t", 0, early, end=40)
    archive.put_segment("t", 0, late, end=40, variant=True)
    archive.commit("t", 40)
    assert offsets(archive) == [*range(11), *range(20, 30)]
    assert offsets(archive, GreaterThan(("timestamp",), at(8000))) == [10]
    assert planned(archive, LessThan(("timestamp",), at(1500))).segments == 1


COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


EVERY_EDGE = {"partition": range(-1, 3), "offset": range(-1, 14), "timestamp": [n / 2 for n in range(92)]}
# Below, at and above a batch, a segment and all records.
FEW_EDGES = {"partition": [0, 1], "offset": [-1, 2, 4, 11, 12], "timestamp": [0.5, 1, 2, 7.5, 20, 40, 41]}


@pytest.mark.parametrize(
    "edges_of", [FEW_EDGES, pytest.param(EVERY_EDGE, marks=pytest.mark.full)], ids=["few", "every"]
)
def test_whatever_the_filter_no_row_that_matches_is_lost(
    archive: Archive, edges_of: Mapping[str, Iterable[float]]
) -> None:
    """Timestamps that go back and forth over segments, two partitions, every comparison at every edge."""
    times = {0: [5, 5, 9, 2, 7, 7, 1, 12, 3, 3, 20, 4], 1: [8, 1, 1, 30, 2, 2, 2, 2, 40, 3, 5, 5]}
    for partition, of_partition in times.items():
        for base in range(0, 12, 4):
            log = b"".join(
                batch(
                    base + n,
                    [record(delta, b"k", b"v", timestamp_delta=t - pair[0]) for delta, t in enumerate(pair)],
                    base_timestamp=pair[0],
                    max_timestamp=max(pair),
                )
                for n, pair in ((n, of_partition[base + n : base + n + 2]) for n in (0, 2))
            )
            archive.put_segment("t", base, log, partition=partition)
        archive.commit("t", 12, partition=partition, highest_base=8)
    everything = [(p, offset, t) for p, of_partition in times.items() for offset, t in enumerate(of_partition)]
    checked = tried = 0
    for kind, (index, column) in itertools.product(COMPARISONS, enumerate(edges_of)):
        for edge in edges_of[column]:
            literal = at(edge) if column == "timestamp" else edge
            found = {(row["partition"], row["offset"]) for row in rows(archive, kind((column,), literal))}
            matching = {(row[0], row[1]) for row in everything if COMPARISONS[kind](row[index], edge)}
            assert matching <= found, (kind, column, edge)
            tried += 1
            checked += len(matching) > 0
    assert checked > tried / 2


def test_partitions_are_selected_by_filters_without_a_store() -> None:
    """Pure: names and numbers."""
    wanted = query_filters([EqualTo(("topic",), "t"), In(("partition",), (1, 3))])
    assert [number for number in range(5) if wanted.has(TopicPartition("t", number))] == [1, 3]
    assert not wanted.has(TopicPartition("u", 1))
    assert wanted.is_narrow
    assert not query_filters([StringStartsWith(("topic",), "t")]).is_narrow


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like one that receives filters from PySpark's daemon."""
    monkeypatch.setattr(sys, "argv", ["daemon.py", "pyspark.sql.worker.data_source_pushdown_filters"])


def reader_of(archive: Archive, **options: str) -> DataSourceReader:
    source = KafkaSegmentsSource(archive.options(**{"subscribe": "t", **options}))
    return source.reader(full_schema(include_headers=False))


def takes_filters(reader: DataSourceReader) -> bool:
    """Return whether a reader accepts filters, by Spark's check; if its setting is off, Spark rejects it."""
    return getattr(reader.pushFilters, "__func__", None) is not DataSourceReader.pushFilters


@pytest.mark.usefixtures("handed_over")
def test_a_reader_accepts_filters_where_they_are_handed_over_and_the_option_allows_it(three: Archive) -> None:
    """And hands all of them back: Spark applies them again."""
    assert not takes_filters(reader_of(three))
    reader = reader_of(three, **{OPTION: "true"})
    assert takes_filters(reader)
    filters: list[Filter] = [EqualTo(("offset",), 7), StringStartsWith(("topic",), "t")]
    assert list(reader.pushFilters(filters)) == filters
    assert len(reader.partitions()) == 1


@pytest.mark.parametrize("module", [None, "pyspark.sql.worker.plan_data_source_read"])
def test_elsewhere_a_reader_accepts_no_filters(
    three: Archive, monkeypatch: pytest.MonkeyPatch, module: str | None
) -> None:
    """Where Spark plans it may have its setting off."""
    monkeypatch.setattr(sys, "argv", ["daemon.py", *([] if module is None else [module])])
    assert not filters_are_handed_over()
    assert not takes_filters(reader_of(three, **{OPTION: "true"}))


@pytest.mark.usefixtures("handed_over")
def test_the_log_reports_how_much_of_the_total_is_read(three: Archive) -> None:
    """In one line a query."""
    reader = reader_of(three, **{OPTION: "true"})
    reader.pushFilters([LessThan(("offset",), 100)])
    with capture_logs() as logs:
        reader.partitions()
    (planned_one,) = logs
    assert planned_one["event"] == "query_planned"
    assert (planned_one["segments"], planned_one["of_segments"]) == (1, 3)
    assert 0 < planned_one["bytes"] * 2 < planned_one["of_bytes"]
    with capture_logs() as logs:
        reader_of(three).partitions()
    assert [(entry["segments"], entry["of_segments"]) for entry in logs] == [(3, 3)]
