"""The interface of an object service over HTTP: it builds requests and reads responses. It has no socket.

`ts_common.store.http.driver` is the driver for every service. A service defines the form of its requests and the
meaning of its responses. The rest is the same for all: a put is one request, the retries, and the meaning of a "not
found" without a reason.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.call import Call
from ts_common.store.clock import is_refused_skew, set_the_clock, skew_of, without_reason
from ts_common.store.contract import ByteRange, Condition, ObjectInfo
from ts_common.store.http.client import Request, Response
from ts_common.store.protection import Lock, Protection
from ts_common.store.thaw_state import WAY_OUT, ThawState, ThawTier
from ts_common.wording import clause

# For responses whose code the service does not list. A load balancer without a backend may send a 404 without a code.
_BY_STATUS: dict[int, type[TieredStorageError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: StoreUnavailable,
    412: PreconditionFailed,
    429: StoreThrottled,
}
_UNDECIDED = {408, 409}  # not completed, or not ordered against another request


@dataclass(frozen=True, slots=True)
class Operations:
    """The service's names of its operations, for messages."""

    check: str
    put: str
    copy: str
    get: str
    head: str
    list: str
    delete: str
    protection: str
    lock: str
    thaw: str = ""


@dataclass(frozen=True, slots=True)
class Put:
    """A put without the object's bytes.

    Attributes:
        request: with all headers but the length.
        before: is sent before the bytes.
        after: is sent after them.
    """

    request: Request
    before: bytes = b""
    after: bytes = b""


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy that the service has begun and not ended.

    Attributes:
        following: the next request: one that reads the state of the copy, or another one that copies.
        waits: whether to wait before it.
        failure: why the copy ended without a target, in words of the service; None if it continues. With a failure,
            `following` removes what is left of the copy.
    """

    following: Request
    reads: bool = False
    waits: bool = False
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing.

    Attributes:
        infos: objects, by their names in the bucket.
        directories: names in the bucket up to the next delimiter.
        following: the token of the next page; empty at the end.
    """

    infos: list[ObjectInfo]
    directories: list[str]
    following: str


class Service(ABC):
    """One bucket of one service. Names are the objects' whole names in the bucket, base prefix included.

    Attributes:
        bucket_url: for messages, such as `gs://bucket`.
        base_url: of the service; it selects the proxy.
        operations: the service's names.
        codes: the errors for the service's codes.
        ways_out: what to do about some codes, or about a status (`"401"`) without a listed code.
        credentials: a noun for what proves the identity, for a denial without a reason.
        check_bucket: what to do if the bucket does not exist.
        looks_at_clocks: whether requests contain this host's time, and are rejected if it differs too much.
        permissions: the permission that an operation requires.
        suffix_ranges: whether a get can request the last bytes of an object.
        wants_md5: whether a put contains the MD5 of its body.
    """

    bucket_url: str
    base_url: str
    operations: Operations
    codes: Mapping[str, type[TieredStorageError]]
    ways_out: Mapping[str, str]
    permissions: Mapping[str, str]
    credentials: str
    check_bucket: str
    looks_at_clocks = False
    suffix_ranges = True
    wants_md5 = False

    @abstractmethod
    def authorize(self, request: Request) -> Request:
        """Return the request with credentials; see `ts_common.store.http.client.Authorize`."""

    def identity(self) -> str | None:
        """Return whose credentials these are, as `ObjectStore.identity`."""
        return None

    @abstractmethod
    def check(self) -> Request:
        """Return a request that succeeds if the bucket exists and can be read."""

    @abstractmethod
    def put(
        self, name: str, metadata: Mapping[str, str], condition: Condition, crc32c: int | None, md5: bytes | None
    ) -> Put:
        """Return a request that writes one object."""

    @abstractmethod
    def info_of_put(self, key: str, size: int, metadata: Mapping[str, str], answer: Response) -> ObjectInfo:
        """Return the object's properties from the response to a put.

        Raises:
            LookupError, TypeError, ValueError: the response does not contain them.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> Request:
        """Return a request that copies one object if the target does not exist."""

    @abstractmethod
    def copied(self, key: str, source: str, target: str, answer: Response) -> ObjectInfo | Copying:
        """Return the properties of the target, with this key, from a response to `copy` or to `Copying.following`.

        Raises:
            LookupError, TypeError, ValueError: it is not such a response.
        """

    @abstractmethod
    def get(self, name: str, byte_range: ByteRange | None, etag: str | None) -> Request:
        """Return a request that reads one object; with an ETag, only the object with that ETag."""

    @abstractmethod
    def head(self, name: str) -> Request:
        """Return a request for the properties of one object."""

    @abstractmethod
    def info_of(self, key: str, size: int, answer: Response) -> ObjectInfo:
        """Return the object's properties, all but its size, from the response to a get or a head.

        Raises:
            LookupError, TypeError, ValueError: the response does not contain them.
        """

    @abstractmethod
    def list(self, prefix: str, start_after: str, following: str, *, delimiter: str = "") -> Request:
        """Return a request for a page of a listing; the page may contain names up to `start_after`."""

    @abstractmethod
    def parse_page(self, answer: Response) -> Page:
        """Return the page in the response to a listing.

        Raises:
            LookupError, TypeError, ValueError: it is not a listing.
        """

    @abstractmethod
    def delete(self, name: str, etag: str | None = None) -> Request:
        """Return a request that removes one object; with an ETag, only the object with that ETag."""

    def thaw(self, name: str, tier: ThawTier) -> Request | None:
        """Return a request that thaws one object permanently; None if the service has no frozen objects."""
        del name, tier
        return None

    def thaw_state_of(self, info: ObjectInfo, answer: Response) -> ThawState:
        """Return whether an object can be read, from the response to a head."""
        del answer
        return ThawState(info.storage_class, is_frozen=info.is_frozen)

    @abstractmethod
    def protection(self) -> Request:
        """Return a request for what the bucket keeps of deleted objects."""

    @abstractmethod
    def protection_of(self, answer: Response) -> Protection:
        """Return what the response to `protection` contains.

        Raises:
            LookupError, TypeError, ValueError: it is not such a response.
        """

    @abstractmethod
    def lock(self, name: str) -> Request:
        """Return a request for the lock of one object."""

    @abstractmethod
    def lock_of(self, answer: Response) -> Lock | None:
        """Return the lock in the response to `lock`; None without one.

        Raises:
            LookupError, TypeError, ValueError: it is not such a response.
        """

    @abstractmethod
    def code_of(self, answer: Response) -> tuple[str, str]:
        """Return the code and the message of an error response; each may be empty."""

    def error(self, answer: Response, call: Call) -> TieredStorageError:
        """Return the project's error for a response that is a rejection or a failure of the service."""
        code, message = self.code_of(answer)
        status = answer.status
        failed = f"{call.operation} {call.target}: {code} (HTTP {status}): {clause(message[:500])}"
        kind = self.codes.get(code) or (None if status in _UNDECIDED else _BY_STATUS.get(status))
        if kind is None and (status in _UNDECIDED or status >= 500):
            return call.no_answer(failed)
        if kind is ObjectNotFound and call.writes and not call.copies:
            return PreconditionFailed(failed)  # the object of the condition does not exist
        if kind is AccessDenied:
            return self._denial(answer, call, code, failed)
        if kind is BucketMissing:
            return BucketMissing(f"{failed}; {self.check_bucket}")
        if kind is ObjectFrozen:
            return ObjectFrozen(f"{failed}; the object is frozen; {WAY_OUT}")
        if kind is None or kind is OperatorError:
            return OperatorError(f"{failed}; {self.ways_out.get(code, 'the store will reject the same request again')}")
        return CorruptData(f"{failed}; nothing was written") if kind is CorruptData else kind(failed)

    def _denial(self, answer: Response, call: Call, code: str, failed: str) -> TieredStorageError:
        """Return the project's error for denied access, with the reason if the service names it."""
        skew = skew_of(answer.headers.get("date"))
        if self.looks_at_clocks and is_refused_skew(skew):
            return WrongClock(f"{failed}; {set_the_clock(skew)}")
        needed = self.permissions[call.operation]
        if (way := self.ways_out.get(code)) is None and code in self.codes:
            way = f"allow this identity {needed}"
        way = way or self.ways_out.get(str(answer.status)) or without_reason(self.credentials, needed, skew)
        return AccessDenied(f"{failed}; {way}")
