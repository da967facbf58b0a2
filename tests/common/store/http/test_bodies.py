"""The body of a put over HTTP."""

import io

import pytest
from awscrt.checksums import crc32c

from tests.common.store.bodies import FailingBody
from ts_common.errors import (
    CorruptData,
)
from ts_common.store.http.bodies import RequestBody
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
