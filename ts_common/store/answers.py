"""Check the values in a server's response, which may contain anything, and the byte ranges of requests and responses.

Depth, numbers and texts are checked here; `response_body` bounds the size. A value that no store returns raises
`ValueError`, which `Call.understood` turns into the error that the caller expects.
"""

import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree

from ts_common import json_objects
from ts_common.errors import CorruptData, OperatorError
from ts_common.store.call import Call
from ts_common.store.contract import ByteRange, ObjectInfo
from ts_common.wording import counted

STANDARD: Final = "STANDARD"  # of S3 and Google: responses to HEAD and listings name it or omit it
_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch
_HALVES = (b"\\ud", b"\\uD")  # how one of JSON's escapes for half of a surrogate pair begins


def parse_json(body: bytes) -> Any:
    """Return the content of a JSON response.

    Raises:
        ValueError: it is not JSON, is nested too deep, has an invalid number or a text that UTF-8 cannot represent.
    """
    try:
        content = json_objects.parse_json(body, "the response", len(body))
    except CorruptData as error:
        raise ValueError(str(error)) from error
    if any(half in body for half in _HALVES):
        json.dumps(content, ensure_ascii=False).encode()
    return content


def parse_xml(text: str) -> ElementTree.Element:
    """Return the root of an XML response.

    No store sends a document type. It can declare entities, and a few lines of them can expand to gigabytes.

    Raises:
        ValueError: it is not XML, or has a document type.
    """
    if "<!DOCTYPE" in text:
        raise ValueError("XML with a document type")
    try:
        return ElementTree.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def size_of(digits: str) -> int:
    """Return a number of bytes from its digits.

    Raises:
        ValueError: it is not a number of bytes.
    """
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) <= json_objects.MAX_INT64):
        raise ValueError(f"{digits[:40]!r} is not a number of bytes")
    return int(digits)


def text_of(value: object) -> str:
    """Return a text of a response.

    Raises:
        ValueError: it is not a text, or UTF-8 cannot represent it.
    """
    if type(value) is not str:
        raise ValueError(f"{json_objects.shown(value)} is not a text")
    value.encode()
    return value


def checked(info: ObjectInfo) -> ObjectInfo:
    """Return the info if it fulfills the contract: a later request has the ETag in a header.

    Raises:
        ValueError: it does not.
    """
    text_of(info.key)
    text_of(info.etag)
    if not (info.etag and info.etag.isascii() and info.etag.isprintable()):
        raise ValueError(f"{info.etag[:80]!r} is not an ETag")
    if not 0 <= info.size <= json_objects.MAX_INT64:
        raise ValueError(f"an object of {info.size} bytes")
    if not math.isfinite(info.modified):
        raise ValueError(f"an object of the time {info.modified}")
    return info


def class_of(value: object) -> str | None:
    """Return the storage class of an object for its info; one text object for all objects of a class.

    A text that no store uses as a class has None too, because a reader needs the listing more than the class.

    Args:
        value: a text of the response, or None if the response has none.
    """
    if not isinstance(value, str) or value == STANDARD or not _CLASS(value):
        return None
    return sys.intern(value)


def text_by_name(value: object) -> Mapping[str, str]:
    """Return a JSON object whose values are texts.

    Raises:
        ValueError: it is not such an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{json_objects.shown(value)} is not a JSON object")  # noqa: TRY004 - of the data
    return {text_of(name): text_of(text) for name, text in value.items()}


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
