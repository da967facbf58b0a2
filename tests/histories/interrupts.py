"""Where other actors can act inside a task: between two reads of the broker's files, and at `time.sleep`.

`installed` replaces the `os` of the two rooms that read files; production code has no hook for it. A listing
becomes two system calls, as that of a large directory is (getdents64), and a file may be renamed between two opens.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.histories.clock import Clock
from ts_common.archive import copies, fetch
from ts_uploader.log_dirs import directory_scan as scan
from ts_uploader.log_dirs import scan_cache as scans
from ts_uploader.log_dirs import segment_file

Pause = Callable[[str], None]


class _HookedOs:
    """The module `os`, with replacements for the functions that read files."""

    def __init__(self, pause: Pause, change_times: dict[int, int]) -> None:
        self._pause = pause
        self._change_times = change_times

    def fstat(self, descriptor: int) -> Any:
        """Return the status, with the change time that the model gives a renamed file."""
        status = os.fstat(descriptor)
        changed = self._change_times.get(status.st_ino)
        if changed is None:
            return status
        fields = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
        return SimpleNamespace(**{**fields, "st_ctime_ns": changed})

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, *arguments: Any, **named: Any) -> int:
        """Let others act before a file is opened."""
        self._pause("open")
        return os.open(path, *arguments, **named)

    def pread(self, *arguments: Any) -> bytes:
        """Let others act before bytes are read."""
        self._pause("read")
        return os.pread(*arguments)

    def listdir(self, path: Path) -> list[str]:
        """List in two calls to the kernel, with others between them."""
        first = sorted(os.listdir(path))
        self._pause("list")
        second = sorted(os.listdir(path))
        if second == first:
            return first
        middle = len(first) // 2
        return first[:middle] + [name for name in second if not middle or name > first[middle - 1]]


class _OneThread(Executor):
    """A pool that runs submitted work at once, so that a history repeats exactly."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Return the result, which is available."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001  (the future carries whatever it is)
            future.set_exception(error)
        return future


@contextmanager
def installed(
    pause: Pause, sleep: Callable[[float], None], clock: Clock, change_times: dict[int, int]
) -> Iterator[None]:
    """Let others act inside tasks, and replace sleeps.

    Args:
        pause: called with the next operation, wherever others may act.
        sleep: called instead of `time.sleep`.
        clock: of directory listings.
        change_times: of files that were renamed, by inode.
    """
    hooked = _HookedOs(pause, change_times)
    hooked_time = SimpleNamespace(
        monotonic=lambda: clock.tick(0.001) / 1e9, monotonic_ns=lambda: clock.tick(0.001), sleep=sleep
    )
    with (
        patch.object(segment_file, "os", hooked),
        patch.object(scan, "os", hooked),
        patch.object(scans, "os", hooked),
        patch.object(scan, "time", hooked_time),
        patch.object(copies, "ThreadPoolExecutor", _OneThread),
        patch.object(fetch, "ThreadPoolExecutor", _OneThread),
        patch.object(time, "sleep", sleep),
    ):
        yield
