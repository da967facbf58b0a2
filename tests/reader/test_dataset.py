"""A scan as a dataset: filters are applied exactly, and what cannot match is not read."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from tests.common.log_format.build import batch, message, record
from tests.common.log_format.legacy_messages import GZIP, wrapper
from tests.made_archive import batches, steps
from tests.reader.archives import ScannedArchive
from tests.reader.observing import Noting, at, observed
from tests.reader.shapes import damaged_in_the_middle
from ts_common.errors import CorruptData, QueryError
from ts_reader import ScanDataset
from ts_reader.planned_query import PlannedQuery

CONDITIONS: Final = [
    # a condition in Arrow, in SQL, in polars; segments of six; rows
    (pc.field("partition") == 1, '"partition" = 1', pl.col("partition") == 1, 3, 300),
    (pc.field("offset") >= 250, '"offset" >= 250', pl.col("offset") >= 250, 2, 100),
    (pc.field("offset") == 7, '"offset" = 7', pl.col("offset") == 7, 2, 2),
    (pc.field("offset").isin([7, 150]), '"offset" in (7, 150)', pl.col("offset").is_in([7, 150]), 4, 4),
    (~(pc.field("offset") < 200), 'not "offset" < 200', ~(pl.col("offset") < 200), 2, 200),
    (
        (pc.field("partition") == 0) & (pc.field("offset") < 100),
        '"partition" = 0 and "offset" < 100',
        (pl.col("partition") == 0) & (pl.col("offset") < 100),
        1,
        100,
    ),
    (
        (pc.field("offset") < 5) | (pc.field("offset") >= 299),
        '"offset" < 5 or "offset" >= 299',
        (pl.col("offset") < 5) | (pl.col("offset") >= 299),
        4,
        12,
    ),
    (
        pc.field("timestamp") >= at(1200),
        "timestamp >= '1970-01-01T00:00:01.2Z'",
        pl.col("timestamp") >= at(1200),
        2,
        200,
    ),
    (pc.field("topic") == "x", "topic = 'x'", pl.col("topic") == "x", 0, 0),
    (pc.field("offset").is_null(), '"offset" is null', pl.col("offset").is_null(), 0, 0),
    (pc.field("key") == b"7", "key = '7'", pl.col("key") == b"7", 6, 2),
]


@pytest.mark.parametrize(("condition", "sql", "frame", "segments", "rows"), CONDITIONS)
def test_segments_without_matching_rows_are_not_read(
    two: ScannedArchive, condition: pc.Expression, sql: str, frame: pl.Expr, segments: int, rows: int
) -> None:
    """The same by Arrow's filter, and by those that DuckDB and polars pass on; each read is observed once."""
    dataset, noting = observed(two.scan())
    assert dataset.count_rows(filter=condition) == rows
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("clicks", dataset)
        assert connection.execute(f"select count(key) from clicks where {sql}").fetchall() == [(rows,)]
    assert pl.scan_pyarrow_dataset(dataset).filter(frame).select("key").collect().height == rows
    assert [(estimate.segments, estimate.all_segments) for estimate in noting.estimates] == [(segments, 6)] * 3
    assert all(estimate.offsets == 100 * segments for estimate in noting.estimates)


NOT_PRUNED: Final = ["timestamp::date = '1970-01-02'", "epoch_ms(timestamp) > 999999", "key = 'x'"]


@pytest.mark.parametrize("condition", NOT_PRUNED)
def test_a_condition_that_prunes_nothing_is_applied(two: ScannedArchive, condition: str) -> None:
    """All segments are read for it."""
    dataset, noting = observed(two.scan())
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("clicks", dataset)
        assert connection.execute(f"select count(*) from clicks where {condition}").fetchall() == [(0,)]
    assert noting.estimates[0].segments == 6


@contextmanager
def columns_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Note the columns of each run."""
    noted: list[list[str]] = []
    run = PlannedQuery.run

    def noting(self: PlannedQuery, splits: Any, names: Any, *more: Any) -> Any:
        noted.append(list(names))
        return run(self, splits, names, *more)

    with monkeypatch.context() as patched:
        patched.setattr(PlannedQuery, "run", noting)
        yield noted


def test_only_columns_that_a_query_names_are_read(two: ScannedArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its result and of its filter, by DuckDB, polars and Arrow."""
    dataset = two.scan(include_headers=True).dataset()
    with columns_read(monkeypatch) as noted, duckdb.connect() as connection:
        connection.register("clicks", dataset)
        connection.execute('select max("offset") from clicks where "partition" = 1').fetchall()
        connection.execute("select headers, value from clicks limit 1").fetchall()
        frame = pl.scan_pyarrow_dataset(dataset)
        frame.filter(pl.col("timestamp") > at(1250)).select("key").collect()
        frame.select("topic").head(1).collect()
        dataset.to_table({"sum": pc.field("offset") + pc.field("partition")}, filter=pc.field("key").is_valid())
        dataset.count_rows(filter=pc.field("offset") < 5)
    assert noted == [
        ["partition", "offset"],
        ["value", "headers"],
        ["key", "timestamp"],
        ["topic"],
        ["key", "partition", "offset"],
        ["offset"],
    ]


@pytest.mark.parametrize(("mode", "segments"), [("FAILFAST", 1), ("DROPMALFORMED", 3), ("PERMISSIVE", 3)])
def test_r04_a_tolerant_scan_prunes_nothing_by_timestamp(two: ScannedArchive, mode: str, segments: int) -> None:
    """The metadata that the agent wrote are not those of a damaged object."""
    dataset, noting = observed(two.scan(mode=mode, partitions=[0]))
    assert dataset.count_rows(filter=pc.field("timestamp") < at(0)) == 0
    assert dataset.count_rows(filter=pc.field("timestamp") >= at(1250)) == 50
    assert [estimate.segments for estimate in noting.estimates] == [3, segments]


def test_segments_of_unknown_times_are_not_pruned_by_timestamp(archive: ScannedArchive) -> None:
    """Compressed messages were not scanned, damage was counted, or a time is too late for the column."""
    inner = [(number, 5000 + number, b"k", b"v") for number in range(100)]
    scanned_not = wrapper(1, GZIP, inner, 99, timestamp=100)
    known = b"".join(message(0, offset, b"v") for offset in range(100, 200))
    late = batch(300, [record(0)], base_timestamp=1 << 62, max_timestamp=1 << 62)
    one_each = b"".join(
        batch(offset, [record(0)], base_timestamp=offset, max_timestamp=offset) for offset in range(400, 500)
    )
    for base, log in ((0, scanned_not), (100, known), (200, batches(*steps(200, 300))), (300, late), (400, one_each)):
        archive.put_segment("t", base, log, end=base + 100)
    archive.commit("t", 500, highest_base=400, epochs=((0, 200),))
    dataset, noting = observed(archive.scan())
    whole = dataset.to_table()
    for chosen in (pc.field("timestamp") >= at(3000), pc.field("timestamp") < at(300), pc.field("timestamp") < at(0)):
        assert dataset.to_table(filter=chosen) == whole.filter(chosen)
    # Messages of magic 0 have no time. Segment 200 has its greatest time in the metadata, 400 its least one too.
    assert [estimate.segments for estimate in noting.estimates[1:]] == [2, 4, 4]


def test_a_dataset_that_yields_no_rows_is_observed(two: ScannedArchive) -> None:
    """For the explanation of a query: all schemas, and what each read would read."""
    noting = Noting()
    dataset = two.scan().dataset(noting, yields_rows=False)
    assert dataset.to_table(filter=pc.field("offset") >= 250).num_rows == 0
    with duckdb.connect() as connection:
        connection.register("clicks", dataset)
        assert connection.execute('select key from clicks where "partition" = 1').fetchall() == []
    assert [estimate.segments for estimate in noting.estimates] == [2, 3]


def test_an_error_of_a_read_is_observed(two: ScannedArchive) -> None:
    """An engine's own error has its text only."""
    two.put_segment("bad", 0, log := batches((0, 10)), body=damaged_in_the_middle(log, 90))
    two.commit("bad", 10)
    for topic, kind in (("bad", CorruptData), ("missing", QueryError)):
        dataset, noting = observed(two.scan(topic))
        with pytest.raises(kind):
            dataset.to_table()
        with duckdb.connect() as connection:
            connection.register("clicks", dataset)
            with pytest.raises(duckdb.Error, match=str(noting.failures[0]).partition(":")[0]):
                connection.execute("select count(*) from clicks").fetchall()
        with pytest.raises(kind):
            pl.scan_pyarrow_dataset(dataset).collect()
        assert [type(error) for error in noting.failures] == [kind] * 3


def test_a_wrong_column_or_filter_is_an_error_of_arrow(two: ScannedArchive) -> None:
    """It names the column; nothing is read."""
    dataset, noting = observed(two.scan())
    with pytest.raises(pa.ArrowInvalid, match=r"no columns \['keys'\]; the scan has key, value"):
        dataset.to_table(["keys"])
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        dataset.to_table(filter=pc.field("nothing") == 1)
    with pytest.raises(pa.ArrowException):
        dataset.to_table(filter=pc.field("offset") == "x")
    assert noting.estimates == []


def test_a_dataset_returns_rows_in_several_ways(two: ScannedArchive) -> None:
    """Batches, a table, a reader, the first rows, rows by their place, and their number."""
    dataset = two.scan(columns=["offset", "partition"]).dataset()
    chosen = pc.field("offset") >= 290
    table = dataset.to_table(filter=chosen)
    assert table.num_rows == 20
    assert pa.Table.from_batches(list(dataset.to_batches(filter=chosen))) == table
    scanner = dataset.scanner(["offset"], filter=chosen, batch_size=5)
    assert scanner.to_reader().read_all() == scanner.to_table() == table.select(["offset"])
    assert scanner.projected_schema.names == ["offset"]
    assert scanner.dataset_schema == dataset.schema
    assert dataset.head(12, filter=chosen) == table.slice(0, 12)
    assert dataset.head(0).num_rows == 0
    assert dataset.head(10_000).num_rows == 600
    assert dataset.take([19, 0, 0], filter=chosen) == table.take([19, 0, 0])
    assert dataset.count_rows(filter=chosen) == 20


def test_a_dataset_can_be_copied_and_pickled(two: ScannedArchive) -> None:
    """A copy has the plan of the first read, its observer, and whether it yields rows."""
    dataset, noting = observed(two.scan())
    dataset.count_rows()
    two.put_segment("t", 300, batches((300, 310)))
    two.commit("t", 310, highest_base=300)
    copies: list[Callable[[Any], Any]] = [lambda each: pickle.loads(pickle.dumps(each)), copy.copy, copy.deepcopy]
    for copied in copies:
        again = copied(dataset)
        assert again.count_rows() == 600
        assert again._observer.estimates == [noting.estimates[0]] * len(again._observer.estimates)
        assert copied(two.scan().dataset(yields_rows=False)).count_rows() == 0
    assert len(noting.estimates) == 2  # its own read, and that of the shallow copy


METHODS: Final = {
    "count_rows": "dataset.count_rows()",
    "filter": "dataset.filter(pc.field('offset') > 1)",
    "get_fragments": "dataset.get_fragments()",
    "head": "dataset.head(1)",
    "join": "dataset.join(dataset, 'offset')",
    "join_asof": "dataset.join_asof(dataset, 'offset', 'partition', 1)",
    "partition_expression": "dataset.partition_expression",
    "replace_schema": "dataset.replace_schema(dataset.schema)",
    "scanner": "dataset.scanner().to_table()",
    "schema": "dataset.schema",
    "sort_by": "dataset.sort_by('offset')",
    "take": "dataset.take([0])",
    "to_batches": "list(dataset.to_batches())",
    "to_table": "dataset.to_table()",
}
REJECTED: Final = {"filter", "get_fragments", "join", "join_asof", "replace_schema", "sort_by"}
OF_ARROW: Final = [
    "ds.Scanner.from_dataset(dataset).to_table()",
    "ds.Scanner.from_dataset(dataset, columns=[], filter=pc.field('offset') > 1).count_rows()",
    "ds.UnionDataset(dataset.schema, [dataset]).to_table()",
    "acero.Declaration('scan', acero.ScanNodeOptions(dataset)).to_table()",
    # A table of Arrow's own memory: a thread of Arrow can drop the left side while the interpreter ends. Memory that
    # Python owns (of any `pa.py_buffer`) then ends the process with a signal, a fault of Arrow that CI met once.
    "ds.dataset(pa.table({'offset': [0]})).join(dataset, 'offset')",
]
CALLS: Final = """
import sys
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
from ts_reader import Archive
dataset = Archive(sys.argv[1], "prod").scan("t").dataset()
for call in [*sys.argv[2:], "repr(dataset)", "dataset == dataset", "hash(dataset)"]:
    try:
        eval(call)
        print(call, "works", sep="\t")
    except (NotImplementedError, FileNotFoundError) as error:
        print(call, error, sep="\t")
"""


def test_no_method_of_a_dataset_ends_the_process(two: ScannedArchive) -> None:
    """Each has a way out or works, and so has each function of Arrow that would read memory which is not there."""
    public = {name for name in dir(ds.Dataset) if not name.startswith("_")}
    assert public == set(METHODS)
    assert {name for name in public if name not in vars(ScanDataset)} == set()
    run = subprocess.run(
        [sys.executable, "-c", CALLS, two.location, *METHODS.values(), *OF_ARROW],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr.strip().rpartition("\n")[2]) == (0, "")
    lines = dict(line.split("\t") for line in run.stdout.splitlines())
    assert {call for call, text in lines.items() if text != "works"} == {
        *OF_ARROW,
        *(METHODS[name] for name in REJECTED),
    }
    assert all("is not supported by the dataset of a scan; use " in lines[METHODS[name]] for name in REJECTED)
    assert all("its dataset is not supported by Arrow's own functions; use " in lines[call] for call in OF_ARROW)


def test_no_error_of_an_arrow_function_is_an_object_of_python(two: ScannedArchive) -> None:
    """A thread of Arrow that drops one while the interpreter ends would end the process with a signal."""
    assert two.scan().dataset().filesystem.type_name == "local"


LEFT_UNREAD: Final = """
import itertools, os, sys
import duckdb
import pyarrow.compute as pc
import ts_reader.archive, ts_reader.arguments
from ts_reader.execution import process_pool, run
from ts_reader.options.given import Option
from ts_reader.options.value_types import whole
from ts_reader.query import read_split
location, engine, runs = sys.argv[1:]
if engine != "processes":
    ts_reader.Archive(location, "prod", workers=1).scan("t").to_table()  # loads compiled code for all runs
ts_reader.archive.MEMORY_LIMIT = Option("memory_limit", whole(1), 1)
ts_reader.arguments._PACKED_BYTES = 1
run._WORKER_BYTES = 1000  # of which 600 are left for batches that wait
if engine == "threads":  # which read for ever
    run._DIRECTORY, run._WORKER_BYTES = "no directory", 1
    read = read_split.read_split
    read_split.read_split = lambda *split: (rows for _ in itertools.count() for rows in read(*split))
if engine == "processes":
    run.PROCESSES_FROM_BYTES = 0
for number in range(int(runs) - 1):  # the last run is that of this process
    child = os.fork()
    if not child:
        break
    if status := os.waitpid(child, 0)[1]:
        sys.exit(f"run {number} ended with {status}")
limit = 1 << 40 if engine == "threads" else 2600
scan = ts_reader.Archive(location, "prod", workers=2).scan("t", memory_limit=limit)
dataset = scan.dataset()
assert dataset.head(1).num_rows == 1
assert dataset.head(1, filter=pc.field("offset") > 5).num_rows == 1
assert duckdb.sql("select key from dataset limit 1").fetchall()
left = [scan.to_batches(), *([dataset.scanner().to_reader()] if engine != "processes" else ())]
for each in left:
    next(iter(each))
dropped = scan.to_reader()
dropped.read_next_batch()
del dropped
if engine == "processes":
    assert process_pool.POOL._all
"""


@pytest.mark.parametrize(
    ("engine", "runs"),
    [pytest.param(engine, 5, marks=pytest.mark.full) for engine in ("none", "threads", "processes")]
    + [("processes", 1)],
)
def test_an_interpreter_ends_with_scans_left_unread(two: ScannedArchive, engine: str, runs: int) -> None:
    """It ends with code 0 and without a word, whatever still reads."""
    command = [sys.executable, "-c", LEFT_UNREAD, two.location, engine, str(runs)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
