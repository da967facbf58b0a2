"""Plain files are read by other programs, as a pattern of names finds them."""

from pathlib import Path

import duckdb
import polars
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive
from tests.tables.made_tables import MadeTable
from ts_tables.files.layout import FileFormat

DAY_MS = 86_400_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Five records of two days, with NULLs, empty values and headers."""
    made = MadeArchive(tmp_path / "archive")
    records = [
        record(0, b"a", b"1", headers=[(b"h", b"x"), (b"h", None)]),
        record(1, None, b""),
        record(2, b"", None, timestamp_delta=DAY_MS),
        record(3, b"\xff", b"\x00\xfe", headers=[]),
        record(4, "ü".encode(), b"{}", timestamp_delta=DAY_MS),
    ]
    made.put_segment("t", 0, batch(0, records, base_timestamp=20_000 * DAY_MS, max_timestamp=20_001 * DAY_MS))
    made.commit("t", 5, last_stable_offset=5)
    return made


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path, request: pytest.FixtureRequest) -> MadeTable:
    made = MadeTable(
        archive, tmp_path / "lake", format=request.param, partition_by=("day(timestamp)", "topic", "bucket(2, key)")
    )
    made.create()
    made.run()
    return made


@pytest.mark.parametrize("table", [FileFormat.PARQUET], indirect=True)
def test_duckdb_and_polars_read_the_rows_of_parquet(table: MadeTable) -> None:
    """Types and NULLs are equal; the partition key is in the names of directories."""
    expected = table.arrow()
    pattern = f"{table.directory}/files/**/*.parquet"
    by_duckdb = duckdb.sql(f"select * from read_parquet('{pattern}', hive_partitioning = false) order by _offset")
    assert by_duckdb is not None
    assert by_duckdb.to_arrow_table().cast(expected.schema).equals(expected)
    by_polars = polars.scan_parquet(pattern, hive_partitioning=False).sort("_offset").collect().to_arrow()
    assert by_polars.cast(expected.schema).equals(expected)
    days = duckdb.execute(
        f"select timestamp_day, count(*) from read_parquet('{pattern}') group by all order by all"
    ).fetchall()
    assert [(str(day), count) for day, count in days] == [("2024-10-04", 3), ("2024-10-05", 2)]


@pytest.mark.parametrize("table", [FileFormat.JSON_LINES], indirect=True)
def test_duckdb_reads_json_lines(table: MadeTable) -> None:
    """Times are times, and bytes that are no text are under their other name."""
    pattern = f"{table.directory}/files/**/*.jsonl.gz"
    found = duckdb.execute(
        f"select _offset, key, key_base64, value, value_base64 from read_json('{pattern}') order by _offset"
    ).fetchall()
    assert found == [
        (0, "a", None, "1", None),
        (1, None, None, "", None),
        (2, "", None, None, None),
        (3, None, "/w==", None, "AP4="),
        (4, "ü", None, "{}", None),
    ]
    days = duckdb.execute(
        f"select date_trunc('day', timestamp at time zone 'UTC'), count(*) from read_json('{pattern}') group by all "
        "order by all"
    ).fetchall()
    assert [(str(day)[:10], count) for day, count in days] == [("2024-10-04", 3), ("2024-10-05", 2)]
