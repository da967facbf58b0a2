"""Files that are whole after a kill or a power failure."""

import os
from pathlib import Path


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
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Wait until the disk has the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
