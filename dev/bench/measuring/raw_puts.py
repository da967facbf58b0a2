"""Fills an S3 server with many small objects: signed PUTs over persistent connections, without an SDK.

boto3 needs as long for one PUT as a local server needs to store a small object. The signature is AWS's Signature
Version 4 with an unsigned body, over http to a local server.
"""

import hashlib
import hmac
import re
import socket
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from dev.local.stores.s3 import REGION, Identity

_UNSIGNED = "UNSIGNED-PAYLOAD"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: ([0-9]+)")
_PIECE_BYTES = 1 << 16
_NO_METADATA: Mapping[str, str] = {}


class RawPuts:
    """Puts objects into a bucket; each thread has its own connection.

    Args:
        endpoint: `http://host:port`.
        identity: the key for the signatures.
        bucket: its name; keys have only letters, digits and `-./`, which need no quoting.
    """

    def __init__(self, endpoint: str, identity: Identity, bucket: str) -> None:
        split = urlsplit(endpoint)
        self._host = split.netloc
        self._address = (split.hostname, split.port)
        self._identity = identity
        self._bucket = bucket
        self._local = threading.local()

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] = _NO_METADATA) -> None:
        """Put one object with its metadata.

        Raises:
            RuntimeError: the server rejected it.
        """
        connection: socket.socket | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = socket.create_connection(self._address)
        path = f"/{self._bucket}/{key}"
        head = "".join(f"{name}: {value}\r\n" for name, value in self._signed(path, metadata).items())
        connection.sendall(f"PUT {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while (ended := answer.find(b"\r\n\r\n")) < 0:
            answer += self._received(connection, path)
        length = _LENGTH.search(answer[:ended])
        if not answer.startswith(b"HTTP/1.1 200 ") or length is None:
            raise RuntimeError(f"PUT {path}: {answer[:500]!r}")
        while len(answer) < ended + 4 + int(length[1]):
            answer += self._received(connection, path)

    @staticmethod
    def _received(connection: socket.socket, path: str) -> bytes:
        piece = connection.recv(_PIECE_BYTES)
        if not piece:
            raise RuntimeError(f"PUT {path}: the server closed the connection")
        return piece

    def _signed(self, path: str, metadata: Mapping[str, str]) -> dict[str, str]:
        now = datetime.now(UTC)
        date, instant = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self._host, "x-amz-content-sha256": _UNSIGNED, "x-amz-date": instant}
        headers |= {f"x-amz-meta-{name}": value for name, value in metadata.items()}
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = f"PUT\n{path}\n\n{lines}\n{names}\n{_UNSIGNED}"
        scope = f"{date}/{REGION}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{instant}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key(date), text.encode(), "sha256").hex()
        credential = f"{self._identity.access_key}/{scope}"
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def _key(self, date: str) -> bytes:
        key = f"AWS4{self._identity.secret_key}".encode()
        for part in (date, REGION, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key
