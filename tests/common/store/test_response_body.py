"""The body of a response: exactly as many bytes as its header specifies, or an error."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
from urllib3 import HTTPResponse, PoolManager
from urllib3.exceptions import ProtocolError

from tests.http_servers import Handler, serving
from ts_common.errors import AccessDenied, StoreUnavailable
from ts_common.store import response_body
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo, ObjectStream
from ts_common.store.response_body import MOST_BYTES, DirectSource, EmptyBody, ResponseBody, read_whole

CALL = Call("GetObject", "s3://bucket/key")
INFO = ObjectInfo("key", 10, '"e"', 0.0)
Read = Callable[[ObjectStream, int], object]
READS: list[Read] = [
    lambda stream, size: stream.read(size),
    lambda stream, size: stream.readinto(memoryview(bytearray(size))),
]
EACH_READ = pytest.mark.parametrize("read", READS, ids=["read", "readinto"])


class Breaking(io.BytesIO):
    """A connection that breaks after its first read, with an error of urllib3 or of the system."""

    def __init__(self, content: bytes, error: Exception) -> None:
        super().__init__(content)
        self._error = error

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise self._error
        return super().read(3)

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a narrower buffer
        if self.tell():
            raise self._error
        return super().readinto(buffer[:3])


def test_a_body_ends_where_its_header_specifies() -> None:
    """Bytes of the connection after it belong to another response."""
    body = ResponseBody(INFO, io.BytesIO(b"0123456789HTTP/1.1"), 10, CALL)
    assert body.info is INFO
    assert body.read(4) == b"0123"
    buffer = bytearray(b"-" * 4)
    assert body.readinto(memoryview(buffer)) == 4
    assert body.read(-1) == b"89"
    assert (body.read(1), body.readinto(memoryview(buffer))) == (b"", 0)
    assert buffer == b"4567"


def test_a_buffer_is_filled_however_the_bytes_arrive() -> None:
    """A connection returns what has arrived, and the caller needs the whole range."""

    class Slow(io.BytesIO):
        def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a narrower buffer
            return super().readinto(buffer[:3])

    buffer = bytearray(20)
    assert ResponseBody(INFO, Slow(b"0123456789"), 10, CALL).readinto(memoryview(buffer)) == 10
    assert buffer == b"0123456789" + bytes(10)


@EACH_READ
def test_a_transfer_that_ends_early_is_an_error_with_its_place(read: Read) -> None:
    """The caller opens again with a range that begins at that byte."""
    body = ResponseBody(INFO, io.BytesIO(b"0123456"), 10, CALL)
    with pytest.raises(StoreUnavailable, match="GetObject s3://bucket/key: the transfer ended at byte 7 of 10"):
        read(body, 5)
        read(body, 5)


@EACH_READ
@pytest.mark.parametrize("error", [ProtocolError("cut"), TimeoutError("cut"), ConnectionResetError("cut")], ids=repr)
def test_a_transfer_that_breaks_is_an_error_with_its_place(read: Read, error: Exception) -> None:
    """Of urllib3 and of the system."""
    body = ResponseBody(INFO, Breaking(b"0123456789", error), 10, CALL)
    with pytest.raises(StoreUnavailable, match=r"s3://bucket/key: the transfer broke after byte 3 of 10: .*cut"):
        read(body, 3)
        read(body, 7)


@EACH_READ
def test_errors_of_an_sdk_are_those_of_its_translator(read: Read) -> None:
    """The translator gets the request, for its message."""

    @contextmanager
    def translated(call: Call) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise AccessDenied(call.target) from error

    body = ResponseBody(INFO, Breaking(b"0123456789", ValueError()), 10, CALL, translated)
    with pytest.raises(AccessDenied, match="s3://bucket/key"):
        read(body, 3)
        read(body, 7)


def test_a_range_beyond_its_object_is_empty() -> None:
    """It has the properties of the object."""
    body = EmptyBody(INFO)
    buffer = bytearray(b"-")
    assert (body.info, body.read(1), body.readinto(memoryview(buffer))) == (INFO, b"", 0)
    assert buffer == b"-"


def response(content: bytes) -> HTTPResponse:
    return HTTPResponse(io.BytesIO(content), preload_content=False)


def test_a_response_up_to_the_largest_page_is_read_whole() -> None:
    """One byte more is no response of a store."""
    assert read_whole(response(b"")) == b""
    assert len(read_whole(response(bytes(MOST_BYTES)))) == MOST_BYTES
    with pytest.raises(ValueError, match=f"a response of more than {MOST_BYTES} bytes"):
        read_whole(response(bytes(MOST_BYTES + 1)))


def test_a_response_that_does_not_end_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may send a byte before each timeout, for as long as it likes."""

    class Endless(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return b"x"

    monkeypatch.setattr(response_body, "MOST_SECONDS", 0.05)
    with pytest.raises(ValueError, match="a response that lasts more than"):
        read_whole(HTTPResponse(Endless(), preload_content=False))


class Keeping(Handler):
    """Sends ten bytes for each request, and keeps the connection."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[object]] = set()

    def do_GET(self) -> None:
        """Answer."""
        self.connections.add(self.client_address)
        self.answer(200, b"0123456789")


def test_a_connection_is_used_again_after_a_body_that_was_read_directly() -> None:
    """Also if the first bytes were read in another way; a new connection would cost a handshake for each segment."""
    with serving(Keeping) as port, PoolManager() as pool:
        for first in (b"", b"012"):
            response = pool.request("GET", f"http://127.0.0.1:{port}/", preload_content=False)
            body = ResponseBody(INFO, DirectSource(response), 10, CALL)
            assert body.read(len(first)) == first
            rest = bytearray(10 - len(first))
            assert body.readinto(memoryview(rest)) == len(rest)
            assert first + rest == b"0123456789"
    assert len(Keeping.connections) == 1
