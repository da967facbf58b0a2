"""Text, SequenceFile and ORC: what is written is read back as far as the format has it, and damage is named."""

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.files.test_json_lines import BYTES, ROWS
from ts_common.errors import CorruptData, OperatorError
from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.digest import sum_of
from ts_tables.files.column_times import with_nearest
from ts_tables.files.file_writer import FileWriter
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import RECORD_FORMATS, FileFormat, Layout, WrittenFile
from ts_tables.files.raw_columns import RAW_SCHEMA, RECORD_SCHEMA
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import FileRecords, reduced

FORMS = [(form, codec) for form in (FileFormat.ORC, *sorted(RECORD_FORMATS)) for codec in FORMATS[form].codecs]


class Kept(io.BytesIO):
    """A stream whose bytes stay after it is closed."""

    data = b""

    def close(self) -> None:
        self.data = self.getvalue()
        super().close()


BY_RECORD = [(FileFormat.SEQUENCE, "none"), (FileFormat.SEQUENCE_MESSAGEPACK, "none")]


def rows_of(values: Sequence[bytes | None], **further: Any) -> list[dict[str, Any]]:
    """Return rows of one Kafka partition, at every third offset from 7 on."""
    row: dict[str, Any] = {
        "topic": "t",
        "partition": 3,
        "timestamp": 1_000,
        "timestampType": 0,
        "headers": None,
        "key": None,
        "_topic_id": "pQ1r",
        "_partition_id": 3,
        "_ordinal": 0,
        **further,
    }
    return [{**row, "value": value, "offset": 7 + 3 * at, "_offset": 7 + 3 * at} for at, value in enumerate(values)]


def written(
    rows: list[dict[str, Any]], form: FileFormat, codec: str, delimiter: bytes = b"\n"
) -> tuple[bytes, WrittenFile]:
    """Return a file of rows, and what describes it."""
    stream = Kept()
    layout = Layout(RAW_SCHEMA, compression=codec, format=form, delimiter=delimiter)
    writer = FileWriter(layout, lambda _: ("f", stream))
    stored = [{**row, MILLISECONDS: (row["timestamp"] or 0) // 1000} for row in rows]
    writer.add(with_nearest(pa.RecordBatch.from_pylist(stored, schema=RECORD_SCHEMA), layout)[0])
    (file,) = writer.close()
    return stream.data, file


def read(data: bytes, form: FileFormat, codec: str, file: WrittenFile, delimiter: bytes = b"\n") -> pa.Table:
    """Return the rows of a file."""
    records = FileRecords(TopicPartition("t", 3), "pQ1r", file.runs, delimiter)
    found = TableFile("f", lambda: io.BytesIO(data), form, codec, True, (), records)
    return pa.Table.from_batches(found.rows(RAW_SCHEMA), RAW_SCHEMA)


@pytest.mark.parametrize(("form", "codec"), FORMS, ids=str)
@pytest.mark.parametrize("delimiter", [b"\n", b"||"])
def test_what_is_written_is_read_back(form: FileFormat, codec: str, delimiter: bytes) -> None:
    """NULL, empty, long, and bytes that are no text; digests are those of the reduced records."""
    values = [b"a", None, b"", b"\xff\x00|-", b"x" * 100_000, b"SEQ", b"-", None]
    rows = [{**row, "key": key} for row, key in zip(rows_of(values), [b"k", None, b"", b"\xff"] * 2, strict=True)]
    data, file = written(rows, form, codec, delimiter)
    found = read(data, form, codec, file, delimiter)
    expected = reduced(pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA), Layout(RAW_SCHEMA, format=form))
    assert found.equals(pa.Table.from_batches([expected]))
    assert sum_of(found) == sum_of(expected)
    assert (file.first, file.rows) == (7, len(values))


@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from(FORMS))
def test_any_rows_are_read_back(rows: list[dict[str, Any]], form: tuple[FileFormat, str]) -> None:
    """ORC has the nearest times that it can read; text refuses a value with the delimiter."""
    rows = [{**row, "_topic_id": "pQ1r", "partition": 3, "_partition_id": 3, "_offset": row["offset"]} for row in rows]
    try:
        data, file = written(rows, *form)
    except OperatorError:
        assert any(b"\n" in (row["value"] or b"") for row in rows)
        return
    expected = reduced(pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA), Layout(RAW_SCHEMA, format=form[0]))
    assert read(data, *form, file).to_pylist() == pa.Table.from_batches([expected]).to_pylist()


@given(st.lists(BYTES, min_size=1, max_size=5), st.sampled_from([b"\n", b"||", b"aa"]))
def test_a_value_with_the_delimiter_is_refused(values: list[bytes | None], delimiter: bytes) -> None:
    """Also where the end of a value and the delimiter together look like an earlier one."""
    rows = rows_of(values)
    is_divided = any(
        (value or b"") + delimiter != (value or b"").partition(delimiter)[0] + delimiter
        or ((value or b"") + delimiter).find(delimiter) != len(value or b"")
        for value in values
    )
    if is_divided:
        with pytest.raises(OperatorError, match=r"t-3, offset \d+: the value contains the delimiter"):
            written(rows, FileFormat.TEXT, "none", delimiter)
    else:
        data, file = written(rows, FileFormat.TEXT, "none", delimiter)
        assert read(data, FileFormat.TEXT, "none", file, delimiter)["value"].to_pylist() == [
            value or b"" for value in values
        ]


@pytest.mark.parametrize(("form", "codec"), FORMS, ids=str)
def test_a_file_that_was_cut_is_named(form: FileFormat, codec: str) -> None:
    """At many places, and with a byte more; between two records of a SequenceFile it has fewer rows, as in Hadoop."""
    data, file = written(rows_of([bytes([65 + at]) * 40 for at in range(26)] * 40), form, codec)
    for end in (*range(0, len(data), max(1, len(data) // 50)), len(data) - 1):
        try:
            found = read(data[:end], form, codec, file)
        except CorruptData:
            continue
        assert (form, codec) in BY_RECORD
        assert found.num_rows < file.rows
    if form in RECORD_FORMATS:
        with pytest.raises(CorruptData, match="f"):
            read(data + b"\n", form, codec, file)


@pytest.mark.parametrize("form", [FileFormat.SEQUENCE, FileFormat.SEQUENCE_MESSAGEPACK])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_changed_bytes_of_a_sequence_file_end_in_a_message(form: FileFormat, codec: str) -> None:
    """Each byte of a small file is replaced: rows are read, or the file is named."""
    data, file = written(rows_of([b"value", b""]), form, codec)
    for at in range(len(data)):
        for byte in (0, 0x7F, 0x80, 0xFF):
            changed = data[:at] + bytes([byte]) + data[at + 1 :]
            try:
                read(changed, form, codec, file)
            except CorruptData:
                continue


NESTED = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.bool_(), pa.decimal128(6, 2), pa.date32(), pa.binary()]),
    lambda kind: st.one_of(
        st.tuples(kind, kind).map(lambda two: pa.struct([("a", two[0]), ("b", two[1])])),
        kind.map(pa.list_),
        kind.map(lambda one: pa.map_(pa.string(), one)),
    ),
    max_leaves=4,
)


@st.composite
def nested(draw: st.DrawFn) -> pa.Array:
    """Draw a column of a nested type. Anything in it can be NULL."""
    kind = draw(NESTED)
    return pa.array([draw(value_of(kind)) for _ in range(draw(st.integers(1, 6)))], kind)


def value_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        found: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: value_of(field.type) for field in kind})
    elif pa.types.is_map(kind):
        found = st.lists(st.tuples(st.sampled_from("xyz"), value_of(kind.item_type)), max_size=3)
    elif pa.types.is_list(kind):
        found = st.lists(value_of(kind.value_type), max_size=3)
    else:
        ones = {
            pa.int64(): st.integers(-9, 9),
            pa.string(): st.text("ab", max_size=2),
            pa.bool_(): st.booleans(),
            pa.date32(): st.dates(),
            pa.binary(): st.binary(max_size=2),
        }
        found = ones.get(kind, st.decimals(-999, 999, places=2))
    return st.none() | found


@given(nested())
def test_orc_has_what_is_in_a_nested_column(column: pa.Array) -> None:
    """A struct that is NULL in another one has NULLs, and moves no value of other rows."""
    schema = pa.schema([*RAW_SCHEMA, ("nested", column.type)])
    raw = pa.RecordBatch.from_pylist(rows_of([b""] * len(column)), schema=RAW_SCHEMA)
    stream = Kept()
    layout = Layout(schema, compression="none", format=FileFormat.ORC)
    writer = FileWriter(layout, lambda _: ("f", stream))
    writer.add(pa.RecordBatch.from_arrays([*raw.columns, column], schema=schema))
    writer.close()
    found = TableFile("f", lambda: io.BytesIO(stream.data), FileFormat.ORC, is_local=True).rows(schema)
    assert pa.Table.from_batches(found)["nested"].to_pylist() == column.to_pylist()


def test_orc_has_no_time_of_day() -> None:
    """The columns of a codec can have one."""
    with pytest.raises(ValueError, match="at: ORC has no time of day"):
        FORMATS[FileFormat.ORC].check(pa.schema([("at", pa.struct([("x", pa.list_(pa.time64("us")))]))]))
