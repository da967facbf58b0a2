"""The driver for S3 and for stores with the same API.

The SDK reads endpoint, region, credentials, proxies and certificates as every AWS tool does (environment, profiles,
roles), unless `options` override them. The driver creates no bucket. `client` configures retries, signatures, checksums
and timeouts of the SDK, `error_translation` translates its errors, and `writes` sets how objects are stored.

Some stores walk directories, so their listings have another order than S3's: see `ts_common.store.listing`.
Listings omit objects whose keys the contract does not allow, such as the `dir/` markers of consoles.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from email.utils import parsedate_to_datetime
from typing import Any

from botocore import exceptions as sdk

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.answers import checked, class_of, range_header, whole_size
from ts_common.store.call import Call, strong
from ts_common.store.checksums import checksum_argument
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    DeleteOutcome,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
    ObjectVersion,
)
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.listing import below, directory_below, list_in_order
from ts_common.store.options import NO_OPTIONS, StorageOptions
from ts_common.store.protection import Lock, Protection
from ts_common.store.response_body import DirectSource, EmptyBody, ResponseBody
from ts_common.store.s3.bucket_settings import BucketProtection, read_rules
from ts_common.store.s3.error_translation import is_without_reason, status_of, translated
from ts_common.store.s3.identity import identity_of
from ts_common.store.s3.matching import MatchingDeletes
from ts_common.store.s3.pages import Pages
from ts_common.store.s3.shared_clients import SharedClients
from ts_common.store.s3.thaw import may_be_frozen, restore_object, state_of
from ts_common.store.s3.versions import delete_version, list_versions
from ts_common.store.s3.writes import check_encrypted, copy_object, delete_keys, lock_arguments, storing_arguments
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.validation import (
    SizedBody,
    body_size,
    check_copy,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
    in_small_pieces,
    is_key,
)
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance

# Reads run on the caller's threads, whose number the driver does not have.
_READ_CONNECTIONS = 32


class S3Store(ObjectStore):
    """Objects of one bucket under one prefix.

    Args:
        prefix: of all keys, without outer slashes; empty for the whole bucket.
        options: of the connection and of stored objects.
        timeout_seconds: for each connect, send and receive.
        threads: the number of asynchronous puts that run at once.
        allowance: limits the bytes per second of the bodies of puts.

    Raises:
        OperatorError: the SDK rejects a setting of the environment or of `options`.
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
        self._connection, self._storing = options.connection, options.storing
        # Checked once: no bucket is removed while it is used, and each 404 would otherwise cost two requests.
        self._bucket_seen = False
        with translated(Call("CreateClient", self.location)):
            connections = max(_READ_CONNECTIONS, threads)
            try:
                self._clients = SharedClients(options.connection, timeout_seconds, connections, allowance)
            except ValueError as error:
                # botocore raises ValueError if the endpoint is not a URL.
                raise OperatorError(
                    f"{self.location}: {error}; set AWS_ENDPOINT_URL to a URL that begins with http:// or https://"
                ) from error
        self._reads, self._writes = self._clients.reads, self._clients.writes
        self._pages = Pages(self._reads, bucket)
        self._matching = MatchingDeletes(self._reads, bucket, self._base, self.head)
        self._protection = BucketProtection(self._reads, bucket, self._base, self.head)

    def current_time(self) -> float:
        """Return the time by the dates of responses."""
        return self._clients.clock.current_time()

    def check(self) -> None:
        """Send HeadBucket. If it is denied, list one object: that returns the reason, or succeeds below the prefix."""
        try:
            self._head_bucket()
        except AccessDenied as refused:
            if not is_without_reason(refused):
                raise
            with translated(self._call("ListObjectsV2", "")):
                self._reads.list_objects_v2(Bucket=self._bucket, Prefix=self._base, MaxKeys=1)
            self._bucket_seen = True

    def identity(self) -> str | None:
        """Return the access key, unless it is temporary, and the ARN of the caller, if STS is reached."""
        with translated(Call("GetCallerIdentity", self.location)):
            return identity_of(self._connection, self._reads.meta.endpoint_url)

    def _head_bucket(self) -> None:
        """Send HeadBucket."""
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
        """Send PutObject once."""
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
        if archived:
            request |= lock_arguments(self._storing, self.current_time())
        sent: Any = sized or body
        request |= checksum_argument(self._storing.checksum_algorithm, sent, crc32c, call.target)
        if sized:
            sent = in_small_pieces(sized)
        try:
            with sized.raising_own_failure() if sized else nullcontext(), translated(call):
                answer = self._writes.put_object(Bucket=self._bucket, Key=self._base + key, Body=sent, **request)
        except AccessDenied:
            # Some stores answer 403 if the bucket does not exist.
            self._raise_if_bucket_missing()
            raise
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        if headers.get("content-length") != "0":  # some stores send the type of a page without one
            call.refuse_page(headers.get("content-type"))
        with call.understood():
            info = checked(ObjectInfo(key, length, strong(answer["ETag"]), _date(headers), dict(metadata)))
        check_encrypted(self._storing, answer, call.target)
        return info

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Send CopyObject once, then HeadObject for the size."""
        check_copy(source, target)
        from_url, to_url = (f"s3://{self._bucket}/{self._base}{key}" for key in (source, target))
        call = Call("CopyObject", f"{from_url} to {to_url}", writes=True, copies=True)
        try:
            copy_object(self._writes, call, self._bucket, self._base + source, self._base + target, self._storing)
        except (AccessDenied, ObjectNotFound):
            # Some stores answer so if the bucket does not exist.
            if not self._bucket_seen:
                self._raise_if_bucket_missing()
            raise
        try:
            return self.head(target)
        except (ObjectNotFound, StoreUnavailable) as error:
            raise OutcomeUnknown(f"{call.operation} {call.target}: copied, but not read since: {error}") from error

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Send GetObject."""
        check_key(key)
        return self._open(key, byte_range)

    def versions(self, prefix: str) -> Iterator[ObjectVersion] | None:
        """Send ListObjectVersions for each page."""
        check_prefix(prefix)
        return list_versions(self._reads, self._bucket, self._base, prefix)

    def open_version(
        self, version: ObjectVersion, byte_range: ByteRange | None = None
    ) -> AbstractContextManager[ObjectStream]:
        """Send GetObject with the version's id."""
        return self._open(check_key(version.info.key), byte_range, version)

    def version_lock(self, version: ObjectVersion) -> Lock | None:
        """Send the requests of `locked_until` with the version's id."""
        return self._protection.lock_of(check_key(version.info.key), version.id)

    def delete_version(self, version: ObjectVersion) -> None:
        """Send DeleteObject with the version's id."""
        delete_version(self._reads, self._bucket, self._base, version)

    @contextmanager
    def _open(
        self, key: str, byte_range: ByteRange | None, version: ObjectVersion | None = None
    ) -> Iterator[ObjectStream]:
        call = self._call("GetObject" if version is None else "GetObjectVersion", key)
        request: dict[str, Any] = {} if version is None else {"VersionId": version.id}
        if byte_range is not None and byte_range != ByteRange(0):
            request["Range"] = range_header(byte_range)
        try:
            with translated(call):
                answer = self._reads.get_object(Bucket=self._bucket, Key=self._base + key, **request)
        except TieredStorageError as error:
            if not isinstance(error.__cause__, sdk.ClientError) or status_of(error.__cause__) != 416:
                raise
            answer = None
        if answer is None:
            yield EmptyBody(self.head(key) if version is None else version.info)
            return
        body = answer["Body"]
        try:
            call.refuse_page(answer.get("ContentType"))
            with call.understood():
                length = answer["ContentLength"]
                size = whole_size(byte_range, answer.get("ContentRange"), length, call)
                etag, modified = strong(answer["ETag"]), answer["LastModified"].timestamp()
                info = checked(ObjectInfo(key, size, etag, modified, _lower_names(answer["Metadata"])))
            yield ResponseBody(info, DirectSource(body._raw_stream), length, call, translated)  # type: ignore[attr-defined]
        finally:
            body.close()

    def head(self, key: str) -> ObjectInfo:
        """Send HeadObject."""
        answer = self._head(key)
        with self._call("HeadObject", key).understood():
            etag, modified = strong(answer["ETag"]), answer["LastModified"].timestamp()
            metadata, storage_class = _lower_names(answer["Metadata"]), class_of(answer.get("StorageClass"))
            frozen, size = state_of(answer).is_frozen, answer["ContentLength"]
            return checked(ObjectInfo(key, size, etag, modified, metadata, storage_class, frozen))

    def _head(self, key: str) -> Mapping[str, Any]:
        """Send HeadObject. A 404 has no body, so HeadBucket follows the first one to check the bucket."""
        call = self._call("HeadObject", check_key(key))
        try:
            with translated(call):
                answer = self._reads.head_object(Bucket=self._bucket, Key=self._base + key)
        except TieredStorageError as error:
            if isinstance(error.__cause__, sdk.ClientError) and status_of(error.__cause__) == 404:
                if not self._bucket_seen:
                    # An identity that may only list below a prefix is denied HeadBucket; then the bucket exists.
                    with suppress(AccessDenied):
                        self._head_bucket()
                    self._bucket_seen = True
                raise ObjectNotFound(f"{call.operation} {call.target}: no such object") from error
            if is_without_reason(error):
                self._raise_reason_of_denial(key)
            raise
        call.refuse_page(answer.get("ContentType"))
        return answer

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Send ListObjectsV2 for each page."""
        check_prefix(prefix)
        return list_in_order(self._listed, prefix, start_after, self._call("ListObjectsV2", prefix))

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield objects in the order of the server."""
        request: dict[str, Any] = {"StartAfter": self._base + start_after} if start_after else {}
        start, asked = len(self._base), self._base + prefix
        call = self._call("ListObjectsV2", prefix)
        for page in self._pages.read(call, asked, request):
            infos = []
            with call.understood():
                for found in page.get("Contents", ()):
                    key = below(found["Key"], asked)[start:]
                    if is_key(key):
                        modified = found["LastModified"].timestamp()
                        etag, storage_class = found["ETag"], class_of(found.get("StorageClass"))
                        frozen = may_be_frozen(storage_class) and "RestoreStatus" not in found
                        info = ObjectInfo(key, found["Size"], etag, modified, NO_METADATA, storage_class, frozen)
                        infos.append(checked(info))
            yield from infos

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Send ListObjectsV2 with a delimiter, for each page."""
        check_directory(prefix)
        return self._directories(prefix)

    def _directories(self, prefix: str) -> Iterator[str]:
        asked = self._base + prefix
        found = set()
        call = self._call("ListObjectsV2", prefix)
        for page in self._pages.read(call, asked, {"Delimiter": "/"}):
            with call.understood():
                found |= {directory_below(common["Prefix"], asked) for common in page.get("CommonPrefixes", ())}
        yield from sorted(name for name in found if is_key(name.rstrip("/")))

    def thaw_state(self, key: str) -> ThawState:
        """Send HeadObject."""
        return state_of(self._head(key))

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        """Send RestoreObject."""
        call = self._call("RestoreObject", check_key(key))
        restore_object(self._reads, call, self._bucket, self._base + key, days, tier)

    def delete(self, keys: Iterable[str]) -> None:
        """Send DeleteObjects for each thousand keys."""
        delete_keys(self._reads, self._bucket, self._base, keys)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Send DeleteObject with `If-Match` for each object; first a HEAD if the store does not enforce that."""
        return self._matching.delete(etags)

    def enforces_deletes(self) -> bool | None:
        """Return what the first object with its ETag has shown."""
        return self._matching.enforced

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """Send GetBucketLifecycleConfiguration; return None if the server does not support it."""
        return read_rules(self._reads, self._bucket, self._base)

    def protection(self) -> Protection:
        """Send GetBucketVersioning and GetObjectLockConfiguration."""
        return self._protection.of_bucket()

    def locked_until(self, key: str) -> Lock | None:
        """Send HeadObject, and GetObjectRetention and GetObjectLegalHold for what its response does not show."""
        return self._protection.lock_of(check_key(key))

    def has_legal_hold(self, key: str, version: str) -> bool:
        """Send GetObjectLegalHold with the version's id."""
        return self._protection.has_legal_hold(check_key(key), version)

    def set_legal_hold(self, key: str, version: str, *, is_held: bool) -> None:
        """Send PutObjectLegalHold with the version's id."""
        self._protection.set_legal_hold(check_key(key), version, is_held=is_held)

    def close(self) -> None:
        """Wait for puts, and close the clients' connections unless other stores use them."""
        super().close()
        self._clients.close()

    def _call(self, operation: str, key: str, *, writes: bool = False) -> Call:
        return Call(operation, f"s3://{self._bucket}/{self._base}{key}", writes)

    def _raise_if_bucket_missing(self) -> None:
        """Raise BucketMissing if the bucket does not exist."""
        try:
            self._head_bucket()
        except BucketMissing:
            raise
        except TieredStorageError:
            return

    def _raise_reason_of_denial(self, key: str) -> None:
        """Raise the error of a GET of the object's first byte, if that is denied.

        A response to HEAD has no body, and so no reason.
        """
        try:
            with translated(self._call("GetObject", key)):
                self._reads.get_object(Bucket=self._bucket, Key=self._base + key, Range="bytes=0-0")["Body"].close()
        except (AccessDenied, WrongClock):
            raise
        except TieredStorageError:
            return


def _lower_names(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in metadata.items()}


def _date(headers: Mapping[str, str]) -> float:
    """Return the store's time in seconds since the epoch; PutObject returns it only in this header."""
    date = headers.get("date")
    return parsedate_to_datetime(date).timestamp() if date else time.time()
