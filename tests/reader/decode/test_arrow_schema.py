"""The columns of a reader and their types, without what decodes them."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from ts_reader.decode.arrow_schema import (
    COLUMNS,
    COLUMNS_WITH_HEADERS,
    HEADERS,
    LATEST_MILLISECONDS,
    TYPES,
    arrow_schema,
    constant_column,
    count_far,
    far_warning,
    microseconds_of,
)


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    """In its order, with its types; headers only on request."""
    assert COLUMNS == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (*COLUMNS, HEADERS) == COLUMNS_WITH_HEADERS
    assert arrow_schema(("offset", "key")) == pa.schema([("offset", pa.int64()), ("key", pa.binary())])
    assert arrow_schema().field("timestamp").type == pa.timestamp("us", tz="UTC")
    with pytest.raises(KeyError):
        arrow_schema(("nope",))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 1000])
def test_a_constant_column_has_one_value(rows: int) -> None:
    """It has the requested length, whatever lengths it had before."""
    assert constant_column("topic", "clicks", 7, rows).to_pylist() == ["clicks"] * rows
    assert constant_column("partition", "clicks", 7, rows).to_pylist() == [7] * rows


def test_names_and_types_load_no_compiled_code() -> None:
    """A command that only plans starts without LLVM."""
    program = "import sys, ts_reader.decode.arrow_schema; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


FAR = ((1 << 63) - 1, 1_700_000_000_000_000_000, LATEST_MILLISECONDS, -LATEST_MILLISECONDS, -(1 << 63))
NEAR = (LATEST_MILLISECONDS - 1, 1 - LATEST_MILLISECONDS, -1, 0, 1_700_000_000_000)


@pytest.mark.parametrize("milliseconds", [*FAR, *NEAR])
def test_the_nearest_time_that_fits_is_shown_and_counted(milliseconds: int) -> None:
    """A time within the limits is exact and not counted; one beyond them is the limit, and counted."""
    found = pa.array(microseconds_of(np.array([milliseconds, 5], np.int64)), TYPES["timestamp"])
    nearest = max(-LATEST_MILLISECONDS, min(milliseconds, LATEST_MILLISECONDS))
    assert found.cast(pa.int64()).to_pylist() == [nearest * 1000, 5000]
    assert count_far(found) == (milliseconds in FAR)


def test_a_column_without_times_has_no_far_one() -> None:
    """Rows of corrupt places have no time."""
    assert count_far(pa.nulls(3, TYPES["timestamp"])) == 0
    assert "1,234 rows" in far_warning(1234, "read timestampMs")
