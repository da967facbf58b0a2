import zlib

import numpy as np
import pytest

from ts_reader.decode.crc32 import crc32_of


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64])
def test_checksums_are_those_of_zlib(size: int) -> None:
    """Of whole and of cut words, at any position."""
    data = bytes(range(3, 3 + size))
    assert crc32_of(np.frombuffer(b"before" + data + b"behind", np.uint8), 6, 6 + size) == zlib.crc32(data)
