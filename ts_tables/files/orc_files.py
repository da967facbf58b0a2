"""ORC, by pyarrow. A file has no time that `ts_tables.files.column_times` refuses.

Times are ORC's `timestamp`, without a zone, and are UTC: Spark 4.1 does not read `timestamp with local time zone`.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa
from pyarrow import orc

from ts_common.errors import CorruptData
from ts_tables.files.layout import Closed, Layout, discard
from ts_tables.parsers.table_types import list_parts, nested_types

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
_NAMES: Final = {"gzip": "zlib", "none": "uncompressed"}  # of codecs, where ORC has others
_STRIPE_BYTES: Final = 16 << 20


class OrcFile:
    """An open file; as `ts_tables.files.file_writer.OutputFile` describes."""

    def __init__(self, layout: Layout, stream: BinaryIO) -> None:
        self._stream = stream
        codec = _NAMES.get(layout.compression, layout.compression)
        self._schema = _stored(layout.schema)
        # pyarrow closes a stream of Python; the size is needed first.
        self._sink = pa.PythonFile(_Unclosed(stream), "w")
        self._writer = orc.ORCWriter(self._sink, compression=codec, stripe_size=_STRIPE_BYTES)

    def write(self, rows: pa.Table) -> None:
        """Write rows."""
        self._writer.write(self._with_nulls(rows.cast(self._schema)))

    def _with_nulls(self, rows: pa.Table) -> pa.Table:
        """Return rows whose nested columns have NULL wherever what contains it is NULL.

        pyarrow's writer would write what is below, as 0 of a struct in a struct that is NULL.
        """
        for at, field in enumerate(rows.schema):
            if pa.types.is_nested(field.type):
                chunks = [_masked(chunk) for chunk in rows.column(at).chunks]
                rows = rows.set_column(at, field, pa.chunked_array(chunks, field.type))
        return rows

    @property
    def size(self) -> int:
        """The bytes so far, as far as stripes are complete."""
        return self._stream.tell()

    def close(self) -> Closed:
        """Write the footer, close the stream, and return the size."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return Closed(size)

    def abort(self) -> None:
        """Give up the file."""
        discard(self._stream)


def check_orc(schema: pa.Schema) -> None:
    """Check that ORC has the types of a table.

    Raises:
        ValueError: it lacks one.
    """
    for field in schema:
        if any(pa.types.is_time(each) for each in nested_types(field.type)):
            raise ValueError(f"{field.name}: ORC has no time of day")


def orc_rows(
    stream: BinaryIO, what: str, schema: pa.Schema, optional: frozenset[str] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Args:
        stream: of the file; it can seek.
        what: names the file, for messages.
        optional: columns that the file may lack: its rows have NULL there.

    Raises:
        CorruptData: it is no ORC, or lacks a column.
    """
    try:
        file = orc.ORCFile(stream)
        names = [field.name for field in schema if field.name in file.schema.names]
        for field in schema:
            if field.name not in names and field.name not in optional:
                raise CorruptData(f"{what} has no column {field.name}")
        for number in range(file.nstripes):
            found = file.read_stripe(number, names)
            columns = [
                found[field.name].cast(field.type) if field.name in names else pa.nulls(found.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowException, OSError, ValueError) as error:  # the stream is a local file
        raise CorruptData(f"{what}: {error}") from error


def _stored(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_stored_type(field.type)) for field in schema])


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _stored_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_type(field.type)) for field in kind])
    return kind


def _masked(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        # `flatten` gives a child the NULLs of its parent.
        return pa.StructArray.from_arrays(
            [_masked(each) for each in array.flatten()], fields=list(kind), mask=array.is_null()
        )
    if pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        offsets, pairs = list_parts(array.cast(pa.list_(pair)))
        keys, items = pairs.flatten()
        return pa.MapArray.from_arrays(offsets, keys, _masked(items), type=kind)
    if pa.types.is_list(kind):
        offsets, values = list_parts(array)
        return pa.ListArray.from_arrays(offsets, _masked(values), type=kind)
    return array


class _Unclosed:
    """A stream that stays open when it is closed."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open."""
