"""The body of a put over HTTP."""

from awscrt.checksums import crc32c as crc32c_of

from ts_common.errors import CorruptData
from ts_common.store.contract import Body


class RequestBody:
    """The body of a request: the bytes of an object, with what the service requires before and after them.

    If the caller has the CRC-32C, it is compared while the bytes are sent. If it differs, the last bytes are not sent:
    the request is then shorter than its Content-Length, and every server rejects it.

    Args:
        body: the object's bytes.
        crc32c: of the object; None means that the caller does not have it.
        name: of the object, for messages.
        before: is sent before the object.
        after: is sent after it.

    Attributes:
        length: of the whole body, in bytes.
        failure: the exception that ended the body early; None without one.
    """

    def __init__(
        self, body: Body, size: int, crc32c: int | None, name: str, *, before: bytes = b"", after: bytes = b""
    ) -> None:
        self.length = len(before) + size + len(after)
        self.failure: Exception | None = None
        body.seek(0)
        self._body = body
        self._left = size
        self._expected = crc32c
        self._crc32c = 0
        self.name = name
        self._before = before
        self._after = after

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises:
            CorruptData: the object's CRC-32C differs from `crc32c`.
            SegmentChanged, or an error of the reader: as `SizedBody.read`.
        """
        if self._before:
            piece, self._before = self._before, b""
            return piece
        try:
            if self._left:
                return self._next(size)
            if self._expected is not None and self._crc32c != self._expected:
                raise self._mismatch()
        except Exception as failure:
            self.failure = failure
            raise
        piece, self._after = self._after, b""
        return piece

    def _next(self, size: int) -> bytes:
        piece = self._body.read(size)
        self._left -= len(piece)
        if self._expected is not None:
            self._crc32c = crc32c_of(piece, self._crc32c)
            if not self._left and self._crc32c != self._expected:
                raise self._mismatch()
        return piece

    def _mismatch(self) -> CorruptData:
        return CorruptData(
            f"{self.name}: the body's CRC-32C is {self._crc32c:08x}; expected {self._expected:08x}; nothing was written"
        )
