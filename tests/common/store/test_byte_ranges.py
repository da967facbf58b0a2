"""Byte ranges within an object, in a request and in a response."""

import pytest

from ts_common.errors import OperatorError
from ts_common.store.answers import range_header, range_within, whole_size
from ts_common.store.call import Call
from ts_common.store.contract import ByteRange

CALL = Call("GetObject", "s3://bucket/key")


@pytest.mark.parametrize(
    ("byte_range", "expected"),
    [
        (None, (0, 10)),
        (ByteRange(0), (0, 10)),
        (ByteRange(3), (3, 10)),
        (ByteRange(3, 5), (3, 5)),
        (ByteRange(3, 50), (3, 10)),
        (ByteRange(-4), (6, 10)),
        (ByteRange(-40), (0, 10)),
    ],
)
def test_a_range_ends_at_the_end_of_its_object(byte_range: ByteRange | None, expected: tuple[int, int]) -> None:
    """A suffix counts from the end, and a long one is the whole object."""
    assert range_within(byte_range, 10) == expected


@pytest.mark.parametrize("byte_range", [ByteRange(10), ByteRange(20, 30)])
def test_a_range_beyond_its_object_has_no_bytes(byte_range: ByteRange) -> None:
    """Its start is not before its end."""
    start, end = range_within(byte_range, 10)
    assert start >= end


@pytest.mark.parametrize(
    ("byte_range", "header"),
    [
        (ByteRange(0, 1), "bytes=0-0"),
        (ByteRange(3, 5), "bytes=3-4"),
        (ByteRange(3), "bytes=3-"),
        (ByteRange(-4), "bytes=-4"),
    ],
)
def test_a_request_names_the_last_byte_of_its_range(byte_range: ByteRange, header: str) -> None:
    """HTTP's end is inclusive; without an end, and for a suffix, there is one number."""
    assert range_header(byte_range) == header


@pytest.mark.parametrize(
    ("byte_range", "content_range", "length"),
    [
        (None, None, 10),
        (None, "bytes 0-9/10", 10),
        (ByteRange(2, 5), "bytes 2-4/10", 3),
        (ByteRange(-3), "bytes 7-9/10", 3),
        (ByteRange(8, 20), "bytes 8-9/10", 2),
        (ByteRange(0, 20), None, 10),
    ],
)
def test_the_size_of_the_object_is_in_the_response(
    byte_range: ByteRange | None, content_range: str | None, length: int
) -> None:
    """A response without `Content-Range` is right if the range is the whole object."""
    assert whole_size(byte_range, content_range, length, CALL) == 10


@pytest.mark.parametrize(
    ("byte_range", "content_range", "length", "problem"),
    [
        (ByteRange(2, 5), "bytes 2-5/10", 4, "requested bytes 2-4/10, but the store sends bytes 2-5/10"),
        (ByteRange(2, 5), None, 10, "requested bytes 2-4/10, but the store sends all 10 bytes"),
        (None, "bytes 0-4/10", 5, "requested bytes 0-9/10, but the store sends bytes 0-4/10"),
    ],
)
def test_another_range_is_an_error_of_the_store(
    byte_range: ByteRange | None, content_range: str | None, length: int, problem: str
) -> None:
    """Its bytes would be read as others; a retry returns the same."""
    with pytest.raises(OperatorError, match=f"GetObject s3://bucket/key: {problem}"):
        whole_size(byte_range, content_range, length, CALL)


@pytest.mark.parametrize(
    ("content_range", "length", "problem"),
    [
        ("bytes 2-4/10", 5, "Content-Length is 5; expected the length of bytes 2-4/10"),
        ("bytes 2-4/*", 3, "is not a number of bytes"),
    ],
)
def test_headers_that_contradict_each_other_are_no_response(content_range: str, length: int, problem: str) -> None:
    """The driver translates the error into that of an unusable response."""
    with pytest.raises(ValueError, match=problem):
        whole_size(ByteRange(2, 5), content_range, length, CALL)
