"""Write, publish, open and remove one object of a directory store; `driver` lists the files."""

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from awscrt.checksums import crc32c as crc32c_of

from ts_common.errors import CorruptData, PreconditionFailed, StoreUnavailable
from ts_common.store.answers import parse_json, text_by_name
from ts_common.store.contract import NO_METADATA, Body, Condition, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.file_names import WRITING
from ts_common.store.validation import METADATA_BYTES
from ts_common.wording import counted

META = ".meta"
LOCK = ".lock"
LEFT_BEHIND_SECONDS = 3600
PIECE = 1 << 20
_METADATA_BYTES = 16 * METADATA_BYTES  # JSON has at most six characters for one of ASCII


class FileStream:
    """One open object, or a range of it.

    Attributes:
        info: of the whole object.
    """

    def __init__(self, file: FileIO, info: ObjectInfo, length: int) -> None:
        self.info = info
        self._file = file
        self._left = length

    def read(self, size: int, /) -> bytes:
        """Read as the contract describes."""
        pieces = []  # one, unless a signal interrupts the read; it is returned without a copy
        wanted = max(0, min(size, self._left))
        while wanted:
            with self._translated():
                piece = self._file.read(wanted)
            if not piece:
                raise self._early_end(self._left)
            pieces.append(piece)
            wanted -= len(piece)
            self._left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: memoryview, /) -> int:
        """Read as the contract describes."""
        wanted = min(len(buffer), self._left)
        got = 0
        while got < wanted:
            with self._translated():
                step = self._file.readinto(buffer[got:wanted])
            if not step:
                raise self._early_end(self._left - got)
            got += step
        self._left -= got
        return got

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"{self.info.key}: {error}") from error

    def _early_end(self, missing: int) -> StoreUnavailable:
        return StoreUnavailable(f"{self.info.key}: the file ended {counted(missing, 'byte')} early")


def info_of(key: str, found: os.stat_result, metadata: Mapping[str, str] = NO_METADATA) -> ObjectInfo:
    """Return the properties of an object from those of its file."""
    return ObjectInfo(key, found.st_size, etag_of(found), found.st_mtime, metadata)


def etag_of(found: os.stat_result) -> str:
    """Return the ETag: inode, time of writing (ns) and size."""
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'


def write_beside(path: Path, temporary: Path, body: Body, metadata: Mapping[str, str], crc32c: int | None) -> Path:
    """Write an object's content and metadata durably under temporary names.

    Returns:
        The path of the metadata, which belongs to the content's inode.

    Raises:
        CorruptData: the body's CRC-32C is not `crc32c`.
    """
    checksum = 0
    with temporary.open("xb") as file:
        while piece := body.read(PIECE):
            if crc32c is not None:
                checksum = crc32c_of(piece, checksum)
            file.write(piece)
        if crc32c is not None and checksum != crc32c:
            raise CorruptData(
                f"{path}: the body's CRC-32C is {checksum:08x}; expected {crc32c:08x}; nothing was written"
            )
        file.flush()
        # The kernel uses the time of its last tick. So two writes within 4 ms could have the same ETag if the file
        # system reuses the inode.
        now = time.time_ns()
        os.utime(file.fileno(), ns=(now, now))
        os.fsync(file.fileno())
        inode = os.fstat(file.fileno()).st_ino
    return _write_metadata(path, inode, metadata)


def _write_metadata(path: Path, inode: int, metadata: Mapping[str, str]) -> Path:
    """Write the metadata of an object durably, and return the path of its file."""
    sidecar = metadata_path(path, inode)
    if metadata:
        sidecar.parent.mkdir(exist_ok=True)
        with sidecar.open("w") as file_of_metadata:
            json.dump(dict(metadata), file_of_metadata)
            file_of_metadata.flush()
            os.fsync(file_of_metadata.fileno())
        sync_directory(sidecar.parent)
    else:
        # An earlier object of this name may have had this inode.
        sidecar.unlink(missing_ok=True)
    return sidecar


def publish(temporary: Path, path: Path, condition: Condition, key: str) -> None:
    """Rename a complete file to the object's name.

    Raises:
        PreconditionFailed: the condition does not hold.
    """
    if isinstance(condition, IfAbsent):
        try:
            os.link(temporary, path)
        except FileExistsError:
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a directory") from None
            raise PreconditionFailed(f"put {key}: the object exists; expected none") from None
        return
    with locked(path.parent), _held(path) as replaced:
        etag = None if replaced is None else etag_of(replaced)
        if isinstance(condition, IfMatch) and condition.etag != etag:
            raise PreconditionFailed(f"put {key}: the object's ETag is {etag}; expected {condition.etag}")
        temporary.rename(path)
        if replaced is not None:
            # Readers ignore metadata of an inode without a name, so a failure here has no effect.
            with suppress(OSError):
                metadata_path(path, replaced.st_ino).unlink(missing_ok=True)


def link_object(source: Path, path: Path, inode: int, metadata: Mapping[str, str]) -> os.stat_result:
    """Link an object to a second name, with its metadata.

    The lock excludes another link to the same name, whose metadata would have the same file.

    Args:
        path: the second name, in an existing directory.
        inode: of the object, which the caller has open: so no other file has this inode.

    Returns:
        The properties of the linked file.

    Raises:
        PreconditionFailed: the second name exists.
        FileNotFoundError: the object no longer exists.
    """
    with locked(path.parent):
        sidecar = None if os.path.lexists(path) else _write_metadata(path, inode, metadata)
        try:
            os.link(source, path, follow_symlinks=False)
            linked = path.stat()
        except BaseException as error:
            if sidecar is not None:
                sidecar.unlink(missing_ok=True)
            if not isinstance(error, FileExistsError):
                raise
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a directory") from None
            raise PreconditionFailed(f"copy to {path}: the object exists; expected none") from None
        if linked.st_ino != inode:  # the source was overwritten since, and the metadata is not of the new content
            for each in (inode, linked.st_ino):
                metadata_path(path, each).unlink(missing_ok=True)
        return linked


def open_object(path: Path, key: str) -> tuple[FileIO, ObjectInfo]:
    """Return an object's content and the properties of that content, even if it is replaced at the same time.

    Raises:
        FileNotFoundError, IsADirectoryError: the object does not exist.
        CorruptData: the file of its metadata is damaged.
    """
    while True:
        file = FileIO(path, opener=_open_at_once)
        try:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise IsADirectoryError(f"{path} is not a regular file")
            metadata = _read_metadata(metadata_path(path, found.st_ino))
            # Metadata is removed after its object. Without it, and if the name has another inode, the object is old.
            if metadata is not None or path.stat().st_ino == found.st_ino:
                return file, info_of(key, found, metadata or NO_METADATA)
        except BaseException:
            file.close()
            raise
        file.close()


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a FIFO of that name does not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def remove(path: Path, etag: str | None = None) -> bool:
    """Remove an object and its metadata; a missing one counts as removed.

    Args:
        etag: keep an object with another ETag; None removes any.

    Returns:
        Whether the object no longer exists.
    """
    with locked(path.parent), _held(path) as found:
        if found is None or not stat.S_ISREG(found.st_mode):
            return True
        if etag is not None and etag_of(found) != etag:
            return False
        path.unlink()
        metadata_path(path, found.st_ino).unlink(missing_ok=True)
        sync_directory(path.parent)
    return True


def unbound_metadata(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the names of files without metadata, each with metadata of its name for another inode.

    A copy of the directory gives each file another inode. An earlier object of the name can also leave such metadata.
    """
    for sidecar in sorted((directory / META).glob("*.json")):
        name, _, inode = sidecar.stem.rpartition(".")
        path = directory / name
        with suppress(FileNotFoundError, CorruptData):
            own = path.stat().st_ino
            if inode != str(own) and not metadata_path(path, own).exists() and (found := _read_metadata(sidecar)):
                yield name, found


def bind(path: Path, etag: str, metadata: Mapping[str, str], key: str) -> None:
    """Write the metadata of an object that has none.

    Raises:
        PreconditionFailed: the object has another ETag.
        FileNotFoundError: it does not exist.
    """
    with locked(path.parent), _held(path) as found:
        if found is None:
            raise FileNotFoundError(path)
        if etag_of(found) != etag:
            raise PreconditionFailed(f"bind metadata {key}: the object's ETag is {etag_of(found)}; expected {etag}")
        _write_metadata(path, found.st_ino, metadata)


def remove_left_behind(directory: Path) -> None:
    """Remove the files of killed writers from a directory."""
    with os.scandir(directory) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(WRITING)]
    for temporary in left:
        with suppress(FileNotFoundError):
            found = temporary.stat()
            if found.st_mtime > time.time() - LEFT_BEHIND_SECONDS:
                continue
            # A file with a second link was published, and its metadata is the object's.
            if found.st_nlink == 1:
                name = temporary.name.removeprefix(WRITING).partition("-")[2]
                metadata_path(temporary.with_name(name), found.st_ino).unlink(missing_ok=True)
            temporary.unlink()


def metadata_path(path: Path, inode: int) -> Path:
    """Return the path of the metadata of an object with this inode."""
    return path.parent / META / f"{path.name}.{inode}.json"


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, against other threads and other processes."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _held(path: Path) -> Iterator[os.stat_result | None]:
    """Yield the properties of a file, kept open so that its inode is not reused; None if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        yield None
        return
    try:
        yield os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _read_metadata(path: Path) -> dict[str, str] | None:
    try:
        with path.open("rb") as file:
            content = file.read(_METADATA_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(content) > _METADATA_BYTES:
        raise CorruptData(f"{path}: more than {_METADATA_BYTES} bytes of metadata")
    try:
        return dict(text_by_name(parse_json(content)))
    except ValueError as error:
        raise CorruptData(f"{path} is not the metadata of an object: {error}") from error
