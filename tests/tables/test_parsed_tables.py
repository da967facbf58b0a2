"""Parsed tables: each record is a row, its rows, or a refused record, whatever ends a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.matrix import cases
from ts_common.errors import CorruptData, DataLoss, OperatorError
from ts_tables import Tables
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.plain.target import PlainTarget
from ts_tables.verify.compare import DifferenceKind

NAME = "lake.events"
PARSER = {"type": "json", "columns": {"id": "long", "type": "string", "at": {"type": "timestamp", "unit": "ms"}}}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[int, int, int, int | None]  # partition, offset, ordinal, id
FORMATS = ["iceberg", "parquet", "json"]
# Of what a format does itself: commits, directories, columns. The rest is above the formats, and Iceberg shows it.
OF_EACH_KIND = pytest.mark.parametrize("made", cases(FORMATS, quick=["iceberg", "parquet"]), indirect=True)


def value_of(offset: int) -> bytes | None:
    """Return a value: of ten, one is no JSON, one has three rows, and one is a tombstone."""
    row = {"id": offset, "type": f"t{offset % 3}", "at": offset * 1000}
    match offset % 10:
        case 9:
            return b"{"
        case 8:
            return json.dumps([row] * 3).encode()
        case 7:
            return None
        case _:
            return json.dumps(row).encode()


def expected(ends: Mapping[int, int]) -> tuple[list[Row], list[tuple[int, int]]]:
    """Return the rows, and the partition and offset of each refused record, below the ends of partitions."""
    rows: list[Row] = []
    refused = []
    for partition, end in ends.items():
        for offset in range(end):
            if offset % 10 == 9:
                refused.append((partition, offset))
            else:
                count = 3 if offset % 10 == 8 else 1
                known = None if offset % 10 == 7 else offset
                rows += [(partition, offset, ordinal, known) for ordinal in range(count)]
    return rows, refused


@dataclass
class Made:
    """A table of a made archive whose tasks run in this process.

    Attributes:
        archive: of topic `t`.
        directory: of the catalog, or of plain files.
        format: of the table.
        more: of its definition.
        registry: of the archive's schemas; None without.
    """

    archive: MadeArchive
    directory: Path
    format: str
    more: dict[str, Any] = field(default_factory=dict)
    registry: str | None = None

    def put(self, start: int, end: int, partition: int = 0, epoch: int = 0) -> None:
        """Archive a segment."""
        self.put_values(start, [value_of(offset) for offset in range(start, end)], partition, epoch)

    def put_values(
        self,
        start: int,
        values: Sequence[bytes | None],
        partition: int = 0,
        epoch: int = 0,
        begins: int | None = None,
        key: bytes = b"k",
    ) -> None:
        """Archive a segment of these values; the epoch begins there, or before."""
        end = start + len(values)
        records = [record(at, key, value, timestamp_delta=at) for at, value in enumerate(values)]
        data = batch(start, records, epoch=epoch, base_timestamp=start, max_timestamp=end - 1)
        self.archive.put_segment("t", start, data, partition=partition, variant=bool(epoch))
        epochs = ((0, 0), (epoch, start if begins is None else begins)) if epoch else ((0, 0),)
        self.archive.commit("t", end, partition=partition, epochs=epochs, highest_base=start, last_stable_offset=end)

    @property
    def catalog(self) -> dict[str, str]:
        """The properties of the catalog."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": f"file://{self.directory}/warehouse",
        }

    @property
    def content(self) -> dict[str, Any]:
        """The file of tables, as values."""
        self.directory.mkdir(parents=True, exist_ok=True)
        definition = {"topics": "t", "parser": PARSER, "format": self.format, **self.more}
        if self.format != "iceberg":
            definition["location"] = f"file://{self.directory}/files"
        return {
            "archive": {"url": self.archive.location, "cluster": CLUSTER, "registry": self.registry},
            "catalog": self.catalog,
            "tables": {NAME: definition},
        }

    @property
    def tables(self) -> Tables:
        """The tables."""
        return Tables(self.content, engine=lambda tasks: [task() for task in tasks])

    def select(self, query: str, of: str = "") -> list[tuple[Any, ...]]:
        """Return rows of DuckDB; `{}` is the table, or that of refused records with `of="_quarantine"`."""
        files = self.files(of)
        if not files:
            return []
        named = f"{files}, hive_partitioning = false, union_by_name = true"
        read = f"read_json({named}, sample_size = -1)" if self.format == "json" else f"read_parquet({named})"
        found = duckdb.sql(query.format(read))
        return [] if found is None else found.fetchall()

    def files(self, of: str = "") -> list[str]:
        """Return the paths of the files of a table, as readers see them."""
        if self.format == "iceberg":
            table = open_catalog(CATALOG, self.catalog).load_table(f"{NAME}{of}")
            return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        root = self.directory / f"files{of}"
        pattern = "*.jsonl*" if self.format == "json" else "*.parquet"
        return [str(each) for each in root.rglob(pattern) if "_ts/" not in str(each)]

    def check(self, **ends: int) -> None:
        """Every record is a row, or refused, once; `p0` is the end of partition 0."""
        rows, refused = expected({int(name[1:]): end for name, end in ends.items()})
        order = "order by _partition_id, _offset, _ordinal"
        assert self.select(f"select _partition_id, _offset, _ordinal, id from {{}} {order}") == rows
        found = self.select(f"select _partition_id, _offset from {{}} {order}", "_quarantine")
        assert found == refused
        compared = self.tables.verify(NAME)
        assert compared.differences == ()
        assert compared.rows == sum(ends.values())


@pytest.fixture(params=cases(FORMATS, quick=["iceberg"]))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", request.param)


@OF_EACH_KIND
def test_t04_each_record_is_rows_or_refused(made: Made) -> None:
    """With its position, its time and the columns of the parser; the reason is in the other table."""
    made.put(0, 40)
    made.put(0, 20, partition=1)
    assert made.tables.create(NAME)
    summary = made.tables.run(NAME)
    assert (summary.records, summary.refused, summary.commits) == (54, 6, 1)
    made.check(p0=40, p1=20)
    made.put(40, 60)
    assert made.tables.run(NAME).records == 18
    made.check(p0=60, p1=20)
    assert made.tables.run(NAME).commits == 0
    (one,) = made.select("select * exclude (_raw_digest) from {} where _partition_id = 1 and _offset = 16")
    moment = EPOCH + timedelta(seconds=16)
    assert one == ("t", None, 1, 16, 0, EPOCH + timedelta(milliseconds=16), 16, "t1", moment)
    query = "select distinct topic, key, value, _reason, _parser from {}"
    ((topic, key, value, reason, parser),) = made.select(query, "_quarantine")
    assert (topic, key, value) == (("t", "k", "{") if made.format == "json" else ("t", b"k", b"{"))
    assert reason.startswith("unexpected end of data")
    assert parser.startswith("json:")


@OF_EACH_KIND
def test_rows_are_partitioned_by_columns_of_the_parser(made: Made) -> None:
    """Late records too, by their own time."""
    made.more = {"partition_by": ["type", "hour(at)"], "sort_by": "id"}
    made.put(0, 40)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.check(p0=40)
    if made.format == "parquet":
        names = {
            str(each.parent.relative_to(made.directory / "files"))
            for each in (made.directory / "files").rglob("*.parquet")
        }
        assert "type=t1/at_hour=1970-01-01-00" in names


class Killed(BaseException):
    """Ends a run where it is raised, as a kill does."""


@contextmanager
def kill_call(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int, *, is_late: bool = False
) -> Iterator[None]:
    """Raise `Killed` before the call of this number of a method, or after it."""
    method, count = getattr(owner, name), iter(range(10))

    def killed(*arguments: Any, **named: Any) -> Any:
        is_last = next(count) == at
        if is_last and not is_late:
            raise Killed
        found = method(*arguments, **named)
        if is_last:
            raise Killed
        return found

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        yield


def kill_commit(
    made: Made, monkeypatch: pytest.MonkeyPatch, at: int, *, is_late: bool = False
) -> AbstractContextManager[None]:
    """Raise `Killed` before the commit of this number, or after it."""
    kind = IcebergTarget if made.format == "iceberg" else PlainTarget
    return kill_call(monkeypatch, kind, "commit", at, is_late=is_late)


def kill_run(made: Made, monkeypatch: pytest.MonkeyPatch, at: int, *, is_late: bool = False) -> None:
    """Run the table, and end the run before its commit of this number, or after it."""
    with kill_commit(made, monkeypatch, at, is_late=is_late), pytest.raises(Killed):
        made.tables.run(NAME)


@OF_EACH_KIND
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("is_late", cases([False, True], quick=[True]), ids=["before", "after"])
def test_a_run_that_ends_at_a_commit_is_completed(
    made: Made, monkeypatch: pytest.MonkeyPatch, at: int, is_late: bool
) -> None:
    """Between the two commits the refused records are ahead; the next run adds the rows, also those that are new."""
    made.put(0, 40)
    made.tables.create(NAME)
    kill_run(made, monkeypatch, at, is_late=is_late)
    assert made.tables.verify(NAME).differences == ()
    made.put(40, 60)
    made.put(0, 20, partition=1)
    made.tables.run(NAME)
    made.check(p0=60, p1=20)


@pytest.mark.parametrize("start", [20, 30], ids=["in the table too", "only there"])
def test_an_election_between_the_two_commits_is_followed(
    made: Made, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """The refused records are ahead; if the table has none of the removed ones, its run does not fail."""
    made.put(0, 30)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put(30, 60)
    kill_run(made, monkeypatch, 1)
    made.put(start, 50, epoch=2)
    if start < 30:
        with pytest.raises(DataLoss, match="offsets 20 to 29 were removed"):
            made.tables.run(NAME)
        made.more = {"on_taken_back": "delete"}
    made.tables.run(NAME)
    made.check(p0=50)


def test_a_record_that_moved_among_the_refused_is_found(tmp_path: Path) -> None:
    """One that neither table has is missing; one that has a row and is refused differs."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet")  # an Iceberg file needs field ids
    made.put(0, 40)
    made.tables.create(NAME)
    made.tables.run(NAME)
    (file,) = made.files("_quarantine")
    moved = ", ".join(f"case when {name} = 9 then 8 else {name} end as {name}" for name in ("_offset", '"offset"'))
    duckdb.sql(f"copy (select * replace ({moved}) from '{file}') to '{file}.new' (format parquet)")
    Path(f"{file}.new").rename(file)
    found = {(each.kind, each.start, each.end) for each in made.tables.verify(NAME).differences}
    assert found == {(DifferenceKind.CHANGED, 8, 9), (DifferenceKind.MISSING, 9, 10)}


@pytest.mark.parametrize("column", ["_raw_digest", "_offset"])
def test_a_column_of_another_kind_is_named(tmp_path: Path, column: str) -> None:
    """Another program wrote the file again: the error names it."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet")
    made.put(0, 40)
    made.tables.create(NAME)
    made.tables.run(NAME)
    (file,) = made.files()
    duckdb.sql(f"copy (select * replace (['x'] as {column}) from '{file}') to '{file}.new' (format parquet)")
    Path(f"{file}.new").rename(file)
    with pytest.raises(CorruptData, match=r"\.parquet: .*cast"):
        made.tables.verify(NAME)


def run_over_election(made: Made) -> None:
    """Run the table before and after an election that removes offsets 30 to 59; the later leader writes 30 to 49."""
    made.put(0, 30)
    made.put(30, 60)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put(30, 50, epoch=2)
    made.tables.run(NAME)


@OF_EACH_KIND
def test_rows_that_an_election_removed_are_deleted_from_both_tables(made: Made) -> None:
    """And the records of the later leader are added."""
    made.more = {"on_taken_back": "delete"}
    run_over_election(made)
    made.check(p0=50)


def test_rows_that_an_election_removed_can_stay(made: Made) -> None:
    """In both tables; their sums are in the states."""
    made.more = {"on_taken_back": "keep"}
    run_over_election(made)
    assert made.tables.verify(NAME).differences == ()
    assert made.select("select count(distinct _offset), count(*) from {} where _ordinal = 0") == [(54, 72)]
    assert made.tables.run(NAME).commits == 0
    made.put_values(50, [b"{"], epoch=2, begins=30)
    made.tables.run(NAME)
    assert made.tables.verify(NAME).differences == ()


def test_another_parser_is_refused(made: Made) -> None:
    """Its rows would differ from those that the table has."""
    made.put(0, 40)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.more = {"parser": {"type": "json", "columns": {**PARSER["columns"], "id": "double"}}}  # type: ignore[dict-item]
    with pytest.raises(OperatorError, match=r"parser json:[0-9a-f]{16}, and the file|its columns id differ"):
        made.tables.run(NAME)
    made.more = {"parser": {"type": "json", "columns": {**PARSER["columns"], "id": {"type": "long", "required": True}}}}  # type: ignore[dict-item]
    with pytest.raises(OperatorError, match="the table has the rows of parser json:"):
        made.tables.run(NAME)
    made.more = {}
    made.check(p0=40)


def test_a_drop_removes_both_tables(made: Made) -> None:
    """With their files."""
    made.put(0, 40)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.tables.drop(NAME, purge=True)
    assert not list(made.directory.rglob("*.parquet"))
    assert made.tables.create(NAME)
    made.tables.run(NAME)
    made.check(p0=40)


@OF_EACH_KIND
def test_a_drop_that_is_killed_between_its_two_tables_is_repeated(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table exists until all else is removed."""
    made.put(0, 40)
    made.tables.create(NAME)
    made.tables.run(NAME)
    kind = IcebergTarget if made.format == "iceberg" else PlainTarget
    with kill_call(monkeypatch, kind, "drop", 1), pytest.raises(Killed):
        made.tables.drop(NAME, purge=True)
    made.tables.drop(NAME, purge=True)
    assert made.tables.create(NAME)
    made.tables.run(NAME)
    made.check(p0=40)


def json_of(*values: Any) -> list[bytes | None]:
    """Return values in JSON."""
    return [json.dumps(value).encode() for value in values]


INFERRED = {"type": "json", "columns": {"id": "long"}, "infer": True}


@OF_EACH_KIND
def test_columns_are_found_in_values(made: Made) -> None:
    """In the commit of their first rows; former rows have NULL there, and no value changes its type."""
    made.more = {"parser": INFERRED}
    made.put_values(0, json_of({"id": 0, "a": "x"}, {"id": 1, "b": 1}))
    made.put_values(0, json_of({"id": 10, "c": True}), partition=1)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_values(2, json_of({"id": 2, "a": 7, "b": 2.5}, {"id": 3, "d": {"e": [1]}}, {"id": "x"}))
    summary = made.tables.run(NAME)
    assert (summary.records, summary.refused) == (2, 1)
    query = "select id, a, b, c, a_long, b_double, d from {} order by id"
    assert made.select(query) == [
        (0, "x", None, None, None, None, None),
        (1, None, 1, None, None, None, None),
        (2, None, None, None, 7, 2.5, None),
        (3, None, None, None, None, None, '{"e":[1]}'),
        (10, None, None, True, None, None, None),
    ]
    assert made.tables.verify(NAME).differences == ()
    if made.format == "iceberg":
        table = open_catalog(CATALOG, made.catalog).load_table(NAME)
        assert sorted(table.scan().to_arrow()["d"].to_pylist(), key=str) == [None] * 4 + ['{"e":[1]}']
        assert len(table.snapshots()) == 3  # the state of the new table, and two runs
    made.put_values(5, json_of({"id": 5, "a": "z"}))
    assert made.tables.run(NAME).records == 1


@pytest.mark.parametrize("at", [0, 1])
def test_columns_are_those_of_the_run_that_ended(made: Made, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The refused records are committed with the columns, so the next run refuses the same ones."""
    made.more = {"parser": {**INFERRED, "on_type": "quarantine"}}
    made.put_values(0, json_of({"id": 0, "a": 1}, {"id": 1, "a": "x"}))
    made.tables.create(NAME)
    kill_run(made, monkeypatch, at)
    made.put_values(2, json_of({"id": 2, "a": 5}))
    made.tables.run(NAME)
    assert made.select("select id, a from {} order by id") == [(0, 1), (2, 5)]
    assert made.select("select _offset, _reason from {}", "_quarantine") == [(1, "a: 'x' is no long")]
    assert made.tables.verify(NAME).differences == ()


def test_files_with_fewer_columns_are_written_again(made: Made) -> None:
    """After an election, by a table that has got columns since."""
    made.more = {"parser": INFERRED, "on_taken_back": "delete"}
    made.put_values(0, json_of(*({"id": number, "a": "x"} for number in range(20))))
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_values(20, json_of(*({"id": number, "b": "x"} for number in range(20, 40))))
    made.tables.run(NAME)
    made.put_values(10, json_of({"id": 10, "c": 1}), epoch=2)
    made.tables.run(NAME)
    assert made.select("select count(*), count(a), count(c) from {}") == [(11, 10, 1)]
    assert made.tables.verify(NAME).differences == ()


@pytest.mark.parametrize(
    ("columns", "expected_error"),
    [
        (
            {"id": "long", "a": "long", "new": "date"},
            "the table has no column new date; .*a is string in the table and long in the file; undo the change, make "
            "a generation of the table .* or create a table of another name",
        ),
        ({"id": "long", "a": "string"}, "the file makes no column b long; undo the change, make a generation"),
        ({"id": "long", "a": "string", "b": "long"}, "the file of tables has json:.*: undo the change"),
    ],
    ids=["others", "fewer", "the same"],
)
def test_declared_columns_instead_of_found_ones_are_named(
    made: Made, columns: dict[str, str], expected_error: str
) -> None:
    """Those that differ, and the ways out."""
    made.more = {"parser": INFERRED}
    made.put_values(0, json_of({"id": 0, "a": "x", "b": 1}))
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.more = {"parser": {"type": "json", "columns": columns}}
    with pytest.raises(OperatorError, match=expected_error):
        made.tables.run(NAME)


def test_values_of_too_many_members_end_the_run(made: Made) -> None:
    """Nothing is committed; the message names the way out."""
    made.more = {"parser": INFERRED}
    made.put_values(0, json_of({f"m{number}": 1 for number in range(1001)}))
    made.tables.create(NAME)
    with pytest.raises(OperatorError, match="more than 1000 members: declare columns"):
        made.tables.run(NAME)
    assert made.files() == made.files("_quarantine") == []


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"a": 1.000000000000000000001e-99999999999999999999}',
        b'{"' + b"m" * 1001 + b'": 1}',
    ],
    ids=["deep", "exponent", "name"],
)
def test_a_value_that_no_column_can_have_refuses_its_record(tmp_path: Path, value: bytes) -> None:
    """It ends no run."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", {"parser": INFERRED})
    made.put_values(0, [b'{"id": 1, "a": [1]}', value, b'{"id": 2}'])
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert made.select("select id from {} order by 1") == [(1,), (2,)]
    assert made.select("select _offset from {}", "_quarantine") == [(1,)]


WITHOUT_COLUMNS: dict[str, list[bytes | None]] = {
    "not-json": [b'{"a": 1}', b"not json"],
    "numbers": [b'{"a": 1}', b"[1, 2]"],
    "empty": [b"", b'{"a": 1}'],
    "long-name": [b'{"a": 1}', json.dumps({"n" * 1001: 1}).encode()],
    "nothing-fits": [b"x", b"y"],
    "no-member": [b"{}", b"x", None],
}
EVERY = [(name, mode) for name in WITHOUT_COLUMNS for mode in ("append", "changes", "latest")]


@pytest.mark.parametrize("case", cases(EVERY, quick=[("not-json", "append")]), ids="-".join)
def test_t07_a_first_batch_without_columns_is_rows_and_refused_records(tmp_path: Path, case: tuple[str, str]) -> None:
    """Its rows have no column yet, and are counted nevertheless."""
    name, mode = case
    values = WITHOUT_COLUMNS[name]
    more: dict[str, Any] = {"parser": {"type": "json", "infer": True}, "mode": mode}
    form = "iceberg" if mode == "latest" else "parquet"
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", form, more)
    made.put_values(0, values)
    made.tables.create(NAME)
    summary = made.tables.run(NAME)
    refused = 2 if name == "nothing-fits" else 1
    assert (summary.records, summary.refused) == (len(values) - refused, refused)
    assert made.tables.run(NAME).records == 0
    assert made.tables.verify(NAME, deep=True).differences == ()


@pytest.mark.parametrize("form", cases(["iceberg", "parquet", "json", "orc"], quick=["parquet"]))
def test_key_and_headers_are_columns_by_an_option(tmp_path: Path, form: str) -> None:
    """A key that does not decode refuses its record; `verify --deep` and `forget --key` have both columns."""
    more: dict[str, Any] = {"include": ["key", "headers"], "key": "int"}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", form, more)
    headers = [(b"h", b"\xff"), (b"h", None)]
    records = [record(0, b"\0\0\0\7", b'{"id": 1}', headers=headers), record(1, b"x", b"{}"), record(2, None, b"{}")]
    made.archive.put_segment("t", 0, batch(0, records))
    made.archive.commit("t", 3, last_stable_offset=3)
    tables = made.tables
    tables.create(NAME)
    summary = tables.run(NAME)
    assert (summary.records, summary.refused) == (2, 1)
    assert tables.verify(NAME, deep=True).differences == ()
    if form in {"iceberg", "parquet"}:
        found = made.select("select _key, _headers, id from {} order by _offset")
        assert found == [(7, [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}], 1), (None, None, None)]
    assert tables.forget(NAME, keys=["7"]).records == 1
    assert tables.verify(NAME, deep=True).differences == ()
