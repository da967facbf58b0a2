"""The rows of a scan: those that the Spark source shows, with the same errors and warnings."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import cramjam
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, marker, record
from tests.made_archive import batches, steps
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import COMMIT, damaged_in_the_middle, transaction
from ts_common.archive.gap_records import Gap
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import BatchTooLarge, CorruptData, DataLoss, QueryError

EPOCH = datetime.fromtimestamp(0, UTC)
MIB = 1 << 20
ZSTD = 4


def warnings_of(read: Callable[[], Any]) -> list[str]:
    """Return the messages of the query's warnings that a read logs."""
    with capture_logs() as logs:
        read()
    return [entry["message"] for entry in logs if entry["event"] == "query_warning"]


def test_columns_are_those_of_the_scan_in_its_order(three: ScannedArchive) -> None:
    """Without columns a scan counts rows."""
    assert three.scan(columns=["timestamp", "key"]).to_table().slice(7, 1).to_pylist() == [
        {"timestamp": EPOCH + timedelta(milliseconds=1007), "key": b"7"}
    ]
    empty = three.scan(columns=[])
    assert (empty.to_table().num_rows, empty.to_table().num_columns) == (300, 0)
    assert pa.table(empty).num_rows == 300
    assert sum(rows.num_rows for rows in empty) == 300
    nothing = three.scan(columns=["key"], starting_offsets={0: 300})
    assert (nothing.to_table().num_rows, nothing.to_table().schema) == (0, nothing.schema)


def test_r07_headers_are_a_column_of_their_own(shapes: ScannedArchive) -> None:
    """A record without headers has a null; names are as Java reads them."""
    rows = shapes.rows("fields", include_headers=True, partitions=[0])[:3]
    assert [row["headers"] for row in rows] == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "é", "value": b""}],
        None,
        [{"key": "", "value": b"empty name"}, {"key": "\ufffd\ufffd", "value": b"no UTF-8"}],
    ]
    assert [(row["key"], row["value"]) for row in rows] == [(None, None), (b"key-1", b"1"), (b"key-2", b"22")]


def test_r02_read_committed_leaves_out_what_was_aborted_or_is_open(shapes: ScannedArchive) -> None:
    """It ends at the last stable offset; markers are no rows."""
    committed = {"isolation_level": "read_committed", "partitions": [0]}
    assert shapes.offsets("transactions", **committed) == [6, 7, 8, 9]
    assert shapes.offsets("transactions", partitions=[0]) == [*range(5), *range(6, 10), *range(11, 15)]
    with pytest.raises(DataLoss, match="offsets 11 to 11 are not shown: the last stable offset is 11"):
        shapes.rows("transactions", **committed, ending_offsets={0: 12})


def test_r14_records_whose_marker_is_in_a_gap_are_hidden(archive: ScannedArchive) -> None:
    """Their producer's transaction is open where the hole begins."""
    archive.put_segment("t", 0, batches((0, 2)) + transaction(2, 10))
    archive.put_segment("t", 20, batches((20, 30)))
    archive.store.put(archive.partition("t").gap(10, 20), Gap(10, 20, "retention", 0, 1).encode())
    archive.commit("t", 30, highest_base=20, last_stable_offset=30)
    arguments: dict[str, Any] = {"isolation_level": "read_committed", "fail_on_data_loss": False}
    assert archive.offsets(**arguments) == [0, 1, *range(20, 30)]
    assert any("offsets 2 to 9 are not shown" in each for each in warnings_of(lambda: archive.rows(**arguments)))


@pytest.mark.parametrize("recorded", [True, False])
def test_r03_a_hole_is_an_error_or_a_warning(three: ScannedArchive, recorded: bool) -> None:
    """The error names topic, partition, offsets and the argument that allows it."""
    three.store.delete([three.partition("t").segment(SegmentName(100))])
    if recorded:
        three.store.put(three.partition("t").gap(100, 200), Gap(100, 200, "retention", 0, 1).encode())
    why = "a gap record has the reason" if recorded else "no object in the store contains them"
    with pytest.raises(DataLoss, match=f"t-0: offsets 100 to 199 are lost: {why}.*pass fail_on_data_loss=False$"):
        three.scan().estimate()
    scan = three.scan(fail_on_data_loss=False)
    (warning,) = warnings_of(scan.to_table)
    assert warning.startswith(f"t-0: offsets 100 to 199 are lost: {why}")
    assert scan.to_table()["offset"].to_pylist() == [*range(100), *range(200, 300)]
    assert warnings_of(scan.to_table) == []
    assert three.offsets(starting_offsets={0: 200}) == list(range(200, 300))


def test_r03_offsets_outside_the_view_are_an_error_or_a_warning(three: ScannedArchive) -> None:
    """Below the log's start, and above the next offset."""
    three.commit("t", 300, highest_base=200, log_start=50)
    arguments: dict[str, Any] = {"starting_offsets": {0: 20}, "ending_offsets": {0: 320}}
    with pytest.raises(DataLoss, match="t-0: offsets 20 to 49 are lost: below the log's start 50; t-0: offsets 300 to"):
        three.rows(**arguments)
    assert three.offsets(**arguments, fail_on_data_loss=False) == list(range(50, 300))
    assert len(warnings_of(lambda: three.rows(**arguments, fail_on_data_loss=False))) == 2
    assert three.offsets() == list(range(50, 300))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"starting_offsets": {0: 150}}, range(150, 300)),
        ({"ending_offsets": {0: 150}}, range(150)),
        ({"starting_offsets": {0: "earliest"}, "ending_offsets": {0: -1}}, range(300)),
        ({"starting_offsets": {"t": {0: 99}}, "ending_offsets": {"t": {0: 101}}}, range(99, 101)),
        ({"starting_timestamp": 1150}, range(150, 300)),
        ({"ending_timestamp": EPOCH + timedelta(milliseconds=1150)}, range(150)),
        ({"starting_timestamp": "1970-01-01T00:00:01.100", "ending_timestamp": {0: 1102}}, range(100, 102)),
        ({"starting_timestamp": 9999, "starting_without_match": "latest"}, range(0)),
        ({"starting_timestamp": 0, "ending_timestamp": (1 << 63) - 1}, range(300)),
    ],
)
def test_a_scan_is_bounded_by_offsets_and_by_timestamps(
    three: ScannedArchive, arguments: dict[str, Any], expected: range
) -> None:
    """The end is exclusive."""
    assert three.offsets(**arguments) == list(expected)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"starting_timestamp": 9999}, r'no record at or after it .*; with starting_without_match="latest" such a'),
        ({"starting_offsets": {1: 5}}, r'starting_offsets: nothing for t-0 \("earliest" is earliest\); t-1, which'),
        ({"ending_timestamp": {}}, "ending_timestamp: nothing for t-0; it must name every partition of the query"),
        (
            {"starting_offsets": {0: 9}, "ending_offsets": {0: 5}},
            "starts at offset 9, which is greater than the offset",
        ),
        ({"partitions": [0, 4]}, "partitions: the store has no partition 4 of topic t, only 0"),
    ],
)
def test_bounds_that_the_archive_does_not_have_are_an_error(
    three: ScannedArchive, arguments: dict[str, Any], problem: str
) -> None:
    """In the words of the arguments."""
    with pytest.raises(QueryError, match=problem):
        three.rows(**arguments)


def test_r04_damage_ends_a_scan_or_is_left_out_or_is_a_row(shapes: ScannedArchive) -> None:
    """By mode: an error that names object and position, a warning, or the raw bytes in a column."""
    scan = shapes.scan("damaged", partitions=[1])
    with pytest.raises(CorruptData) as caught:
        scan.to_table()
    text = str(caught.value)
    assert text.startswith(f"damaged-1: prod/damaged-1/{0:020}.log in {shapes.location}: batch of base offset 20 at")
    assert text.endswith('To read what is intact, pass mode="DROPMALFORMED"')
    whole = [*range(20), *range(30, 90)]
    with capture_logs() as logs:
        assert shapes.offsets("damaged", partitions=[1], mode="DROPMALFORMED") == whole
    (event,) = logs
    assert (event["event"], event["first_offset"], event["last_offset"]) == ("corrupt_batches_skipped", 20, 29)
    rows = shapes.rows("damaged", partitions=[1], mode="PERMISSIVE", corrupt_column="raw", include_headers=True)
    assert [row["offset"] for row in rows] == sorted([*whole, 20])
    (corrupt,) = [row for row in rows if row["raw"] is not None]
    assert {name for name, value in corrupt.items() if value is not None} == {"topic", "partition", "offset", "raw"}
    assert len(corrupt["raw"]) == len(batches(*steps(0, 30))) - len(batches(*steps(0, 20)))


def test_r04_rows_before_the_damage_are_returned(three: ScannedArchive) -> None:
    """The error follows them."""
    log = batches(*steps(300, 400))
    three.put_segment("t", 300, log, body=damaged_in_the_middle(log, len(log) - 30))
    three.commit("t", 400, highest_base=300)
    seen: list[int] = []
    with pytest.raises(CorruptData, match="base offset 390"):
        for rows in three.scan():
            seen += rows["offset"].to_pylist()
    assert seen == list(range(390))


def test_r05_copies_of_several_leaders_are_read_once(shapes: ScannedArchive) -> None:
    """A record of any copy is a row, whatever compaction removed from the others."""
    expected = [*range(60), *range(70, 120)]
    rows = shapes.rows("copies", partitions=[0])
    assert [row["offset"] for row in rows] == expected
    assert [row["key"] for row in rows] == [b"%d" % offset for offset in expected]


def test_r05_a_dead_tail_is_not_shown(archive: ScannedArchive) -> None:
    """The commit's epochs name the copy that an unclean election left."""
    archive.put_segment("t", 0, batches(*steps(0, 60)))
    archive.put_segment("t", 60, batches(*steps(60, 130), value=b"dead"))
    archive.put_segment("t", 60, batches(*steps(60, 80)) + batches(*steps(80, 110), epoch=2), variant=True)
    archive.commit("t", 110, epochs=((0, 0), (2, 80)), highest_base=60)
    rows = archive.rows()
    assert [row["offset"] for row in rows] == list(range(110))
    assert {row["value"] for row in rows} == {b"v"}


def test_the_view_latest_has_the_newest_record_of_each_key(shapes: ScannedArchive) -> None:
    """A key whose newest record is a tombstone has no row; the end bounds what is newest."""
    rows = shapes.rows("keys", view="latest", partitions=[0])
    tombstones = {b"%d" % (delta % 20) for delta in range(40, 60) if delta % 7 == 0}
    assert {row["key"] for row in rows} == {b"%d" % key for key in range(20)} - tombstones
    assert all(row["offset"] >= 100 for row in rows)
    earlier = shapes.rows("keys", view="latest", partitions=[0], ending_offsets={0: 60})
    assert {row["value"] for row in earlier} == {b"v0"}


def test_r15_a_batch_above_the_limit_names_the_argument(archive: ScannedArchive) -> None:
    """In every mode, because it is not damaged."""
    bomb = batch(10, body=bytes(cramjam.zstd.compress(record(0, value=bytes(3 * MIB)), 3)), count=1, attributes=ZSTD)
    archive.put_segment("t", 0, batches((0, 10)) + bomb)
    archive.commit("t", 11)
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        with pytest.raises(BatchTooLarge, match=rf"base offset 10 at .*max_batch_bytes allows {2 * MIB} bytes: raise"):
            archive.rows(mode=mode, max_batch_bytes=2 * MIB)
        assert archive.offsets(mode=mode, max_batch_bytes=4 * MIB) == list(range(11))


def test_r06_magic_0_and_1_are_read(shapes: ScannedArchive) -> None:
    """Magic 0 has no timestamps: milliseconds -1 and type -1."""
    rows = shapes.rows("old", partitions=[0])
    assert [(row["offset"], row["timestampType"]) for row in rows] == [
        (0, -1),
        (1, -1),
        *((offset, 0) for offset in range(2, 9)),
    ]
    assert rows[0]["timestamp"] == EPOCH - timedelta(milliseconds=1)


def test_a_pattern_without_a_match_is_an_empty_table(three: ScannedArchive) -> None:
    """A warning names the cluster."""

    scan = three.scan(re.compile("nothing"))
    (warning,) = warnings_of(scan.to_table)
    assert warning.startswith("topic=nothing: no topic of cluster prod in file://")
    assert scan.to_table().schema == scan.schema


def test_markers_are_no_rows(archive: ScannedArchive) -> None:
    """A segment of markers alone is an empty table."""
    archive.put_segment("t", 0, marker(0, 5, COMMIT) + marker(1, 6, COMMIT))
    archive.commit("t", 2)
    assert archive.rows() == []
    assert archive.scan(columns=[]).to_table().num_rows == 0
