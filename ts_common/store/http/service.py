"""How one object service is spoken to over HTTP: requests out, answers in. Knows no socket.

`http_store` makes a driver of it. A service says what its requests look like and what its answers mean; that a put is
one request, what is asked again, and what a "not found" without a reason means is the same for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.call import Call
from ts_common.store.contract import ByteRange, Condition, ObjectInfo
from ts_common.store.http.client import Request, Response
from ts_common.store.refusals import is_refused_skew, set_the_clock, skew_of, without_reason

# For answers whose code no service names. A 404 without one may come from a load balancer without a backend.
_BY_STATUS: dict[int, type[TieredStorageError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: StoreUnavailable,
    412: PreconditionFailed,
    429: StoreThrottled,
}
_UNDECIDED = {408, 409}  # not seen through, or not ordered against another request


@dataclass(frozen=True, slots=True)
class Operations:
    """The service's own names of what is asked, for messages."""

    check: str
    put: str
    get: str
    head: str
    list: str
    delete: str


@dataclass(frozen=True, slots=True)
class Put:
    """A put, but for the object's bytes.

    Attributes:
        request: with all headers but the length.
        before: what is sent before the bytes.
        after: what is sent after them.
    """

    request: Request
    before: bytes = b""
    after: bytes = b""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing.

    Attributes:
        infos: objects, by their names in the bucket.
        directories: what stands before the next delimiter, by names in the bucket.
        following: asks for the next part; empty at the end.
    """

    infos: list[ObjectInfo]
    directories: list[str]
    following: str


class Service(ABC):
    """One bucket of one service. Names are the objects' whole names there, base prefix included.

    Attributes:
        bucket_url: for messages and for the proxy's choice, as in `gs://bucket`.
        operations: the service's names.
        codes: what the service's error codes mean.
        ways_out: what to do about some of them, or about a status (`"401"`) without a code that is known here.
        credentials: what proves the identity, for a refusal without a reason: a noun.
        look_at_bucket: what to do where there is no such bucket.
        looks_at_clocks: whether requests carry this machine's time, and are refused where it is far from the store's.
        permissions: what an operator has to allow for an operation.
        suffix_ranges: whether a get can ask for the last bytes of an object.
        wants_md5: whether a put carries the MD5 of its body.
    """

    bucket_url: str
    base_url: str
    operations: Operations
    codes: Mapping[str, type[TieredStorageError]]
    ways_out: Mapping[str, str]
    permissions: Mapping[str, str]
    credentials: str
    look_at_bucket: str
    looks_at_clocks = False
    suffix_ranges = True
    wants_md5 = False

    @abstractmethod
    def authorize(self, request: Request) -> Request:
        """The request, signed; see `ts_common.store.http.client.Authorize`."""

    @abstractmethod
    def check(self) -> Request:
        """Is the bucket there?"""

    @abstractmethod
    def put(
        self, name: str, metadata: Mapping[str, str], condition: Condition, crc32c: int | None, md5: bytes | None
    ) -> Put:
        """Write one object."""

    @abstractmethod
    def info_of_put(self, key: str, size: int, metadata: Mapping[str, str], answer: Response) -> ObjectInfo:
        """What the answer to a put says of the object.

        Raises:
            LookupError, TypeError, ValueError: it does not say.
        """

    @abstractmethod
    def get(self, name: str, byte_range: ByteRange | None, etag: str | None) -> Request:
        """Read one object; with an etag, that one only."""

    @abstractmethod
    def head(self, name: str) -> Request:
        """Look at one object."""

    @abstractmethod
    def info_of(self, key: str, size: int, answer: Response) -> ObjectInfo:
        """What the answer to a get or a head says of the object, but for its size.

        Raises:
            LookupError, TypeError, ValueError: it does not say.
        """

    @abstractmethod
    def list(self, prefix: str, start_after: str, following: str, *, delimiter: str = "") -> Request:
        """A part of a listing. What comes up to `start_after` may be part of it."""

    @abstractmethod
    def parse_page(self, answer: Response) -> Page:
        """What the answer to a listing says.

        Raises:
            LookupError, TypeError, ValueError: it is no listing.
        """

    @abstractmethod
    def delete(self, name: str) -> Request:
        """Remove one object."""

    @abstractmethod
    def code_of(self, answer: Response) -> tuple[str, str]:
        """The code and the message of a refusal, as far as it has any."""

    def error(self, answer: Response, call: Call) -> TieredStorageError:
        """Our error for an answer that is a refusal or a failure of the service."""
        code, message = self.code_of(answer)
        status = answer.status
        said = f"{call.operation} {call.target}: {code} (HTTP {status}): {message[:500]}"
        kind = self.codes.get(code) or (None if status in _UNDECIDED else _BY_STATUS.get(status))
        if kind is None and (status in _UNDECIDED or status >= 500):
            return call.no_answer(said)
        if kind is ObjectNotFound and call.writes:
            return PreconditionFailed(said)  # a condition on what is not there
        if kind is AccessDenied:
            return self._refusal(answer, call, code, said)
        if kind is BucketMissing:
            return BucketMissing(f"{said}; {self.look_at_bucket}")
        if kind is None or kind is OperatorError:
            return OperatorError(f"{said}; {self.ways_out.get(code, 'the same request will be refused again')}")
        return CorruptData(f"{said}; nothing was written") if kind is CorruptData else kind(said)

    def _refusal(self, answer: Response, call: Call, code: str, said: str) -> TieredStorageError:
        """Our error for a refusal of the identity: what of it is wrong, as far as the service tells."""
        skew = skew_of(answer.headers.get("date"))
        if self.looks_at_clocks and is_refused_skew(skew):
            return WrongClock(f"{said}; {set_the_clock(skew)}")
        needed = self.permissions[call.operation]
        if (way := self.ways_out.get(code)) is None and code in self.codes:
            way = f"allow this identity {needed}"
        return AccessDenied(
            f"{said}; {way or self.ways_out.get(str(answer.status)) or without_reason(self.credentials, needed, skew)}"
        )
