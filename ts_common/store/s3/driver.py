"""The driver for S3 and what speaks like it.

Endpoint, region, credentials, proxies and certificates come from where every AWS tool takes them (environment,
profiles, roles) unless `options` say otherwise. Nothing here creates a bucket. `s3_client` says what the SDK repeats,
signs and checks, and how long it waits; `s3_errors`, what its errors mean; `s3_writes`, how objects are stored.

Stores that walk directories list in another order than S3: see `listing`.
Objects under keys that are none of ours (the `dir/` markers of consoles) are not listed.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore import exceptions as sdk
from botocore.response import StreamingBody
from urllib3.exceptions import HTTPError

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.answers import checked, size_of
from ts_common.store.call import Call, strong
from ts_common.store.checksums import checksum_argument
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.http.bodies import EmptyBody
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.listing import Onward, below, directory_below, each_once, in_byte_order, resume_after
from ts_common.store.options import NO_OPTIONS, StorageOptions
from ts_common.store.s3.errors import BY_CODE, is_without_reason, needed_permission, status_of, translated
from ts_common.store.s3.lifecycle import read_rules
from ts_common.store.s3.shared_clients import SharedClients
from ts_common.store.s3.writes import check_encrypted, storing_arguments
from ts_common.store.validation import (
    SizedBody,
    body_size,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
    in_small_pieces,
    is_key,
)
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ErrorTypeDef, GetObjectOutputTypeDef

_DELETED_AT_ONCE = 1000
# Reads run on threads of the caller's, which the driver cannot count.
_READ_CONNECTIONS = 32


class S3Store(ObjectStore):
    """Objects of one bucket under one prefix.

    Args:
        bucket: its name.
        prefix: where keys begin, without outer slashes; empty for the whole bucket.
        options: how S3 is spoken to, and how objects are stored.
        timeout_seconds: how long a server may be silent.
        threads: how many asynchronous puts run at once.
        allowance: what the bodies of puts are taken from.

    Raises:
        OperatorError: the SDK cannot do what the environment or `options` say.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        options: StorageOptions = NO_OPTIONS,
        timeout_seconds: float = 60,
        threads: int = 4,
        allowance: Allowance = UNLIMITED,
    ) -> None:
        super().__init__(f"s3://{bucket}/{prefix}".rstrip("/"), async_threads=threads)
        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self._storing = options.storing
        # Asked for once: buckets do not go while they are used, and a 404 must not cost two requests each time.
        self._bucket_seen = False
        with translated(Call("CreateClient", self.location)):
            connections = max(_READ_CONNECTIONS, threads)
            try:
                self._clients = SharedClients(options.connection, timeout_seconds, connections, allowance)
            except ValueError as error:
                # botocore has no error of its own for an endpoint that is no URL.
                raise OperatorError(
                    f"{self.location}: {error}; AWS_ENDPOINT_URL begins with http:// or https://"
                ) from error
        self._reads, self._writes = self._clients.reads, self._clients.writes

    def check(self) -> None:
        """HeadBucket. Where that is refused, a listing of one gives the reason, or succeeds below the prefix."""
        try:
            self._look_at_bucket()
        except AccessDenied as refused:
            if not is_without_reason(refused):
                raise
            with translated(self._call("ListObjectsV2", "")):
                self._reads.list_objects_v2(Bucket=self._bucket, Prefix=self._base, MaxKeys=1)
            self._bucket_seen = True

    def _look_at_bucket(self) -> None:
        """HeadBucket alone."""
        with translated(Call("HeadBucket", f"s3://{self._bucket}")):
            self._reads.head_bucket(Bucket=self._bucket)
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
        archived: bool = False,
    ) -> ObjectInfo:
        """PutObject, once."""
        call = self._call("PutObject", check_key(key), writes=True)
        length = body_size(body, size)
        request: dict[str, Any] = {"Metadata": dict(check_metadata(metadata)), "ContentLength": length}
        match condition:
            case IfAbsent():
                request["IfNoneMatch"] = "*"
            case IfMatch(etag):
                request["IfMatch"] = etag
        sized = None if isinstance(body, bytes) else SizedBody(body, length, call.target)
        request |= storing_arguments(self._storing, archived=archived)
        sent: Any = sized or body
        request |= checksum_argument(self._storing.checksum_algorithm, sent, crc32c, call.target)
        if sized:
            sent = in_small_pieces(sized)
        try:
            with sized.failing_as_it_did() if sized else nullcontext(), translated(call):
                answer = self._writes.put_object(Bucket=self._bucket, Key=self._base + key, Body=sent, **request)
        except AccessDenied:
            # A store may say so of a bucket that is not there.
            self._tell_missing_bucket()
            raise
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        with call.understood():
            info = checked(ObjectInfo(key, length, strong(answer["ETag"]), _date(headers), dict(metadata)))
        check_encrypted(self._storing, answer, call.target)
        return info

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """GetObject."""
        check_key(key)
        return self._open(key, byte_range)

    @contextmanager
    def _open(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        call = self._call("GetObject", key)
        request: dict[str, Any] = {}
        if byte_range is not None and byte_range != ByteRange(0):
            request["Range"] = _range_header(byte_range)
        try:
            with translated(call):
                answer = self._reads.get_object(Bucket=self._bucket, Key=self._base + key, **request)
        except TieredStorageError as error:
            if not isinstance(error.__cause__, sdk.ClientError) or status_of(error.__cause__) != 416:
                raise
            answer = None
        if answer is None:
            yield EmptyBody(self.head(key))
            return
        body: StreamingBody = answer["Body"]
        try:
            call.refuse_page(answer.get("ContentType"))
            with call.understood():
                stream = _Stream(self._info_of_get(key, answer, byte_range, call), body, answer["ContentLength"], call)
            yield stream
        finally:
            body.close()

    def _info_of_get(
        self, key: str, answer: "GetObjectOutputTypeDef", byte_range: ByteRange | None, call: Call
    ) -> ObjectInfo:
        """The info of the whole object from the answer to a get.

        Raises:
            OperatorError: the store sends another range than the one asked for.
            KeyError, ValueError: the answer does not say what S3 always says.
        """
        sent = answer.get("ContentRange")
        size = size_of(sent.rpartition("/")[2]) if sent else answer["ContentLength"]
        start, end = _resolved(byte_range, size)
        expected = f"bytes {start}-{end - 1}/{size}"
        if (sent and sent != expected) or (not sent and (start, end) != (0, size)):
            found = sent or f"all {size} bytes"
            raise OperatorError(f"{call.operation} {call.target}: asked for {expected}, the store sends {found}")
        if answer["ContentLength"] != end - start:
            raise ValueError(f"{answer['ContentLength']} bytes are said to follow, of {expected}")
        return checked(
            ObjectInfo(
                key, size, strong(answer["ETag"]), answer["LastModified"].timestamp(), _lower_names(answer["Metadata"])
            )
        )

    def head(self, key: str) -> ObjectInfo:
        """HeadObject; where the first 404 comes, which has no body to say of what, HeadBucket tells."""
        call = self._call("HeadObject", check_key(key))
        try:
            with translated(call):
                answer = self._reads.head_object(Bucket=self._bucket, Key=self._base + key)
        except TieredStorageError as error:
            if isinstance(error.__cause__, sdk.ClientError) and status_of(error.__cause__) == 404:
                if not self._bucket_seen:
                    # Who may list below a prefix only is refused the bucket, which is there then.
                    with suppress(AccessDenied):
                        self._look_at_bucket()
                    self._bucket_seen = True
                raise ObjectNotFound(f"{call.operation} {call.target}: no such object") from error
            if is_without_reason(error):
                self._tell_refusal(key)
            raise
        call.refuse_page(answer.get("ContentType"))
        with call.understood():
            etag, modified = strong(answer["ETag"]), answer["LastModified"].timestamp()
            return checked(ObjectInfo(key, answer["ContentLength"], etag, modified, _lower_names(answer["Metadata"])))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """ListObjectsV2, page by page."""
        check_prefix(prefix)
        if start_after > prefix and not start_after.startswith(prefix):
            return iter(())
        listed = in_byte_order(self._listed(prefix, resume_after(start_after, prefix)), len(prefix))
        listed = each_once(listed, self._call("ListObjectsV2", prefix))
        return (info for info in listed if info.key > start_after)

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """As the server lists them."""
        request: dict[str, Any] = {"StartAfter": self._base + start_after} if start_after else {}
        start, asked = len(self._base), self._base + prefix
        call = self._call("ListObjectsV2", prefix)
        for page in self._pages(prefix, request):
            infos = []
            with call.understood():
                for found in page.get("Contents", ()):
                    key = below(found["Key"], asked)[start:]
                    if is_key(key):
                        modified = found["LastModified"].timestamp()
                        infos.append(checked(ObjectInfo(key, found["Size"], found["ETag"], modified, NO_METADATA)))
            yield from infos

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """ListObjectsV2 with a delimiter."""
        check_directory(prefix)
        return self._directories(prefix)

    def _directories(self, prefix: str) -> Iterator[str]:
        asked = self._base + prefix
        found = set()
        for page in self._pages(prefix, {"Delimiter": "/"}):
            with self._call("ListObjectsV2", prefix).understood():
                found |= {directory_below(common["Prefix"], asked) for common in page.get("CommonPrefixes", ())}
        yield from sorted(name for name in found if is_key(name.rstrip("/")))

    def _pages(self, prefix: str, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Page by page; the SDK's own paginator takes longer to make than a page to read."""
        call = self._call("ListObjectsV2", prefix)
        onward = Onward(call)
        following: dict[str, Any] = {}
        while True:
            with translated(call):
                page = self._reads.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._base + prefix, **{**request, **following}
                )
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == following.get("ContinuationToken"):
                raise StoreUnavailable(f"{call.operation} {call.target}: there is more, and the store does not say how")
            objects, directories = page.get("Contents", ()), page.get("CommonPrefixes", ())
            names = [*(each["Key"] for each in objects[-1:]), *(each["Prefix"] for each in directories[-1:])]
            onward.take(max(names, default=""))
            following = {"ContinuationToken": token}

    def delete(self, keys: Iterable[str]) -> None:
        """DeleteObjects, a thousand at once."""
        failed: list[ErrorTypeDef] = []
        count = 0
        remaining = iter(keys)
        while chunk := [check_key(key) for key in islice(remaining, _DELETED_AT_ONCE)]:
            call = self._call("DeleteObjects", chunk[0])
            with translated(call):
                answer = self._reads.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": self._base + key} for key in chunk], "Quiet": True},
                )
            count += len(chunk)
            failed += [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if failed:
            raise self._not_deleted(failed, count)

    def _not_deleted(self, failed: Sequence["ErrorTypeDef"], count: int) -> TieredStorageError:
        first = failed[0]
        call = Call("DeleteObjects", f"s3://{self._bucket}/{first.get('Key', '?')}")
        said = (
            f"{call.operation}: {len(failed)} of {count} not deleted, the first is {call.target}: "
            f"{first.get('Code', '')}: {first.get('Message', '')}"
        )
        if BY_CODE.get(first.get("Code", "")) is AccessDenied:
            return AccessDenied(f"{said}; allow this identity {needed_permission(call)}")
        return StoreUnavailable(said)

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """GetBucketLifecycleConfiguration; None from a server that knows no such thing."""
        return read_rules(self._reads, self._bucket, self._base)

    def close(self) -> None:
        """Also closes the clients' connections, unless other stores use them too."""
        super().close()
        self._clients.close()

    def _call(self, operation: str, key: str, *, writes: bool = False) -> Call:
        return Call(operation, f"s3://{self._bucket}/{self._base}{key}", writes)

    def _tell_missing_bucket(self) -> None:
        """Raises BucketMissing if that is so, and nothing else."""
        try:
            self._look_at_bucket()
        except BucketMissing:
            raise
        except TieredStorageError:
            return

    def _tell_refusal(self, key: str) -> None:
        """Raises what a GET of the object's first byte is refused with; nothing where it is not refused.

        The answer to a HEAD has no body, and so no reason.
        """
        try:
            with translated(self._call("GetObject", key)):
                self._reads.get_object(Bucket=self._bucket, Key=self._base + key, Range="bytes=0-0")["Body"].close()
        except (AccessDenied, WrongClock):
            raise
        except TieredStorageError:
            return


class _Stream:
    """The body of one answer, which must be as long as its header says."""

    def __init__(self, info: ObjectInfo, body: StreamingBody, length: int, call: Call) -> None:
        self.info = info
        self._body = body
        self._length = length
        self._left = length
        self._call = call

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        if not wanted:
            return b""
        with self._transfer():
            piece: bytes = self._body.read(wanted)
        self._account(len(piece), wanted)
        return piece

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` as far as the range goes."""
        wanted = min(len(buffer), self._left)
        filled = 0
        while filled < wanted:
            with self._transfer():
                count: int = self._body.readinto(buffer[filled:wanted])  # type: ignore[arg-type] # the stubs are wrong
            self._account(count, 1)
            filled += count
        return filled

    def _account(self, count: int, least: int) -> None:
        self._left -= count
        if count < least:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: the transfer ended at byte {self._length - self._left} "
                f"of {self._length}"
            )

    @contextmanager
    def _transfer(self) -> Iterator[None]:
        try:
            with translated(self._call):
                yield
        except (HTTPError, OSError) as error:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: the transfer broke after byte "
                f"{self._length - self._left} of {self._length}: {error}"
            ) from error


def _range_header(byte_range: ByteRange) -> str:
    if byte_range.start < 0:
        return f"bytes={byte_range.start}"
    return f"bytes={byte_range.start}-{'' if byte_range.end is None else byte_range.end - 1}"


def _resolved(byte_range: ByteRange | None, size: int) -> tuple[int, int]:
    """The range within an object of `size` bytes: `[start, end)`."""
    if byte_range is None:
        return 0, size
    start = byte_range.start if byte_range.start >= 0 else max(0, size + byte_range.start)
    return start, size if byte_range.end is None else min(byte_range.end, size)


def _lower_names(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in metadata.items()}


def _date(headers: Mapping[str, str]) -> float:
    """The store's clock, which PutObject tells only here."""
    said = headers.get("date")
    return parsedate_to_datetime(said).timestamp() if said else time.time()
