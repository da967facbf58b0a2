"""Hadoop's SequenceFile, version 6, as Secor writes it: a key and the value of each record.

::

    file     = "SEQ" 6, text key class, text value class, compressed (1), in blocks (1), [text codec class],
               metadata pairs (4) = 0, sync (16), {record} or {block}
    record   = [-1 (4), sync (16)] length of key and value (4), length of the key (4), key, value
    block    = -1 (4), sync (16), vint records, {vint bytes, gzip} of: key lengths, keys, value lengths, values
    text     = vint bytes, UTF-8

Numbers are big-endian. A value is a `BytesWritable`: its length (4) and the bytes; a record without a value has an
empty one. A key is a `LongWritable`, the offset (8); or, as of Secor's `MessagePackSequenceFileReaderWriterFactory`, a
`BytesWritable` with a map of MessagePack: 1 the offset, 2 the key of the record, absent where it has none.

Source: org.apache.hadoop.io.SequenceFile and WritableUtils of Hadoop 3.
"""

import gzip
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

import msgpack
import pyarrow as pa

from ts_common.errors import CorruptData
from ts_tables.files.layout import Closed, FileFormat, Layout, discard
from ts_tables.files.raw_columns import OFFSET
from ts_tables.files.record_files import FileRecords

CODECS: Final = ("none", "gzip")
_MAGIC: Final = b"SEQ\x06"
_LONG: Final = "org.apache.hadoop.io.LongWritable"
_BYTES: Final = "org.apache.hadoop.io.BytesWritable"
_GZIP: Final = "org.apache.hadoop.io.compress.GzipCodec"
_GZIP_LEVEL: Final = 5
_SYNC_BYTES: Final = 16
_ESCAPE: Final = struct.pack(">i", -1)
_SYNC_INTERVAL: Final = 100 << 10
_BLOCK_BYTES: Final = 1_000_000  # Hadoop's io.seqfile.compress.blocksize
_ROWS: Final = 4096
_BYTES_AT_ONCE: Final = 32 << 20
_LONGEST: Final = 1 << 30  # bytes of a key, a value or a block, as of JSON lines
_OF_KEY, _OF_OFFSET = 2, 1  # members of the map
_ONE_BYTE: Final = (-112, 127)  # of a vint


class SequenceFile:
    """An open file; as `ts_tables.files.file_writer.OutputFile` describes."""

    def __init__(self, layout: Layout, stream: BinaryIO) -> None:
        self._stream = stream
        self._with_keys = layout.format is FileFormat.SEQUENCE_MESSAGEPACK
        self._in_blocks = layout.compression == "gzip"
        self._sync = os.urandom(_SYNC_BYTES)
        self._last_sync = 0
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._bytes = 0
        codec = _text(_GZIP) if self._in_blocks else b""
        flags = bytes([self._in_blocks, self._in_blocks])
        key_class = _BYTES if self._with_keys else _LONG
        stream.write(_MAGIC + _text(key_class) + _text(_BYTES) + flags + codec + struct.pack(">i", 0) + self._sync)

    def write(self, rows: pa.Table) -> None:
        """Write rows."""
        for batch in rows.to_batches(_ROWS):
            offsets, values = batch[OFFSET].to_pylist(), batch["value"].to_pylist()
            keys = batch["key"].to_pylist() if self._with_keys else [None] * len(offsets)
            for offset, key, value in zip(offsets, keys, values, strict=True):
                self._add(self._key(offset, key), _writable(value or b""))

    @property
    def size(self) -> int:
        """The bytes so far, without those of a block that is not full."""
        return self._stream.tell()

    def close(self) -> Closed:
        """Write the last block, close the stream, and return the size."""
        self._write_block()
        size = self._stream.tell()
        self._stream.close()
        return Closed(size)

    def abort(self) -> None:
        """Give up the file."""
        discard(self._stream)

    def _key(self, offset: int, key: bytes | None) -> bytes:
        if not self._with_keys:
            return struct.pack(">q", offset)
        found: dict[int, int | bytes] = {_OF_OFFSET: offset}
        if key is not None:
            found[_OF_KEY] = key
        return _writable(msgpack.packb(found))

    def _add(self, key: bytes, value: bytes) -> None:
        if self._in_blocks:
            self._keys.append(key)
            self._values.append(value)
            self._bytes += len(key) + len(value)
            if self._bytes >= _BLOCK_BYTES:
                self._write_block()
            return
        at = self._stream.tell()
        if at >= self._last_sync + _SYNC_INTERVAL:
            self._stream.write(_ESCAPE + self._sync)
            self._last_sync = at
        self._stream.write(struct.pack(">ii", len(key) + len(value), len(key)) + key + value)

    def _write_block(self) -> None:
        if not self._keys:
            return
        self._stream.write(_ESCAPE + self._sync + _vint(len(self._keys)))
        for some in (self._keys, self._values):
            for data in (b"".join(_vint(len(each)) for each in some), b"".join(some)):
                compressed = gzip.compress(data, _GZIP_LEVEL, mtime=0)
                self._stream.write(_vint(len(compressed)) + compressed)
        self._keys, self._values, self._bytes = [], [], 0


def sequence_rows(stream: BinaryIO, what: str, form: FileFormat, records: FileRecords) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with the columns of a raw table.

    Args:
        stream: of the file, at its start.
        what: names the file, for messages.
        form: which of both keys it has.
        records: what they are of.

    Raises:
        CorruptData: it is no such file, or was cut.
    """
    key_of = _map_key if form is FileFormat.SEQUENCE_MESSAGEPACK else _long_key
    offsets: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes] = []
    size = 0
    try:
        for key, value in _pairs(stream, _BYTES if key_of is _map_key else _LONG):
            offset, record_key = key_of(key)
            offsets.append(offset)
            keys.append(record_key)
            values.append(_unwrapped(value))
            size += len(key) + len(value)
            if len(offsets) == _ROWS or size >= _BYTES_AT_ONCE:
                yield _batch(records, offsets, keys, values)
                offsets, keys, values, size = [], [], [], 0
        if offsets:
            yield _batch(records, offsets, keys, values)
    except (ValueError, TypeError, OverflowError, struct.error, zlib.error, pa.ArrowException) as error:
        raise CorruptData(f"{what} is no SequenceFile of this table: {str(error)[:200]}") from error


def _batch(
    records: FileRecords, offsets: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes]
) -> pa.RecordBatch:
    return records.completed(pa.array(offsets, pa.int64()), pa.array(values, pa.binary()), pa.array(keys, pa.binary()))


def _pairs(stream: BinaryIO, key_class: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key and value, as they are stored."""
    if _read(stream, len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin with SEQ and version 6")
    classes = [_read_text(stream) for _ in range(2)]
    if classes != [key_class, _BYTES]:
        raise ValueError(f"it has {' and '.join(classes)}")
    compressed, in_blocks = _read(stream, 2)
    if compressed != in_blocks or compressed not in {0, 1}:
        raise ValueError("it is compressed record by record")
    if in_blocks and (codec := _read_text(stream)) != _GZIP:
        raise ValueError(f"its codec is {codec}")
    if _read_int(stream):
        raise ValueError("it has metadata")
    sync = _read(stream, _SYNC_BYTES)
    yield from (_blocks if in_blocks else _records)(stream, sync)


def _records(stream: BinaryIO, sync: bytes) -> Iterator[tuple[bytes, bytes]]:
    while begin := stream.read(4):
        length = _int(begin)
        if length == -1:
            _check_sync(stream, sync)
            continue
        key_length = _read_int(stream)
        if not 0 <= key_length <= length <= _LONGEST:
            raise ValueError(f"a record of {length} bytes has a key of {key_length}")
        yield _read(stream, key_length), _read(stream, length - key_length)


def _blocks(stream: BinaryIO, sync: bytes) -> Iterator[tuple[bytes, bytes]]:
    while begin := stream.read(4):
        if _int(begin) != -1:
            raise ValueError("a block does not begin with a sync marker")
        _check_sync(stream, sync)
        count = _read_vint(stream)
        parts = [_inflated(_read(stream, _read_vint(stream))) for _ in range(4)]
        yield from zip(_divided(count, *parts[:2]), _divided(count, *parts[2:]), strict=True)


def _divided(count: int, lengths: bytes, data: bytes) -> Iterator[bytes]:
    """Yield the parts of data, by their lengths as vints."""
    at, begin = 0, 0
    for _ in range(count):
        length, at = _vint_at(lengths, at)
        if length < 0 or begin + length > len(data):
            raise ValueError("a block has less data than the lengths of its records")
        yield data[begin : begin + length]
        begin += length
    if at != len(lengths) or begin != len(data):
        raise ValueError("a block has more data than its records")


def _check_sync(stream: BinaryIO, sync: bytes) -> None:
    if _read(stream, _SYNC_BYTES) != sync:
        raise ValueError("a sync marker differs")


def _inflated(data: bytes) -> bytes:
    inflate = zlib.decompressobj(wbits=31)
    found = inflate.decompress(data, _LONGEST)
    if not inflate.eof or inflate.unused_data:
        raise ValueError("a part of a block is no gzip, was cut, or is too long")
    return found


def _long_key(key: bytes) -> tuple[int, None]:
    (offset,) = struct.unpack(">q", key)
    return offset, None


def _map_key(key: bytes) -> tuple[int, bytes | None]:
    found = msgpack.unpackb(_unwrapped(key), strict_map_key=False)
    offset = found.get(_OF_OFFSET) if type(found) is dict else None
    record_key = found.get(_OF_KEY) if type(found) is dict else None
    if type(offset) is not int or not (record_key is None or type(record_key) is bytes):
        raise ValueError("a key is no map of an offset and a key")
    return offset, record_key


def _writable(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _unwrapped(data: bytes) -> bytes:
    """Return the bytes of a `BytesWritable`."""
    if len(data) < 4 or _int(data[:4]) != len(data) - 4:
        raise ValueError("a text of bytes has another length")
    return data[4:]


def _text(value: str) -> bytes:
    return _vint(len(value)) + value.encode()


def _read_text(stream: BinaryIO) -> str:
    return _read(stream, _read_vint(stream)).decode()


def _vint(value: int) -> bytes:
    """Return a length as WritableUtils.writeVInt writes it."""
    if value <= _ONE_BYTE[1]:
        return bytes([value])
    size = (value.bit_length() + 7) // 8
    return bytes([_ONE_BYTE[0] + 256 - size]) + value.to_bytes(size, "big")


def _read_vint(stream: BinaryIO) -> int:
    return _decoded(_read(stream, 1)[0], lambda size: _read(stream, size))


def _vint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a length at a position, and the position after it."""
    if at >= len(data):
        raise ValueError("a block has fewer lengths than records")
    end = at + 1

    def more(size: int) -> bytes:
        nonlocal end
        end += size
        return data[at + 1 : end]

    found = _decoded(data[at], more)
    if end > len(data):
        raise ValueError("a block ends within a length")
    return found, end


def _decoded(first: int, more: Callable[[int], bytes]) -> int:
    """Return a length; only those of up to 4 bytes are accepted.

    Raises:
        ValueError: it is another number.
    """
    if first <= _ONE_BYTE[1]:
        return first
    size = _ONE_BYTE[0] + 256 - first
    if not 0 < size <= 4:
        raise ValueError("a length is negative, or too long")
    return int.from_bytes(more(size), "big")


def _read_int(stream: BinaryIO) -> int:
    return _int(_read(stream, 4))


def _int(data: bytes) -> int:
    (found,) = struct.unpack(">i", data)
    return int(found)


def _read(stream: BinaryIO, size: int) -> bytes:
    if size > _LONGEST:
        raise ValueError(f"a part of {size:,} bytes is too long")
    data = stream.read(size)
    if len(data) != size:
        raise ValueError("it ends within a record")
    return data
