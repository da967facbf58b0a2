"""Verification of a table: each row that differs from the archive is named."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable, put, verified
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import CorruptData, DataLoss
from ts_reader.query.query import OnHole
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.iceberg.target import OnForeign


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive")
    put(made, 0, 100)
    put(made, 0, 30, partition=1)
    return made


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path) -> MadeTable:
    made = MadeTable(archive, tmp_path / "lake", partition_by=("topic",))
    made.create()
    made.run()
    return made


def differences(table: MadeTable) -> list[str]:
    return [str(each) for each in verified(table).differences]


def test_a_whole_table_has_no_difference(archive: MadeArchive, table: MadeTable) -> None:
    """Also after further runs, and although the archive has more than the table claims."""
    put(archive, 100, 150)
    found = verified(table)
    assert (found.differences, found.notes, found.rows) == ((), (), 130)
    table.run()
    assert verified(table).rows == 180


def rewrite(table: MadeTable, change: Any, *, store_schema: bool = False) -> None:
    """Change the rows of the file of partition 0 where it is, as a program that bypasses the table."""
    files = {path: pq.read_table(path) for path in table.paths()}
    first = {path: (rows["_partition_id"][0].as_py(), rows["_offset"][0].as_py()) for path, rows in files.items()}
    (path,) = [path for path, place in first.items() if place == (0, 0)]
    rows = files[path]
    pq.write_table(change(rows), path, store_schema=store_schema)


def replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, pa.field(name, values.type, metadata=rows.schema.field(at).metadata), values)


def changed(rows: pa.Table, offset: int) -> pa.Table:
    values = rows["value"].to_pylist()
    values[offset] = b"other"
    return rows.set_column(rows.schema.get_field_index("value"), rows.schema.field("value"), [pa.array(values)])


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            lambda rows: pa.concat_tables([rows.slice(0, 40), rows.slice(42)]),
            ["t-0: offsets 40 to 41: the archive has the record, the table has no row"],
        ),
        (
            lambda rows: pa.concat_tables([rows, rows.slice(7, 1)]),
            ["t-0: offset 7: the table has the row more than once"],
        ),
        (lambda rows: changed(rows, 99), ["t-0: offset 99: the row differs from the record"]),
        (
            lambda rows: pa.concat_tables([changed(rows, 3).slice(0, 50), rows.slice(51), rows.slice(60, 1)]),
            [
                "t-0: offset 50: the archive has the record, the table has no row",
                "t-0: offset 60: the table has the row more than once",
                "t-0: offset 3: the row differs from the record",
            ],
        ),
    ],
    ids=["deleted", "doubled", "changed", "all"],
)
def test_each_row_that_differs_is_named(table: MadeTable, change: Any, found: list[str]) -> None:
    """By its offset, and how."""
    rewrite(table, change)
    assert differences(table) == found


def test_a_row_outside_of_the_claims_is_named(table: MadeTable) -> None:
    """Another program wrote it, and the table keeps its rows."""
    table.on_foreign = OnForeign.KEEP
    loaded = table.table
    row = {"topic": "t", "partition": 0, "offset": 500, "_partition_id": 0, "_offset": 500, "_ordinal": 0}
    kinds = loaded.schema().as_arrow()
    loaded.append(pa.Table.from_pylist([{name: row.get(name) for name in kinds.names}], kinds))
    assert differences(table) == ["t-0: offset 500: the table has a row, the archive has no such record"]


def test_rows_below_the_start_of_the_log_are_not_compared(archive: MadeArchive, table: MadeTable) -> None:
    """Retention removed their segments; the note names them."""
    put(archive, 100, 150)
    archive.commit("t", 150, highest_base=100, log_start=100, last_stable_offset=150)
    table.run()
    found = verified(table)
    assert found.differences == ()
    assert found.notes == ("t-0: offsets 0 to 99 are below the start of the log",)
    assert found.rows == 80


def test_a_passed_hole_is_no_difference(archive: MadeArchive, tmp_path: Path) -> None:
    """Neither before it is filled, nor between that and the late claim, nor after it."""
    table = MadeTable(archive, tmp_path / "lake", policy=Policy(on_hole=OnHole.PASS))
    put(archive, 120, 150)
    table.create()
    table.run()
    assert verified(table).differences == ()
    archive.put_segment("t", 100, batches((100, 120)))
    assert verified(table).differences == ()
    table.run()
    assert (verified(table).differences, verified(table).rows) == ((), 180)


def elected(archive: MadeArchive) -> None:
    archive.put_segment("t", 60, batches(*steps(60, 90), epoch=2, value=b"later"), variant=True)
    archive.commit("t", 90, epochs=((0, 0), (2, 60)), highest_base=60, last_stable_offset=90)


def test_rows_that_an_election_removed_are_noted_until_the_next_run(archive: MadeArchive, table: MadeTable) -> None:
    """Then they are deleted, or subtracted; of kept rows only the sum is known."""
    elected(archive)
    found = verified(table)
    assert found.notes == ("t-0: offsets 60 to 99 were removed from the log by an election",)
    assert found.differences == ()
    table.policy = Policy(on_taken_back=OnTakenBack.KEEP)
    table.run()
    assert verified(table).differences == ()
    rewrite(table, lambda rows: pa.concat_tables([rows.slice(0, 75), rows.slice(76)]))
    sentence = "differ; which of them is unknown"
    assert [str(each) for each in verified(table).differences] == [
        f"t-0: offsets 60 to 99: the rows that an election removed, or the later leader's, {sentence}"
    ]
    rewrite(table, lambda rows: rows.slice(1))
    assert differences(table) == ["t-0: offset 0: the archive has the record, the table has no row"]


def test_rows_are_kept_twice_and_then_deleted(archive: MadeArchive, table: MadeTable) -> None:
    """Two elections, each further back; the state has each kept row once, and then none."""
    table.policy = Policy(on_taken_back=OnTakenBack.KEEP)
    elected(archive)
    table.run()
    archive.put_segment("t", 50, batches(*steps(50, 70), epoch=3, value=b"third"), variant=True)
    archive.commit("t", 70, epochs=((0, 0), (3, 50)), highest_base=50, last_stable_offset=70)
    table.run()
    assert sorted(table.offsets()) == sorted([*range(100), *range(60, 90), *range(50, 70)])
    assert verified(table).differences == ()
    table.policy = Policy(on_taken_back=OnTakenBack.DELETE)
    archive.put_segment("t", 40, batches(*steps(40, 60), epoch=4, value=b"fourth"), variant=True)
    archive.commit("t", 60, epochs=((0, 0), (4, 40)), highest_base=40, last_stable_offset=60)
    table.run()
    assert table.offsets() == list(range(60))
    assert verified(table).differences == ()
    assert table.head.state.topics["t"][0].partitions[0].kept == ()


def test_an_election_inside_of_kept_rows_ends_the_run(archive: MadeArchive, table: MadeTable) -> None:
    """Nothing distinguishes the kept rows from those of the later leader."""
    table.policy = Policy(on_taken_back=OnTakenBack.KEEP)
    elected(archive)
    table.run()
    archive.put_segment("t", 80, batches(*steps(80, 100), epoch=3), variant=True)
    archive.commit("t", 100, epochs=((0, 0), (2, 60), (3, 80)), highest_base=80, last_stable_offset=100)
    with pytest.raises(DataLoss, match="create the table again"):
        table.run()


def test_offsets_that_the_archive_lost_are_noted(archive: MadeArchive, table: MadeTable) -> None:
    """And no difference: the table has them."""
    put(archive, 100, 120)
    put(archive, 120, 150)
    table.run()
    keys = archive.partition("t")
    archive.store.delete([keys.segment(SegmentName(100))])
    found = verified(table)
    assert found.differences == ()
    assert found.notes == ("t-0: offsets 100 to 119 are missing in the archive, or hidden by what is missing",)
    archive.commit("t", 80, highest_base=0, last_stable_offset=80)
    found = verified(table)
    assert (found.differences, found.notes) == ((), ("t-0: offsets 80 to 149 are above the end of the commit",))


def test_a_hole_above_the_claims_hides_rows_below_it(archive: MadeArchive, table: MadeTable) -> None:
    """A transaction was decided by a marker that the archive lost: its rows are noted."""
    records = [record(delta, b"%d" % (100 + delta)) for delta in range(10)]
    opened = batch(100, records, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, sequence=0)
    archive.put_segment("t", 100, opened + batches((110, 120)))
    archive.put_segment("t", 120, marker(120, 7, 1, producer_epoch=0) + batches((121, 130)))
    archive.put_segment("t", 130, batches((130, 140)))
    archive.commit("t", 140, highest_base=130, last_stable_offset=140)
    table.most_bytes = 1
    table.run()
    assert table.offsets() == [*range(120), *range(121, 140)]
    keys = archive.partition("t")
    archive.store.delete([keys.segment(SegmentName(120))])
    found = verified(table)
    assert found.differences == ()
    assert found.notes == ("t-0: offsets 100 to 129 are missing in the archive, or hidden by what is missing",)


@pytest.mark.parametrize("column", ["_offset", "_ordinal", "_partition_id"])
def test_a_row_with_another_position_is_named(table: MadeTable, column: str) -> None:
    """An election would delete the wrong rows by it."""

    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(column)
        values = rows[column].to_pylist()
        values[5] += 1
        return rows.set_column(at, rows.schema.field(column), [pa.array(values, rows.schema.field(column).type)])

    rewrite(table, change)
    assert differences(table)


ODD = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


def test_the_same_rows_in_other_types_of_arrow_are_no_difference(table: MadeTable) -> None:
    """A program that writes a file again can store its own types: those of polars have 64-bit offsets."""

    def change(rows: pa.Table) -> pa.Table:
        for name, values in (("headers", rows["headers"].cast(ODD)), ("topic", rows["topic"].dictionary_encode())):
            rows = replaced(rows, name, values)
        return rows

    rewrite(table, change, store_schema=True)
    assert differences(table) == []


@pytest.mark.parametrize("column", ["partition", "offset", "timestampType"])
def test_a_row_without_a_number_is_named(table: MadeTable, column: str) -> None:
    """It is no row with 0."""
    rewrite(table, lambda rows: replaced(rows, column, pa.nulls(rows.num_rows, rows.schema.field(column).type)))
    assert differences(table)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("topic", None, "rows without topic: "),
        ("_offset", None, "rows without _offset: 1"),
        ("_ordinal", None, "rows without _ordinal: 1"),
        ("partition", "x", "Failed to parse string: 'x'"),
        ("partition", -(2**63), "not in range"),
        ("headers", "x", "Unsupported cast"),
    ],
)
def test_a_file_without_the_columns_of_records_is_corrupt(
    table: MadeTable, column: str, value: Any, expected: str
) -> None:
    """Each row has a position; a column with values of another kind is an error that names the file."""

    def change(rows: pa.Table) -> pa.Table:
        kind = rows.schema.field(column).type if value is None else None
        return replaced(rows, column, pa.array([value] * rows.num_rows, kind))

    rewrite(table, change)
    with pytest.raises(CorruptData, match=rf"\.parquet: .*{expected}"):
        verified(table)


@pytest.mark.parametrize("column", ["topic", "_topic_id"])
def test_a_topic_that_is_no_text_is_corrupt(table: MadeTable, column: str) -> None:
    """The error names the file; Parquet's readers do not check texts."""

    def change(rows: pa.Table) -> pa.Table:
        return replaced(rows, column, pa.array([b"\xff"] * rows.num_rows).view(pa.string()))

    rewrite(table, change)
    with pytest.raises(CorruptData, match=rf"\.parquet: {column}: Invalid UTF8"):
        verified(table)
