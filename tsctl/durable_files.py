"""Files that are whole after a kill or a power failure, and what a full or read-only disk is called."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ts_common.errors import OperatorError
from tsctl.output import size


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write or replace a file, so that it has either its former content or this one.

    Args:
        mode: its permissions, without those that the process's umask removes.

    Raises:
        OSError: the file system refused it.
    """
    half = path.with_name(f".{path.name}.part")
    half.unlink(missing_ok=True)
    half.touch(mode)
    write_new(half, data)
    half.replace(path)
    sync_directory(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it.

    Raises:
        OSError: the file system refused it; it has the name of the file.
    """
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)  # a write that found a full disk has no name
        raise


def sync_directory(directory: Path) -> None:
    """Wait until the disk has the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise `OperatorError` for an `OSError` of the block."""
    try:
        yield
    except OSError as error:
        raise OperatorError(f"{error.filename}: {error.strerror}; mend it, and repeat the command") from error


def check_space(directory: Path, wanted: int, advice: str) -> None:
    """Check that the file system of a directory has room.

    Args:
        wanted: bytes.
        advice: what else to do than to free space.

    Raises:
        OperatorError: it has not.
    """
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if free < wanted:
        raise OperatorError(f"{directory}: {size(free)} free, and {size(wanted)} are needed; free space, or {advice}")
