"""The driver over a `Service`: objects of one bucket under one prefix, each put one request.

No SDK stands between. Those of Azure and Google cut a large body into parts and repeat them as they think best, and
obstore holds all of a body in memory to put it on a condition (docs/store.md has the measurement); the protocol wants
one request, streamed, on a condition, whose lost answer is told.
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
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.answers import checked, size_of
from ts_common.store.call import Call
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.http.bodies import EmptyBody, RequestBody, ResponseBody
from ts_common.store.http.client import HttpClient, Response
from ts_common.store.http.service import Page, Service
from ts_common.store.listing import Onward, below, directory_below, each_once, in_byte_order, resume_after
from ts_common.store.validation import (
    SizedBody,
    body_size,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
    is_key,
)
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance, RationedBody

_DELETED_AT_ONCE = 8
_DELETED_IN_A_ROW = 1000
# Reads run on threads of the caller's, which the driver cannot count.
_READ_CONNECTIONS = 32
_LOOKS = 3  # at an object that is written over in between
_BLOCK = 1 << 20


class HttpStore(ObjectStore):
    """Objects of one bucket under one prefix.

    Args:
        service: how the bucket is spoken to.
        prefix: where keys begin, without outer slashes; empty for the whole bucket.
        timeout_seconds: how long a server may be silent.
        threads: how many asynchronous puts run at once.
        allowance: what the bodies of puts are taken from.
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
        # Asked for once, as in the driver for S3.
        self._bucket_seen = False
        self._client = HttpClient(service.base_url, service.authorize, timeout_seconds, max(_READ_CONNECTIONS, threads))

    def check(self) -> None:
        """Asks for the bucket."""
        call = Call(self._service.operations.check, self._service.bucket_url)
        answer = self._client.ask(call, self._service.check())
        if answer.status == 404:
            code, message = self._service.code_of(answer)
            raise BucketMissing(
                f"{call.operation} {call.target}: {code} (HTTP 404): {message[:500]}; {self._service.look_at_bucket}"
            )
        if answer.status >= 300:
            raise self._service.error(answer, call)
        with call.understood():  # the service is asked for a listing of one
            self._service.parse_page(answer)
        self._bucket_seen = True

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
        """One request, once; its body is streamed."""
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
        answer = self._client.ask(call, replace(put.request, headers=headers), sent)
        self._check_taken(answer, call)
        with call.understood():
            return checked(self._service.info_of_put(key, length, dict(metadata), answer))

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """One request; its answer's body is streamed."""
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
        """Where a service has no such ranges: look at the size, then read that object only."""
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
        raise StoreUnavailable(f"{self._service.operations.get} {self.location}/{key}: it changes all the time")

    @contextmanager
    def _opened(self, key: str, byte_range: ByteRange | None, etag: str | None) -> Iterator[ObjectStream]:
        call = self._call(self._service.operations.get, key)
        with self._client.streaming(call, self._service.get(self._base + key, byte_range, etag)) as (answer, response):
            if answer.status == 416:
                yield EmptyBody(self.head(key))
                return
            self._check_taken(answer, call)
            with call.understood():
                length = _length(answer)
                info = checked(self._service.info_of(key, _whole_size(answer, byte_range, length, call), answer))
            yield ResponseBody(info, response, length, call)

    def head(self, key: str) -> ObjectInfo:
        """One request; a first "not found" takes another, whether the bucket is there."""
        call = self._call(self._service.operations.head, check_key(key))
        answer = self._client.ask(call, self._service.head(self._base + key))
        self._check_taken(answer, call)
        with call.understood():
            return checked(self._service.info_of(key, _length(answer), answer))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Page by page."""
        check_prefix(prefix)
        if start_after > prefix and not start_after.startswith(prefix):
            return iter(())
        listed = in_byte_order(self._listed(prefix, resume_after(start_after, prefix)), len(prefix))
        listed = each_once(listed, self._call(self._service.operations.list, prefix))
        return (info for info in listed if info.key > start_after)

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """As the service lists them."""
        start = len(self._base)
        for page in self._pages(prefix, self._base + start_after if start_after else ""):
            for info in page.infos:
                key = info.key[start:]
                if is_key(key):
                    yield replace(info, key=key)

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """A listing with a delimiter."""
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
            answer = self._client.ask(call, request)
            self._check_taken(answer, call)
            with call.understood():
                page = self._service.parse_page(answer)
                for info in page.infos:
                    below(checked(info).key, asked)
            yield page
            if not page.following:
                return
            if page.following == following:
                raise StoreUnavailable(f"{call.operation} {call.target}: there is more, and the store does not say how")
            onward.take(max(page.infos[-1].key if page.infos else "", page.directories[-1] if page.directories else ""))
            following = page.following

    def delete(self, keys: Iterable[str]) -> None:
        """One request for each object, eight at once."""
        remaining = iter(keys)
        failed: list[tuple[str, TieredStorageError]] = []
        count = 0
        with ThreadPoolExecutor(_DELETED_AT_ONCE, "store-delete") as threads:
            while chunk := [check_key(key) for key in islice(remaining, _DELETED_IN_A_ROW)]:
                count += len(chunk)
                outcomes = threads.map(self._delete, chunk)
                failed += [(key, error) for key, error in zip(chunk, outcomes, strict=True) if error is not None]
        if failed:
            key, error = failed[0]
            kind = type(error) if isinstance(error, OperatorError) else StoreUnavailable
            raise kind(f"{len(failed)} of {count} not deleted, the first is {key}: {error}") from error

    def _delete(self, key: str) -> TieredStorageError | None:
        call = self._call(self._service.operations.delete, key)
        try:
            answer = self._client.ask(call, self._service.delete(self._base + key))
            self._check_taken(answer, call)
        except ObjectNotFound:
            return None
        except TieredStorageError as error:
            return error
        return None

    def close(self) -> None:
        """Also closes the connections."""
        super().close()
        self._client.close()

    def _call(self, operation: str, key: str, *, writes: bool = False) -> Call:
        return Call(operation, f"{self._service.bucket_url}/{self._base}{key}", writes)

    def _check_taken(self, answer: Response, call: Call) -> None:
        """Go on only with an answer of the service that says success.

        Raises:
            TieredStorageError: what the refusal means, or `Call.refuse_page`.
        """
        if answer.status >= 300:
            raise self._refused(answer, call)
        call.refuse_page(answer.headers.get("content-type"))

    def _refused(self, answer: Response, call: Call) -> TieredStorageError:
        """Our error for a refusal. The first time that nothing is found, the bucket is asked for.

        Raises:
            BucketMissing: that is so.
        """
        error = self._service.error(answer, call)
        if answer.status != 404 or isinstance(error, BucketMissing):
            return error
        # The answer to a HEAD has no body to say of what.
        unsaid = call.operation == self._service.operations.head and isinstance(error, StoreUnavailable)
        found = isinstance(error, ObjectNotFound | PreconditionFailed) or unsaid
        if not (found and self._bucket_seen):
            # Who may not list is refused the bucket, which is there then.
            with suppress(AccessDenied):
                self.check()
            self._bucket_seen = True
        return ObjectNotFound(str(error)) if unsaid else error


def _md5_of(body: SizedBody) -> bytes:
    """The MD5 of a body, which stands at its start again afterwards.

    Raises:
        SegmentChanged, or what the reader raises: as `SizedBody.read`.
    """
    digest = hashlib.md5(usedforsecurity=False)
    while piece := body.read(_BLOCK):
        digest.update(piece)
    body.seek(0)
    return digest.digest()


def _length(answer: Response) -> int:
    """How many bytes follow, or would.

    Raises:
        KeyError, ValueError: the answer does not say.
    """
    return size_of(answer.headers["content-length"])


def _whole_size(answer: Response, byte_range: ByteRange | None, length: int, call: Call) -> int:
    """The size of the whole object, from the answer to a get.

    Raises:
        OperatorError: the store sends another range than the one asked for.
        ValueError: as many bytes as that do not follow.
    """
    sent = answer.headers.get("content-range")
    size = size_of(sent.rpartition("/")[2]) if sent else length
    start, end = 0, size
    if byte_range is not None:
        start = byte_range.start if byte_range.start >= 0 else max(0, size + byte_range.start)
        end = size if byte_range.end is None else min(byte_range.end, size)
    expected = f"bytes {start}-{end - 1}/{size}"
    if (sent and sent != expected) or (not sent and (start, end) != (0, size)):
        found = sent or f"all {size} bytes"
        raise OperatorError(f"{call.operation} {call.target}: asked for {expected}, the store sends {found}")
    if length != end - start:
        raise ValueError(f"{length} bytes are said to follow, of {expected}")
    return size
