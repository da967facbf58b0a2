"""A value of files, read again when a file changes: a broken new file leaves the old value, and is logged."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

_log = structlog.get_logger()
CHECK_SECONDS: Final = 3.0

T = TypeVar("T")
_Stamps = tuple[tuple[int, int, int] | None, ...]


class Reloaded(Generic[T]):
    """The value of some files.

    Nothing watches the files: a call of `current` looks at them, if the last look was some seconds ago. One thread
    calls it. Another one reads changed files if that needs long, and the old value is used until then.

    Args:
        load: returns the value; its error is raised here, and logged later.
        errors: that `load` raises for a broken file.
        is_slow: whether changed files are read on a thread.
        check_seconds: between two looks.
        clock: seconds, monotonic.

    Raises:
        Exception: one of `errors`, of the first load.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        load: Callable[[], T],
        errors: tuple[type[Exception], ...],
        *,
        is_slow: bool = False,
        check_seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._load = load
        self._errors = errors
        self._is_slow = is_slow
        self._loading: threading.Thread | None = None
        self._check_seconds = check_seconds
        self._clock = clock
        self._stamps = self._look()
        self._looked = clock()
        self._reported: str | None = None
        self._value = load()

    def current(self) -> T:
        """Return the value of the files as they are, or were when they were last valid."""
        now = self._clock()
        is_loading = self._loading is not None and self._loading.is_alive()
        if now - self._looked >= self._check_seconds and not is_loading:
            self._looked = now
            stamps = self._look()  # before the load: a change meanwhile is seen at the next look
            if stamps != self._stamps:
                self._begin(stamps)
        return self._value

    def _begin(self, stamps: _Stamps) -> None:
        if not self._is_slow:
            self._reload(stamps)
            return
        self._loading = threading.Thread(target=self._reload, args=(stamps,), name="reload", daemon=True)
        self._loading.start()

    def _reload(self, stamps: _Stamps) -> None:
        files = [*map(str, self._paths)]
        try:
            value = self._load()
        except self._errors as error:
            # The stamps stay, so the next look loads again: one of several files may follow the others.
            if str(error) != self._reported:
                self._reported = str(error)
                _log.error(
                    "files_not_reloaded", files=files, error=str(error), effect="the former content stays in use"
                )
            return
        self._stamps = stamps
        self._reported = None
        _log.info("files_reloaded", files=files)
        self._value = value

    def _look(self) -> _Stamps:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
