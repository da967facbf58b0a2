"""What each engine reads of a scan, as rows of Python values."""

import math
from collections.abc import Callable
from typing import Any, Final

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa

from ts_reader import Scan

Rows = list[dict[str, Any]]


def by_duckdb(source: Any) -> Rows:
    """Return the rows of a scan or of a dataset by DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("source", source)
        read = connection.execute("from source")
        names = [column[0] for column in read.description or ()]
        return [dict(zip(names, row, strict=True)) for row in read.fetchall()]


def by_pandas(scan: Scan) -> Rows:
    """Return the rows of a scan by pandas; a column of numbers with a null has floats and NaN there."""
    frame = pd.DataFrame.from_arrow(scan)
    columns = {name: [_of_pandas(value) for value in frame[name].array] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _of_pandas(value: Any) -> Any:
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, float):
        return None if math.isnan(value) else int(value)
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return value.tolist() if hasattr(value, "tolist") else value


ENGINES: Final[dict[str, Callable[[Scan], Rows]]] = {
    "pyarrow": lambda scan: pa.table(scan).to_pylist(),
    "pyarrow dataset": lambda scan: scan.dataset().to_table().to_pylist(),
    "duckdb": by_duckdb,
    "duckdb dataset": lambda scan: by_duckdb(scan.dataset()),
    "polars": lambda scan: pl.DataFrame(scan).to_dicts(),
    "polars dataset": lambda scan: pl.scan_pyarrow_dataset(scan.dataset()).collect().to_dicts(),
    "pandas": by_pandas,
}
