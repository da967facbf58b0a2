"""Where a query begins and ends: offsets, timestamps, and what is lost between them."""

import json

import pytest

from tests.common.log_format.build import batch
from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from ts_common.errors import CorruptData, DataLoss, QueryError

FIRST_TIME = 1000  # of the record at offset 0; each later one is a millisecond later


@pytest.fixture
def three(archive: Archive) -> Archive:
    """Return topic `t` with the segments [0, 100), [100, 200) and [200, 300), committed up to 260."""
    for base in (0, 100, 200):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 260, highest_base=100)
    return archive


def json_of(*offsets: int) -> str:
    return json.dumps({"t": dict(enumerate(offsets))})


def test_everything_below_the_next_offset_is_read_by_default(three: Archive) -> None:
    """Also where that lies inside a segment."""
    assert three.offsets(subscribe="t") == list(range(260))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (-2, -1, range(260)),
        (0, 5, range(5)),
        (55, 205, range(55, 205)),
        (100, 200, range(100, 200)),
        (259, 260, range(259, 260)),
        (70, 70, range(0)),
        (260, -1, range(0)),
    ],
)
def test_offsets_bound_a_query(three: Archive, start: int, end: int, expected: range) -> None:
    """The start belongs to it, the end does not."""
    options = {"startingOffsets": json_of(start), "endingOffsets": json_of(end)}
    assert three.offsets(subscribe="t", **options) == list(expected)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": json_of(90), "endingOffsets": json_of(80)},
        {"startingOffsets": json_of(300), "endingOffsets": json_of(280)},
        {"startingTimestamp": str(FIRST_TIME + 90), "endingTimestamp": str(FIRST_TIME + 80)},
        {"startingTimestamp": str(FIRST_TIME + 90), "endingOffsets": json_of(80)},
        {"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest", "endingOffsets": json_of(80)},
    ],
)
@pytest.mark.parametrize("allowed", ["true", "false"])
def test_a_start_beyond_the_end_is_refused(three: Archive, options: dict[str, str], allowed: str) -> None:
    """A typing mistake, not an empty range, as for Spark's Kafka source; whatever is allowed to be lost."""
    with pytest.raises(QueryError, match=r"t-0: the query starts at offset \d+, which is greater than the offset \d+ "):
        three.plan(subscribe="t", failOnDataLoss=allowed, **options)


def test_only_what_a_range_needs_is_planned(three: Archive) -> None:
    """Segments that answer for none of it are not read."""
    plan = three.plan(subscribe="t", startingOffsets=json_of(120), endingOffsets=json_of(130))
    assert (plan.segments, plan.all_segments) == (1, 3)
    assert plan.bytes < plan.all_bytes / 10


def test_json_offsets_name_each_partition_and_no_other(three: Archive) -> None:
    """As Spark's Kafka source requires, so that a forgotten partition is no silent default."""
    wrong = '{"t":{"1":0},"u":{"0":1}}'
    with pytest.raises(QueryError, match=r"startingOffsets: nothing for t-0 .*; t-1, u-0, which this"):
        three.plan(subscribe="t", startingOffsets=wrong)


UNSHIPPED = "are not in the store: the next offset is 260 (not shipped yet, or an election lost them)"


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (300, -1, f"t-0: offsets 260 to 299 {UNSHIPPED}"),
        (250, 280, f"t-0: offsets 260 to 279 {UNSHIPPED}"),
        (10, 60, "t-0: offsets 10 to 49 are lost: below the log's start 50"),
        (10, 20, "t-0: offsets 10 to 19 are lost: below the log's start 50"),
    ],
)
def test_offsets_outside_the_view_are_data_loss(three: Archive, start: int, end: int, told: str) -> None:
    """Retention deleted them, or they were never shipped: an error, or a warning and the rest."""
    three.commit("t", 260, log_start=50, highest_base=100)
    options = {"startingOffsets": json_of(start), "endingOffsets": json_of(end), "subscribe": "t"}
    with pytest.raises(DataLoss) as caught:
        three.plan(**options)
    assert str(caught.value) == f'{told}. To read what is there, set option("failOnDataLoss", "false")'
    assert [*map(str, three.plan(**options, failOnDataLoss="false").losses)] == [told]
    view = range(50, 260)
    expected = [offset for offset in view if start <= offset < (end if end >= 0 else 260)]
    assert three.offsets(**options, failOnDataLoss="false") == expected


def test_offsets_behind_the_last_stable_one_are_called_so(three: Archive) -> None:
    """They may be in the store; `read_committed` shows nothing that is undecided."""
    three.commit("t", 260, highest_base=100, last_stable_offset=200)
    options = {"subscribe": "t", "startingOffsets": json_of(0), "kafka.isolation.level": "read_committed"}
    with pytest.raises(
        DataLoss, match=r"offsets 200 to 249 are not shown: the last stable offset is 200 \(not decided"
    ):
        three.plan(**options, endingOffsets=json_of(250))


@pytest.mark.parametrize("start", [0, 1000, 1001, 1015, 1099, 1100, 1150, 1259])
@pytest.mark.parametrize("end", [1000, 1100, 1155, 1260, 9999])
def test_timestamps_bound_a_query(three: Archive, start: int, end: int) -> None:
    """From the first record at or after the one to the first at or after the other."""
    options = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
    expected = [offset for offset in range(260) if start <= offset + FIRST_TIME < end]
    if max(start, FIRST_TIME) <= min(end, FIRST_TIME + 260):
        assert three.offsets(subscribe="t", **options) == expected
    else:
        with pytest.raises(QueryError, match="is greater than the offset"):
            three.offsets(subscribe="t", **options)


def test_timestamps_that_go_back_are_found_by_offset(archive: Archive) -> None:
    """The first record in the order of offsets counts, as in Kafka; what follows it is read, whatever its time."""
    archive.put_segment("t", 0, batches((0, 10), time=5000))
    archive.put_segment("t", 10, batches((10, 20), time=1000) + batches((20, 30), time=7000))
    archive.commit("t", 30)
    assert archive.offsets(subscribe="t", startingTimestamp="5005") == list(range(5, 30))
    assert archive.offsets(subscribe="t", startingTimestamp="6000") == list(range(20, 30))
    assert archive.offsets(subscribe="t", endingTimestamp="5003") == [0, 1, 2]


def test_a_partition_without_a_record_so_late(three: Archive) -> None:
    """An error by default, or no rows; records that are not committed do not count."""
    with pytest.raises(QueryError, match=r"starting at timestamp 1260 \(.*\): t-0 has no record at or after it"):
        three.plan(subscribe="t", startingTimestamp="1260")
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert three.offsets(subscribe="t", startingTimestamp="1260", **latest) == []


def test_timestamps_win_over_offsets(three: Archive) -> None:
    """As in Spark's Kafka source."""
    options = {"startingOffsets": json_of(3), "startingTimestamp": "1255"}
    assert three.offsets(subscribe="t", **options) == list(range(255, 260))


def test_a_hole_before_the_first_record_so_late_is_met(three: Archive) -> None:
    """The first record with the timestamp may be lost, so a query does not silently begin after the hole."""
    three.store.delete([three.partition("t").prefix + "00000000000000000100.log"])
    with pytest.raises(DataLoss, match="t-0: offsets 100 to 199 are lost: no object in the store contains them"):
        three.plan(subscribe="t", startingTimestamp="1150")
    options = {"startingTimestamp": "1150", "failOnDataLoss": "false"}
    assert three.offsets(subscribe="t", **options) == list(range(200, 260))
    assert three.offsets(subscribe="t", startingTimestamp="1205") == list(range(205, 260))


def test_r03_a_missing_segment_is_named_with_its_range(three: Archive) -> None:
    """An error that names topic, partition and offsets; or a warning, and on. A gap record gives a reason."""
    keys = three.partition("t")
    three.store.delete([keys.prefix + "00000000000000000100.log"])
    told = "t-0: offsets 100 to 199 are lost: no object in the store contains them; tsctl repair can put them back"
    with pytest.raises(DataLoss, match=told):
        three.plan(subscribe="t")
    assert [*map(str, three.plan(subscribe="t", failOnDataLoss="false").losses)] == [told]
    assert three.offsets(subscribe="t", failOnDataLoss="false") == [*range(100), *range(200, 260)]
    assert three.offsets(subscribe="t", endingOffsets=json_of(100)) == list(range(100))
    three.store.put(keys.prefix + "gaps/100-200.json", b"{}")
    with pytest.raises(DataLoss, match="t-0: offsets 100 to 199 are lost: a gap record has the reason"):
        three.plan(subscribe="t")


def test_missing_offsets_inside_coverage_are_compaction(archive: Archive) -> None:
    """No hole, no warning (reading rule 5); an empty range of them is simply empty."""
    archive.put_segment("t", 0, batches((3, 5), (20, 30)), end=50)
    archive.put_segment("t", 50, batches((60, 65)), end=70)
    archive.commit("t", 70)
    assert archive.offsets(subscribe="t") == [3, 4, *range(20, 30), *range(60, 65)]
    plan = archive.plan(subscribe="t")
    assert (plan.warnings, plan.losses) == ((), ())
    assert archive.offsets(subscribe="t", startingOffsets=json_of(30), endingOffsets=json_of(60)) == []


def test_a_hole_at_the_end_may_hold_the_first_record_so_late(archive: Archive) -> None:
    """Also where a partition without such a record is to give no rows."""
    archive.put_segment("t", 0, batches((0, 50)))
    archive.commit("t", 60)
    with pytest.raises(DataLoss, match="offsets 50 to 59 are lost"):
        archive.offsets(subscribe="t", startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")


def test_a_segment_without_records_behind_a_hole_hides_nothing_of_it(archive: Archive) -> None:
    """No record is between the hole and the first match, so an earlier match may be lost."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.put_segment("t", 20, batch(20, [], last_offset_delta=9, max_timestamp=-1), end=30)
    archive.put_segment("t", 30, batches((30, 40), time=5000))
    archive.commit("t", 40)
    with pytest.raises(DataLoss, match="offsets 10 to 19 are lost"):
        archive.offsets(subscribe="t", startingTimestamp="4000")


def test_a_record_behind_a_hole_that_another_copy_holds_counts(archive: Archive) -> None:
    """An early record behind the hole proves that the match is the first; a copy that ends too early holds it."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.put_segment("t", 20, batches((20, 22), (23, 24)), end=30)
    archive.put_segment("t", 20, batches((25, 26), (28, 29), time=5000), end=30, variant=True)
    archive.commit("t", 30)
    assert archive.offsets(subscribe="t", startingTimestamp="4000") == [25, 28]


def test_r04_a_timestamp_is_looked_for_in_a_segment_that_was_damaged_when_it_was_shipped(archive: Archive) -> None:
    """The timestamps in its metadata do not cover its damaged batches."""
    log = batches((0, 10)) + batches((10, 20), time=9000) + batches((20, 30))
    place = len(batches((0, 10))) + 80
    archive.put_segment("t", 0, log[:place] + bytes([log[place] ^ 1]) + log[place + 1 :])
    archive.put_segment("t", 30, batches((30, 40), time=20_000))
    archive.commit("t", 40)
    with pytest.raises(CorruptData):
        archive.offsets(subscribe="t", startingTimestamp="9000")


def test_offsets_by_timestamp_are_found_for_each_partition(archive: Archive) -> None:
    """As Spark's Kafka source: JSON that names every partition, the ending ones exclusive."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches(*steps(0, 100), time=1000), partition=partition)
        archive.commit("t", 100, partition=partition)
    rows = archive.rows(
        subscribe="t",
        startingOffsetsByTimestamp='{"t":{"0":1010,"1":1050}}',
        endingOffsetsByTimestamp='{"t":{"0":1020,"1":9999}}',
    )
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, offset) for offset in range(10, 20)),
        *((1, offset) for offset in range(50, 100)),
    ]


def test_a_timestamp_for_all_wins_over_one_for_each(archive: Archive) -> None:
    """And both over offsets, as in Spark's Kafka source."""
    archive.put_segment("t", 0, batches(*steps(0, 100), time=1000))
    archive.commit("t", 100)
    bounds = {"startingOffsetsByTimestamp": '{"t":{"0":1050}}', "startingOffsets": '{"t":{"0":70}}'}
    assert archive.offsets(subscribe="t", startingTimestamp="1090", **bounds) == list(range(90, 100))
    assert archive.offsets(subscribe="t", **bounds) == list(range(50, 100))
