"""Filling an S3 server with many small objects: signed PUTs over kept connections, without an SDK.

What boto3 does for one PUT takes as long as a local server needs to store a small object. The signature is AWS's
Signature Version 4, with the body unsigned, over http to a server of one's own.
"""

import hashlib
import hmac
import http.client
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from ts_local.s3 import REGION, Identity

_UNSIGNED = "UNSIGNED-PAYLOAD"
_NO_METADATA: Mapping[str, str] = {}


class RawPuts:
    """Puts objects into a bucket; each thread has a connection of its own.

    Args:
        endpoint: `http://host:port`.
        identity: who asks.
        bucket: its name; keys are of letters, digits and `-./`, which need no quoting.
    """

    def __init__(self, endpoint: str, identity: Identity, bucket: str) -> None:
        self._host = urlsplit(endpoint).netloc
        self._identity = identity
        self._bucket = bucket
        self._local = threading.local()

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] = _NO_METADATA) -> None:
        """One object with its metadata.

        Raises:
            RuntimeError: the server refuses it.
        """
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(self._host)
        path = f"/{self._bucket}/{key}"
        connection.request("PUT", path, body, self._signed(path, metadata))
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"PUT {path}: {answer.status} {said[:200]!r}")

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
