"""The window on an object: forward reads, jumps, and the CRC of the whole object."""

import random

from awscrt.checksums import crc32c

from ts_reader.decode.window import Window

DATA = random.Random(1).randbytes(10_000) + bytes(500)


class Short:
    """A source whose reads return at most 700 bytes.

    Attributes:
        reads: (position, bytes returned) of each read.
    """

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    def read(self, position: int, count: int) -> bytes:
        data = DATA[position : position + min(count, 700)]
        self.reads.append((position, len(data)))
        return data


def test_a_window_holds_bytes_over_several_reads() -> None:
    """Bytes that it has are not read again, and no read is behind the end."""
    source = Short()
    window = Window(source, len(DATA))
    assert window.hold(0, 1000) == DATA[:1000]
    assert window.hold(900, 400) == DATA[900:1300]
    assert source.reads == [(0, 700), (700, 700)]
    assert window.hold(5000, 10) == DATA[5000:5010]
    assert window.hold(100, 10) == DATA[100:110]
    assert window.hold(len(DATA) - 5, 99) == DATA[-5:]
    assert window.hold(len(DATA) + 5, 9) == b""


def test_the_objects_crc_has_each_byte_once_whatever_was_read() -> None:
    """Jumps back are not counted twice, and bytes that were passed over are read."""
    source = Short()
    window = Window(source, len(DATA))
    for position, count in ((0, 100), (3000, 50), (200, 2000), (0, 10)):
        window.hold(position, count)
    assert window.object_crc32c() == crc32c(DATA)


def test_pieces_are_the_bytes_between_two_positions() -> None:
    """Also over the end of what the window has."""
    window = Window(Short(), len(DATA))
    window.hold(600, 10)
    pieces = [bytes(piece) for piece in window.pieces(650, 3000)]
    assert len(pieces) > 1
    assert b"".join(pieces) == DATA[650:3000]
    assert window.is_zero_from(10_000)
    assert not window.is_zero_from(9_999)
