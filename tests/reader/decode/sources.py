"""A source of a segment's bytes, for a window on it."""

from ts_reader.decode.window import WINDOW_BYTES


class Bytes:
    """Bytes in memory; a read must be inside them, and not larger than a window."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, position: int, count: int) -> bytes:
        assert 0 <= position < len(self._data)
        assert 0 < count <= WINDOW_BYTES
        return self._data[position : position + count]
