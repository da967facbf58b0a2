"""The driver for HDFS, by WebHDFS: `webhdfs://namenode:9870/directory`, and `swebhdfs://` for TLS.

::

    <root>/<key>                     the object; a part `.foo` of its key is called `..foo`; metadata in an xattr
    <root>/<directory>/.put-<uuid>   a put that goes on, or that was killed
    <root>/<directory>/.next-<etag>  what takes the place of the object that has this etag

A put writes a file of another name with its metadata, looks whether all of it arrived, and renames it, which the
NameNode does in one step: over nothing where nothing may stand there. An object's etag is the number of its inode,
which no other file ever gets. Reads go by that number, so that size, metadata and bytes are of one put.

HDFS has no compare-and-swap. It is made of what HDFS has: who wants to write over etag E first gives its file the name
`.next-E`, over nothing: one of many gets it. Then it looks whether the object still has etag E; since no number comes
twice, it had it at the moment of that rename. Then the file is renamed over the object, by its inode, so that this
happens once at most. Where that inode is gone by then, nobody can tell whether it happened: that is said to be unknown.
Whoever finds `.next-E` beside an object with etag E finishes what was begun there, so that nobody who was killed holds
the others up; whoever finds it beside another one knows that its own E is old. This holds among writers that all come
with conditions, as all do that write `offset.wm` and its like.

What it lacks: a checksum that the store compares (DataNodes make their own; the driver compares the bytes as they leave
and their number as it arrived), listings of more than a directory at a time, Kerberos, and more than one NameNode.
"""

import getpass
import io
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TypeVar

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
from ts_common.store.call import Call
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
from ts_common.store.file_names import WRITING, file_name, is_asked_for, part_of
from ts_common.store.hdfs.namenode import NameNode, Status
from ts_common.store.http.bodies import EmptyBody, RequestBody, ResponseBody
from ts_common.store.validation import SizedBody, body_size, check_directory, check_key, check_metadata, check_prefix
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance, RationedBody

_Found = TypeVar("_Found")

_NEXT = ".next-"
_GONE = "what was written is gone: it was the object and was written over since, or never was"
_DEEPEST = 1000  # HDFS's own limit (DistributedFileSystem: HdfsConstants.MAX_PATH_DEPTH)
_LOOKS = 5  # at an object that is written over in between
_LEFT_BEHIND_SECONDS = 86_400.0
# Reads run on threads of the caller's, which the driver cannot count.
_READ_CONNECTIONS = 32


class WebHdfsStore(ObjectStore):
    """Objects below one directory of HDFS.

    Args:
        location: its URL, for messages.
        url: of the NameNode.
        root: the directory, without outer slashes; it must exist.
        timeout_seconds: how long a server may be silent.
        threads: how many asynchronous puts run at once.
        allowance: what the bodies of puts are taken from.
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
        self._namenode = NameNode(url, user, timeout_seconds, max(_READ_CONNECTIONS, threads))
        # Directories that were looked through for what killed writers left. Only ever grows; a race looks twice.
        self._tidied: set[str] = set()

    def check(self) -> None:
        """The root is a directory."""
        try:
            is_directory = self._namenode.status(self._root).is_directory
        except ObjectNotFound:
            is_directory = False
        if not is_directory:
            raise BucketMissing(
                f"{self.location}: there is no such directory here: look at its name, and at the NameNode's"
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
        """CREATE under another name, then RENAME."""
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
                raise OperatorError(f"put {name}: a directory store cannot hold this key: {error}") from error
            raise
        return ObjectInfo(key, length, str(written.id), written.modified, dict(metadata))

    def _publish(self, temporary: str, written: Status, path: str, condition: Condition, name: str) -> None:
        match condition:
            case None:
                self._namenode.rename(temporary, path, overwrite=True)
            case IfAbsent():
                self._namenode.rename(temporary, path, overwrite=False)
            case IfMatch(etag):
                self._swap(temporary, written, path, etag, name)

    def _swap(self, temporary: str, written: Status, path: str, etag: str, name: str) -> None:
        """Write over the object with this etag, as the module's page says.

        Raises:
            PreconditionFailed: the object has another.
            OutcomeUnknown: it may have happened, or may still: whoever comes next finishes it.
        """
        self._require(path, etag, name)
        following = f"{path.rpartition('/')[0]}/{_NEXT}{etag}"
        try:
            self._namenode.rename(temporary, following, overwrite=False)
        except PreconditionFailed:
            self._finish(following, path, etag)
            raise
        # From here on it may happen, whatever becomes of this process: somebody else may finish it.
        try:
            if self._is_current(path, etag):
                if not self._take_over(written, path):
                    raise OutcomeUnknown(f"{name}: {_GONE}")
            elif not self._is_published(written, path, name):
                with suppress(TieredStorageError):
                    self._namenode.delete(following)
                raise PreconditionFailed(f"{name}: {etag} asked, which it has no more")
        except StoreUnavailable as error:
            raise OutcomeUnknown(str(error)) from error

    def _is_current(self, path: str, etag: str) -> bool:
        try:
            return str(self._namenode.status(path).id) == etag
        except ObjectNotFound:
            return False

    def _is_published(self, written: Status, path: str, name: str) -> bool:
        """Whether our file became the object.

        Raises:
            OutcomeUnknown: it is gone, and was perhaps the object before.
        """
        if self._is_current(path, str(written.id)):
            return True
        try:
            self._namenode.status(written.inode)
        except ObjectNotFound as error:
            raise OutcomeUnknown(f"{name}: {_GONE}") from error
        return False

    def _require(self, path: str, etag: str, name: str) -> None:
        try:
            found = str(self._namenode.status(path).id)
        except ObjectNotFound:
            found = "nothing"
        if found != etag:
            raise PreconditionFailed(f"{name}: found {found}, {etag} asked")

    def _finish(self, following: str, path: str, etag: str) -> None:
        """What somebody else began over the same object."""
        try:
            begun = self._namenode.status(following)
            self._require(path, etag, path)
        except (ObjectNotFound, PreconditionFailed):
            return
        self._take_over(begun, path)

    def _take_over(self, following: Status, path: str) -> bool:
        """Whether what followed is the object; False where it is gone: written over since, or tidied away before."""
        try:
            self._namenode.rename(following.inode, path, overwrite=True)
        except PreconditionFailed:
            pass  # somebody finished it: it is the object itself
        except ObjectNotFound:
            return False
        return True

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """GETFILESTATUS, GETXATTRS, OPEN."""
        check_key(key)
        return self._open(key, byte_range)

    @contextmanager
    def _open(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        with ExitStack() as opened:
            yield self._looked_up(key, lambda status, info: self._stream(opened, status, info, byte_range))

    def _stream(
        self, opened: ExitStack, status: Status, info: ObjectInfo, byte_range: ByteRange | None
    ) -> ObjectStream:
        start, end = 0, info.size
        if byte_range is not None:
            start = byte_range.start if byte_range.start >= 0 else max(0, end + byte_range.start)
            end = end if byte_range.end is None else min(byte_range.end, end)
        if start >= end:
            return EmptyBody(info)
        response = opened.enter_context(self._namenode.opened(status.inode, start, end - start))
        return ResponseBody(info, response, end - start, Call("OPEN", self._name(info.key)))

    def head(self, key: str) -> ObjectInfo:
        """GETFILESTATUS, GETXATTRS."""
        check_key(key)
        return self._looked_up(key, lambda _, info: info)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Directory by directory, the names of each in the order that they have within keys."""
        check_prefix(prefix)
        return self._listed(prefix, start_after)

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        self.check()
        directory, slash, _ = prefix.rpartition("/")
        pending: list[tuple[str, Status | None]] = [(directory + slash, None)]
        while pending:
            key, status = pending.pop()
            if status is not None and not status.is_directory:
                yield ObjectInfo(key, status.size, str(status.id), status.modified)
                continue
            if key.count("/") > _DEEPEST:
                raise StoreUnavailable(
                    f"LISTSTATUS_BATCH {self.location}: no directory of HDFS is as deep as {key[:200]}"
                )
            found = [(key + name, each) for name, each in self._names(key)]
            pending += sorted((each for each in found if is_asked_for(each[0], prefix, start_after)), key=_key)[::-1]

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Directories that have an object, near or far."""
        check_directory(prefix)
        return self._directories(prefix)

    def _directories(self, prefix: str) -> Iterator[str]:
        self.check()
        for name, status in sorted(self._names(prefix), key=_key):
            if status.is_directory and next(self._listed(prefix + name, ""), None) is not None:
                yield name

    def _names(self, directory: str) -> Sequence[tuple[str, Status]]:
        """What stands in a directory, subdirectories with a slash; nothing if it is gone."""
        try:
            entries = [(part_of(each.name), each) for each in self._namenode.listed(self._path(directory).rstrip("/"))]
        except ObjectNotFound:
            return []
        return [(f"{part}/" if each.is_directory else part, each) for part, each in entries if part]

    def delete(self, keys: Iterable[str]) -> None:
        """DELETE, one after the other."""
        self.check()
        failed: list[tuple[str, TieredStorageError]] = []
        count = 0
        for key in keys:
            path = self._path(check_key(key))
            count += 1
            try:
                with suppress(ObjectNotFound):
                    self._namenode.delete(path)
            except TieredStorageError as error:
                failed.append((key, error))
        if failed:
            key, first = failed[0]
            kind = type(first) if isinstance(first, OperatorError) else StoreUnavailable
            raise kind(f"{len(failed)} of {count} not deleted, the first is {key}: {first}") from first

    def close(self) -> None:
        """Also closes the connections."""
        super().close()
        self._namenode.close()

    def _looked_up(self, key: str, use: Callable[[Status, ObjectInfo], _Found]) -> _Found:
        """What `use` makes of an object; again where it was written over in between.

        Raises:
            ObjectNotFound: there is no such object.
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
        raise StoreUnavailable(f"{self._name(key)}: it changes all the time")

    def _tidy(self, directory: str) -> None:
        """Remove what writers that were killed long ago left in a directory, or make it."""
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
            pass  # who may not look may write all the same
        self._tidied.add(directory)

    def _make(self, directory: str) -> None:
        self.check()
        self._namenode.make_directories(directory)

    def _path(self, key: str) -> str:
        return f"{self._root}/{file_name(key)}"

    def _name(self, key: str) -> str:
        return f"{self.location}/{key}"


def _key(found: tuple[str, Status]) -> str:
    return found[0]
