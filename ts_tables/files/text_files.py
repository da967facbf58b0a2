"""Text: the value of each record and a delimiter, as Secor's `DelimitedTextFileReaderWriterFactory` writes it.

A record without a value has an empty one. The ledger has the offsets of the values, by their order in the file.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from ts_common.errors import CorruptData, OperatorError
from ts_tables.files.compressed import CompressedStream, decompressed
from ts_tables.files.layout import Closed, Layout, Runs, discard
from ts_tables.files.raw_columns import OFFSET
from ts_tables.files.record_files import FileRecords

_ROWS: Final = 4096
_BLOCK: Final = 1 << 20
_LONGEST: Final = 1 << 30  # bytes of a value, as of JSON lines


class TextFile:
    """An open file; as `ts_tables.files.file_writer.OutputFile` describes."""

    def __init__(self, layout: Layout, stream: BinaryIO) -> None:
        self._stream = stream
        self._delimiter = layout.delimiter
        self._compressed = CompressedStream(layout.compression, stream)
        self._runs: list[tuple[int, int]] = []

    def write(self, rows: pa.Table) -> None:
        """Write rows.

        Raises:
            OperatorError: a value contains the delimiter.
        """
        for batch in rows.to_batches(_ROWS):
            values = [value or b"" for value in batch["value"].to_pylist()]
            data = self._delimiter.join([*values, b""])
            if data.split(self._delimiter)[:-1] != values:
                raise self._divided(batch, values)
            self._compressed.write(data)
            _add_runs(self._runs, batch[OFFSET].to_numpy())

    @property
    def size(self) -> int:
        """The bytes so far, as far as they have left the compressor."""
        return self._compressed.size

    def close(self) -> Closed:
        """Close the stream, and return the size, and the offsets of the values."""
        return Closed(self._compressed.close(), runs=tuple(self._runs))

    def abort(self) -> None:
        """Give up the file."""
        self._compressed.abandon()
        discard(self._stream)

    def _divided(self, batch: pa.RecordBatch, values: list[bytes]) -> OperatorError:
        ends = self._delimiter
        at = next(at for at, value in enumerate(values) if (value + ends).split(ends)[:-1] != [value])
        where = f"{batch['topic'][at]}-{batch['partition'][at]}, offset {batch[OFFSET][at]}"
        return OperatorError(
            f"{where}: the value contains the delimiter {ends.decode()!r}, and readers of text would see two; create a "
            "table with another delimiter, or of format: json or sequence"
        )


def text_rows(stream: BinaryIO, what: str, codec: str, records: FileRecords) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with the columns of a raw table.

    Args:
        stream: of the file, at its start; it can seek.
        what: names the file, for messages.
        records: what its values are of.

    Raises:
        CorruptData: it has another number of values than the ledger, or was cut.
    """
    offsets = _offsets(records.runs)
    for values in _values(stream, what, codec, records.delimiter):
        some = np.array([next(offsets, -1) for _ in values], np.int64)
        if len(some) and some[-1] < 0:
            raise CorruptData(f"{what} has more values than were written to it")
        yield records.completed(pa.array(some), pa.array(values, pa.binary()))
    if next(offsets, None) is not None:
        raise CorruptData(f"{what} has fewer values than were written to it")


def _values(stream: BinaryIO, what: str, codec: str, delimiter: bytes) -> Iterator[list[bytes]]:
    """Yield the values of a file, some at a time; raise as `text_rows`."""
    try:
        source: Any = decompressed(codec, stream)
        left = b""
        while block := source.read(_BLOCK):
            *values, left = (left + block).split(delimiter)
            if len(left) > _LONGEST:
                raise CorruptData(f"{what} has a value of more than {_LONGEST:,} bytes")
            for at in range(0, len(values), _ROWS):
                yield values[at : at + _ROWS]
    except OSError as error:  # of the decompressor: the stream is a local file
        raise CorruptData(f"{what}: {error}") from error
    if left:
        raise CorruptData(f"{what} ends within a value")


def _offsets(runs: Runs) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)


def _add_runs(runs: list[tuple[int, int]], offsets: "np.typing.NDArray[np.int64]") -> None:
    """Add offsets to runs of consecutive ones."""
    begins = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    for low, high in pairwise(begins):
        if low == high:
            continue
        first, count = int(offsets[low]), high - low
        if runs and sum(runs[-1]) == first:
            runs[-1] = runs[-1][0], runs[-1][1] + count
        else:
            runs.append((first, count))
