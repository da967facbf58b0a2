"""JSON lines: what is written is read back, whatever the bytes are."""

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.errors import CorruptData
from ts_tables.files.compressed import CODECS
from ts_tables.files.file_writer import FileWriter
from ts_tables.files.json_lines import json_rows
from ts_tables.files.layout import FileFormat, Layout
from ts_tables.files.raw_columns import RAW_SCHEMA

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
ROWS = st.fixed_dictionaries(
    {
        "key": BYTES,
        "value": BYTES,
        "topic": st.just("t"),
        "partition": st.integers(0, (1 << 31) - 1),
        "offset": st.integers(0, (1 << 63) - 1),
        # Microseconds of whole milliseconds, as the decoder has them.
        "timestamp": st.none() | st.integers(-(1 << 53), (1 << 53) - 1).map(lambda ms: ms * 1000),
        "timestampType": st.sampled_from([0, 1, -1]),
        "headers": st.none() | st.lists(st.fixed_dictionaries({"key": TEXT, "value": BYTES}), max_size=3),
        "_topic_id": st.none() | st.just("pQ1r"),
        "_partition_id": st.just(0),
        "_offset": INT64,
        "_ordinal": st.just(0),
    }
)


def written(rows: list[dict[str, Any]], codec: str = "none") -> bytes:
    """Return a file of rows."""
    kept: list[bytes] = []

    class Stream(io.BytesIO):
        def close(self) -> None:
            kept.append(self.getvalue())
            super().close()

    writer = FileWriter(Layout(RAW_SCHEMA, (), (), 1 << 30, codec, FileFormat.JSON_LINES), lambda _: ("f", Stream()))
    writer.add(pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA))
    writer.close()
    return kept[0]


@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from(CODECS))
def test_what_is_written_is_read_back(rows: list[dict[str, Any]], codec: str) -> None:
    """Bytes that are no UTF-8, NULLs, empty values, and times far outside of the calendar."""
    found = pa.Table.from_batches(json_rows(io.BytesIO(written(rows, codec)), codec, RAW_SCHEMA, "f"))
    expected = pa.Table.from_batches([pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA)])
    assert found.cast(RAW_SCHEMA).equals(expected)


def test_a_line_has_the_documented_form() -> None:
    """Text where the bytes are UTF-8, and Base64 where not."""
    row = {
        "key": b"\xff",
        "value": b'{"a":1}',
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": 1_764_057_600_123_000,
        "timestampType": 0,
        "headers": [{"key": "h", "value": None}, {"key": "h", "value": b"\x80"}],
        "_topic_id": None,
        "_partition_id": 0,
        "_offset": 7,
        "_ordinal": 0,
    }
    assert json.loads(written([row])) == {
        "key_base64": "/w==",
        "value": '{"a":1}',
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": "2025-11-25T08:00:00.123Z",
        "timestampType": 0,
        "headers": [{"key": "h"}, {"key": "h", "value_base64": "gA=="}],
        "_topic_id": None,
        "_partition_id": 0,
        "_offset": 7,
        "_ordinal": 0,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[1]\n",
        b"1\n",
        b'{"offset":"x"}\n',
        b'{"topic":"t"}\n',
        b'{"key_base64":"%"}\n',
        b'{"timestamp":"yesterday"}\n',
        b'{"timestamp":99999999999999999999}\n',
        b'{"headers":[1]}\n',
        b'{"headers":7}\n',
        b"\xff\n",
    ],
)
def test_a_line_that_is_no_row_is_named(data: bytes) -> None:
    """By one error of the project, which has the file's name."""
    with pytest.raises(CorruptData, match=r"^some/file"):
        list(json_rows(io.BytesIO(data), "none", RAW_SCHEMA, "some/file"))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_file_that_was_cut_is_named(codec: str, cut: int) -> None:
    """It never looks like a shorter one."""
    whole = written(
        [
            dict.fromkeys(RAW_SCHEMA.names)
            | {"topic": "t", "partition": 0, "offset": 1, "_partition_id": 0, "_offset": 1, "_ordinal": 0}
        ]
        * 1000,
        codec,
    )
    with pytest.raises(CorruptData, match=r"^f"):
        list(json_rows(io.BytesIO(whole[:cut]), codec, RAW_SCHEMA, "f"))
