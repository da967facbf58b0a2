"""What inotify reports: directories to list, checkpoints to read, and an overflow of the kernel's queue.

Two levels matter: a log dir, and the directories of partitions in it. The library for this, watchdog, watches whole
trees and pairs renames; it needs four times the memory of each watch, and four threads. Events are only hints here: a
directory is watched before it is listed, so its listing has what happened before.

https://man7.org/linux/man-pages/man7/inotify.7.html
"""

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from ts_common.model import TopicPartition
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT

log = structlog.get_logger()

# Errors of inotify at the kernel's limits, which the operator can raise.
LIMITS = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.EMFILE: "raise fs.inotify.max_user_instances",
}
_LIBC = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_BUFFER = 1 << 16
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x800
_OVERFLOW, _IGNORED, _ONLYDIR, _DONT_FOLLOW, _IS_DIR = 0x4000, 0x8000, 0x0100_0000, 0x0200_0000, 0x4000_0000
# Without appends and closes the kernel's queue hardly ever fills, and ten thousand appends cause no work.
_NAMES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLYDIR


class InotifyHints:
    """One instance of inotify, and the thread that reads its events.

    Args:
        hint: receives the partition of each directory that appears, disappears or has other files.
        hint_checkpoint: receives the log dir of each checkpoint that the broker replaces.
        overflowed: called after events were lost.

    Raises:
        OSError: a limit of the kernel is reached.
    """

    def __init__(
        self,
        hint: Callable[[TopicPartition], None],
        hint_checkpoint: Callable[[Path], None],
        overflowed: Callable[[], None],
    ) -> None:
        self._hint = hint
        self._hint_checkpoint = hint_checkpoint
        self._overflowed = overflowed
        # By watch; the names of partitions' directories. An instance has one watch for each directory.
        self._log_dirs: dict[int, Path] = {}
        self._directories: dict[int, str] = {}
        self._inotify = _checked(_LIBC.inotify_init1(os.O_CLOEXEC))
        self._end, self._write_end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="inotify", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread receives events."""
        return self._thread.is_alive()

    @property
    def watched(self) -> frozenset[Path]:
        """The log dirs that are watched; without those that were removed or unmounted."""
        return frozenset(self._log_dirs.copy().values())

    def watch(self, log_dir: Path) -> None:
        """Watch a log dir, and the directories of partitions in it.

        Raises:
            OSError: the log dir cannot be read, or a limit of the kernel is reached.
        """
        watch = self._watch(str(log_dir), _NAMES)
        self._log_dirs[watch] = log_dir  # before its directories: one that is created meanwhile has an event
        try:
            with os.scandir(log_dir) as entries:
                for entry in entries:
                    if TopicPartition.is_directory_name(entry.name):
                        self._watch_directory(log_dir, entry.name)
        except OSError:
            self._log_dirs.pop(watch, None)
            raise

    def close(self) -> None:
        """End the thread and the watches; repeated calls have no effect."""
        if self._thread.is_alive():
            os.write(self._write_end, b"\0")
            self._thread.join()
            for descriptor in (self._inotify, self._end, self._write_end):
                os.close(descriptor)

    def _watch(self, path: str, events: int) -> int:
        return _checked(_LIBC.inotify_add_watch(self._inotify, os.fsencode(path), events))

    def _watch_directory(self, log_dir: Path, name: str) -> None:
        """Watch the directory of a partition, unless it no longer exists or is no directory.

        Raises:
            OSError: a limit of the kernel is reached.
        """
        try:
            watch = self._watch(f"{log_dir}/{name}", _NAMES | _MOVE_SELF | _DONT_FOLLOW)
        except OSError as error:
            if error.errno in LIMITS:
                raise
        else:
            self._directories[watch] = name

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._inotify, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while self._end not in (ready for ready, _ in poll.poll()):
            events, at = os.read(self._inotify, _BUFFER), 0
            while at < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                self._take(watch, mask, os.fsdecode(events[at - length : at].rstrip(b"\0")))

    def _take(self, watch: int, mask: int, name: str) -> None:
        """Pass on one event; `name` is that of a file in the watched directory."""
        if mask & _OVERFLOW:
            log.warning("inotify_queue_overflowed", message="events were lost; a scan follows")
            for watched in self.watched:  # directories may have been created since
                with suppress(OSError):
                    self.watch(watched)
            self._overflowed()
        elif mask & _IGNORED:  # the directory was removed or unmounted
            self._log_dirs.pop(watch, None)
            self._directories.pop(watch, None)
        elif (log_dir := self._log_dirs.get(watch)) is not None:
            if name == HIGH_WATERMARK_CHECKPOINT:
                self._hint_checkpoint(log_dir)
            if mask & _IS_DIR and mask & (_CREATE | _MOVED_TO) and TopicPartition.is_directory_name(name):
                with suppress(OSError):  # scans find what happens there
                    self._watch_directory(log_dir, name)
            self._hint_directory(name)
        elif (directory := self._directories.get(watch)) is not None:
            if mask & _MOVE_SELF:  # the watch follows the directory to its new name
                _LIBC.inotify_rm_watch(self._inotify, watch)
                for watched in self.watched:
                    with suppress(OSError):
                        self._watch_directory(watched, directory)
            self._hint_directory(directory)

    def _hint_directory(self, name: str) -> None:
        partition = TopicPartition.parse(name)
        if partition is not None:
            self._hint(partition)


def _checked(result: int) -> int:
    """Return the result of a call of the C library.

    Raises:
        OSError: the call failed.
    """
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def explained(error: OSError) -> str:
    """Return the error, with what to do at a limit of the kernel."""
    return f"{error}; {LIMITS[error.errno]}" if error.errno in LIMITS else str(error)
