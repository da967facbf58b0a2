"""Google Cloud Storage: objects of one bucket, by the JSON API; single objects are read by the XML API.

Supported: a put is atomic and one request (a multipart upload) of up to 5 TiB. `ifGenerationMatch` is its condition,
with 0 for "if absent". An object's generation, which is its ETag here, is new at each write. Reads and listings are
strongly consistent (`no-store` bypasses caches). The service compares the CRC-32C of a put with the bytes that arrive.
A listing is in byte order and can begin at a key.

Not supported: more than about one write per second to the same object; the service answers 429. A commit is written
once for each segment, so only a partition that rolls faster is affected. The agent then lowers the rate of all requests
(`ts_common.store.wrappers.request_rate`).

The response to a get by the XML API has the custom metadata in its headers; one by the JSON API has not.

Credentials are Application Default Credentials, as in all tools of Google (google-auth, the extra `gcs`). If
STORAGE_EMULATOR_HOST names an emulator, requests have none.

https://cloud.google.com/storage/docs/json_api/v1, https://cloud.google.com/storage/docs/xml-api/overview
"""

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreThrottled,
    TieredStorageError,
)
from ts_common.store.answers import class_of, parse_json, range_header, size_of, text_of
from ts_common.store.contract import ByteRange, Condition, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.gcs.tokens import GIVE, default_tokens
from ts_common.store.http.client import Request, Response
from ts_common.store.http.service import Copying, Operations, Page, Put, Service
from ts_common.store.protection import Lock, Protection

_PUBLIC = "https://storage.googleapis.com"
_METADATA = "x-goog-meta-"
_PAGE = 1000
_NO_GENERATION = 1  # no object has it
_KIND = "storage#objects"
_LISTED = "kind,items(name,size,generation,updated,storageClass),prefixes,nextPageToken"
_READ = "roles/storage.objectViewer on the bucket (storage.objects.get and list)"
_WRITE = "roles/storage.objectUser on the bucket (storage.objects.create, and delete to overwrite offset.wm)"
_OPERATIONS = Operations(
    check="objects.list",
    put="objects.insert",
    copy="objects.rewrite",
    get="GET Object",
    head="HEAD Object",
    list="objects.list",
    delete="objects.delete",
    protection="buckets.get",
    lock="objects.get",
)
_CODES: Mapping[str, type[TieredStorageError]] = {
    "NoSuchKey": ObjectNotFound,
    "notFound": ObjectNotFound,
    "NoSuchBucket": BucketMissing,
    "conditionNotMet": PreconditionFailed,
    "checksumMismatch": CorruptData,
    "rateLimitExceeded": StoreThrottled,
    "userRateLimitExceeded": StoreThrottled,
    "authError": AccessDenied,
    "AccessDenied": AccessDenied,
    "AuthenticationRequired": AccessDenied,
    "forbidden": AccessDenied,
    "insufficientPermissions": AccessDenied,
    "retentionPolicyNotMet": OperatorError,
    "objectUnderActiveHold": OperatorError,
}
_UNKNOWN = f"the service does not accept this identity, or the token has expired: {GIVE}"
_WAYS_OUT = {
    "authError": _UNKNOWN,
    "AuthenticationRequired": _UNKNOWN,
    "required": _UNKNOWN,
    "401": _UNKNOWN,
    "retentionPolicyNotMet": "a retention policy of the bucket or of the object keeps it: delete it after its end",
    "objectUnderActiveHold": "a hold keeps the object: release it first",
    "accountDisabled": "the project's account is disabled: check its billing",
    "UserProjectMissing": "the bucket is Requester Pays, which is not supported: use another, or switch that off",
}
_PERMISSIONS = {
    _OPERATIONS.put: _WRITE,
    _OPERATIONS.copy: f"{_READ}, and {_WRITE}",
    _OPERATIONS.get: _READ,
    _OPERATIONS.head: _READ,
    _OPERATIONS.list: _READ,
    _OPERATIONS.delete: "storage.objects.delete on the bucket",
    _OPERATIONS.protection: "storage.buckets.get on the bucket",
    _OPERATIONS.lock: _READ,
}


class GcsService(Service):
    """One bucket.

    Args:
        endpoint: URL of the service, without a slash at its end.
        token: returns a valid token; None sends requests without one.
        account: returns the e-mail of the token's account, None without one.
    """

    operations = _OPERATIONS
    codes = _CODES
    ways_out = _WAYS_OUT
    permissions = _PERMISSIONS
    credentials = "the account of the token"
    check_bucket = "the bucket does not exist: check its name"

    def __init__(
        self,
        bucket: str,
        endpoint: str,
        token: Callable[[], str] | None,
        account: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.bucket_url = f"gs://{bucket}"
        self.base_url = endpoint
        self._bucket = bucket
        self._token = token
        self._account = account

    def identity(self) -> str | None:
        """Return the e-mail of the token's account."""
        return self._account()

    def authorize(self, request: Request) -> Request:
        """Add the token."""
        if self._token is None:
            return request
        return replace(request, headers={**request.headers, "authorization": f"Bearer {self._token()}"})

    def check(self) -> Request:
        """List one object: the permissions to ship and to read do not include that for the bucket's properties."""
        return self._listing({"maxResults": "1", "fields": "kind,nextPageToken"})

    def put(
        self, name: str, metadata: Mapping[str, str], condition: Condition, crc32c: int | None, md5: bytes | None
    ) -> Put:
        """Return a multipart upload: the object's properties, then its bytes."""
        del md5
        # Otherwise caches would keep a public object for an hour, although offset.wm changes.
        resource: dict[str, Any] = {"name": name, "metadata": dict(metadata), "cacheControl": "no-store"}
        if crc32c is not None:
            resource["crc32c"] = base64.b64encode(crc32c.to_bytes(4, "big")).decode()
        query = {"uploadType": "multipart", "fields": "generation,updated"}
        match condition:
            case IfAbsent():
                query["ifGenerationMatch"] = "0"
            case IfMatch(etag):
                query["ifGenerationMatch"] = str(_generation(etag))
        boundary = uuid.uuid4().hex
        before = (
            f"--{boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
            f"--{boundary}\r\ncontent-type: application/octet-stream\r\n\r\n"
        )
        request = Request(
            "POST",
            f"{self.base_url}/upload/storage/v1/b/{self._bucket}/o?{urlencode(query)}",
            {"content-type": f"multipart/related; boundary={boundary}"},
        )
        return Put(request, before.encode(), f"\r\n--{boundary}--\r\n".encode())

    def info_of_put(self, key: str, size: int, metadata: Mapping[str, str], answer: Response) -> ObjectInfo:
        """Read the JSON of the response."""
        resource = parse_json(answer.body)
        return ObjectInfo(key, size, resource["generation"], _seconds(resource["updated"]), metadata)

    def copy(self, source: str, target: str) -> Request:
        """Return objects.rewrite."""
        return self._rewrite(source, target, {})

    def copied(self, key: str, source: str, target: str, answer: Response) -> ObjectInfo | Copying:
        """Read the JSON of the response; a large copy requires several requests."""
        found = parse_json(answer.body)
        if not found["done"]:
            return Copying(self._rewrite(source, target, {"rewriteToken": text_of(found["rewriteToken"])}))
        resource = found["resource"]
        return ObjectInfo(key, size_of(resource["size"]), resource["generation"], _seconds(resource["updated"]))

    def _rewrite(self, source: str, target: str, query: Mapping[str, str]) -> Request:
        objects = f"{self.base_url}/storage/v1/b/{self._bucket}/o"
        path = f"{quote(source, safe='')}/rewriteTo/b/{self._bucket}/o/{quote(target, safe='')}"
        return Request("POST", f"{objects}/{path}?{urlencode({'ifGenerationMatch': '0', **query})}")

    def get(self, name: str, byte_range: ByteRange | None, etag: str | None) -> Request:
        """Return GET Object of the XML API."""
        headers = {}
        if byte_range is not None:
            headers["range"] = range_header(byte_range)
        if etag is not None:
            headers["x-goog-if-generation-match"] = str(_generation(etag))
        return Request("GET", self._of(name), headers)

    def head(self, name: str) -> Request:
        """Return HEAD Object of the XML API."""
        return Request("HEAD", self._of(name))

    def info_of(self, key: str, size: int, answer: Response) -> ObjectInfo:
        """Read the headers of the response."""
        metadata = {
            name.removeprefix(_METADATA): value for name, value in answer.headers.items() if name.startswith(_METADATA)
        }
        modified = parsedate_to_datetime(answer.headers["last-modified"]).timestamp()
        storage_class = class_of(answer.headers.get("x-goog-storage-class"))
        return ObjectInfo(key, size, answer.headers["x-goog-generation"], modified, metadata, storage_class)

    def list(self, prefix: str, start_after: str, following: str, *, delimiter: str = "") -> Request:
        """Return objects.list."""
        query = {"maxResults": str(_PAGE), "fields": _LISTED, "prefix": prefix}
        query |= {
            name: value
            for name, value in (("startOffset", start_after), ("delimiter", delimiter), ("pageToken", following))
            if value
        }
        return self._listing(query)

    def parse_page(self, answer: Response) -> Page:
        """Read the JSON of the response."""
        page = parse_json(answer.body)
        if page["kind"] != _KIND:  # all other fields are optional: `{}` would be an empty listing
            raise ValueError(f"a {page['kind']!r}; expected {_KIND}")
        infos = [_listed(found) for found in page.get("items", ())]
        directories = [text_of(name) for name in page.get("prefixes", ())]
        return Page(infos, directories, text_of(page.get("nextPageToken", "")))

    def delete(self, name: str, etag: str | None = None) -> Request:
        """Return objects.delete."""
        query = "" if etag is None else f"?ifGenerationMatch={_generation(etag)}"
        return Request("DELETE", f"{self.base_url}/storage/v1/b/{self._bucket}/o/{quote(name, safe='')}{query}")

    def protection(self) -> Request:
        """Return buckets.get."""
        fields = "kind,versioning,softDeletePolicy,retentionPolicy,objectRetention,defaultEventBasedHold"
        return Request("GET", f"{self.base_url}/storage/v1/b/{self._bucket}?{urlencode({'fields': fields})}")

    def protection_of(self, answer: Response) -> Protection:
        """Read the JSON of the response. Soft delete keeps deleted objects as versions do."""
        bucket = parse_json(answer.body)
        if bucket["kind"] != "storage#bucket":
            raise ValueError(f"a {bucket['kind']!r}; expected storage#bucket")
        soft = size_of(str(bucket.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)))
        versioned = bucket.get("versioning", {}).get("enabled") is True or soft > 0
        period = bucket.get("retentionPolicy", {}).get("retentionPeriod")
        each = bucket.get("objectRetention", {}).get("mode") == "Enabled" or bucket.get("defaultEventBasedHold") is True
        default = None if period is None else f"{size_of(str(period))} s (retention policy)"
        return Protection(versioned, each or period is not None, default)

    def lock(self, name: str) -> Request:
        """Return objects.get."""
        fields = {"fields": "kind,retention,retentionExpirationTime,temporaryHold,eventBasedHold"}
        path = f"{self.base_url}/storage/v1/b/{self._bucket}/o/{quote(name, safe='')}"
        return Request("GET", f"{path}?{urlencode(fields)}")

    def lock_of(self, answer: Response) -> Lock | None:
        """Read the JSON of the response."""
        found = parse_json(answer.body)
        if found["kind"] != "storage#object":
            raise ValueError(f"a {found['kind']!r}; expected storage#object")
        retention = found.get("retention", {})
        ends = [
            _seconds(text) for text in (found.get("retentionExpirationTime"), retention.get("retainUntilTime")) if text
        ]
        is_held = found.get("temporaryHold") is True or found.get("eventBasedHold") is True
        return Lock(max(ends, default=None), is_held, text_of(retention.get("mode", ""))) if ends or is_held else None

    def code_of(self, answer: Response) -> tuple[str, str]:
        """Return the reason of the JSON API, or the code of the XML API."""
        body = answer.body.decode(errors="replace")
        if body.startswith("<"):
            found = [re.search(rf"<{name}>([^<]*)", body) for name in ("Code", "Message")]
            code, message = (each[1] if each else "" for each in found)
            return code, message
        try:
            error = parse_json(answer.body)["error"]
            reason, message = text_of(error["errors"][0]["reason"]), text_of(error["message"])
        except (ValueError, KeyError, IndexError, TypeError):
            # The emulator's response to GET Object; Google's has the code NoSuchKey.
            emulated = self._token is None and answer.status == 404 and body.strip() == "Not Found"
            return "notFound" if emulated else "", body
        if answer.status == 404:
            return "notFound", message
        if answer.status == 400 and ("CRC32C" in message or "checksum" in message.lower()):
            return "checksumMismatch", message
        return reason, message

    def _of(self, name: str) -> str:
        return f"{self.base_url}/{self._bucket}/{quote(name)}"

    def _listing(self, query: Mapping[str, str]) -> Request:
        return Request("GET", f"{self.base_url}/storage/v1/b/{self._bucket}/o?{urlencode(query)}")


def gcs_service(bucket: str, environment: Mapping[str, str]) -> GcsService:
    """Return the bucket at Google, or at the emulator that the environment names.

    Raises:
        ConfigurationError: there are no credentials, or google-auth is not installed.
        StoreUnavailable: the source of credentials does not respond at this moment.
    """
    emulator = environment.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    if emulator:
        return GcsService(bucket, emulator if "://" in emulator else f"http://{emulator}", None)
    tokens = default_tokens(bucket)
    return GcsService(bucket, _PUBLIC, tokens, tokens.account)


def _listed(found: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        text_of(found["name"]),
        size_of(found["size"]),
        found["generation"],
        _seconds(found["updated"]),
        storage_class=class_of(found.get("storageClass")),
    )


def _generation(etag: str) -> int:
    """Return the generation in an ETag, and never 0, which would mean "if absent"."""
    digits = etag.strip('"')
    return int(digits) or _NO_GENERATION if digits.isdecimal() else _NO_GENERATION


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
