"""The driver for HDFS, by WebHDFS: `webhdfs://namenode:9870/directory`, and `swebhdfs://` for TLS. Experimental.

::

    <root>/<key>                     the object; its metadata is in an xattr
    <root>/<directory>/.put-<uuid>   a put that is running, or was killed
    <root>/<directory>/.next-<etag>  a file that replaces the object with this ETag

`ts_common.store.file_names` maps keys to paths. A put writes a file under another name with its metadata, and checks
its size. Then it renames the file, which the NameNode does atomically, and fails for "if absent" if the name exists.
The ETag of an object is the number of its inode, which the NameNode never reuses. Reads use that number, so size,
metadata and bytes are of one put.

HDFS has no compare-and-swap. The driver builds it in three steps:

1. A writer that expects ETag E renames its file to `.next-E`, if that does not exist: only one writer succeeds.
2. It checks that the object still has ETag E. Inode numbers are never reused, so it also had E at the rename.
3. It renames the file over the object, by the file's inode, so this happens at most once. If the inode no longer
   exists, the outcome is unknown.

A writer that finds `.next-E` and an object with ETag E performs step 3, so a killed writer blocks no other. A writer
that finds `.next-E` and another object has an old E. All writers must use conditions, as those of `offset.wm` do.

Not supported: a checksum that the store compares (DataNodes compute their own; the driver checks the bytes that it
sends and the number that arrived), listings of more than one directory per request, Kerberos, and more than one
NameNode.
"""

import getpass
import io
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.answers import range_within
from ts_common.store.call import Call
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
)
from ts_common.store.deletions import Deletions, delete_each
from ts_common.store.file_names import WRITING, belongs_to_listing, file_name, part_of
from ts_common.store.hdfs.namenode import HdfsFileStatus, NameNode
from ts_common.store.http.bodies import RequestBody
from ts_common.store.response_body import EmptyBody, ResponseBody
from ts_common.store.validation import (
    SizedBody,
    body_size,
    check_copy,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
)
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance, RationedBody

_Found = TypeVar("_Found")

_NEXT = ".next-"
_LOST = "the written file no longer exists: either it was the object and was overwritten, or it was removed before"
_DEEPEST = 1000  # HDFS's own limit (DistributedFileSystem: HdfsConstants.MAX_PATH_DEPTH)
_LOOKS = 5  # attempts at an object that is overwritten between two requests
_LEFT_BEHIND_SECONDS = 86_400.0
# Reads run on the caller's threads, whose number the driver does not have.
_READ_CONNECTIONS = 32


class WebHdfsStore(ObjectStore):
    """Objects below one directory of HDFS.

    Args:
        location: its URL, for messages.
        root: the directory, without outer slashes; it must exist.
        timeout_seconds: for each connect, send and receive.
        threads: the number of asynchronous puts that run at once.
        allowance: limits the bytes per second of the bodies of puts.
    """

    def __init__(
        self,
        location: str,
        url: str,
        root: str,
        *,
        timeout_seconds: float = 60,
        threads: int = 4,
        allowance: Allowance = UNLIMITED,
    ) -> None:
        super().__init__(location, async_threads=threads)
        self._root = f"/{root}"
        self._allowance = allowance
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._user = user
        self._namenode = NameNode(url, user, timeout_seconds, max(_READ_CONNECTIONS, threads))
        # Directories that were searched for files of killed writers. It only grows; a race searches twice.
        self._tidied: set[str] = set()

    def current_time(self) -> float:
        """Return the time by the dates of the NameNode's responses."""
        return self._namenode.clock.current_time()

    def identity(self) -> str | None:
        """Return the user of each request. A NameNode without Kerberos does not check it."""
        return f"user:{self._user}"

    def check(self) -> None:
        """Check that the root is a directory."""
        try:
            is_directory = self._namenode.status(self._root).is_directory
        except ObjectNotFound:
            is_directory = False
        if not is_directory:
            raise BucketMissing(
                f"{self.location}: the directory does not exist here: check its name and the NameNode's"
            )

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
        """Send CREATE for another name, then RENAME."""
        path = self._path(check_key(key))
        check_metadata(metadata)
        length = body_size(body, size)
        name = self._name(key)
        sized = SizedBody(io.BytesIO(body) if isinstance(body, bytes) else body, length, name)
        rationed = RationedBody(sized, length, self._allowance)
        directory = path.rpartition("/")[0]
        temporary = f"{directory}/{WRITING}{uuid.uuid4().hex}"
        try:
            self._tidy(directory)
            try:
                written = self._namenode.create(temporary, RequestBody(rationed, length, crc32c, name), metadata)
            except ObjectNotFound:
                self._make(directory)
                written = self._namenode.create(temporary, RequestBody(rationed, length, crc32c, name), metadata)
            self._publish(temporary, written, path, condition, name)
        except BaseException as error:
            with suppress(TieredStorageError):
                self._namenode.delete(temporary)
            if isinstance(error, ObjectNotFound):  # a part of the path is an object
                raise OperatorError(f"put {name}: a directory store cannot store this key: {error}") from error
            raise
        return ObjectInfo(key, length, str(written.id), written.modified, dict(metadata))

    def _publish(self, temporary: str, written: HdfsFileStatus, path: str, condition: Condition, name: str) -> None:
        match condition:
            case None:
                self._namenode.rename(temporary, path, overwrite=True)
            case IfAbsent():
                self._namenode.rename(temporary, path, overwrite=False)
            case IfMatch(etag):
                self._swap(temporary, written, path, etag, name)

    def _swap(self, temporary: str, written: HdfsFileStatus, path: str, etag: str, name: str) -> None:
        """Overwrite the object with this ETag, in the steps of the module's docstring.

        Raises:
            PreconditionFailed: the object has another ETag.
            OutcomeUnknown: it may have happened, or the next writer may still finish it.
        """
        self._require(path, etag, name)
        following = f"{path.rpartition('/')[0]}/{_NEXT}{etag}"
        try:
            self._namenode.rename(temporary, following, overwrite=False)
        except PreconditionFailed:
            self._finish(following, path, etag)
            raise
        # From here on another writer may finish it, even if this process is killed.
        try:
            if self._is_current(path, etag):
                if not self._replace(written, path):
                    raise OutcomeUnknown(f"{name}: {_LOST}")
            elif not self._is_published(written, path, name):
                with suppress(TieredStorageError):
                    self._namenode.delete(following)
                raise PreconditionFailed(f"{name}: expected ETag {etag}, which the object no longer has")
        except StoreUnavailable as error:
            raise OutcomeUnknown(str(error)) from error

    def _is_current(self, path: str, etag: str) -> bool:
        try:
            return str(self._namenode.status(path).id) == etag
        except ObjectNotFound:
            return False

    def _is_published(self, written: HdfsFileStatus, path: str, name: str) -> bool:
        """Return whether this put's file is the object.

        Raises:
            OutcomeUnknown: the file no longer exists; it may have been the object before.
        """
        if self._is_current(path, str(written.id)):
            return True
        try:
            self._namenode.status(written.inode)
        except ObjectNotFound as error:
            raise OutcomeUnknown(f"{name}: {_LOST}") from error
        return False

    def _require(self, path: str, etag: str, name: str) -> None:
        try:
            found = str(self._namenode.status(path).id)
        except ObjectNotFound:
            found = "no object"
        if found != etag:
            raise PreconditionFailed(f"{name}: found {found}; expected ETag {etag}")

    def _finish(self, following: str, path: str, etag: str) -> None:
        """Finish the put that another writer began over the same object."""
        try:
            begun = self._namenode.status(following)
            self._require(path, etag, path)
        except (ObjectNotFound, PreconditionFailed):
            return
        self._replace(begun, path)

    def _replace(self, following: HdfsFileStatus, path: str) -> bool:
        """Rename a file over the object; return False if the file was overwritten since, or removed before."""
        try:
            self._namenode.rename(following.inode, path, overwrite=True)
        except PreconditionFailed:
            pass  # another writer finished it: the file is the object
        except ObjectNotFound:
            return False
        return True

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Send RENAME, which overwrites nothing: the source has its new name only, and its ETag."""
        check_copy(source, target)
        path, destination = self._path(source), self._path(target)
        self._require_object(path, source)
        try:
            try:
                self._namenode.rename(path, destination, overwrite=False)
            except ObjectNotFound:
                self._require_object(path, source)
                self._make(destination.rpartition("/")[0])
                self._namenode.rename(path, destination, overwrite=False)
        except ObjectNotFound as error:
            self._require_object(path, source)  # else a part of the path is an object
            name = self._name(target)
            raise OperatorError(f"copy to {name}: a directory store cannot store this key: {error}") from error
        try:
            status = self._namenode.status(destination)
        except (ObjectNotFound, StoreUnavailable) as error:
            raise OutcomeUnknown(f"RENAME {self._name(target)}: renamed, but not read since: {error}") from error
        return ObjectInfo(target, status.size, str(status.id), status.modified)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Send GETFILESTATUS, GETXATTRS and OPEN."""
        check_key(key)
        return self._open(key, byte_range)

    @contextmanager
    def _open(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        with ExitStack() as opened:
            yield self._looked_up(key, lambda status, info: self._stream(opened, status, info, byte_range))

    def _stream(
        self, opened: ExitStack, status: HdfsFileStatus, info: ObjectInfo, byte_range: ByteRange | None
    ) -> ObjectStream:
        start, end = range_within(byte_range, info.size)
        if start >= end:
            return EmptyBody(info)
        response: Any = opened.enter_context(self._namenode.opened(status.inode, start, end - start))
        return ResponseBody(info, response, end - start, Call("OPEN", self._name(info.key)))

    def head(self, key: str) -> ObjectInfo:
        """Send GETFILESTATUS and GETXATTRS."""
        check_key(key)
        return self._looked_up(key, lambda _, info: info)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List directory by directory, the names of each in their order as parts of keys."""
        check_prefix(prefix)
        return self._listed(prefix, start_after)

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        self.check()
        directory, slash, _ = prefix.rpartition("/")
        pending: list[tuple[str, HdfsFileStatus | None]] = [(directory + slash, None)]
        while pending:
            key, status = pending.pop()
            if status is not None and not status.is_directory:
                yield ObjectInfo(key, status.size, str(status.id), status.modified)
                continue
            if key.count("/") > _DEEPEST:
                raise StoreUnavailable(
                    f"LISTSTATUS_BATCH {self.location}: {key[:200]} is deeper than HDFS allows ({_DEEPEST} levels)"
                )
            found = [(key + name, each) for name, each in self._names(key)]
            pending += sorted((each for each in found if belongs_to_listing(each[0], prefix, start_after)), key=_key)[
                ::-1
            ]

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Yield directories with an object in them or below them."""
        check_directory(prefix)
        return self._directories(prefix)

    def _directories(self, prefix: str) -> Iterator[str]:
        self.check()
        for name, status in sorted(self._names(prefix), key=_key):
            if status.is_directory and next(self._listed(prefix + name, ""), None) is not None:
                yield name

    def _names(self, directory: str) -> Sequence[tuple[str, HdfsFileStatus]]:
        """Return the names in a directory, subdirectories with a slash; none if it does not exist."""
        try:
            entries = [(part_of(each.name), each) for each in self._namenode.listed(self._path(directory).rstrip("/"))]
        except ObjectNotFound:
            return []
        return [(f"{part}/" if each.is_directory else part, each) for part, each in entries if part]

    def delete(self, keys: Iterable[str]) -> None:
        """Send DELETE for one key after the other."""
        self.check()
        deletions = Deletions()
        for key in keys:
            path = self._path(check_key(key))
            with deletions.deleting(key), suppress(ObjectNotFound):
                self._namenode.delete(path)
        deletions.check()

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Send GETFILESTATUS, then DELETE of the inode, which never names the file of a later put.

        An object that `copy_if_absent` renames between the two requests is removed under its new name.
        """
        self.check()
        return delete_each(etags, self._delete_matching)

    def _delete_matching(self, key: str, etag: str) -> bool:
        with suppress(ObjectNotFound):
            status = self._namenode.status(self._path(key))
            if status.is_directory:
                return True
            if str(status.id) != etag:
                return False
            self._namenode.delete(status.inode)
        return True

    def close(self) -> None:
        """Wait for puts, and close the connections."""
        super().close()
        self._namenode.close()

    def _looked_up(self, key: str, use: Callable[[HdfsFileStatus, ObjectInfo], _Found]) -> _Found:
        """Return the result of `use` for an object; repeat if it is overwritten between two requests.

        Raises:
            ObjectNotFound: the object does not exist.
        """
        path = self._path(key)
        for _ in range(_LOOKS):
            try:
                status = self._namenode.status(path)
            except ObjectNotFound as error:
                self.check()
                raise ObjectNotFound(f"{self._name(key)}: no such object") from error
            if status.is_directory:
                raise ObjectNotFound(f"{self._name(key)}: no such object")
            with suppress(ObjectNotFound):
                metadata = self._namenode.metadata(status.inode)
                return use(status, ObjectInfo(key, status.size, str(status.id), status.modified, metadata))
        raise StoreUnavailable(f"{self._name(key)}: the object changed {_LOOKS} times while it was read")

    def _require_object(self, path: str, key: str) -> None:
        """Check that a path is an object's.

        Raises:
            ObjectNotFound: it is not.
        """
        try:
            if not self._namenode.status(path).is_directory:
                return
        except ObjectNotFound:
            self.check()
        raise ObjectNotFound(f"{self._name(key)}: no such object")

    def _tidy(self, directory: str) -> None:
        """Remove old files of killed writers from a directory, or create it."""
        if directory in self._tidied:
            return
        before = time.time() - _LEFT_BEHIND_SECONDS
        try:
            for each in self._namenode.listed(directory):
                if each.name.startswith((WRITING, _NEXT)) and each.modified < before:
                    self._namenode.delete(f"{directory}/{each.name}")
        except ObjectNotFound:
            self._make(directory)
        except AccessDenied:
            pass  # a user that may not list may be allowed to write
        self._tidied.add(directory)

    def _make(self, directory: str) -> None:
        self.check()
        self._namenode.make_directories(directory)

    def _path(self, key: str) -> str:
        return f"{self._root}/{file_name(key)}"

    def _name(self, key: str) -> str:
        return f"{self.location}/{key}"


def _key(found: tuple[str, HdfsFileStatus]) -> str:
    return found[0]
