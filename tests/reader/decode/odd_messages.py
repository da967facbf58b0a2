"""Messages of magic 0 and 1 with fields that no client writes."""

import struct
from collections.abc import Sequence

from awscrt.checksums import crc32

from tests.common.log_format.build import message
from tests.common.log_format.legacy_messages import Inner

ONE: Sequence[Inner] = [(0, 7, b"k", b"v")]
LIE, NULL = struct.pack(">i", 2**31 - 1), struct.pack(">i", -1)
INNER_0, INNER_1 = message(0, 9, b"v", b"k"), message(1, 0, b"v", b"k")
SEEMS_MAGIC_1 = (struct.pack(">i", 2) + b"ab", b"time" + struct.pack(">i", 4))


def fields(magic: int, tail: bytes, attributes: int = 0, offset: int = 9) -> bytes:
    """A message with a right CRC, and these bytes in place of key and value."""
    body = struct.pack(">bb", magic, attributes) + bytes(8 * magic) + tail
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body
