"""The driver for a directory: for tests, single hosts, and network file systems with hard links and flock.

::

    <root>/<key>                                    the object
    <root>/<directory>/.meta/<name>.<inode>.json    its metadata, if it has any
    <root>/<directory>/.put-<random>-<name>         a put that is running, or was killed
    <root>/<directory>/.lock                        held while names change in this directory

`ts_common.store.file_names` maps keys to paths, so that no key has the name of a file of the driver. A put writes a
file under another name, then its metadata under that file's inode, and then renames the file. So an object and its
metadata appear together. A reader without metadata checks that the object is still the one that it opened. `objects`
does that for one object; this module maps keys to objects, and walks directories.

A put syncs file and directory before it returns. The driver does not create the root. It keeps empty directories, and
listings omit them.

No key leads out of the root: no part is `..`, and every symbolic link below the root is rejected. The root itself may
be one.
"""

import errno
import io
import os
import pwd
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
)
from ts_common.store.answers import range_within
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    DeleteOutcome,
    KeyRange,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.deletions import Deletions, delete_each
from ts_common.store.directory.listing import (
    ABSENT,
    LinkRefused,
    file_names_in,
    has_object,
    infos_of,
    names_in,
    parts_outside,
    wanted,
    with_slashes,
)
from ts_common.store.directory.objects import (
    LOCK,
    META,
    FileStream,
    bind,
    info_of,
    link_object,
    open_object,
    publish,
    remove,
    remove_left_behind,
    sync_directory,
    unbound_metadata,
    write_beside,
)
from ts_common.store.file_names import WRITING, file_name, part_of
from ts_common.store.validation import (
    KeyRefused,
    SizedBody,
    body_size,
    check_copy,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
)
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance, RationedBody

# S3 can store such a key, a directory cannot: a part is too long, or an object has the name of a directory.
_BATCH = 256  # objects whose properties are read at once; the first has one, and each twice as many as the one before
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NOT_HERE = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}


class FileStore(ObjectStore):
    """Objects in one directory.

    Args:
        root: the directory, which must exist.
        threads: the number of asynchronous puts that run at once.
        allowance: limits the bytes per second of the bodies of puts.
    """

    def __init__(self, root: Path, *, threads: int = 4, allowance: Allowance = UNLIMITED) -> None:
        self._allowance = allowance
        self._root = root.absolute()
        super().__init__(f"file://{self._root}", async_threads=threads)
        # Directories that were searched for files of killed writers. It only grows; a race searches twice.
        self._tidied: set[Path] = set()

    def check(self) -> None:
        """Check that the root is a directory that this user can list."""
        with self._translated("check", ""):
            self._require_root()
            if not os.access(self._root, os.R_OK | os.X_OK, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self._root))

    def identity(self) -> str | None:
        """Return the user of the process, by name and number."""
        user = os.geteuid()
        with suppress(KeyError):  # a container's user can have no name
            return f"{pwd.getpwuid(user).pw_name} uid:{user}"
        return f"uid:{user}"

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
        """Write a temporary file, sync it, link or rename it, and sync the directory."""
        path = self._path(key)
        check_metadata(metadata)
        length = body_size(body, size)
        sized = SizedBody(io.BytesIO(body) if isinstance(body, bytes) else body, length, self._name(key))
        rationed = RationedBody(sized, length, self._allowance)
        with sized.raising_own_failure(), self._translated("put", key):
            self._make_directories(path.parent)
            temporary = path.with_name(f"{WRITING}{uuid.uuid4().hex}-{path.name}")
            sidecar: Path | None = None
            try:
                sidecar = write_beside(path, temporary, rationed, metadata, crc32c)
                written = temporary.stat()
                publish(temporary, path, condition, self._name(key))
                sidecar = None
            finally:
                if sidecar is not None:
                    sidecar.unlink(missing_ok=True)
                temporary.unlink(missing_ok=True)
        self._sync("put", key, path.parent)
        return info_of(key, written, dict(metadata))

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Link the file to a second name, and sync the directory. Both names have one inode, so one ETag and time."""
        check_copy(source, target)
        original, path = self._path(source), self._path(target)
        with self._translated("copy to", target):
            try:
                file, info = open_object(original, source)
            except ABSENT as error:
                self._require_root()
                raise ObjectNotFound(f"{self._name(source)}: no such object") from error
            with file:
                self._make_directories(path.parent)
                try:
                    linked = link_object(original, path, os.fstat(file.fileno()).st_ino, info.metadata)
                except FileNotFoundError as error:
                    raise ObjectNotFound(f"{self._name(source)}: the object no longer exists") from error
        self._sync("copy to", target, path.parent)
        return info_of(target, linked)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open the file; a replacement does not change an open file."""
        return self._opened(key, self._path(key), byte_range)

    @contextmanager
    def _opened(self, key: str, path: Path, byte_range: ByteRange | None = None) -> Iterator[FileStream]:
        with self._translated("open", key):
            try:
                file, info = open_object(path, key)
            except ABSENT as error:
                self._require_root()
                raise ObjectNotFound(f"{self._name(key)}: no such object") from error
        with file:
            start, end = range_within(byte_range, info.size)
            file.seek(start)
            yield FileStream(file, info, max(0, end - start))

    def head(self, key: str) -> ObjectInfo:
        """Open the file without reading it."""
        with self._opened(key, self._path(key)) as stream:
            return stream.info

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List directory by directory, the names of each in their order as parts of keys."""
        check_prefix(prefix)
        return self._listed(prefix, start_after)

    def list_skipping(
        self, prefix: str, after: int, skipped: Callable[[Sequence[ObjectInfo]], Sequence[KeyRange]]
    ) -> Iterator[ObjectInfo]:
        """Read the names of a directory once."""
        if check_prefix(prefix)[-1:] != "/":
            yield from super().list_skipping(prefix, after, skipped)
            return
        with self._translated("list", prefix):
            self._require_root()
            path = f"{self._below(file_name(prefix))}/"
            names = file_names_in(path)
        is_long = len(list(islice(filter(part_of, names), after))) == after
        ranges = skipped(()) if is_long else ()
        if not ranges:
            yield from self._listed(prefix, "")
            return
        left = parts_outside(names, [(first[len(prefix) :], last[len(prefix) :]) for first, last in ranges])
        with self._translated("list", prefix):
            names = sorted(with_slashes(path, left))
        bounds, ends = [bound for each in ranges for bound in each], {last for _, last in ranges}
        for info in self._walked(prefix, names):
            if bisect_right(bounds, info.key) % 2 == 0 and info.key not in ends:
                yield info

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        with self._translated("list", prefix):
            self._require_root()
        directory = prefix[: prefix.rfind("/") + 1]
        yield from self._walked(directory, wanted(self._names(directory), directory, prefix, start_after), start_after)

    def _walked(self, directory: str, names: Iterable[str], start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects with these names in a directory of keys, and those below its subdirectories."""
        pending, size = [(directory, iter(names))], 1
        while pending:
            key, left = pending[-1]
            batch, below = list[str](), None
            for name in left:
                if name[-1] == "/":
                    below = key + name
                    break
                batch.append(name)
                if len(batch) == size:
                    break
            else:
                pending.pop()
            if batch:
                with self._translated("list", key):
                    infos = infos_of(f"{self._root}/{file_name(key)}", key, batch)
                yield from infos
                size = min(2 * size, _BATCH)
            if below is not None:
                pending.append((below, iter(wanted(self._names(below), below, below, start_after))))

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Yield directories with an object in them or below them."""
        check_directory(prefix)
        return self._directories(prefix)

    def _directories(self, prefix: str) -> Iterator[str]:
        with self._translated("list", prefix):
            self._require_root()
        for name in sorted(self._names(prefix)):
            if name.endswith("/"):
                with self._translated("list", prefix + name):
                    is_empty = not has_object(str(self._below(file_name(prefix + name))))
                if not is_empty:
                    yield name

    def _names(self, directory: str) -> Sequence[str]:
        """Return the names in a directory of keys, as `names_in`."""
        with self._translated("list", directory):
            return names_in(str(self._below(file_name(directory))))

    def delete(self, keys: Iterable[str]) -> None:
        """Unlink one file after the other."""
        with self._translated("delete", ""):
            self._require_root()
        deletions = Deletions()
        for key in keys:
            path = self._path(key)
            with deletions.deleting(key), self._translated("delete", key), suppress(*ABSENT):
                remove(path)
        deletions.check()

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Compare and unlink one file after the other, each under the lock of its directory, as a put does."""
        with self._translated("delete", ""):
            self._require_root()
        return delete_each(etags, self._delete_matching)

    def _delete_matching(self, key: str, etag: str) -> bool:
        path = self._path(key)
        with self._translated("delete", key), suppress(*ABSENT):
            return remove(path, etag)
        return True

    def unbound_metadata(self, prefix: str) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """Read the metadata of a directory's objects whose file has the inode of another file."""
        directory = self._path(f"{check_directory(prefix)}{LOCK}").parent
        found: dict[str, list[Mapping[str, str]]] = {}
        with self._translated("list", prefix):
            for name, metadata in unbound_metadata(directory):
                found.setdefault(prefix + part_of(name), []).append(metadata)
        return found

    def bind_metadata(self, key: str, etag: str, metadata: Mapping[str, str]) -> None:
        """Write the metadata for the inode that the object has now."""
        path = self._path(key)
        with self._translated("bind metadata", key):
            try:
                bind(path, etag, check_metadata(metadata), self._name(key))
            except ABSENT as error:
                raise ObjectNotFound(f"{self._name(key)}: no such object") from error

    def _path(self, key: str) -> Path:
        if "\0" in check_key(key):
            raise KeyRefused(f"not a key: {key!r}; it contains NUL")
        name = file_name(key)
        path = self._below(name)
        _refuse_link(f"{self._root}/{name[: name.rfind('/') + 1]}{META}")
        return path

    def _below(self, name: str) -> Path:
        """Return a path below the root.

        Raises:
            LinkRefused: a part of the path is a symbolic link.
        """
        path = str(self._root)
        for part in name.split("/"):
            if part:
                path += f"/{part}"
                _refuse_link(path)
        return self._root / name

    def _name(self, key: str) -> str:
        return f"{self.location}/{key}"

    def _make_directories(self, directory: Path) -> None:
        """Create the missing directories below the root."""
        if not directory.is_dir():
            self._require_root()
            made = self._root
            for part in directory.relative_to(self._root).parts:
                made /= part
                if not made.is_dir():
                    made.mkdir(exist_ok=True)
                    sync_directory(made.parent)
        if directory not in self._tidied:
            remove_left_behind(directory)
            self._tidied.add(directory)

    def _sync(self, operation: str, key: str, directory: Path) -> None:
        """Make the name of an object durable.

        Raises:
            OutcomeUnknown: it may be lost if the host crashes.
        """
        try:
            sync_directory(directory)
        except OSError as error:
            raise OutcomeUnknown(
                f"{operation} {self._name(key)}: written, but the sync of its directory failed: {error}"
            ) from error

    def _require_root(self) -> None:
        if not self._root.is_dir():
            # `is_dir` returns False if this user may not enter a parent directory; `stat` raises PermissionError.
            with suppress(FileNotFoundError, NotADirectoryError):
                self._root.stat()
            raise BucketMissing(
                f"{self.location}: the directory does not exist here: check its name, and that its disk is mounted"
            )

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        """Raise errors of the system as those of the project."""
        failed = f"{operation} {self._name(key)}"
        try:
            yield
        except OSError as error:
            if isinstance(error, PermissionError) or error.errno == errno.EROFS:
                raise AccessDenied(f"{failed}: {error}; allow this user to read and write there") from error
            if error.errno in _FULL:
                raise StoreFull(f"{failed}: {error}; make room, or raise the quota") from error
            if error.errno in _NOT_HERE or isinstance(error, ABSENT[1:]):
                raise OperatorError(f"{failed}: a directory store cannot store this key: {error}") from error
            raise StoreUnavailable(f"{failed}: {error}") from error


def _refuse_link(path: str) -> None:
    """Refuse a path that is a link. This user may not be allowed to check; then opening the object fails.

    Raises:
        LinkRefused: it is one.
    """
    with suppress(OSError, ValueError):
        if os.path.islink(path):  # noqa: PTH114  (paths cost ten times as much)
            raise LinkRefused(path)
