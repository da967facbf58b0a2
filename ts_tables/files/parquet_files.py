"""Parquet: a file that is written row group by row group, and its rows."""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ts_tables.files.layout import Closed, Layout, discard

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
# Numbers that rise along a log, and columns of few values; dictionaries of the others are dropped by the writer, late.
_RISING: Final = ("offset", "_offset", "timestamp")
_HEADER_NAMES: Final = ("headers.list.element.key",)
_FEW_VALUES: Final = ("topic", "partition", "timestampType", "_topic_id", "_partition_id", "_ordinal")


class ParquetFile:
    """An open file; as `ts_tables.files.file_writer.OutputFile` describes."""

    def __init__(self, layout: Layout, stream: BinaryIO) -> None:
        self._stream = stream
        self._writer = pq.ParquetWriter(stream, layout.schema, **_properties(layout))

    def write(self, rows: pa.Table) -> None:
        """Write one row group."""
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    @property
    def size(self) -> int:
        """The bytes so far."""
        return self._stream.tell()

    def close(self) -> Closed:
        """Write the footer, close the stream, and return the size and the footer."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return Closed(size, self._writer.writer.metadata)

    def abort(self) -> None:
        """Give up the file."""
        self._writer.is_open = False
        discard(self._stream)


def parquet_schema(stream: BinaryIO) -> pa.Schema:
    """Return the columns of a file, with the field ids in their metadata.

    Raises:
        pa.ArrowInvalid: it is no Parquet.
        OSError: it cannot be read.
    """
    return pq.ParquetFile(stream).schema_arrow


def parquet_rows(stream: BinaryIO, count: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Args:
        count: most rows of a batch.
        columns: their names; None for all.

    Raises:
        pa.ArrowInvalid, OSError: as `parquet_schema`.
    """
    yield from pq.ParquetFile(stream).iter_batches(count, columns=columns)


def _properties(layout: Layout) -> dict[str, Any]:
    names = layout.schema.names
    return {
        "compression": layout.compression,
        "store_schema": False,  # of Arrow: other engines have their own types
        "use_dictionary": [*(name for name in _FEW_VALUES if name in names), *_HEADER_NAMES],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _RISING if name in names},
    }
