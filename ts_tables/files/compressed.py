"""Streams of a whole file that is compressed: of JSON lines and of text."""

import gzip
from collections.abc import Mapping
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa
import zstandard

CODECS: Final = ("gzip", "zstd", "none")
SUFFIXES: Final[Mapping[str, str]] = {"gzip": ".gz", "zstd": ".zst", "none": ""}
_GZIP_LEVEL: Final = 5


class CompressedStream:
    """Compresses what is written to a stream.

    Args:
        codec: one of `CODECS`.
    """

    def __init__(self, codec: str, stream: BinaryIO) -> None:
        self._stream = stream
        self._compressor: Any = _compressor(codec, stream)

    def write(self, data: bytes) -> None:
        """Write bytes."""
        self._compressor.write(data)

    @property
    def size(self) -> int:
        """The bytes so far, as far as they have left the compressor."""
        return self._stream.tell()

    def close(self) -> int:
        """Complete the file, close the stream, and return the size."""
        if self._compressor is not self._stream:
            self._compressor.close()
        size = self._stream.tell()
        self._stream.close()
        return size

    def abandon(self) -> None:
        """Forget the compressor, so that it writes no end."""
        if isinstance(self._compressor, gzip.GzipFile):
            # Closed without an end; Python 3.14 warns of an open one.
            self._compressor.fileobj = None  # type: ignore[assignment]
        self._compressor = None


def decompressed(codec: str, stream: BinaryIO) -> Any:
    """Return a stream of the content.

    Args:
        codec: one of `CODECS`.
        stream: of the file, at its start; it can seek.

    Raises:
        OSError: the file is empty; later, of a stream that was cut.
    """
    if codec == "none":
        return stream
    if not stream.read(1):
        raise OSError("the compressed file is empty")
    stream.seek(0)
    # It finds a stream that was cut, which zstandard's reader does not.
    return pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec)


def _compressor(codec: str, stream: BinaryIO) -> Any:
    match codec:
        case "gzip":
            # Without a name and a time: a file has no bytes that its rows do not determine.
            return gzip.GzipFile("", "wb", _GZIP_LEVEL, cast("Any", stream), mtime=0)
        case "zstd":
            return zstandard.ZstdCompressor().stream_writer(cast("Any", stream), closefd=False)
        case _:
            return stream
