import datetime

import pyarrow as pa
import pytest

from tests.common.log_format.build import SEGMENTS, batch, record
from ts_reader.decode.arrow import projection_of, to_arrow
from ts_reader.decode.arrow_schema import COLUMNS, COLUMNS_WITH_HEADERS, MILLISECONDS, arrow_schema
from ts_reader.decode.columns import Projection, RecordColumns
from ts_reader.decode.segment_decoder import SegmentDecoder

DATA = batch(
    5,
    [
        record(0, None, b"", [("n\u00fc".encode(), b"1"), (b"n", None)], timestamp_delta=1),
        record(1, b"", None),
        record(2, b"key", b"value", [(b"n", b"")]),
    ],
    base_timestamp=1_700_000_000_123,
)


def columns(data: bytes = DATA, projection: Projection = Projection()) -> RecordColumns:  # noqa: B008
    (found,) = SegmentDecoder(projection).decode([data])
    return found


def test_rows_are_those_of_sparks_kafka_source() -> None:
    """All columns; a record without headers has null headers; microseconds in UTC."""
    table = to_arrow(columns(), "my.topic", 3, COLUMNS_WITH_HEADERS)
    table.validate(full=True)
    assert table.schema == arrow_schema(COLUMNS_WITH_HEADERS)
    rows = table.to_pylist()
    assert [row["headers"] for row in rows] == [
        [{"key": "n\u00fc", "value": b"1"}, {"key": "n", "value": None}],
        None,
        [{"key": "n", "value": b""}],
    ]
    assert [(row["key"], row["value"]) for row in rows] == [(None, b""), (b"", None), (b"key", b"value")]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [("my.topic", 3, n) for n in (5, 6, 7)]
    assert [row["timestampType"] for row in rows] == [0, 0, 0]
    assert rows[1]["timestamp"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.UTC)
    assert table["timestamp"].cast(pa.int64()).to_pylist()[0] == 1_700_000_000_124_000


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    """Names, types and order."""
    assert [(field.name, str(field.type)) for field in arrow_schema(COLUMNS_WITH_HEADERS)] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
    ]
    assert arrow_schema().names == list(COLUMNS) == list(COLUMNS_WITH_HEADERS[:-1])


def test_only_the_named_columns_are_built_in_their_order() -> None:
    """Each alone, two reversed, none at all."""
    whole = to_arrow(columns(), "t", 0, COLUMNS_WITH_HEADERS)
    for names in [(name,) for name in COLUMNS_WITH_HEADERS] + [("value", "key"), ("offset", "headers", "key")]:
        table = to_arrow(columns(projection=projection_of(names)), "t", 0, names)
        table.validate(full=True)
        assert table.to_pylist() == whole.select(list(names)).to_pylist()
    assert to_arrow(columns(), "t", 0, ()).num_rows == 3


def test_a_column_that_was_not_decoded_or_does_not_exist_is_an_error() -> None:
    """Never silently null."""
    bare = columns(projection=Projection(key=False, value=False, headers=False))
    for name in ("key", "value", "headers"):
        with pytest.raises(ValueError, match=name):
            to_arrow(bare, "t", 0, (name,))
    with pytest.raises(KeyError):
        to_arrow(bare, "t", 0, ("timestamptype",))


def test_keys_and_values_are_not_copied() -> None:
    """The Arrow buffers are the decoder's."""
    found = columns(SEGMENTS[0].read_bytes())
    table = to_arrow(found, "t", 0)
    assert found.keys is not None
    assert found.values is not None
    assert table["key"].buffers()[2].address == found.keys.data.ctypes.data
    assert table["value"].buffers()[2].address == found.values.data.ctypes.data
    assert table["offset"].buffers()[1].address == found.offsets.ctypes.data


def test_arrow_batches_that_are_held_keep_their_rows() -> None:
    """The decoder does not write into buffers that an Arrow batch still holds, even if the columns are deleted."""
    data = b"".join(batch(i, [record(0, b"%d" % i, b"value %d" % i, [(b"h", b"%d" % i)])]) for i in range(100))
    decoder = SegmentDecoder(max_rows=7)
    tables = [to_arrow(found, "t", 0, COLUMNS_WITH_HEADERS) for found in decoder.decode([data])]
    rows = pa.Table.from_batches(tables).to_pylist()
    assert [row["key"] for row in rows] == [b"%d" % i for i in range(100)]
    assert [row["value"] for row in rows] == [b"value %d" % i for i in range(100)]
    assert [row["headers"][0]["value"] for row in rows] == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize("milliseconds", [18_448_444_073_709_552, 2**63 - 1, -(2**63)])
def test_a_timestamp_that_no_microsecond_names_is_the_nearest_that_one_does(milliseconds: int) -> None:
    """A producer may write any 64 bits. These wrapped around, and one showed as a day of 2023."""
    data = batch(0, [record(0)], base_timestamp=milliseconds, max_timestamp=milliseconds)
    (columns,) = SegmentDecoder().decode([data])
    (found,) = to_arrow(columns, "t", 0, ["timestamp"]).column(0).cast("int64").to_pylist()
    nearest = (2**63 - 1) // 1000 * 1000
    assert found == (nearest if milliseconds > 0 else -nearest)


def test_milliseconds_are_the_stored_ones() -> None:
    """Also those that no microsecond names; the column is not one of a table."""
    for milliseconds in (-1, 1_700_000_000_123, (1 << 63) - 1, -(1 << 63)):
        data = batch(0, [record(0)], base_timestamp=milliseconds)
        rows = to_arrow(columns(data), "t", 0, ["offset", MILLISECONDS])
        assert rows.to_pylist() == [{"offset": 0, MILLISECONDS: milliseconds}]
        assert rows.schema == arrow_schema(["offset", MILLISECONDS])
    assert MILLISECONDS not in COLUMNS_WITH_HEADERS
