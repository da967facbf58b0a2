"""The S3 fault proxy without rules: it changes nothing, for every framing of a body in HTTP."""

import base64
import http.client
import io
import threading
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, HTTPClientError

from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import REGION, S3Server
from dev.local.waiting import wait_for
from tests.proxy.conftest import ClientOf
from tests.proxy.objects import BUCKET

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def test_puts_gets_and_heads_pass_and_are_recorded(proxy: S3FaultProxy, through: "S3Client") -> None:
    """Signatures stay valid, with spaces and umlauts in keys; ranges, 204, 304 and the empty body of HEAD pass."""
    key = "pass/a b/ü"
    etag = through.put_object(Bucket=BUCKET, Key=key, Body=b"0123456789")["ETag"]
    with through.get_object(Bucket=BUCKET, Key=key, Range="bytes=2-4")["Body"] as body:
        assert body.read() == b"234"
    assert through.head_object(Bucket=BUCKET, Key=key)["ContentLength"] == 10
    with pytest.raises(ClientError, match="304"):
        through.get_object(Bucket=BUCKET, Key=key, IfNoneMatch=etag)
    listed = through.list_objects_v2(Bucket=BUCKET, Prefix="pass/")
    assert [entry["Key"] for entry in listed["Contents"]] == [key]
    through.delete_object(Bucket=BUCKET, Key=key)
    assert [(request.method, request.status, request.server_status) for request in proxy.requests()] == [
        ("PUT", 200, 200),
        ("GET", 206, 206),
        ("HEAD", 200, 200),
        ("GET", 304, 304),
        ("GET", 200, 200),
        ("DELETE", 204, 204),
    ]
    first, listing = proxy.requests()[0], proxy.requests()[4]
    assert (first.path, first.number, first.faults) == (f"/{BUCKET}/{key}", 0, ())
    assert "prefix=pass%2F" in listing.query
    assert listing.target == f"/{BUCKET}?{listing.query}"


class _SecondHalfAfterFirst(io.BytesIO):
    """A body that returns its second half only after the server received a part of the first."""

    def __init__(self, content: bytes, proxy: S3FaultProxy) -> None:
        super().__init__(content)
        self._proxy = proxy
        self.waited = False

    def read(self, size: int | None = -1) -> bytes:
        sending = any(request.method == "PUT" for request in self._proxy.requests())
        if sending and not self.waited and self.tell() > len(self.getbuffer()) // 2:
            wait_for(lambda: self._proxy.requests()[-1].forwarded > 0, "the first half on its way")
            self.waited = True
        return super().read(size)


def test_a_large_body_streams(proxy: S3FaultProxy, through: "S3Client") -> None:
    """The server receives its beginning before the client sends its end; the client sends `Expect`."""
    content = bytes(range(256)) * 16_384
    body = _SecondHalfAfterFirst(content, proxy)
    through.put_object(Bucket=BUCKET, Key="stream", Body=body)
    assert body.waited
    put = proxy.requests()[-1]
    assert put.headers["expect"] == "100-continue"
    assert put.forwarded == len(content)
    with through.get_object(Bucket=BUCKET, Key="stream")["Body"] as answer:
        assert answer.read() == content


def _send(endpoint: str, target: str, body: Iterator[bytes], headers: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc)
    try:
        # http.client sends chunks for an iterator, whose length is unknown.
        connection.request("PUT", target, body, dict(headers), encode_chunked=True)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_a_chunked_body_passes(proxy: S3FaultProxy, through: "S3Client") -> None:
    """The proxy forwards HTTP chunks unchanged."""
    signed = through.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "chunked"})
    target = signed.removeprefix(proxy.endpoint)
    sent = _send(proxy.endpoint, target, iter([b"a" * 100_000, b"b", b"c" * 70_000]), {"Transfer-Encoding": "chunked"})
    assert sent == 200
    with through.get_object(Bucket=BUCKET, Key="chunked")["Body"] as body:
        assert body.read() == b"a" * 100_000 + b"b" + b"c" * 70_000
    assert proxy.requests()[0].forwarded > 170_001


def test_an_aws_chunked_body_with_a_trailing_checksum_passes(
    proxy: S3FaultProxy, through: "S3Client", s3: S3Server
) -> None:
    """The SDK's own chunks and the trailing checksum reach the server, which checks it."""
    content = b"x" * 100_000
    checksum = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
    framed = [b"%x\r\n" % len(content), content, b"\r\n0\r\n", f"x-amz-checksum-crc32:{checksum}\r\n\r\n".encode()]
    headers = {
        "Content-Encoding": "aws-chunked",
        "Transfer-Encoding": "chunked",
        "X-Amz-Trailer": "x-amz-checksum-crc32",
        "X-Amz-Decoded-Content-Length": str(len(content)),
    }
    target = f"/{BUCKET}/aws-chunked"
    request = AWSRequest("PUT", proxy.endpoint + target, headers)
    request.context["checksum"] = {"request_algorithm": {"in": "trailer", "algorithm": "crc32"}}
    S3SigV4Auth(Credentials(s3.admin.access_key, s3.admin.secret_key), "s3", REGION).add_auth(request)
    assert _send(proxy.endpoint, target, iter(framed), dict(request.headers.items())) == 200
    assert proxy.requests()[0].headers["x-amz-content-sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    with through.get_object(Bucket=BUCKET, Key="aws-chunked")["Body"] as body:
        assert body.read() == content


def test_many_requests_at_once_keep_apart(proxy: S3FaultProxy, through: "S3Client") -> None:
    """Each key has its own content, over reused connections."""

    def put_and_get(number: int) -> bool:
        content = str(number).encode() * 20_000
        through.put_object(Bucket=BUCKET, Key=f"many/{number}", Body=io.BytesIO(content))
        with through.get_object(Bucket=BUCKET, Key=f"many/{number}")["Body"] as body:
            return body.read() == content

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(put_and_get, range(40)))
    assert [request.number for request in proxy.requests()] == list(range(80))
    # One thread accepts connections, and one serves each thread of the client.
    ours = [thread for thread in threading.enumerate() if thread.name.startswith(f"s3-proxy-{proxy.port}")]
    assert len(ours) <= 1 + 10


def test_the_environment_leads_to_the_proxy(proxy: S3FaultProxy, s3: S3Server) -> None:
    """Only the endpoint differs from the server's variables: keys and region are the same."""
    ours, theirs = proxy.environment(s3.restricted), s3.environment(s3.restricted)
    assert {name for name in theirs if ours[name] != theirs[name]} == {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
    assert ours["AWS_ENDPOINT_URL"] == ours["AWS_ENDPOINT_URL_S3"] == proxy.endpoint
    assert proxy.endpoint != s3.endpoint


def test_a_server_that_is_down_appears_as_a_reset_and_returns(
    proxy: S3FaultProxy, client_of: ClientOf, s3: S3Server
) -> None:
    """The journal shows that the proxy did not cut the connection; after a restart the same proxy works."""
    client = client_of(proxy.endpoint)
    s3.kill()
    with pytest.raises(HTTPClientError):
        client.list_buckets()
    broken = proxy.wait_for_request(lambda request: request.broken is not None)
    assert (broken.broken, broken.faults) == ("server: [Errno 111] Connection refused", ())
    s3.start()
    assert client.list_buckets()["Buckets"]
