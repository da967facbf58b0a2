"""The person's records in tables: in those that are filled after the list, and in those that have rows of them."""

import gzip
import io
import json
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from time import time
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from tests.erased.canary import END, GONE, STAY, Canary, canary, log_of, put_erased
from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.made_tables import MadeTable, verified
from tests.tables.test_latest import Latest
from tests.tables.test_parsed_tables import NAME, Made, kill_run
from tests.tsctl.running import runner
from ts_common.archive.erasures import Erasure, erasure_key
from ts_common.archive.object_keys import SegmentName
from ts_tables.files.layout import FileFormat
from ts_tables.iceberg.catalogs import open_catalog
from tsctl.erase.remains import Remains, Surface
from tsctl.erase.tables import remaining_in_tables

PREFIX = 12  # bytes of a value that are in statistics of Iceberg as they are
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "raw": ("iceberg", {"parser": None, "partition_by": ["day(timestamp)"], "sort_by": ["key"]}),
    "refused": ("iceberg", {"parser": {"type": "json", "columns": {"id": "long"}}}),
    "parquet": ("parquet", {"parser": None}),
    "text": ("text", {"parser": None}),
    "held": ("json", {"parser": None, "max_age": "1h"}),
    "latest": (
        "iceberg",
        {"parser": {"type": "utf8"}, "mode": "latest", "key": "utf8", "buckets": 4},
    ),
}


@pytest.mark.parametrize("form", [FileFormat.PARQUET, FileFormat.JSON_LINES])
def test_a_table_has_no_row_of_the_person(tmp_path: Path, form: FileFormat) -> None:
    """It claims the offsets, and the archive's rows are the table's; a later run reads a later list."""
    person = canary(tmp_path / "archive")
    person.erase()
    table = MadeTable(person.archive, tmp_path / "lake", format=form)
    table.create()
    assert table.run().records == len(STAY)
    assert table.offsets() == STAY
    assert verified(table).differences == ()
    gone = {205, 219}
    person.archive.put_segment("t", 200, log_of(person.person, 200, 220, gone))
    person.erase(GONE | gone, number=2)
    person.archive.commit("t", 220, highest_base=200, log_start=None)
    table.run()
    assert table.offsets() == [*STAY, *(each for each in range(200, 220) if each not in gone)]
    assert verified(table).differences == ()
    for path in (tmp_path / "lake").rglob("*"):
        assert not path.is_file() or person.person not in path.read_bytes()


def made(person: Canary, directory: Path, kind: str) -> Made:
    """Make a table that has the person's rows; of newest records, also in files of former snapshots only."""
    form, more = KINDS[kind]
    table = Made(person.archive, directory, form, {**more})
    table.tables.create(NAME)
    table.tables.run(NAME)
    person.archive.put_segment("t", 200, log_of(person.person, 200, 210, ()))
    person.archive.commit("t", 210, highest_base=200, log_start=None)
    table.tables.run(NAME)
    return table


def request(person: Canary, age: float = 5) -> None:
    """Put a request to erase some seconds ago, as `tsctl erase add` does after its lists."""
    key, erasure = erasure_key(person.keys.cluster, "case"), Erasure("case", "t", 1, None, "letter", 2, 0, ())
    person.archive.store.put(key, erasure.encode())
    before = time() - age
    os.utime(f"{person.archive.location.removeprefix('file://')}/{key}", (before, before))


def remaining(person: Canary, number: int) -> list[Remains]:
    return [*remaining_in_tables(person.archive.store, person.keys.cluster, {"t-0": number, "other-0": 1})]


def texts_of(path: Path) -> Iterator[bytes]:
    """Yield what a file has, decompressed."""
    data = path.read_bytes()
    yield data
    if data[:4] == b"PAR1":
        yield repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode()
    elif data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    elif data[:3] == b"Obj":
        yield repr(list(fastavro.reader(io.BytesIO(data)))).encode()


def having(root: Path, person: bytes) -> list[str]:
    """Return the files that have the person, or the beginning of it."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "tables.db"]
    wanted = person[:PREFIX]
    return sorted(str(path) for path in files if any(wanted in text for text in texts_of(path)))


def expire(table: Made) -> None:
    """Remove all former snapshots from the metadata; their files stay."""
    catalog = open_catalog("ts-uploader", table.catalog)
    for name in (NAME, f"{NAME}_quarantine"):
        if not catalog.table_exists(tuple(name.split("."))):
            continue
        found = catalog.load_table(tuple(name.split(".")))
        kept = {each.snapshot_id for each in found.metadata.refs.values()}
        others = [each.snapshot_id for each in found.metadata.snapshots if each.snapshot_id not in kept]
        found.maintenance.expire_snapshots().by_ids(others).commit()


@pytest.mark.parametrize("kind", cases(KINDS, quick=["refused", "held"]))
def test_a_run_deletes_the_rows_and_after_expiry_no_byte_is_left(tmp_path: Path, kind: str) -> None:
    """The request stays open until the table wrote that; rows of others stay, and so does what `verify` compares."""
    person = canary(tmp_path / "archive")
    table = made(person, tmp_path / "lake", kind)
    assert having(table.directory, person.person)
    assert remaining(person, 0) == []
    person.erase()
    request(person)
    (open_one,) = remaining(person, 1)
    assert (open_one.surface, open_one.where) == (Surface.TABLE, NAME)
    assert "its next run" in open_one.reason
    assert table.tables.status(NAME).findings
    table.tables.run(NAME)
    assert not table.tables.status(NAME).findings
    assert table.tables.verify(NAME).differences == ()
    assert table.tables.verify(NAME).notes == ()
    if table.format == "iceberg":
        (open_one,) = remaining(person, 1)
        assert "former snapshots" in open_one.reason
        assert having(table.directory, person.person)
        table.tables.run(NAME)
        assert len(remaining(person, 1)) == 1
        expire(table)
        table.tables.run(NAME)
    assert remaining(person, 1) == []
    assert having(table.directory, person.person) == []
    assert table.tables.verify(NAME).differences == ()


def test_rows_of_a_former_place_keep_a_request_open_until_a_run_has_compared_them(tmp_path: Path) -> None:
    """What the table wrote before has no list of that directory, and only names directories of its own cluster."""
    former = canary(MadeArchive(tmp_path / "archive", cluster="old"))
    later = MadeArchive(tmp_path / "archive")
    later.put_segment("t", END, log_of(former.person, END, 220, ()))
    later.commit("t", 220, highest_base=END, log_start=END)
    later.put_restored(former.archive.keys, END)
    table = Made(later, tmp_path / "lake", *KINDS["parquet"])
    table.tables.create(NAME)
    table.tables.run(NAME)
    assert having(table.directory, former.person)
    former.erase()
    request(Canary(later, former.person))

    def remaining(searched: float) -> list[Remains]:
        wanted = {"old/t-0": 1, "old/t-1": 1}
        return [*remaining_in_tables(later.store, later.keys, wanted, int(searched * 1000))]

    (open_one,) = remaining(time() - 5)
    assert "its rows can have records of old/t-0 (list 1)" in open_one.reason
    table.tables.run(NAME)
    assert remaining(time() - 5) == []
    assert having(table.directory, former.person) == []


def test_former_records_of_a_key_are_the_newest_ones_if_the_later_ones_are_erased(tmp_path: Path) -> None:
    """Also behind a tombstone, which left no row that could be deleted."""
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": {"type": "json", "columns": {"a": "long"}}, "mode": "latest", "key": "utf8", "buckets": 2}
    made.put_changes([("a", 1), ("b", 2), ("c", 3), ("a", 4), ("b", None)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    put_erased(made.archive.store, made.archive.partition("t"), [(2, 3, 0), (3, 5, 0)])
    assert made.tables.obey(NAME).partitions == 1
    assert made.select("select _key, a from {} order by 1") == [("a", 1), ("b", 2)]
    assert made.tables.verify(NAME).differences == ()
    assert made.tables.obey(NAME).partitions == 0


def test_a_record_of_a_later_leader_at_an_erased_offset_stays(tmp_path: Path) -> None:
    """The list names the record that an election removed; the one of the later leader is another person's."""
    table = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", {"parser": None})
    table.more["on_taken_back"] = "delete"
    table.put(0, 40)
    table.put(30, 50, epoch=1)
    table.tables.create(NAME)
    table.tables.run(NAME)
    put_erased(table.archive.store, table.archive.partition("t"), [(10, 12, 0), (35, 37, 0), (45, 46, 1)])
    done = table.tables.obey(NAME)
    assert (done.records, done.partitions, done.notes) == (3, 1, ())
    left = [(offset,) for offset in range(50) if offset not in {10, 11, 45}]
    assert table.select("select _offset from {} order by 1") == left
    assert table.tables.verify(NAME).differences == ()


def test_rows_of_two_leaders_keep_a_request_open(tmp_path: Path) -> None:
    """Which one is erased is unknown; the others are deleted, and the table is named until it is created again."""
    table = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", {"parser": None})
    table.more["on_taken_back"] = "keep"
    table.put(0, 40)
    table.tables.create(NAME)
    table.tables.run(NAME)
    table.put(30, 50, epoch=1)
    table.tables.run(NAME)
    put_erased(table.archive.store, table.archive.partition("t"), [(10, 12, 0), (35, 37, 0)])
    done = table.tables.obey(NAME)
    assert (done.records, done.partitions, len(done.notes)) == (2, 0, 1)
    number = table.tables.verify(NAME).snapshot
    done = table.tables.obey(NAME)
    assert (done.records, done.partitions, len(done.notes)) == (0, 0, 1)
    assert table.tables.verify(NAME).snapshot == number
    keys = table.archive.keys
    assert len([*remaining_in_tables(table.archive.store, keys, {"t-0": 1})]) == 1


@pytest.mark.parametrize("when", cases(product((0, 1), (False, True)), quick=[(1, False)]))
def test_a_run_that_is_killed_at_a_deletion_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: tuple[int, bool]
) -> None:
    """Rows of both tables are deleted by the next run, and the request stays open until then."""
    table = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", {})
    table.more = {"parser": {"type": "json", "columns": {"id": "long"}}}
    person = Canary(table.archive, b"canary-5d0c91f2")
    table.put_values(0, [b'{"id":1}', person.person] * 10)
    table.tables.create(NAME)
    table.tables.run(NAME)
    person.erase([0, 1, 3, 5, *range(7, 20, 2)])
    request(person)
    kill_run(table, monkeypatch, when[0], is_late=when[1])
    assert len(remaining(person, 1)) == 1
    table.tables.run(NAME)
    assert table.select("select _offset from {} order by 1") == [(offset,) for offset in range(2, 20, 2)]
    assert table.select("select _offset from {}", "_quarantine") == []
    expire(table)
    table.tables.run(NAME)
    assert remaining(person, 1) == []
    assert having(table.directory, person.person) == []


def test_the_command_deletes_the_rows_and_a_run_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a request too; with offsets next to it, what is meant is unknown."""
    monkeypatch.chdir(tmp_path)
    person, tsctl = canary(tmp_path / "archive"), runner(capfd)
    table = made(person, tmp_path / "lake", "parquet")
    Path("tables.yaml").write_text(json.dumps(table.content))
    person.erase()
    refused = tsctl("tables", "forget", NAME, "--erased", "--offsets", "t-0:1")
    assert (refused.code, "give keys and offsets, or --erased" in refused.err) == (2, True)
    expected = f"{NAME}: deleted the rows of {len(GONE)} erased records; 1 partition had a greater list\n"
    assert tsctl("tables", "forget", NAME, "--erased", "--workers", "1").out == expected
    assert remaining(person, 1) == []
    person.erase({*GONE, 201}, number=2)
    request(person, 0)
    assert "deleted the rows of 1 erased record\n" in tsctl("tables", "run", "--workers", "1").out
    (document,) = tsctl("tables", "run", "--workers", "1", "--json").lines
    assert document["erased_records"] == 0


def test_a_run_continues_if_the_archive_cannot_be_read_for_an_erasure(tmp_path: Path) -> None:
    """It adds what is new, and reports that rows can be left; the next run tries again."""
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": {"type": "json", "columns": {"a": "long"}}, "mode": "latest", "key": "utf8", "buckets": 2}
    made.put_changes([("a", 1), ("b", 2), ("a", 3)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_changes([("c", 4)])
    store, person = made.archive.store, Canary(made.archive, b"a")
    key = person.keys.segment(SegmentName(0))
    data, info = store.get(key)
    store.put(key, data[:-1] + bytes([data[-1] ^ 1]), metadata=dict(info.metadata))
    person.erase([2])
    request(person)
    (sentence,) = made.tables.run(NAME).erasing
    assert key in sentence
    assert made.select("select _key, a from {} order by 1") == [("a", 3), ("b", 2), ("c", 4)]
    assert len(remaining(person, 1)) == 1
    store.put(key, data, metadata=dict(info.metadata))
    assert made.tables.run(NAME).erasing == ()
    assert made.select("select _key, a from {} order by 1") == [("a", 1), ("b", 2), ("c", 4)]
