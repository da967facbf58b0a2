"""`verify --deep`: values that differ from what the parser makes of the archive's records are found."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.files.test_json_columns import VALUES
from tests.tables.test_evolving_schemas import Evolving, encoded
from tests.tables.test_latest import PARSER as NEWEST
from tests.tables.test_latest import Latest
from tests.tables.test_parsed_tables import INFERRED, NAME, Made, json_of, value_of
from ts_common.errors import OperatorError
from ts_tables.verify.compare import DifferenceKind
from ts_tables.verify.values import Older, value_digests

COLUMNS = {
    "id": "long",
    "f": "float",
    "d": "double",
    "ok": "boolean",
    "n": "int",
    "amount": "decimal(12,2)",
    "s": "string",
    "b": "binary",
    "day": "date",
    "at": "timestamp",
    "rest": "json",
    "tags": "list<string>",
    "by": "map<string, list<double>>",
    "place": "struct<x: double, at: timestamp, of: struct<day: date, cost: decimal(4,1)>>",
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "f": 0.5,
        "d": -0.0,
        "ok": False,
        "n": -7,
        "amount": 10.5,
        "s": "",
        "b": "/w==",
        "day": "2026-11-27",
        "at": "2026-11-27T08:00:00.000001Z",
        "rest": {"b": 1, "a": [None]},
        "tags": ["x", None, ""],
        "by": {"b": [1.5], "a": [], "c": None},
        "place": {"x": 1, "at": "0001-01-01T00:00:00Z", "of": {"day": None, "cost": 1.5}},
    },
    {"id": 2, "d": 0.0, "tags": [], "by": {}, "place": {"of": {}}},
    {"id": 3},
]
Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture(params=cases(["iceberg", "parquet", "json"], quick=["parquet", "json"]))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", request.param)


def deep(made: Made) -> list[tuple[DifferenceKind, int, int]]:
    """Return what differs."""
    return [(each.kind, each.start, each.end) for each in made.tables.verify(NAME, deep=True).differences]


def rewrite(made: Made, change: Change) -> None:
    """Change the rows of the only file where it is, as a program that bypasses the table."""
    (path,) = made.files()
    if made.format == "json":
        lines = [orjson.loads(line) for line in gzip.decompress(Path(path).read_bytes()).splitlines()]
        Path(path).write_bytes(gzip.compress(b"".join(orjson.dumps(line) + b"\n" for line in change(lines))))
        return
    rows = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(rows.to_pylist()), rows.schema), path, store_schema=False)


def without(offset: int, ordinal: int) -> Change:
    return lambda rows: [row for row in rows if (row["_offset"], row["_ordinal"]) != (offset, ordinal)]


def twice(offset: int, ordinal: int) -> Change:
    return lambda rows: [*rows, *(row for row in rows if (row["_offset"], row["_ordinal"]) == (offset, ordinal))]


def changed(offset: int, ordinal: int, column: str, value: Any) -> Change:
    return lambda rows: [
        {**row, column: value} if (row["_offset"], row["_ordinal"]) == (offset, ordinal) else row for row in rows
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without(8, 1), (DifferenceKind.CHANGED, 8)),
        (twice(8, 2), (DifferenceKind.TWICE, 8)),
        (changed(8, 1, "type", "other"), (DifferenceKind.CHANGED, 8)),
        (changed(8, 1, "_ordinal", 5), (DifferenceKind.CHANGED, 8)),
        (changed(3, 0, "id", 4), (DifferenceKind.CHANGED, 3)),
        (changed(3, 0, "at", None), (DifferenceKind.CHANGED, 3)),
        (without(3, 0), (DifferenceKind.MISSING, 3)),
        (changed(3, 0, "_offset", 1_000_003), (DifferenceKind.MISSING, 3)),
    ],
    ids=["deleted", "doubled", "value of a later row", "ordinal", "value", "null", "record", "offset"],
)
def test_each_row_whose_values_differ_is_named(
    made: Made, change: Change, expected: tuple[DifferenceKind, int]
) -> None:
    """By its offset. Without `deep` only the first row of a record is compared, by the record's digest."""
    made.put(0, 20)
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert deep(made) == []
    rewrite(made, change)
    kind, offset = expected
    assert (kind, offset, offset + 1) in deep(made)
    if kind is not DifferenceKind.MISSING:
        assert made.tables.verify(NAME).differences == ()


def test_a_table_of_all_types_has_no_difference(made: Made) -> None:
    """With refused and forgotten records, and after an election."""
    made.more = {"parser": {"type": "json", "columns": COLUMNS}, "on_taken_back": "delete"}
    made.put_values(0, [*json_of(*ROWS, ROWS), b"{", None, *json_of(ROWS[0], {"id": "x"}, ROWS[1])])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.tables.forget(NAME, offsets=[("t", 0, 1, 2), ("t", 0, 4, 5)])
    made.put_values(7, json_of(ROWS[2], ROWS[0]), epoch=1)
    made.tables.run(NAME)
    found = made.tables.verify(NAME, deep=True)
    assert (found.differences, found.notes) == ((), ())
    assert made.select("select count(*) from {}") == [(9,)]


def test_columns_that_were_found_later_have_no_difference(made: Made) -> None:
    """Former files lack them."""
    made.more = {"parser": INFERRED}
    made.put_values(0, json_of({"id": 0, "a": 1}, {"id": 1, "b": 2.5}))
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_values(2, json_of({"id": 2, "a": "x", "b": 3}, {"id": 3, "c": [1]}))
    made.tables.run(NAME)
    assert deep(made) == []


def test_rows_that_are_older_than_a_field_have_no_difference(made: Made) -> None:
    """The newest schema has a value for it, as a default; a field that is there is compared."""
    evolving = Evolving(made.archive, made.directory, made.format, {"parser": {"type": "registry"}}, "topic:_schemas")
    evolving.register()
    evolving.put_values(0, [encoded(1, id=1, amount=10), b"junk"])
    evolving.tables.create(NAME)
    evolving.tables.run(NAME)
    evolving.register()
    evolving.put_values(2, [encoded(1, id=2, amount=20), encoded(2, id=3, amount=30, place={"x": 1.5})])
    evolving.tables.run(NAME)
    evolving.register()
    evolving.put_values(4, [encoded(2, id=4, amount=40, place={"x": 2.5}), encoded(3, id=5, amount=5.5)])
    evolving.tables.run(NAME)
    assert deep(evolving) == []
    evolving.tables.forget(NAME, offsets=[("t", 0, 0, 1)])
    assert deep(evolving) == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ts_tables.verify.deep.older_rows", lambda *_: Older.of([]))
        assert [kind for kind, _, _ in deep(evolving)] == [DifferenceKind.CHANGED]


def test_kept_rows_are_left_out(made: Made) -> None:
    """And noted; other offsets are compared."""
    made.more = {"on_taken_back": "keep"}
    made.put(0, 30)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put(20, 25, epoch=1)
    made.tables.run(NAME)
    found = made.tables.verify(NAME, deep=True)
    assert found.differences == ()
    (note,) = found.notes
    assert note.startswith("t-0: the values of offsets 20 to 29 were not compared")


def test_the_newest_records_of_keys_are_compared(tmp_path: Path) -> None:
    """With all their rows."""
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": NEWEST, "mode": "latest", "key": "utf8", "buckets": 1}
    made.put_changes([("x", 1), ("y", 2), ("x", 3), ("z", None)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert deep(made) == []
    rewrite(made, lambda rows: [{**row, "a": 7} if row["_key"] == "x" else row for row in rows])
    assert deep(made) == [(DifferenceKind.CHANGED, 2, 3)]


def test_another_parser_is_refused(made: Made) -> None:
    """It would make other rows."""
    made.put_values(0, [value_of(0)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.more = {"parser": {"type": "json", "columns": {"id": {"type": "long", "required": True}, "type": "string"}}}
    with pytest.raises(OperatorError, match=r"columns at differ|the table has the rows of parser"):
        made.tables.verify(NAME, deep=True)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_each_value_has_a_digest_of_its_own(kind: pa.DataType, values: list[Any]) -> None:
    """NULL too; it does not depend on the other rows of a batch."""
    array = pa.array([*values, None, *values], kind)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * len(array)),
            pa.nulls(len(array), pa.string()),
            *(pa.array([0] * len(array), of) for of in (pa.int32(), pa.int64(), pa.int32())),
            array,
        ],
        ["_topic", "_topic_id", "_partition_id", "_offset", "_ordinal", "a"],
    )
    found = value_digests(rows, ["a"]).to_pylist()
    assert found[: len(values)] == found[len(values) + 1 :]
    assert len({*found}) == len(values) + 1
    again = [value_digests(rows.slice(at, 1), ["a"])[0].as_py() for at in range(len(array))]
    assert again == found
