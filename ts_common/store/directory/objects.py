"""One object of a directory store as files: written, given its name, opened, removed. `file` says which names."""

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

META = ".meta"
LOCK = ".lock"
LEFT_BEHIND_SECONDS = 3600
PIECE = 1 << 20
_METADATA_BYTES = 16 * METADATA_BYTES  # JSON writes a character of ASCII with six at most


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
        """See the contract."""
        buffer = bytearray(max(0, min(size, self._left)))
        self.readinto(memoryview(buffer))
        return bytes(buffer)

    def readinto(self, buffer: memoryview, /) -> int:
        """See the contract."""
        wanted = min(len(buffer), self._left)
        got = 0
        while got < wanted:
            try:
                step = self._file.readinto(buffer[got:wanted])
            except OSError as error:
                raise StoreUnavailable(f"{self.info.key}: {error}") from error
            if not step:
                raise StoreUnavailable(f"{self.info.key}: the file ended {self._left - got} bytes early")
            got += step
        self._left -= got
        return got


def info_of(key: str, found: os.stat_result, metadata: Mapping[str, str] = NO_METADATA) -> ObjectInfo:
    """What the contract says of a file."""
    return ObjectInfo(key, found.st_size, etag_of(found), found.st_mtime, metadata)


def etag_of(found: os.stat_result) -> str:
    """Inode, time of writing (ns) and size."""
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'


def write_beside(path: Path, temporary: Path, body: Body, metadata: Mapping[str, str], crc32c: int | None) -> Path:
    """Write an object's content and metadata, both durable, under names that nobody looks at.

    Returns:
        The metadata's path, which belongs to the content's inode.

    Raises:
        CorruptData: the body is not the one of the checksum.
    """
    checksum = 0
    with temporary.open("xb") as file:
        while piece := body.read(PIECE):
            if crc32c is not None:
                checksum = crc32c_of(piece, checksum)
            file.write(piece)
        if crc32c is not None and checksum != crc32c:
            raise CorruptData(f"{path}: the body's CRC-32C is {checksum:08x}, not {crc32c:08x}; nothing was written")
        file.flush()
        # The kernel stamps files with the time of its last tick, so two writes within 4 ms and an inode that is given
        # anew could share an etag.
        now = time.time_ns()
        os.utime(file.fileno(), ns=(now, now))
        os.fsync(file.fileno())
        inode = os.fstat(file.fileno()).st_ino
    sidecar = metadata_path(path, inode)
    if metadata:
        sidecar.parent.mkdir(exist_ok=True)
        with sidecar.open("w") as file_of_metadata:
            json.dump(dict(metadata), file_of_metadata)
            file_of_metadata.flush()
            os.fsync(file_of_metadata.fileno())
        sync_directory(sidecar.parent)
    else:
        # An earlier object under this name may have had this inode.
        sidecar.unlink(missing_ok=True)
    return sidecar


def publish(temporary: Path, path: Path, condition: Condition, key: str) -> None:
    """Give a finished file its name.

    Raises:
        PreconditionFailed: the condition does not hold.
    """
    if isinstance(condition, IfAbsent):
        try:
            os.link(temporary, path)
        except FileExistsError:
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a directory") from None
            raise PreconditionFailed(f"put {key}: there is an object already") from None
        return
    with locked(path.parent), _held(path) as replaced:
        etag = None if replaced is None else etag_of(replaced)
        if isinstance(condition, IfMatch) and condition.etag != etag:
            raise PreconditionFailed(f"put {key}: the object's etag is {etag}, not {condition.etag}")
        temporary.rename(path)
        if replaced is not None:
            # What is left of it belongs to an inode that has no name any more: it misleads nobody.
            with suppress(OSError):
                metadata_path(path, replaced.st_ino).unlink(missing_ok=True)


def open_object(path: Path, key: str) -> tuple[FileIO, ObjectInfo]:
    """An object's content and what belongs to that content, whatever replaces it meanwhile.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no object.
        CorruptData: its metadata is not what was written.
    """
    while True:
        file = FileIO(path)
        try:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise IsADirectoryError(f"{path} is no regular file")
            metadata = _read_metadata(metadata_path(path, found.st_ino))
            # Metadata goes after its object, so without it and with the name elsewhere this object is a past one.
            if metadata is not None or path.stat().st_ino == found.st_ino:
                return file, info_of(key, found, metadata or NO_METADATA)
        except BaseException:
            file.close()
            raise
        file.close()


def remove(path: Path) -> None:
    """Remove an object and its metadata; one that is not there counts as removed."""
    with locked(path.parent), _held(path) as found:
        if found is None or not stat.S_ISREG(found.st_mode):
            return
        path.unlink()
        metadata_path(path, found.st_ino).unlink(missing_ok=True)
        sync_directory(path.parent)


def remove_left_behind(directory: Path) -> None:
    """Remove what writers that were killed left in a directory."""
    with os.scandir(directory) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(WRITING)]
    for temporary in left:
        with suppress(FileNotFoundError):
            found = temporary.stat()
            if found.st_mtime > time.time() - LEFT_BEHIND_SECONDS:
                continue
            # With a second link it has been published, and the metadata is the object's.
            if found.st_nlink == 1:
                name = temporary.name.removeprefix(WRITING).partition("-")[2]
                metadata_path(temporary.with_name(name), found.st_ino).unlink(missing_ok=True)
            temporary.unlink()


def metadata_path(path: Path, inode: int) -> Path:
    """Where the metadata of an object is while it has this inode."""
    return path.parent / META / f"{path.name}.{inode}.json"


def sync_directory(directory: Path) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """The directory's lock, against other threads and other processes."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _held(path: Path) -> Iterator[os.stat_result | None]:
    """What stands under a name, kept open so that its inode number is not given anew; None where nothing does."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
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
        raise CorruptData(f"{path}: not the metadata of an object: {error}") from error
