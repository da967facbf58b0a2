"""Bodies over HTTP: that of a put, and a response that is read as a whole."""

import io

import pytest
from awscrt.checksums import crc32c
from urllib3 import HTTPResponse

from tests.common.store.bodies import FailingBody
from ts_common.errors import (
    CorruptData,
)
from ts_common.store.http import bodies
from ts_common.store.http.bodies import MOST_BYTES, RequestBody, read_whole
from ts_common.store.validation import SizedBody


@pytest.mark.parametrize("around", [b"", b"around it"])
def test_a_body_with_another_checksum_is_never_sent_whole(around: bytes) -> None:
    """Its last piece is not sent, so the request stays shorter than its Content-Length."""
    body = SizedBody(io.BytesIO(b"0123456789"), 10, "key")
    sent = RequestBody(body, 10, crc32c(b"0123456789") ^ 1, "key", before=around, after=around)
    gone = b""

    def send() -> None:
        nonlocal gone
        while piece := sent.read(4):
            gone += piece

    with pytest.raises(CorruptData, match="nothing was written"):
        send()
    assert gone == around + b"01234567"


def test_a_request_has_the_object_between_what_the_service_needs() -> None:
    """Its length is that of all three, for the header."""
    sent = RequestBody(io.BytesIO(b"0123456789"), 10, crc32c(b"0123456789"), "key", before=b"<", after=b">>")
    assert sent.length == 13
    assert b"".join(iter(lambda: sent.read(4), b"")) == b"<0123456789>>"
    assert sent.failure is None


def test_an_empty_object_is_sent_and_its_checksum_compared() -> None:
    """There is no last piece to hold back, so the bytes after it are."""
    sent = RequestBody(io.BytesIO(b""), 0, None, "key", before=b"<", after=b">")
    assert (sent.read(4), sent.read(4), sent.read(4)) == (b"<", b">", b"")
    wrong = RequestBody(io.BytesIO(b""), 0, 1, "key", after=b">")
    with pytest.raises(CorruptData, match=r"key: the body's CRC-32C is 00000000; expected 00000001"):
        wrong.read(4)


def test_a_body_remembers_why_it_ended_early() -> None:
    """The client raises that in place of the error of the connection."""
    sent = RequestBody(FailingBody(b"0123456789"), 10, None, "key")
    sent.read(4)
    with pytest.raises(OSError, match="Input/output error") as raised:
        sent.read(4)
    assert sent.failure is raised.value


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

    monkeypatch.setattr(bodies, "MOST_SECONDS", 0.05)
    with pytest.raises(ValueError, match="a response that lasts more than"):
        read_whole(HTTPResponse(Endless(), preload_content=False))
