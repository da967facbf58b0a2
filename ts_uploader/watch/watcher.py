"""Watching the log directories: one thread that scans, hinted by inotify.

Watch first, then scan; scan again on a timer and after an overflow of the kernel's queue (protocol rule 11). An event
says only which directory to look at, so one that is missed costs time and nothing else. The high watermark checkpoints
are read when the broker replaces them, and on the timer.
"""

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.inotify import InotifyObserver

from ts_common.model import TopicPartition
from ts_uploader.events import DirectoryGone, Listing, Observation
from ts_uploader.watch.scan import (
    HIGH_WATERMARK_CHECKPOINT,
    list_partition,
    partition_directories,
    read_high_watermarks,
)

log = structlog.get_logger()

# Without appends and closes the kernel's queue hardly ever fills, and ten thousand appends cost nothing.
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
_WATCHDOG_INOTIFY_LOGGER = "watchdog.observers.inotify_c"
# A roll creates four files within a few milliseconds: one look is enough for all of them.
_GATHER_SECONDS = 0.02


class LogDirectoryWatcher:
    """Turns what happens in the log dirs into observations.

    Args:
        log_dirs: as in the broker's own file.
        wanted: whether a topic is shipped.
        emit: takes each observation; called from the watcher's own thread.
        scan_seconds: between two scans of everything.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        wanted: Callable[[str], bool],
        emit: Callable[[Observation], None],
        scan_seconds: float,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._wanted = wanted
        self._emit = emit
        self._scan_seconds = scan_seconds
        self._observer = InotifyObserver()
        self._overflow = _OverflowHandler(self.hint_all)
        self._changed = threading.Condition()
        # Hints that wait for the thread; guarded by the condition.
        self._partitions: set[TopicPartition] = set()
        self._checkpoints: set[Path] = set()
        self._everything = True
        self._stopping = False
        # Where each partition was last seen; the thread's own.
        self._known: dict[TopicPartition, Listing] = {}

    def start_watching(self) -> None:
        """Begin to receive events; `run` scans after that, so nothing falls between.

        Raises:
            OSError: a log dir cannot be watched.
        """
        logging.getLogger(_WATCHDOG_INOTIFY_LOGGER).addHandler(self._overflow)
        for log_dir in self._log_dirs:
            handler = _HintHandler(log_dir, self.hint, self._hint_checkpoint)
            try:
                self._observer.schedule(handler, str(log_dir), recursive=True, event_filter=_EVENTS)
            except PermissionError as error:
                log.error("log dir cannot be watched", log_dir=str(log_dir), error=str(error))
        self._observer.start()

    def run(self) -> None:
        """Scan whenever something is hinted or the timer says so, until `stop`."""
        next_scan = time.monotonic()
        while True:
            with self._changed:
                while not (self._stopping or self._everything or self._partitions or self._checkpoints):
                    patience = next_scan - time.monotonic()
                    if patience <= 0:
                        break
                    self._changed.wait(patience)
                if not self._stopping:
                    self._changed.wait_for(lambda: self._stopping, _GATHER_SECONDS)
                if self._stopping:
                    return
                everything = self._everything or time.monotonic() >= next_scan
                partitions, self._partitions = self._partitions, set()
                checkpoints, self._checkpoints = self._checkpoints, set()
                self._everything = False
            if everything:
                self._scan_everything()
                next_scan = time.monotonic() + self._scan_seconds
            else:
                for partition in partitions:
                    self._scan_partition(partition)
            for log_dir in self._log_dirs if everything else checkpoints:
                self._read_checkpoint(log_dir)

    def stop(self) -> None:
        """End `run` and give the inotify instances back."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        logging.getLogger(_WATCHDOG_INOTIFY_LOGGER).removeHandler(self._overflow)
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    @property
    def watching(self) -> bool:
        """Whether every thread that receives events is alive."""
        return self._observer.is_alive() and all(emitter.is_alive() for emitter in self._observer.emitters)

    def hint(self, partition: TopicPartition) -> None:
        """Look at a partition's directories soon."""
        with self._changed:
            self._partitions.add(partition)
            self._changed.notify()

    def hint_all(self) -> None:
        """Look at everything soon."""
        with self._changed:
            self._everything = True
            self._changed.notify()

    def _hint_checkpoint(self, log_dir: Path) -> None:
        with self._changed:
            self._checkpoints.add(log_dir)
            self._changed.notify()

    def _scan_everything(self) -> None:
        found: dict[TopicPartition, list[tuple[Path, Path]]] = {}
        complete = True
        for log_dir in self._log_dirs:
            try:
                for partition, directory, is_link in partition_directories(log_dir):
                    if not self._wanted(partition.topic):
                        continue
                    if is_link:  # it could lead out of the log dirs
                        log.error(
                            "partition directory is a symbolic link, and is not followed", directory=str(directory)
                        )
                    else:
                        found.setdefault(partition, []).append((directory, log_dir))
            except OSError as error:
                log.error("log dir cannot be read", log_dir=str(log_dir), error=str(error))
                complete = False
        for partition, places in found.items():
            self._look(partition, places)
        if complete:  # of a log dir that cannot be read nothing is known, which is not "gone"
            for partition in self._known.keys() - found.keys():
                self._gone(partition)

    def _scan_partition(self, partition: TopicPartition) -> None:
        if self._wanted(partition.topic):
            places = []
            for log_dir in self._log_dirs:
                directory = log_dir / str(partition)
                try:
                    # Not following links, as the scan of everything does: one could lead out of the log dirs.
                    if stat.S_ISDIR(directory.lstat().st_mode):
                        places.append((directory, log_dir))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    log.error("log dir cannot be read", log_dir=str(log_dir), error=str(error))
                    return  # of a log dir that cannot be read nothing is known, which is not "gone"
            self._look(partition, places)

    def _look(self, partition: TopicPartition, places: list[tuple[Path, Path]]) -> None:
        listings = []
        for directory, log_dir in places:
            try:
                listing = list_partition(partition, directory, log_dir)
            except OSError as error:
                log.error("partition directory cannot be read", directory=str(directory), error=str(error))
                return
            if listing is not None:
                listings.append(listing)
        if not listings:
            self._gone(partition)
        elif len(listings) > 1:
            # Two live directories of one partition: the broker will settle it; guessing could ship the wrong one.
            log.error("partition has two directories", directories=[str(listing.directory) for listing in listings])
        else:
            self._known[partition] = listings[0]
            self._emit(listings[0])

    def _gone(self, partition: TopicPartition) -> None:
        if self._known.pop(partition, None) is not None:
            self._emit(DirectoryGone(partition))

    def _read_checkpoint(self, log_dir: Path) -> None:
        try:
            watermarks = read_high_watermarks(log_dir)
        except OSError as error:
            log.error("high watermark checkpoint cannot be read", log_dir=str(log_dir), error=str(error))
            return
        if watermarks is not None:
            self._emit(watermarks)


class _HintHandler(FileSystemEventHandler):
    """Takes from an event the directory to look at, and nothing else."""

    def __init__(
        self, log_dir: Path, hint: Callable[[TopicPartition], None], hint_checkpoint: Callable[[Path], None]
    ) -> None:
        self._log_dir = log_dir
        self._hint = hint
        self._hint_checkpoint = hint_checkpoint

    def on_any_event(self, event: FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            if not path:
                continue
            parts = Path(os.fsdecode(path)).relative_to(self._log_dir).parts
            if parts == (HIGH_WATERMARK_CHECKPOINT,):
                self._hint_checkpoint(self._log_dir)
            elif parts and (partition := TopicPartition.parse(parts[0])) is not None:
                self._hint(partition)


class _OverflowHandler(logging.Handler):
    """watchdog logs an overflow of the kernel's queue and tells no handler; this hears the log line."""

    def __init__(self, overflowed: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._overflowed = overflowed

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage():
            self._overflowed()
