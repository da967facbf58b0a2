"""What inotify reports, by watchdog: directories to list, an overflow of the kernel's queue, limits of the kernel."""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler

from ts_common.model import TopicPartition
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT

# Errors of inotify at the kernel's limits, which the operator can raise.
LIMITS = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.EMFILE: "raise fs.inotify.max_user_instances",
}


class HintHandler(FileSystemEventHandler):
    """Passes on the directory that an event names, and nothing else."""

    def __init__(
        self, log_dir: Path, hint: Callable[[TopicPartition], None], hint_checkpoint: Callable[[Path], None]
    ) -> None:
        self._log_dir = log_dir
        self._hint = hint
        self._hint_checkpoint = hint_checkpoint

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Hint the directory of each path that an event names."""
        for path in (event.src_path, event.dest_path):
            if not path:
                continue
            parts = Path(os.fsdecode(path)).relative_to(self._log_dir).parts
            if parts == (HIGH_WATERMARK_CHECKPOINT,):
                self._hint_checkpoint(self._log_dir)
            elif parts and (partition := TopicPartition.parse(parts[0])) is not None:
                self._hint(partition)


def explained(error: OSError) -> str:
    """Return the error, with what to do at a limit of the kernel."""
    return f"{error}; {LIMITS[error.errno]}" if error.errno in LIMITS else str(error)


class OverflowHandler(logging.Handler):
    """Detects an overflow of the kernel's queue by the line that watchdog logs: it notifies no handler."""

    def __init__(self, overflowed: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._overflowed = overflowed

    def emit(self, record: logging.LogRecord) -> None:
        """Report an overflow; other lines are ignored."""
        if "overflow" in record.getMessage():
            self._overflowed()
