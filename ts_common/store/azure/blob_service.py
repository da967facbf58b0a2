"""Azure Blob Storage: block blobs of one container, by its REST API.

Supported: a put is atomic, up to 5,000 MiB in one request (Put Blob), with the conditions `If-None-Match: *` and
`If-Match`. The service makes the ETag, which is new at each write. Reads and listings are strongly consistent. The
service compares the MD5 of a put with the bytes that arrive. It has no CRC-32C, so the MD5 requires reading the body
once more.

Not supported: a listing that begins after a key (the driver lists all keys of the prefix and drops the earlier ones),
and ranges from the end of a blob (the driver reads the size first). In an account with a hierarchical namespace a
listing walks directories, which `ts_common.store.listing` puts in order. It also names the directories, which are
omitted here.

Names of metadata must be identifiers of C#, so `ts-end` is stored as `ts_2dend`: a character that is neither a letter
nor a digit becomes `_` and its code in hex.

https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api
"""

import base64
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote, urlencode
from xml.etree import ElementTree

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreThrottled,
    TieredStorageError,
)
from ts_common.store.answers import class_of, parse_xml, range_header, size_of
from ts_common.store.azure.account import API_VERSION, Account
from ts_common.store.call import strong
from ts_common.store.contract import ByteRange, Condition, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.http.client import Request, Response
from ts_common.store.http.service import Copying, Operations, Page, Put, Service
from ts_common.store.protection import Lock, Protection
from ts_common.store.thaw_state import ThawState, ThawTier

_ACCEPTED = 202
_NOT_FOUND = 404
_PAGE = "5000"  # the largest page of the service
_METADATA = "x-ms-meta-"
_ARCHIVE = "Archive"  # the one tier that is not online
_TRUE = "true"
_READ = "Storage Blob Data Reader on the container (List and Read of a SAS)"
_WRITE = "Storage Blob Data Contributor on the container (Create and Write of a SAS)"
_OPERATIONS = Operations(
    check="List Blobs",
    put="Put Blob",
    copy="Copy Blob",
    get="Get Blob",
    head="Get Blob Properties",
    list="List Blobs",
    delete="Delete Blob",
    thaw="Set Blob Tier",
    protection="Get Container Properties",
    lock="Get Blob Properties",
)
_CODES: Mapping[str, type[TieredStorageError]] = {
    "BlobNotFound": ObjectNotFound,
    "ResourceNotFound": BucketMissing,
    "ContainerNotFound": BucketMissing,
    "BlobAlreadyExists": PreconditionFailed,  # 409, to `If-None-Match: *`
    "ConditionNotMet": PreconditionFailed,
    "TargetConditionNotMet": PreconditionFailed,
    "Md5Mismatch": CorruptData,
    "ServerBusy": StoreThrottled,
    "AuthenticationFailed": AccessDenied,
    "AuthorizationFailure": AccessDenied,
    "AuthorizationPermissionMismatch": AccessDenied,
    "AuthorizationProtocolMismatch": AccessDenied,
    "AuthorizationResourceTypeMismatch": AccessDenied,
    "AuthorizationServiceMismatch": AccessDenied,
    "AuthorizationSourceIPMismatch": AccessDenied,
    "InsufficientAccountPermissions": AccessDenied,
    "InvalidAuthenticationInfo": AccessDenied,
    "KeyBasedAuthenticationNotPermitted": AccessDenied,
    "NoAuthenticationInformation": AccessDenied,
    "BlobArchived": ObjectFrozen,
    "BlobBeingRehydrated": ObjectFrozen,
    "BlobImmutableDueToPolicy": OperatorError,
}
_RENEW = "the token or the SAS is invalid, or has expired: renew it, and check the tenant and the account"
# https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes
# The emulator answers a wrong key with AuthorizationFailure.
_WAYS_OUT = {
    "AuthenticationFailed": (
        "the account's key or the SAS is wrong or has expired, or this host's clock is wrong: renew the key or the "
        "SAS, and set the clock (NTP)"
    ),
    "AuthorizationFailure": (
        "the account's firewall does not allow this host, the SAS has not the permission, or the key is wrong: check "
        "the account's network rules, then the key or the SAS"
    ),
    "AuthorizationProtocolMismatch": "the SAS requires https://",
    "AuthorizationSourceIPMismatch": "the SAS does not allow this host's address",
    "InvalidAuthenticationInfo": _RENEW,
    "KeyBasedAuthenticationNotPermitted": "the account accepts no keys: unset AZURE_STORAGE_KEY and use Entra ID",
    "NoAuthenticationInformation": "the request has no credentials: set AZURE_STORAGE_KEY, a SAS, or use Entra ID",
    "401": _RENEW,
    "BlobImmutableDueToPolicy": (
        "an immutability policy or a legal hold applies to the blob: the agent overwrites offset.wm, which must have "
        "none; other blobs can be deleted after its end"
    ),
}
_PERMISSIONS = {
    _OPERATIONS.put: _WRITE,
    _OPERATIONS.copy: "Storage Blob Data Contributor on the container (Read, Create and Write of a SAS)",
    _OPERATIONS.get: _READ,
    _OPERATIONS.head: _READ,
    _OPERATIONS.list: _READ,
    _OPERATIONS.delete: "Storage Blob Data Contributor on the container (Delete of a SAS)",
    _OPERATIONS.thaw: "Storage Blob Data Contributor on the container (Write of a SAS)",
    _OPERATIONS.protection: "Storage Blob Data Reader on the container",
}


class AzureService(Service):
    """One container.

    Args:
        account: with its credentials.
    """

    operations = _OPERATIONS
    codes = _CODES
    ways_out = _WAYS_OUT
    permissions = _PERMISSIONS
    credentials = "the account's key, the SAS or the token"
    check_bucket = "the container does not exist: check its name and the account (AZURE_STORAGE_ACCOUNT)"
    suffix_ranges = False
    wants_md5 = True

    def __init__(self, container: str, account: Account) -> None:
        self._account = account
        self.looks_at_clocks = account.key is not None  # a signature of the key covers the time
        self.bucket_url = f"az://{container}"
        self.base_url = account.endpoint
        self._url = f"{account.endpoint}/{container}"

    def authorize(self, request: Request) -> Request:
        """Sign with the account's key, or add a SAS or a token."""
        return self._account.authorize(request)

    def identity(self) -> str | None:
        """Return that of the account's credentials."""
        return self._account.identity()

    def check(self) -> Request:
        """List one blob: no SAS of a container allows Get Container Properties."""
        return self._request("GET", f"{self._url}?restype=container&comp=list&maxresults=1")

    def put(
        self, name: str, metadata: Mapping[str, str], condition: Condition, crc32c: int | None, md5: bytes | None
    ) -> Put:
        """Return Put Blob."""
        del crc32c
        headers = {"x-ms-blob-type": "BlockBlob", "content-type": "application/octet-stream"}
        headers |= {_METADATA + stored_name(each): value for each, value in metadata.items()}
        match condition:
            case IfAbsent():
                headers["if-none-match"] = "*"
            case IfMatch(etag):
                headers["if-match"] = _quoted(etag)
        if md5 is not None:
            headers["content-md5"] = base64.b64encode(md5).decode()
        return Put(self._request("PUT", self._of(name), headers))

    def info_of_put(self, key: str, size: int, metadata: Mapping[str, str], answer: Response) -> ObjectInfo:
        """Read the headers of the response."""
        return ObjectInfo(key, size, _etag(answer), _modified(answer), metadata)

    def copy(self, source: str, target: str) -> Request:
        """Return Copy Blob."""
        headers = {"x-ms-copy-source": self._account.source(self._of(source)), "if-none-match": "*"}
        return self._request("PUT", self._of(target), headers)

    def copied(self, key: str, source: str, target: str, answer: Response) -> ObjectInfo | Copying:
        """Read the state of the copy: Copy Blob does not return the size, and may return before the copy ends."""
        del source
        if answer.status == _ACCEPTED:
            state = answer.headers["x-ms-copy-status"]
        else:
            state = answer.headers.get("x-ms-copy-status", "success")  # absent if the target was overwritten since
        if state not in {"success", "pending"}:
            reason = answer.headers.get("x-ms-copy-status-description", "")
            left = self._request("DELETE", self._of(target), {"if-match": _quoted(_etag(answer))})
            return Copying(left, failure=f"{state} {reason}".rstrip())
        if state == "pending" or answer.status == _ACCEPTED:
            return Copying(self.head(target), reads=True, waits=state == "pending")
        return ObjectInfo(key, size_of(answer.headers["content-length"]), _etag(answer), _modified(answer))

    def get(self, name: str, byte_range: ByteRange | None, etag: str | None) -> Request:
        """Return Get Blob."""
        headers = {}
        if byte_range is not None:
            headers["range"] = range_header(byte_range)
        if etag is not None:
            headers["if-match"] = _quoted(etag)
        return self._request("GET", self._of(name), headers)

    def head(self, name: str) -> Request:
        """Return Get Blob Properties."""
        return self._request("HEAD", self._of(name))

    def info_of(self, key: str, size: int, answer: Response) -> ObjectInfo:
        """Read the headers of the response."""
        metadata = {
            given_name(name.removeprefix(_METADATA)): value
            for name, value in answer.headers.items()
            if name.startswith(_METADATA)
        }
        storage_class = class_of(answer.headers.get("x-ms-access-tier"))
        frozen = storage_class == _ARCHIVE
        return ObjectInfo(key, size, _etag(answer), _modified(answer), metadata, storage_class, frozen)

    def thaw(self, name: str, tier: ThawTier) -> Request:
        """Return Set Blob Tier, which moves the blob to the hot tier permanently; the service has two priorities."""
        priority = "High" if tier is ThawTier.EXPEDITED else "Standard"
        headers = {"x-ms-access-tier": "Hot", "x-ms-rehydrate-priority": priority, "content-length": "0"}
        return self._request("PUT", f"{self._of(name)}?comp=tier", headers)

    def thaw_state_of(self, info: ObjectInfo, answer: Response) -> ThawState:
        """Read the headers of the response."""
        pending = answer.headers.get("x-ms-archive-status", "").startswith("rehydrate-pending")
        return ThawState(info.storage_class, is_frozen=info.is_frozen, is_thawing=info.is_frozen and pending)

    def list(self, prefix: str, start_after: str, following: str, *, delimiter: str = "") -> Request:
        """Return List Blobs, which cannot begin after a name."""
        del start_after
        query = {"restype": "container", "comp": "list", "maxresults": _PAGE, "prefix": prefix}
        query |= {name: value for name, value in (("delimiter", delimiter), ("marker", following)) if value}
        return self._request("GET", f"{self._url}?{urlencode(query, quote_via=quote)}")

    def parse_page(self, answer: Response) -> Page:
        """Read the XML of the response."""
        root = parse_xml(answer.body.decode("utf-8-sig"))
        if root.tag != "EnumerationResults":
            raise ValueError(f"a {root.tag}; expected EnumerationResults")
        infos = [_listed(blob) for blob in root.iter("Blob") if blob.findtext("Properties/ResourceType") != "directory"]
        directories = [_name(found) for found in root.iter("BlobPrefix")]
        return Page(infos, directories, root.findtext("NextMarker") or "")

    def delete(self, name: str, etag: str | None = None) -> Request:
        """Return Delete Blob, snapshots included."""
        condition = {} if etag is None else {"if-match": _quoted(etag)}
        return self._request("DELETE", self._of(name), {"x-ms-delete-snapshots": "include", **condition})

    def protection(self) -> Request:
        """Return Get Container Properties."""
        return self._request("HEAD", f"{self._url}?restype=container")

    def protection_of(self, answer: Response) -> Protection:
        """Read the headers; those of the account, versions and soft delete, have no request for this role."""
        of_versions = answer.headers.get("x-ms-immutable-storage-with-versioning-enabled") == _TRUE
        policies = (answer.headers["x-ms-has-immutability-policy"], answer.headers["x-ms-has-legal-hold"])
        return Protection(of_versions, of_versions or _TRUE in policies, None)

    def lock(self, name: str) -> Request:
        """Return Get Blob Properties."""
        return self.head(name)

    def lock_of(self, answer: Response) -> Lock | None:
        """Read the headers of the response."""
        until = answer.headers.get("x-ms-immutability-policy-until-date")
        is_held = answer.headers.get("x-ms-legal-hold") == _TRUE
        if until is None and not is_held:
            return None
        seconds = None if until is None else parsedate_to_datetime(until).timestamp()
        return Lock(seconds, is_held, answer.headers.get("x-ms-immutability-policy-mode", ""))

    def code_of(self, answer: Response) -> tuple[str, str]:
        """Return the code in the headers, which a response without a body has too, and the message in the body."""
        message = re.search(rb"<Message>([^<]*)", answer.body)
        code = answer.headers.get("x-ms-error-code", "")
        if code == "CannotVerifyCopySource" and answer.status == _NOT_FOUND:
            code = "BlobNotFound"
        return code, message[1].decode(errors="replace") if message else ""

    def _of(self, name: str) -> str:
        return f"{self._url}/{quote(name)}"

    def _request(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> Request:
        return Request(method, url, {"x-ms-version": API_VERSION, **(headers or {})})


def stored_name(name: str) -> str:
    """Return the identifier that the service stores for a name of metadata."""
    return re.sub(r"[^a-z0-9]|^[0-9]", lambda found: f"_{ord(found[0]):02x}", name)


def given_name(name: str) -> str:
    """Return the name of metadata for a stored identifier; foreign identifiers are returned unchanged."""
    return re.sub(r"_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name.lower())


def _listed(blob: ElementTree.Element) -> ObjectInfo:
    found = blob.find("Properties")
    if found is None:
        raise ValueError("a blob without properties")
    size, etag, modified = (found.findtext(name) for name in ("Content-Length", "Etag", "Last-Modified"))
    if size is None or etag is None or modified is None:
        raise ValueError("a blob without size, ETag or date")
    written, storage_class = parsedate_to_datetime(modified).timestamp(), class_of(found.findtext("AccessTier") or None)
    name, tag, frozen = _name(blob), etag.strip('"'), storage_class == _ARCHIVE
    return ObjectInfo(name, size_of(size), tag, written, storage_class=storage_class, is_frozen=frozen)


def _name(found: ElementTree.Element) -> str:
    element = found.find("Name")
    if element is None or not element.text:
        raise ValueError("a blob without a name")
    # The service encodes characters that XML cannot represent.
    return unquote(element.text) if element.get("Encoded") == "true" else element.text


def _etag(answer: Response) -> str:
    """Return the ETag without quotes, as in a listing."""
    return strong(answer.headers["etag"]).strip('"')


def _quoted(etag: str) -> str:
    return f'"{etag.strip(chr(34))}"'


def _modified(answer: Response) -> float:
    return parsedate_to_datetime(answer.headers["last-modified"]).timestamp()
