"""Bodies over HTTP: that of a put, and a response that is read as a whole."""

import io

import pytest
from awscrt.checksums import crc32c

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
