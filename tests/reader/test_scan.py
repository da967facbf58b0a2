"""`Scan`: lazy, one plan for all its runs, an Arrow stream for each engine; threads, progress, estimates."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

from dev.local.waiting import wait_for
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.made_indexes import index_of
from tests.matrix import cases
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import SHAPES, SOME_SHAPES, damaged_in_the_middle, rows_of, scanned
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import BucketMissing, ObjectNotFound, QueryError
from ts_reader import Archive, Scan
from ts_reader.execution import run
from ts_reader.query.plan_query import plan_everywhere
from ts_reader.query.query import Query


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader-")]


def test_nothing_is_read_before_the_first_read(tmp_path: Path) -> None:
    """A scan of an archive that is missing exists, and reads it once it is there."""
    scan = Archive((tmp_path / "later").as_uri(), CLUSTER).scan(
        "t", include_headers=True, columns=["headers", "offset"]
    )
    assert repr(scan) == "Scan('t', columns=['headers', 'offset'])"
    assert (scan.schema.names, scan.dataset().schema) == (["headers", "offset"], scan.schema)
    assert pa.schema(scan) == scan.schema
    assert scan.planned_again().query == scan.query
    with pytest.raises(BucketMissing):
        scan.estimate()
    archive = MadeArchive(tmp_path / "later")
    archive.put_segment("t", 0, batches((0, 5)))
    archive.commit("t", 5)
    assert scan.to_table()["offset"].to_pylist() == list(range(5))


def test_r11_all_runs_have_the_plan_of_the_first(three: ScannedArchive) -> None:
    """Segments that are committed later are in a scan that is planned again."""
    scan = three.scan()
    assert scan.estimate().segments == 3
    three.put_segment("t", 300, batches((300, 310)))
    three.commit("t", 310, highest_base=300)
    assert [scan.to_table().num_rows for _ in range(2)] == [300, 300]
    assert scan.dataset().count_rows() == 300
    assert scan.planned_again().to_table().num_rows == 310
    assert scan.estimate().segments == 3


def test_r11_a_segment_that_was_removed_after_planning_is_an_error(three: ScannedArchive) -> None:
    """The rows before it are returned; a new plan starts at the new `log.start`."""
    scan = three.scan()
    scan.estimate()
    three.store.delete([three.partition("t").segment(SegmentName(100))])
    three.commit("t", 300, highest_base=200, log_start=200)
    seen: list[int] = []
    with pytest.raises(ObjectNotFound, match=r"removed after the query was planned .*; plan it again"):
        for rows in scan:
            seen += rows["offset"].to_pylist()
    assert seen == list(range(100))
    assert scan.planned_again().to_table().num_rows == 100


def test_a_scan_is_planned_once_for_all_threads(three: ScannedArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that begin at the same time wait for one plan."""
    plans = []
    begun, all_begun = threading.Semaphore(0), threading.Event()

    def counted(query: Query) -> Any:
        all_begun.wait()
        plans.append(query)
        return plan_everywhere(query)

    monkeypatch.setattr("ts_reader.planned_query.plan_everywhere", counted)
    scan, results = three.scan(), list[int]()

    def read() -> None:
        begun.release()
        results.append(scan.to_table().num_rows)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
        begun.acquire()
    all_begun.set()
    for thread in threads:
        thread.join()
    assert results == [300] * 4
    assert len(plans) == 1


@pytest.mark.parametrize("name", SHAPES)
def test_engines_read_the_stream_as_it_is(shapes: ScannedArchive, name: str) -> None:
    """pyarrow, polars, pandas and DuckDB have the same rows, types and order."""
    topic, arguments = scanned(name)
    scan = shapes.scan(topic, **arguments)
    table = scan.to_table()
    assert table.num_rows
    assert table.schema == scan.schema
    assert pa.table(scan) == table
    assert pa.table(scan.to_reader()) == table
    assert pa.Table.from_batches(list(scan), scan.schema) == table
    if not table.num_columns:  # only Arrow has tables of rows without columns
        return
    assert pl.DataFrame(scan).equals(pl.DataFrame(table))
    assert pl.DataFrame(scan).to_arrow().to_pylist() == table.to_pylist()
    relation: Any = duckdb.sql("from scan")
    assert relation.to_arrow_table().to_pylist() == table.to_pylist()
    pd.testing.assert_frame_equal(pd.DataFrame.from_arrow(scan), pd.DataFrame.from_arrow(table))
    if "offset" in table.column_names:
        assert pd.DataFrame.from_arrow(scan)["offset"].tolist() == table["offset"].to_pylist()


def test_an_error_is_named_by_each_engine(three: ScannedArchive) -> None:
    """Of a stream only its text arrives; an error of the plan has its class."""
    log = batches((0, 10))
    three.put_segment("bad", 0, log, body=damaged_in_the_middle(log, 90))
    three.commit("bad", 10)
    bad, missing = three.scan("bad"), three.scan("missing")
    reads: list[tuple[Callable[[Scan], Any], type[Exception]]] = [
        (pa.table, pa.ArrowException),
        (pl.DataFrame, pl.exceptions.ComputeError),
        (pd.DataFrame.from_arrow, pa.ArrowException),
    ]
    for read, kind in reads:
        with pytest.raises(kind, match=r'batch of base offset 0 at position 0: CRC .*pass mode="DROPMALFORMED"'):
            read(bad)
        with pytest.raises(QueryError, match=r"topic missing: .* has no such topic"):
            read(missing)
    with pytest.raises(duckdb.Error, match=r"batch of base offset 0 at position 0: CRC"):
        duckdb.execute("from bad").fetchall()
    with pytest.raises(duckdb.Error, match=r"topic missing: .* has no such topic"):
        duckdb.execute("from missing").fetchall()


def test_duckdb_opens_one_stream_for_a_query_of_a_scan(three: ScannedArchive) -> None:
    """The schema has a method of its own; without it DuckDB opens a stream for it, and one more."""
    opened: list[str] = []

    class WithoutSchema:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            opened.append("without")
            return three.scan().__arrow_c_stream__(requested_schema)

    class Counted(Scan):
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            opened.append("with")
            return super().__arrow_c_stream__(requested_schema)

    with duckdb.connect() as connection:
        connection.register("counted", Counted(three.scan()._planned))
        assert connection.execute("select count(*) from counted").fetchall() == [(300,)]
        assert connection.execute("select key from counted limit 1").fetchall() == [(b"0",)]
        assert opened == ["with"] * 2
        connection.register("without", WithoutSchema())
        assert connection.execute("select count(*) from without").fetchall() == [(300,)]
        assert opened.count("without") > 1


@pytest.mark.parametrize("name", cases(SHAPES, quick=SOME_SHAPES))
def test_threads_return_the_rows_of_one_thread(
    shapes: ScannedArchive, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remote stores are read on threads; each partition's offsets ascend."""
    topic, arguments = scanned(name)
    expected = shapes.scan(topic, **arguments).to_table()
    monkeypatch.setattr(run, "_DIRECTORY", "no scheme")
    monkeypatch.setattr("ts_reader.arguments._PACKED_BYTES", 1000)
    found = shapes.scan(topic, **arguments).to_table()
    assert rows_of(found) == rows_of(expected)
    assert found.schema == expected.schema
    if {"topic", "partition", "offset"} <= {*found.column_names}:
        last: dict[tuple[str, int], int] = {}
        for row in found.select(["topic", "partition", "offset"]).to_pylist():
            place = (row["topic"], row["partition"])
            assert last.get(place, -1) < row["offset"]
            last[place] = row["offset"]
    wait_for(lambda: not reader_threads(), "no thread of a scan is left", state=reader_threads)


@pytest.mark.parametrize("remote", [False, True])
def test_a_run_that_is_closed_early_ends_its_threads(
    shapes: ScannedArchive, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """The next run begins at the beginning."""
    monkeypatch.setattr("ts_reader.arguments._PACKED_BYTES", 1)
    if remote:
        monkeypatch.setattr(run, "_DIRECTORY", "no scheme")
    scan = shapes.scan("fields", columns=["partition", "offset"])
    with closing(scan.to_batches()) as rows:
        next(rows)
    reader = scan.to_reader()
    reader.read_next_batch()
    del reader
    wait_for(lambda: not reader_threads(), "no thread of a scan is left", state=reader_threads)
    assert scan.to_table().num_rows == 200


@pytest.mark.parametrize("remote", [False, True])
def test_progress_counts_each_split_once(shapes: ScannedArchive, monkeypatch: pytest.MonkeyPatch, remote: bool) -> None:
    """Also of several topics."""
    monkeypatch.setattr("ts_reader.arguments._PACKED_BYTES", 1)
    if remote:
        monkeypatch.setattr(run, "_DIRECTORY", "no scheme")
    scan = shapes.scan(["fields", "keys"])
    done: list[int] = []
    rows = sum(rows.num_rows for rows in scan.to_batches(done.append))
    assert rows == scan.to_table().num_rows
    assert sum(done) == len(scan._planned.plan.splits) == 8


def test_runs_at_the_same_time_are_independent(shapes: ScannedArchive) -> None:
    """Each has its own place."""
    scan = shapes.scan("large", columns=["offset", "value"])
    first, second = scan.to_batches(), scan.to_batches()
    found = [(a.to_pylist(), b.to_pylist()) for a, b in zip(first, second, strict=True)]
    assert all(a == b for a, b in found)
    assert sum(len(a) for a, _ in found) == 28


def test_batches_that_are_held_do_not_change(shapes: ScannedArchive) -> None:
    """Memory is used again only for batches that the caller has dropped."""
    scan = shapes.scan("large", columns=["value", "offset"])
    expected = [rows.to_pylist() for rows in scan]
    held = list(scan)
    some = [rows for number, rows in enumerate(scan) if number % 3 == 0]
    for _ in range(3):
        for rows in shapes.scan("fields", include_headers=True):
            del rows
    assert [rows.to_pylist() for rows in held] == expected
    assert [rows.to_pylist() for rows in some] == expected[::3]


def test_an_estimate_has_segments_bytes_and_offsets(three: ScannedArchive) -> None:
    """It has them for the scan, and for all of its topics."""
    three.put_segment("t", 0, batches((0, 10)), partition=1)
    three.commit("t", 10, partition=1)
    sizes = [len(batches(*steps(base, base + 100))) for base in (0, 100, 200)]
    estimate = three.scan(starting_offsets={0: 250, 1: 10}).estimate()
    assert (estimate.segments, estimate.all_segments, estimate.partitions, estimate.offsets) == (1, 4, 1, 50)
    assert 0 < estimate.bytes < sizes[2]
    assert estimate.all_bytes == sum(sizes) + len(batches((0, 10)))
    assert str(estimate) == (
        f"1 of 4 segments, {estimate.bytes:,} of {estimate.all_bytes:,} bytes, 50 offsets of 1 partition"
    )


def test_large_segments_are_cut_at_their_indexes(archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits are read at once, and the rows stay in order."""
    monkeypatch.setattr("ts_reader.query.splits.SPLIT_BYTES", 1000)
    monkeypatch.setattr(run, "_DIRECTORY", "no scheme")
    log = batches(*steps(0, 300))
    archive.put_segment("t", 0, log, index=index_of(log))
    archive.commit("t", 300)
    scan = archive.scan()
    assert len(scan._planned.plan.splits) > 3
    assert scan.to_table()["offset"].to_pylist() == list(range(300))


def test_a_scan_of_one_partition_stays_one(archive: ScannedArchive) -> None:
    """Planned again, or followed, it does not read the other partitions."""
    for partition in range(2):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
        archive.commit("t", 10, partition=partition)
    offsets = {0: 3, 1: 7}
    scans = list(archive.scan(starting_offsets=offsets).by_partition())
    assert [str(partition) for partition, _ in scans] == ["t-0", "t-1"]
    for (_, one), start in zip(scans, offsets.values(), strict=True):
        assert one.to_table()["offset"].to_pylist() == [*range(start, 10)]
        assert one.planned_again().to_table() == one.to_table()
        step = next(one.follow())
        assert step.to_table() == one.to_table()
