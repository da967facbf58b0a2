"""The driver over a `Service`: objects of one bucket under one prefix; each put is one request.

It uses no SDK. By default those of Azure and Google split a large body into parts and retry them. obstore holds a whole
body in memory for a conditional put (docs/contributing.md has the measurement). The protocol requires one streamed,
conditional request, and an error if its response is lost.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import islice

from awscrt.checksums import crc32c as crc32c_of

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectFrozen,
    ObjectNotFound,
    PreconditionFailed,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.answers import checked, size_of, whole_size
from ts_common.store.call import Call
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    DeleteOutcome,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.deletions import DELETED_AT_ONCE, DELETED_IN_A_ROW, Deletions, delete_each, is_missing_after
from ts_common.store.http.bodies import RequestBody
from ts_common.store.http.client import HttpClient, Request, Response
from ts_common.store.http.copies import copy_object
from ts_common.store.http.service import Page, Service
from ts_common.store.listing import Onward, below, directory_below, list_in_order
from ts_common.store.protection import Lock, Protection
from ts_common.store.response_body import DirectSource, EmptyBody, ResponseBody
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.validation import (
    SizedBody,
    body_size,
    check_copy,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
    is_key,
)
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance, RationedBody
from ts_common.wording import clause

# Reads run on the caller's threads, whose number the driver does not have.
_READ_CONNECTIONS = 32
_LOOKS = 3  # attempts at an object that is overwritten between two requests
_BLOCK = 1 << 20


class HttpStore(ObjectStore):
    """Objects of one bucket under one prefix.

    Args:
        prefix: of all keys, without outer slashes; empty for the whole bucket.
        timeout_seconds: for each connect, send and receive.
        threads: the number of asynchronous puts that run at once.
        allowance: limits the bytes per second of the bodies of puts.
    """

    def __init__(
        self,
        service: Service,
        prefix: str = "",
        *,
        timeout_seconds: float = 60,
        threads: int = 4,
        allowance: Allowance = UNLIMITED,
    ) -> None:
        super().__init__(f"{service.bucket_url}/{prefix}".rstrip("/"), async_threads=threads)
        self._service = service
        self._allowance = allowance
        self._base = f"{prefix}/" if prefix else ""
        # Checked once, as in the driver for S3.
        self._bucket_seen = False
        self._client = HttpClient(service.base_url, service.authorize, timeout_seconds, max(_READ_CONNECTIONS, threads))

    def check(self) -> None:
        """Send the service's request for the bucket."""
        call = Call(self._service.operations.check, self._service.bucket_url)
        answer = self._client.send(call, self._service.check())
        if answer.status == 404:
            code, message = self._service.code_of(answer)
            raise BucketMissing(
                f"{call.operation} {call.target}: {code} (HTTP 404): {clause(message[:500])}; "
                f"{self._service.check_bucket}"
            )
        if answer.status >= 300:
            raise self._service.error(answer, call)
        with call.understood():  # the request is for a listing of one object
            self._service.parse_page(answer)
        self._bucket_seen = True

    def current_time(self) -> float:
        """Return the time by the dates of responses."""
        return self._client.clock.current_time()

    def identity(self) -> str | None:
        """Return that of the service's credentials."""
        return self._service.identity()

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,  # noqa: ARG002  (one storage class)
    ) -> ObjectInfo:
        """Send one request once; its body is streamed."""
        call = self._call(self._service.operations.put, check_key(key), writes=True)
        length = body_size(body, size)
        check_metadata(metadata)
        if crc32c is None and isinstance(body, bytes):
            crc32c = crc32c_of(body)
        sized = SizedBody(io.BytesIO(body) if isinstance(body, bytes) else body, length, call.target)
        md5 = _md5_of(sized) if self._service.wants_md5 else None
        put = self._service.put(self._base + key, metadata, condition, crc32c, md5)
        rationed = RationedBody(sized, length, self._allowance)
        sent = RequestBody(rationed, length, crc32c, call.target, before=put.before, after=put.after)
        headers = {**put.request.headers, "content-length": str(sent.length)}
        answer = self._client.send(call, replace(put.request, headers=headers), sent)
        self._raise_for(answer, call)
        with call.understood():
            return checked(self._service.info_of_put(key, length, dict(metadata), answer))

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Send the service's request once, and more until the copy ends."""
        check_copy(source, target)
        from_url, to_url = (f"{self._service.bucket_url}/{self._base}{key}" for key in (source, target))
        call = Call(self._service.operations.copy, f"{from_url} to {to_url}", writes=True, copies=True)
        return copy_object(self._service, self._sent, call, target, self._base + source, self._base + target)

    def _sent(self, call: Call, request: Request) -> Response:
        answer = self._client.send(call, request)
        self._raise_for(answer, call)
        return answer

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Send one request; the body of its response is streamed."""
        check_key(key)
        return self._open(key, None if byte_range == ByteRange(0) else byte_range)

    @contextmanager
    def _open(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        if byte_range is not None and byte_range.start < 0 and not self._service.suffix_ranges:
            with self._open_suffix(key, byte_range) as stream:
                yield stream
            return
        with self._opened(key, byte_range, None) as stream:
            yield stream

    @contextmanager
    def _open_suffix(self, key: str, byte_range: ByteRange) -> Iterator[ObjectStream]:
        """Open the end of an object at a service without suffix ranges: read its size, then only that object."""
        for _ in range(_LOOKS):
            info = self.head(key)
            try:
                opened = self._opened(key, ByteRange(max(0, info.size + byte_range.start)), info.etag)
                stream = opened.__enter__()
            except PreconditionFailed:
                continue
            try:
                yield stream
            finally:
                opened.__exit__(None, None, None)
            return
        raise StoreUnavailable(
            f"{self._service.operations.get} {self.location}/{key}: the object changed {_LOOKS} times while it was read"
        )

    @contextmanager
    def _opened(self, key: str, byte_range: ByteRange | None, etag: str | None) -> Iterator[ObjectStream]:
        call = self._call(self._service.operations.get, key)
        with self._client.streaming(call, self._service.get(self._base + key, byte_range, etag)) as (answer, response):
            if answer.status == 416:
                yield EmptyBody(self.head(key))
                return
            self._raise_for(answer, call)
            with call.understood():
                length = _length(answer)
                size = whole_size(byte_range, answer.headers.get("content-range"), length, call)
                info = checked(self._service.info_of(key, size, answer))
            yield ResponseBody(info, DirectSource(response), length, call)

    def head(self, key: str) -> ObjectInfo:
        """Send one request; after the first "not found", send another one for the bucket."""
        return self._head(key)[0]

    def _head(self, key: str) -> tuple[ObjectInfo, Response]:
        call = self._call(self._service.operations.head, check_key(key))
        answer = self._sent(call, self._service.head(self._base + key))
        with call.understood():
            return checked(self._service.info_of(key, _length(answer), answer)), answer

    def thaw_state(self, key: str) -> ThawState:
        """Send the request of `head`."""
        return self._service.thaw_state_of(*self._head(key))

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        """Send the service's request; the object stays readable permanently."""
        request = self._service.thaw(self._base + check_key(key), tier)
        if request is None:
            super().thaw(key, days, tier)
            return
        try:
            self._sent(self._call(self._service.operations.thaw, key), request)
        except ObjectFrozen:
            return  # a thaw is in progress

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Send a request for each page."""
        check_prefix(prefix)
        return list_in_order(self._listed, prefix, start_after, self._call(self._service.operations.list, prefix))

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield objects in the order of the service."""
        start = len(self._base)
        for page in self._pages(prefix, self._base + start_after if start_after else ""):
            for info in page.infos:
                key = info.key[start:]
                if is_key(key):
                    yield replace(info, key=key)

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """List with a delimiter."""
        check_directory(prefix)
        return self._directories(prefix)

    def _directories(self, prefix: str) -> Iterator[str]:
        asked = self._base + prefix
        call = self._call(self._service.operations.list, prefix)
        found = set()
        for page in self._pages(prefix, "", delimiter="/"):
            with call.understood():
                found |= {directory_below(name, asked) for name in page.directories}
        yield from sorted(name for name in found if is_key(name.rstrip("/")))

    def _pages(self, prefix: str, start_after: str, *, delimiter: str = "") -> Iterator[Page]:
        call = self._call(self._service.operations.list, prefix)
        onward = Onward(call)
        asked = self._base + prefix
        following = ""
        while True:
            request = self._service.list(asked, start_after, following, delimiter=delimiter)
            answer = self._client.send(call, request)
            self._raise_for(answer, call)
            with call.understood():
                page = self._service.parse_page(answer)
                for info in page.infos:
                    below(checked(info).key, asked)
            yield page
            if not page.following:
                return
            if page.following == following:
                raise StoreUnavailable(
                    f"{call.operation} {call.target}: the page is truncated and has no new continuation token"
                )
            onward.advance(
                max(page.infos[-1].key if page.infos else "", page.directories[-1] if page.directories else "")
            )
            following = page.following

    def delete(self, keys: Iterable[str]) -> None:
        """Send a request for each object, eight at once."""
        remaining = iter(keys)
        deletions = Deletions()
        with ThreadPoolExecutor(DELETED_AT_ONCE, "store-delete") as threads:
            while chunk := [check_key(key) for key in islice(remaining, DELETED_IN_A_ROW)]:
                for key, error in zip(chunk, threads.map(self._delete, chunk), strict=True):
                    deletions.add(key, error)
        deletions.check()

    def _delete(self, key: str) -> TieredStorageError | None:
        call = self._call(self._service.operations.delete, key)
        try:
            answer = self._client.send(call, self._service.delete(self._base + key))
            self._raise_for(answer, call)
        except ObjectNotFound:
            return None
        except TieredStorageError as error:
            return error
        return None

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Send a request with a condition for each object, eight at once; after a rejection, a HEAD."""
        return delete_each(etags, self._delete_matching, threads=DELETED_AT_ONCE)

    def _delete_matching(self, key: str, etag: str) -> bool:
        call = self._call(self._service.operations.delete, key)
        try:
            self._raise_for(self._client.send(call, self._service.delete(self._base + key, etag)), call)
        except ObjectNotFound:
            return True
        except PreconditionFailed as error:
            return is_missing_after(error, lambda: self.head(key), etag)
        return True

    def protection(self) -> Protection:
        """Send the service's request for the bucket; if it is denied, assume that it has versions and locks.

        The roles for objects do not include that request. Nothing is hidden then: the service rejects the delete of a
        locked object, and `locked_until` needs no other right than `head`.
        """
        call = Call(self._service.operations.protection, self._service.bucket_url)
        try:
            answer = self._sent(call, self._service.protection())
        except AccessDenied:
            return Protection(versioned=True, locks=True, default_retention=None)
        with call.understood():
            return self._service.protection_of(answer)

    def locked_until(self, key: str) -> Lock | None:
        """Send the service's request for the properties of the object."""
        call = self._call(self._service.operations.lock, check_key(key))
        answer = self._sent(call, self._service.lock(self._base + key))
        with call.understood():
            return self._service.lock_of(answer)

    def close(self) -> None:
        """Wait for puts, and close the connections."""
        super().close()
        self._client.close()

    def _call(self, operation: str, key: str, *, writes: bool = False) -> Call:
        return Call(operation, f"{self._service.bucket_url}/{self._base}{key}", writes)

    def _raise_for(self, answer: Response, call: Call) -> None:
        """Check that the service sent the response, and that it is a success.

        Raises:
            TieredStorageError: the response is an error, or as `Call.refuse_page`.
        """
        if answer.status >= 300:
            raise self._error(answer, call)
        call.refuse_page(answer.headers.get("content-type"))

    def _error(self, answer: Response, call: Call) -> TieredStorageError:
        """Return the project's error for an error response; at the first "not found", check the bucket.

        Raises:
            BucketMissing: the bucket does not exist.
        """
        error = self._service.error(answer, call)
        if answer.status != 404 or isinstance(error, BucketMissing):
            return error
        # A response to HEAD has no body, so it does not name what is missing.
        unnamed = call.operation == self._service.operations.head and isinstance(error, StoreUnavailable)
        missing = isinstance(error, ObjectNotFound | PreconditionFailed) or unnamed
        if not (missing and self._bucket_seen):
            # An identity that may not list is denied the request for the bucket; then the bucket exists.
            with suppress(AccessDenied):
                self.check()
            self._bucket_seen = True
        return ObjectNotFound(str(error)) if unnamed else error


def _md5_of(body: SizedBody) -> bytes:
    """Return the MD5 of a body, and seek the body to its start.

    Raises:
        SegmentChanged, or an error of the reader: as `SizedBody.read`.
    """
    digest = hashlib.md5(usedforsecurity=False)
    while piece := body.read(_BLOCK):
        digest.update(piece)
    body.seek(0)
    return digest.digest()


def _length(answer: Response) -> int:
    """Return the header `Content-Length`.

    Raises:
        KeyError, ValueError: it is missing or invalid.
    """
    return size_of(answer.headers["content-length"])
