"""The columns of a scan: what is read for them, and decoded keys and values."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from tests.reader.schemas.reversed_codec import Reversed
from tests.reader.schemas.sources import Schemas, framed
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS, arrow_schema
from ts_reader.execution.decoded_columns import Columns
from ts_reader.query.query import Undecoded
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.opening import open_codec

PARTITION = TopicPartition("t", 3)
INTEGERS = open_codec("int", "t", Part.VALUE)


def columns(*names: str, value: Codec = INTEGERS, undecoded: Undecoded = Undecoded.ERROR) -> Columns:
    return Columns(names, codecs={Part.VALUE: {"t": value}}, undecoded=undecoded, way_out="The way out.")


def rows(read: tuple[str, ...], *values: bytes | None) -> pa.RecordBatch:
    """Return rows from offset 7 on, with the columns that are read."""
    of: dict[str, list[Any]] = {"key": [b"k"] * len(values), "value": list(values), "headers": [None] * len(values)}
    of["offset"] = [*range(7, 7 + len(values))]
    return pa.record_batch([of[name] for name in read], schema=arrow_schema(read))


def test_columns_of_segments_are_read_as_they_are() -> None:
    """Nothing else is read, and the bytes of corrupt places have the name that the user gave them."""
    plain = Columns([*COLUMNS_WITH_HEADERS, "raw"], corrupt_column="raw")
    assert plain.read == (*COLUMNS_WITH_HEADERS, "raw")
    assert plain.schema == arrow_schema(COLUMNS_WITH_HEADERS).append(pa.field("raw", pa.binary()))
    batch = rows(("offset",), b"1")
    assert Columns(["offset"]).decode(batch, PARTITION) is batch
    sent = plain.choose(["topic", "offset", "partition"]).sent
    assert sent.names == ("offset",)
    whole = plain.choose(["topic", "offset", "partition"]).with_constants(batch, PARTITION)
    assert whole.to_pylist() == [{"topic": "t", "offset": 7, "partition": 3}]


def test_decoded_values_have_the_type_of_their_codec() -> None:
    """Null stays null, and the offset that an error would name is not returned."""
    chosen = columns("value", "key")
    assert chosen.read == ("value", "key", "offset")
    found = chosen.decode(rows(chosen.read, b"\0\0\0\1", None), PARTITION)
    assert found.schema == pa.schema([("value", pa.int32()), ("key", pa.binary())])
    assert found.to_pydict() == {"value": [1, None], "key": [b"k", b"k"]}


def test_an_unused_codec_decodes_nothing() -> None:
    """A scan of the other columns reads no values."""
    chosen = columns("key", undecoded=Undecoded.NULL)
    assert chosen.read == ("key",)
    assert chosen.decode(rows(("key",), b"wrong"), PARTITION).to_pylist() == [{"key": b"k"}]


def test_a_refused_value_is_an_error_that_names_its_place() -> None:
    """It has the reason and the way out; the rows before it are no concern."""
    chosen = columns("value")
    with pytest.raises(CorruptData) as caught:
        chosen.decode(rows(chosen.read, b"\0\0\0\1", b"12345"), PARTITION)
    assert str(caught.value) == "t-3, offset 8: value: 5 bytes; expected an integer of 4. The way out."


def test_a_refused_value_may_be_null_with_a_reason() -> None:
    """The reason has a column of its own, which can be read alone."""
    chosen = columns("value", "value_error", undecoded=Undecoded.NULL)
    assert chosen.read == ("value",)
    reason = "5 bytes; expected an integer of 4"
    found = chosen.decode(rows(chosen.read, b"\0\0\0\1", b"12345"), PARTITION)
    assert found.to_pydict() == {"value": [1, None], "value_error": [None, reason]}
    alone = chosen.choose(["value_error"])
    assert alone.read == ("value",)
    assert alone.decode(rows(("value",), b"12345"), PARTITION).to_pylist() == [{"value_error": reason}]


def test_headers_are_read_for_a_codec_that_may_find_a_schema_there() -> None:
    """They are returned only if the scan has them."""
    source = Schemas()
    number = source.add("t-value", "string")
    chosen = columns("value", value=open_codec("registry", "t", Part.VALUE, source))
    assert chosen.read == ("value", "offset", "headers")
    found = chosen.decode(rows(chosen.read, framed(number, b"\x02x")), PARTITION)
    assert found.to_pydict() == {"value": ["x"]}


def test_a_pickled_copy_decodes_the_same() -> None:
    """A worker process has the columns of its reader."""
    chosen = columns("value", "value_error", undecoded=Undecoded.NULL)
    copy = pickle.loads(pickle.dumps(chosen))
    batch = rows(chosen.read, b"\0\0\0\1", b"")
    assert copy.schema == chosen.schema
    assert copy.decode(batch, PARTITION) == chosen.decode(batch, PARTITION)


def test_a_codec_of_the_user_stays_in_the_reader() -> None:
    """A worker process may not find its module, and reads the bytes for it."""
    chosen = columns("topic", "value", value=Reversed("t", Part.VALUE, {"word": "x"}))
    assert not chosen.travels
    assert chosen.choose(["topic"]).travels
    assert columns("value").travels
    assert chosen.raw.sent.names == ("value", "offset")
    sent = rows(("value", "offset"), b"ab")
    there = chosen.raw.with_constants(sent, PARTITION)
    assert chosen.decode(there, PARTITION).to_pylist() == [{"topic": "t", "value": b"ba"}]
