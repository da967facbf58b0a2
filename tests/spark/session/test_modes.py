"""Corrupt batches (R04) by the query's mode: an error that names the place, the rest without them, or a row."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.common.log_format.legacy_messages import wrapper
from tests.made_archive import batches, steps
from tests.made_damage import BEGIN, DAMAGES, LOG, Damage
from tests.spark.archives import Archive
from tests.spark.made_segments import from_offset, index
from tests.spark.streaming.query import Query
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import CorruptData, DataLoss
from ts_reader.query import splits
from ts_reader.query.read_split import RAW_BYTES


def damaged(archive: Archive, how: Damage, log: bytes = LOG, end: int = 50, **put: Any) -> None:
    archive.put_segment("t", 0, log, body=how(log), **put)
    archive.commit("t", end)


def dropped(archive: Archive, **options: str) -> tuple[list[int], list[dict[str, Any]]]:
    """The offsets that DROPMALFORMED shows, and its warnings."""
    with capture_logs() as logs:
        offsets = archive.offsets(**{"subscribe": "t", "mode": "DROPMALFORMED", **options})
    return offsets, [dict(entry) for entry in logs if entry["log_level"] == "warning"]


def without(lost: list[int], end: int = 50) -> list[int]:
    return [offset for offset in range(end) if offset not in lost]


def test_r04_failfast_names_the_place_and_the_way_out(archive: Archive) -> None:
    """Topic, partition, object and position, in the default mode. The reader's tests have each kind of damage."""
    damaged(archive, DAMAGES["garbage"][0])
    place = r"^t-0: prod/t-0/0{20}\.log in file:///.*position"
    with pytest.raises(CorruptData, match=rf'{place}.*set option\("mode", "DROPMALFORMED"\), or "PERMISSIVE"'):
        archive.rows(subscribe="t")


@pytest.mark.parametrize("how", DAMAGES)
def test_r04_dropmalformed_shows_the_rest_and_reports_what_is_missing(archive: Archive, how: str) -> None:
    """One warning: object, position, offsets."""
    damage, lost = DAMAGES[how]
    damaged(archive, damage)
    offsets, (warning,) = dropped(archive)
    assert offsets == without(lost)
    assert (warning["event"], warning["key"]) == ("corrupt_batches_skipped", "prod/t-0/00000000000000000000.log")
    assert (warning["location"], warning["partition"]) == (archive.location, "t-0")
    assert (warning["first_offset"], warning["last_offset"]) == (lost[0], lost[-1])
    assert warning["position"] == BEGIN
    assert warning["reason"]


def test_r04_neighbours_are_one_place(archive: Archive) -> None:
    """Two adjacent corrupt batches, and one apart; ranges that cut them. Damage outside of a range is not reported."""
    damaged(archive, lambda log: b"".join(bytes([b ^ 1]) if at in PLACES else bytes([b]) for at, b in enumerate(log)))
    offsets, warnings = dropped(archive)
    assert offsets == [*range(10), *range(30, 40)]
    assert [(told["first_offset"], told["last_offset"]) for told in warnings] == [(10, 29), (40, 49)]
    offsets, warnings = dropped(archive, **from_offset(15, 35))
    assert offsets == [*range(30, 35)]
    assert [(told["first_offset"], told["last_offset"]) for told in warnings] == [(15, 29)]
    assert dropped(archive, **from_offset(31, 40)) == ([*range(31, 40)], [])
    for most in ("7", "15"):
        assert dropped(archive, maxRecordsPerPartition=most)[0] == [*range(10), *range(30, 40)]


PLACES = {len(batches(*steps(0, start))) + 70 for start in (10, 20, 40)}


def test_r04_a_copy_of_another_leader_is_read_instead(archive: Archive) -> None:
    """It was not needed while the first was whole; what it lacks as well is corrupt."""
    archive.put_segment("t", 0, LOG, body=DAMAGES["garbage"][0](LOG))
    archive.put_segment("t", 5, batches((5, 25)))
    archive.commit("t", 50)
    offsets, (instead, missing) = dropped(archive)
    assert offsets == without([*range(25, 30)])
    assert instead["read_instead"] == "prod/t-0/00000000000000000005.log"
    assert (instead["first_offset"], instead["last_offset"]) == (20, 24)
    assert (missing["first_offset"], missing["last_offset"]) == (25, 29)
    rows = archive.rows(subscribe="t", mode="PERMISSIVE")
    assert [row["offset"] for row in rows if row["_corrupt_record"] is not None] == [25]


def test_r04_dead_records_of_a_copy_are_not_read_instead(archive: Archive) -> None:
    """The other copy's tail is of a leadership that lost its records."""
    archive.put_segment("t", 0, batches(*steps(0, 25, 5), value=b"dead"))
    log = batches(*steps(0, 20)) + batches((20, 30), (30, 50), epoch=2)
    archive.put_segment("t", 0, log, body=DAMAGES["garbage"][0](log), variant=True)
    archive.commit("t", 50, epochs=((0, 0), (2, 20)))
    offsets, (warning,) = dropped(archive)
    assert offsets == without([*range(20, 30)])
    assert warning["event"] == "corrupt_batches_skipped"


def test_r04_copies_that_are_merged_lose_what_all_of_them_lack(archive: Archive) -> None:
    """Both are compacted, and damaged in places that overlap in part."""
    archive.put_segment("t", 0, (log := batches((0, 10), (10, 20), (22, 40))), end=40, body=flip(log, 220))
    archive.put_segment("t", 0, (log := batches((0, 7), (7, 13), (13, 40))), end=41, body=flip(log, 190), variant=True)
    archive.commit("t", 40)
    offsets, warnings = dropped(archive)
    assert offsets == without([10, 11, 12], 40)
    assert {
        (told["first_offset"], told["last_offset"]) for told in warnings if told["event"] == "corrupt_batches_skipped"
    } == {(10, 12)}


def flip(log: bytes, position: int) -> bytes:
    return log[:position] + bytes([log[position] ^ 1]) + log[position + 1 :]


def test_r04_a_base_offset_among_missing_ones_may_be_any(archive: Archive) -> None:
    """The object's CRC is wrong, each batch's is right, and compaction removed offsets: no row is returned."""
    log = batches((0, 10), (20, 30), (40, 50))
    damaged(archive, lambda log: flip(log, len(batches((0, 10))) + 7), log, index=index((9, 9)))
    offsets, (warning,) = dropped(archive)
    assert offsets == []
    assert (warning["first_offset"], warning["last_offset"]) == (0, 49)
    assert "no batch in it shows the place" in warning["reason"]


@pytest.mark.parametrize("attributes", [7, 1, 4])
def test_r04_a_batch_that_cannot_be_decoded_is_dropped_too(archive: Archive, attributes: int) -> None:
    """Its CRC is right; its codec does not exist, or its bytes are not of that codec."""
    bad = batch(20, [record(n) for n in range(10)], attributes=attributes)
    log = batches(*steps(0, 20)) + bad + batches((30, 50))
    archive.put_segment("t", 0, log)
    archive.commit("t", 50)
    offsets, (warning,) = dropped(archive)
    assert offsets == without([*range(20, 30)])
    assert (warning["position"], warning["end_position"]) == (BEGIN, BEGIN + len(bad))
    rows = archive.rows(subscribe="t", mode="PERMISSIVE")
    assert [row["_corrupt_record"] for row in rows if row["offset"] == 20] == [bad]


def test_r04_a_record_that_extends_too_far_ends_its_batch(archive: Archive) -> None:
    """Records before it had the right CRC, and are shown."""
    broken = record(2)[:-1] + b"\x09"
    log = batches(*steps(0, 20)) + batch(20, [record(0), record(1), broken, record(3)]) + batches((24, 50))
    archive.put_segment("t", 0, log)
    archive.commit("t", 50)
    with pytest.raises(CorruptData):
        archive.rows(subscribe="t", includeHeaders="true")
    offsets, (warning,) = dropped(archive, includeHeaders="true")
    assert offsets == without([22, 23])
    assert (warning["first_offset"], warning["last_offset"]) == (22, 23)


def test_r04_what_was_damaged_when_it_was_shipped_is_dropped_alone(archive: Archive) -> None:
    """Compaction left offsets out, and the object is what it was then."""
    log = flip(batches((0, 10), (20, 30), (40, 50)), len(batches((0, 10))) + 70)
    archive.put_segment("t", 0, log)
    archive.commit("t", 50)
    offsets, (warning,) = dropped(archive)
    assert offsets == [*range(10), *range(40, 50)]
    assert (warning["first_offset"], warning["last_offset"]) == (10, 39)


def test_r04_a_long_corrupt_place_is_shown_by_its_beginning(archive: Archive) -> None:
    """The row is bounded; the object has the rest."""
    log = batches((0, 1), value=bytes(3 * RAW_BYTES))
    damaged(archive, lambda log: flip(log, 100), log, 1)
    (row,) = archive.rows(subscribe="t", mode="permissive")
    assert row["_corrupt_record"] == flip(log, 100)[:RAW_BYTES]


def test_r04_a_segment_of_garbage_is_left_out(archive: Archive) -> None:
    """Without metadata its coverage is unknown: its offsets are a hole, for which failOnDataLoss decides."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.store.put(archive.partition("t").segment(SegmentName(10)), b"\xa5" * 500)
    archive.put_segment("t", 20, batches((20, 30)))
    archive.commit("t", 30, highest_base=20)
    with pytest.raises(CorruptData, match="no batch in its 500 bytes"):
        archive.rows(subscribe="t")
    with pytest.raises(DataLoss, match="offsets 10 to 19 are lost"):
        archive.rows(subscribe="t", mode="DROPMALFORMED")
    plan = archive.plan(subscribe="t", mode="DROPMALFORMED", failOnDataLoss="false")
    assert "no batch in its 500 bytes; the segment is left out" in plan.warnings[0]
    assert dropped(archive, failOnDataLoss="false")[0] == [*range(10), *range(20, 30)]


def test_r04_a_timestamp_is_looked_for_in_what_is_whole(archive: Archive) -> None:
    """The record at offset `o` has the timestamp 1000 + o."""
    damaged(archive, DAMAGES["garbage"][0])
    with pytest.raises(CorruptData):
        archive.rows(subscribe="t", startingTimestamp="1025")
    assert dropped(archive, startingTimestamp="1025", endingTimestamp="1045")[0] == [*range(30, 45)]


def test_whole_segments_read_the_same_in_every_mode(archive: Archive) -> None:
    """Also compacted and merged ones; large ones are not cut, unless the query requires it."""
    archive.put_segment("t", 0, batches((0, 20), (30, 45), (70, 100)), end=100)
    archive.put_segment("t", 0, batches((10, 35), (40, 60)), end=100, variant=True)
    archive.put_segment("t", 50, batches((55, 57), (90, 120)), end=120)
    archive.commit("t", 120, highest_base=50)
    rows = archive.rows(subscribe="t")
    assert len(rows) > 80
    assert archive.rows(subscribe="t", mode="DROPMALFORMED") == rows
    permissive = archive.rows(subscribe="t", mode="PERMISSIVE", columnNameOfCorruptRecord="bad")
    assert permissive == [{**row, "bad": None} for row in rows]
    assert len(archive.plan(subscribe="t", mode="DROPMALFORMED", minPartitions="4").splits) >= 4
    assert len(archive.plan(subscribe="t", mode="DROPMALFORMED").splits) == 1
    assert archive.rows(subscribe="t", mode="DROPMALFORMED", minPartitions="4") == rows


def test_r04_spark_shows_corrupt_rows_in_a_column_of_its_own(spark: SparkSession, archive: Archive) -> None:
    """It exists in PERMISSIVE only; a schema without it drops corrupt batches, as with Spark's JSON source."""
    damaged(archive, DAMAGES["flipped bit"][0])
    reader = spark.read.format("kafka_segments").options(**archive.options(subscribe="t"))
    assert "_corrupt_record" not in reader.option("mode", "DROPMALFORMED").load().columns
    reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", "bad")
    table = reader.load()
    assert table.schema["bad"].dataType.simpleString() == "binary"
    rows = table.select("topic", "partition", "offset", "key", "timestamp", "bad").collect()
    (row,) = [row for row in rows if row.bad is not None]
    assert tuple(row)[:5] == ("t", 0, 20, None, None)
    assert bytes(row.bad)[:8] == (20).to_bytes(8, "big")
    assert len(rows) == 41
    assert reader.schema("offset long").load().count() == 40
    failing = spark.read.format("kafka_segments").options(**archive.options(subscribe="t")).load()
    with pytest.raises(Exception, match=r"t-0: prod/t-0/.*position.*DROPMALFORMED") as error:
        failing.count()
    assert json.dumps(str(error.value)).count("Traceback") == 0


@pytest.mark.parametrize("start", [0, 15])
def test_r04_a_base_offset_beyond_the_range_does_not_end_it(archive: Archive, start: int) -> None:
    """For a range that is not a whole segment, no object's CRC is compared; every offset has its record, though."""
    damaged(archive, lambda log: log[:BEGIN] + (60).to_bytes(8, "big") + log[BEGIN + 8 :], index=index((19, 141)))
    with pytest.raises(CorruptData, match=f"offsets 20 to 39 are missing after position {BEGIN}, although"):
        archive.rows(**from_offset(start, 40))


def test_large_segments_are_not_cut_where_each_task_would_check_all_of_them(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the query requires more tasks."""
    archive.put_segment("t", 0, LOG)
    archive.commit("t", 50)
    monkeypatch.setattr(splits, "SPLIT_BYTES", len(LOG) // 5)
    assert len(archive.plan(subscribe="t").splits) > 1
    assert len(archive.plan(subscribe="t", mode="DROPMALFORMED").splits) == 1
    assert len(archive.plan(subscribe="t", mode="DROPMALFORMED", minPartitions="2").splits) > 1


def test_r04_a_stream_passes_over_what_is_corrupt(archive: Archive) -> None:
    """As a batch query in the same mode; a segment that cannot be read at all is reported once."""
    damaged(archive, DAMAGES["flipped bit"][0])
    archive.store.put(archive.partition("t").segment(SegmentName(50)), b"\xa5" * 500)
    archive.commit("t", 60)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        query = Query(archive, subscribe="t", mode=mode, **options)
        with capture_logs() as logs:
            query.trigger()
        assert query.sink[0] == archive.rows(subscribe="t", mode=mode, failOnDataLoss="false")
        assert sum("is left out" in line.get("message", "") for line in logs) == 1


@pytest.mark.parametrize(
    ("bound", "expected"), [("startingTimestamp", [*range(25, 50)]), ("endingTimestamp", [*range(25)])]
)
def test_r04_a_timestamp_is_looked_for_in_the_copy_that_is_read_instead(
    archive: Archive, bound: str, expected: list[int]
) -> None:
    """The record with that timestamp is in a damaged batch of one leader's segment, and intact in another's."""
    damaged(archive, DAMAGES["flipped bit"][0])
    archive.put_segment("t", 5, batches((5, 33)))
    assert dropped(archive)[0] == [*range(50)]
    assert dropped(archive, **{bound: "1025"})[0] == expected


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
@pytest.mark.parametrize("magic", [0, 1])
def test_r06_a_part_of_a_wrapper_is_read_in_every_mode(archive: Archive, mode: str, magic: int) -> None:
    """A wrapper of an older magic has its last offset only; its records begin before it."""
    first = wrapper(magic, 1, [(n, 50 + n, b"k", b"v") for n in range(5)], 4, timestamp=54)
    second = wrapper(magic, 1, [(n if magic else n + 5, 60 + n, b"k", b"v") for n in range(5)], 9, timestamp=64)
    archive.put_segment("t", 0, first + second)
    archive.commit("t", 10)
    for low, high in ((0, 3), (2, 4), (6, 8)):
        bounds = {"startingOffsets": f'{{"t":{{"0":{low}}}}}', "endingOffsets": f'{{"t":{{"0":{high}}}}}'}
        assert archive.offsets(subscribe="t", mode=mode, **bounds) == [*range(low, high)]
