"""Byte ranges of objects, as the drivers read them: within an object, in a request, and in a response."""

from ts_common.errors import OperatorError
from ts_common.store.answers import size_of
from ts_common.store.call import Call
from ts_common.store.contract import ByteRange
from ts_common.wording import counted


def range_within(byte_range: ByteRange | None, size: int) -> tuple[int, int]:
    """Return the range `[start, end)` in an object of `size` bytes; None means the whole object."""
    if byte_range is None:
        return 0, size
    start = byte_range.start if byte_range.start >= 0 else max(0, size + byte_range.start)
    return start, size if byte_range.end is None else min(byte_range.end, size)


def range_header(byte_range: ByteRange) -> str:
    """Return the value of the header `Range` (RFC 9110, section 14.2)."""
    if byte_range.start < 0:
        return f"bytes={byte_range.start}"
    return f"bytes={byte_range.start}-{'' if byte_range.end is None else byte_range.end - 1}"


def whole_size(byte_range: ByteRange | None, content_range: str | None, length: int, call: Call) -> int:
    """Return the size of the whole object, from the headers of the response to a get.

    Args:
        byte_range: the range in the request; None means the whole object.
        content_range: the header `Content-Range`; None means that the response has none.
        length: the header `Content-Length`.
        call: for messages.

    Raises:
        OperatorError: the store sends another range than the one in the request.
        ValueError: `length` is not that of the range, or `content_range` has no size.
    """
    size = size_of(content_range.rpartition("/")[2]) if content_range else length
    start, end = range_within(byte_range, size)
    expected = f"bytes {start}-{end - 1}/{size}"
    if (content_range and content_range != expected) or (not content_range and (start, end) != (0, size)):
        found = content_range or f"all {counted(size, 'byte')}"
        raise OperatorError(f"{call.operation} {call.target}: requested {expected}, but the store sends {found}")
    if length != end - start:
        raise ValueError(f"Content-Length is {length}; expected the length of {expected}")
    return size
