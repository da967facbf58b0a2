"""The columns of a reader and their types, without what decodes them."""

import subprocess
import sys

import pyarrow as pa
import pytest

from ts_reader.decode.arrow_schema import COLUMNS, COLUMNS_WITH_HEADERS, HEADERS, arrow_schema, constant_column


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
    """Of the requested length, whatever lengths it had before."""
    assert constant_column("topic", "clicks", 7, rows).to_pylist() == ["clicks"] * rows
    assert constant_column("partition", "clicks", 7, rows).to_pylist() == [7] * rows


def test_names_and_types_load_no_compiled_code() -> None:
    """A command that only plans starts without LLVM."""
    program = "import sys, ts_reader.decode.arrow_schema; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
