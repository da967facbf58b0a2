"""Rows that are deleted on purpose: they are noted, and nothing brings them back."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.test_latest import PARSER as NEWEST
from tests.tables.test_latest import Latest
from tests.tables.test_parsed_tables import NAME, Killed, Made, kill_commit
from ts_common.archive.commit import encode_log_start
from ts_common.errors import OperatorError
from ts_tables.forget import ForgetSummary, Offsets

DEFINITIONS: dict[str, dict[str, Any]] = {
    "raw": {"parser": None},
    "parsed": {"parser": {"type": "json", "columns": {"id": "long"}}},
    "changes": {"parser": {"type": "json", "columns": {"id": "long"}}, "mode": "changes", "key": "utf8"},
}
SHAPES = [(form, kind) for form in ("iceberg", "parquet", "json") for kind in DEFINITIONS]
QUICK = [("iceberg", "parsed"), ("parquet", "changes")]


def value_of(offset: int) -> bytes:
    """Return a value: of ten, one is no JSON, and one has two rows."""
    row = {"id": offset}
    return b"{" if offset % 10 == 9 else json.dumps([row, row] if offset % 10 == 8 else row).encode()


@pytest.fixture(params=cases(SHAPES, quick=QUICK), ids=" ".join)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Make a table of forty records of the key `k`, and of twenty of `other`."""
    form, kind = request.param
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", form, {**DEFINITIONS[kind]})
    made.put_values(0, [value_of(offset) for offset in range(40)])
    made.put_values(0, [value_of(offset) for offset in range(20)], partition=1, key=b"other")
    made.tables.create(NAME)
    made.tables.run(NAME)
    return made


def places(made: Made) -> set[tuple[int, int]]:
    """Return the partition and offset of each record that one of the tables has."""
    query = "select _partition_id, _offset from {}"
    is_raw = made.more["parser"] is None
    return {*made.select(query), *([] if is_raw else made.select(query, "_quarantine"))}


def test_the_records_of_a_key_are_deleted(made: Made) -> None:
    """From both tables; `verify` subtracts them, and a later record of the key is a row."""
    assert made.tables.forget(NAME, keys=["other", b"none"]).records == 20
    assert places(made) == {(0, offset) for offset in range(40)}
    assert made.tables.verify(NAME).differences == ()
    assert made.tables.forget(NAME, keys=[b"other"]).records == 0
    made.put_values(20, [value_of(20)], partition=1, key=b"other")
    made.tables.run(NAME)
    assert places(made) == {(0, offset) for offset in range(40)} | {(1, 20)}
    assert made.tables.verify(NAME).differences == ()


def test_the_records_at_offsets_are_deleted(made: Made) -> None:
    """With all rows of each; those of other partitions stay."""
    assert made.tables.forget(NAME, offsets=[("t", 0, 5, 20), ("t", 0, 39, 1000)]).records == 16
    left = {(0, offset) for offset in (*range(5), *range(20, 39))} | {(1, offset) for offset in range(20)}
    assert places(made) == left
    assert made.tables.verify(NAME).differences == ()


def test_an_election_replaces_deleted_records_too(made: Made) -> None:
    """What the later leader has at their offsets are other records."""
    made.more["on_taken_back"] = "delete"
    made.tables.forget(NAME, offsets=[("t", 0, 25, 35)])
    made.put_values(30, [value_of(offset) for offset in range(30, 50)], epoch=1)
    made.tables.run(NAME)
    kept = {(0, offset) for offset in (*range(25), *range(30, 50))} | {(1, offset) for offset in range(20)}
    assert places(made) == kept
    assert made.tables.verify(NAME).differences == ()


@pytest.mark.parametrize("at", [0, 1])
def test_a_deletion_that_is_killed_is_completed_by_the_same_command(
    made: Made, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A table is right before and after each of the two commits."""
    if made.more["parser"] is None and at:
        at = 0
    with kill_commit(made, monkeypatch, at), pytest.raises(Killed):
        made.tables.forget(NAME, keys=[b"other"])
    assert made.tables.verify(NAME).differences == ()
    made.tables.run(NAME)
    made.tables.forget(NAME, keys=[b"other"])
    assert places(made) == {(0, offset) for offset in range(40)}
    assert made.tables.verify(NAME).differences == ()


def test_a_deleted_row_that_is_there_again_is_found(made: Made) -> None:
    """By `verify`, as a row that the archive does not account for."""
    made.tables.forget(NAME, offsets=[("t", 0, 3, 4)])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ts_tables.claims.state.TableState.forgotten_with", lambda *_: {})
        (found,) = made.tables.verify(NAME).differences
    assert (found.kind.value, found.start, found.end) == ("missing", 3, 4)


def test_no_record_of_a_key_returns_to_the_newest_ones(tmp_path: Path) -> None:
    """After an election its older records are read again, and left out; a later one is a row."""
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": NEWEST, "mode": "latest", "key": "utf8", "buckets": 2, "on_taken_back": "delete"}
    made.put_changes([("x", 1), ("y", 2), ("x", 3), ("z", 4), ("x", 5)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert made.tables.forget(NAME, keys=[b"x"]).records == 3
    rows = "select _key, a from {} order by 1"
    assert made.select(rows) == [("y", 2), ("z", 4)]
    assert made.tables.verify(NAME).differences == ()
    made.put_changes([("w", 6)], start=4, epoch=1)
    made.tables.run(NAME)
    assert made.select(rows) == [("w", 6), ("y", 2), ("z", 4)]
    assert made.tables.verify(NAME).differences == ()
    made.put_changes([("x", 7)], epoch=1)
    made.tables.run(NAME)
    assert made.select(rows) == [("w", 6), ("x", 7), ("y", 2), ("z", 4)]
    assert made.tables.verify(NAME).differences == ()


def test_newest_records_are_deleted_after_retention_too(tmp_path: Path) -> None:
    """Records below the start of the log are never read again."""
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": NEWEST, "mode": "latest", "key": "utf8"}
    made.put_changes([("x", 1), ("y", 2)])
    made.put_changes([("z", 3)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.archive.store.put(made.archive.partition("t").log_start, encode_log_start(2))
    assert made.tables.forget(NAME, keys=["x"]).records == 1
    assert made.select("select _key from {} order by 1") == [("y",), ("z",)]
    assert made.tables.verify(NAME).differences == ()


def test_records_of_two_leaders_are_not_deleted(tmp_path: Path) -> None:
    """With `on_taken_back: keep` two rows of one offset cannot be deleted apart."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", {"on_taken_back": "keep"})
    made.more["parser"] = None
    made.put_values(0, [value_of(offset) for offset in range(10)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_values(5, [b"{}"], epoch=1)
    made.tables.run(NAME)
    with pytest.raises(OperatorError, match="records of two leaders at offset 5"):
        made.tables.forget(NAME, offsets=[("t", 0, 5, 6)])
    assert made.tables.forget(NAME, offsets=[("t", 0, 4, 5)]).records == 1


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_held_files_keep_their_other_rows(tmp_path: Path, kind: str) -> None:
    """Files that are full enough by now are merged, and shown."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", {**DEFINITIONS[kind]})
    for start in (0, 5):
        made.more["max_age"] = "1h" if start else "0s"
        made.put_values(start, [value_of(offset) for offset in range(start, start + 5)])
        if not start:
            made.tables.create(NAME)
        made.tables.run(NAME)
    made.put_values(10, [value_of(offset) for offset in range(10, 15)])
    made.tables.run(NAME)
    assert made.tables.forget(NAME, offsets=[("t", 0, 2, 3)]).records == 1
    assert made.tables.verify(NAME).differences == ()
    made.tables.show_held(NAME)
    assert places(made) == {(0, offset) for offset in range(15) if offset != 2}


@pytest.mark.parametrize("mode", ["changes", "latest"])
def test_refused_records_have_the_keys_of_the_codec(tmp_path: Path, mode: str) -> None:
    """`42` is a number where the keys are numbers; bytes are named in Base64."""
    more = {"parser": {"type": "json", "columns": {"id": "long"}}, "mode": mode, "key": "long"}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", more)
    made.put_values(0, [b'{"id": 1}', b"{"], key=(42).to_bytes(8, "big"))
    made.put_values(0, [b'{"id": 2}', b"{"], key=b"short", partition=1)
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert made.tables.forget(NAME, keys=["42"]).records == 2
    assert places(made) == {(1, 0), (1, 1)}
    assert made.tables.forget(NAME, keys=[b"short"]).records == 2
    assert places(made) == set()
    assert made.tables.verify(NAME).differences == ()
    with pytest.raises(OperatorError, match="a key of this table is of type int64"):
        made.tables.forget(NAME, keys=["x"])


def test_keys_that_are_structs_cannot_be_named(tmp_path: Path) -> None:
    """The message has the way out."""
    schema = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "key.avsc").write_text(json.dumps(schema))
    more = {
        "parser": {"type": "json", "columns": {"id": "long"}},
        "mode": "changes",
        "key": f"avro,schema.file={tmp_path}/key.avsc",
    }
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", more)
    made.put_values(0, [b'{"id": 1}'], key=b"\x02")
    made.tables.create(NAME)
    made.tables.run(NAME)
    with pytest.raises(OperatorError, match="are of type struct<id: int64>, and cannot be named; find the offsets"):
        made.tables.forget(NAME, keys=[b"\x02"])
    assert made.tables.forget(NAME, offsets=[("t", 0, 0, 1)]).records == 1


def test_keys_that_the_archive_does_not_have_any_more_are_no_success(tmp_path: Path) -> None:
    """A table without a column of keys cannot find them; the message has the way out."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", {**DEFINITIONS["parsed"]})
    made.put_values(0, [value_of(offset) for offset in range(10)])
    made.put_values(10, [value_of(10)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.archive.store.put(made.archive.partition("t").log_start, encode_log_start(10))
    with pytest.raises(OperatorError, match="are below the start of the log; find the offsets"):
        made.tables.forget(NAME, keys=["k"])
    assert made.tables.forget(NAME, offsets=[("t", 0, 0, 8)]).records == 8


def test_offsets_are_no_way_to_delete_a_newest_record(tmp_path: Path) -> None:
    """The former record of its key would be the newest."""
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": NEWEST, "mode": "latest", "key": "utf8"}
    made.put_changes([("x", 1), ("x", 2)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    with pytest.raises(OperatorError, match="delete the key by --key"):
        made.tables.forget(NAME, offsets=[("t", 0, 1, 2)])


@pytest.mark.parametrize(
    ("offsets", "expected_error"),
    [
        (("unknown", 0, 1, 3), "no record of topic unknown; it has records of t"),
        (("t", 7, 1, 3), "no record of partition 7 of topic t; it has records of 0, 1"),
    ],
)
def test_a_topic_or_partition_that_the_table_does_not_have_is_named(
    made: Made, offsets: Offsets, expected_error: str
) -> None:
    """Nothing is deleted, also at the other offsets of the command."""
    before = places(made)
    with pytest.raises(OperatorError, match=expected_error):
        made.tables.forget(NAME, offsets=[("t", 0, 1, 3), offsets])
    assert places(made) == before


def test_what_no_record_has_is_noted(made: Made) -> None:
    """Offsets outside of the claims, and a key."""
    assert made.tables.forget(NAME, offsets=[("t", 0, 39, 50), ("t", 0, 100, 201)]) == ForgetSummary(
        1, ("t-0: offsets 100 to 200 are outside of the claims of the table, which has 0 to 39",)
    )
    assert made.tables.forget(NAME, keys=["none"]) == ForgetSummary(0, ("no record has the key none",))


@pytest.mark.parametrize("form", ["iceberg", "parquet", "json"])
def test_files_keep_the_columns_that_were_found(tmp_path: Path, form: str) -> None:
    """When their other rows are written again."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", form)
    made.more = {"parser": {"type": "json", "infer": True}}
    made.put_values(0, [b'{"a": 1}', b'{"a": 2}', b'{"b": "x"}'])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.tables.forget(NAME, offsets=[("t", 0, 1, 2)])
    assert made.select("select a, b from {} order by _offset") == [(1, None), (None, "x")]
