"""Objects that are compressed by gzip, read with a limit: a small object can unpack to terabytes."""

import zlib
from typing import Final

from ts_common.errors import CorruptData

_GZIP: Final = 16 + zlib.MAX_WBITS


def pack(data: bytes) -> bytes:
    """Return the bytes of an object with this content."""
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(data) + packer.flush()


def unpack(packed: bytes, key: str, most: int) -> bytes:
    """Return the content of an object.

    Args:
        key: for messages.
        most: largest content in bytes.

    Raises:
        CorruptData: it is not one whole stream of gzip, or unpacks to more than `most` bytes.
    """
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(packed, most + 1)
    except zlib.error as error:
        raise CorruptData(f"{key}: not compressed by gzip: {error}") from error
    if len(data) > most:
        raise CorruptData(f"{key}: it unpacks to more than {most} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptData(f"{key}: {'bytes follow the end of gzip' if unpacker.eof else 'it ends within gzip'}")
    return data
