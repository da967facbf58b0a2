"""Watching the log directories: one thread that scans, hinted by inotify.

Watch first, then scan; scan again on a timer and after an overflow of the kernel's queue (protocol rule 11). An event
says only which directory to look at, so one that is missed costs time and nothing else. The high watermark checkpoints
are read when the broker replaces them, and on the timer.

Of several disks one may have failed: the broker goes on without it, and so does the watcher. What such a log dir holds
is not known, which is not "gone", and it is tried again with every scan.
"""

import errno
import logging
import os
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

from ts_common.errors import OperatorError
from ts_common.model import TopicPartition
from ts_uploader.events import DirectoryGone, HighWatermarks, Listing, Observation, SeveralDirectories
from ts_uploader.log_dirs.directory_scan import (
    HIGH_WATERMARK_CHECKPOINT,
    holds_partition,
    list_partition,
    partition_directories,
    read_high_watermarks,
)
from ts_uploader.log_dirs.last_epoch import EpochReader

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
_LOOKS = 10  # of one directory, until a listing is whole; a gathering lies between two
# What inotify answers at the kernel's own limits, which a user may raise.
_LIMITS = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.EMFILE: "raise fs.inotify.max_user_instances",
}
_NOT_WATCHED = "log_dir_not_watched"
_NOT_READ = "log_dir_unreadable"
_NO_CHECKPOINT = "high_watermark_checkpoint_unreadable"


class LogDirectoryWatcher:
    """Turns what happens in the log dirs into observations.

    Args:
        log_dirs: as in the broker's own file.
        wanted: whether a topic is shipped.
        emit: takes each observation; called from the watcher's own thread.
        scan_seconds: between two scans of everything.
        scanned: told how many seconds each scan of everything took.
        epochs: reads `leader-epoch-checkpoint` files; None: one of its own.

    Attributes:
        overflows: how often the kernel's queue overflowed, so that events were lost.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        wanted: Callable[[str], bool],
        emit: Callable[[Observation], None],
        scan_seconds: float,
        scanned: Callable[[float], None] = lambda _: None,
        epochs: EpochReader | None = None,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._wanted = wanted
        self._emit = emit
        self._scan_seconds = scan_seconds
        self._observer: InotifyObserver | None = None
        self._scanned = scanned
        self.overflows = 0
        self._overflow = _OverflowHandler(self._overflowed)
        self._changed = threading.Condition()
        # Hints that wait for the thread; guarded by the condition.
        self._partitions: set[TopicPartition] = set()
        self._checkpoints: set[Path] = set()
        self._looks: dict[TopicPartition, int] = {}  # how many more at most until a listing is whole
        self._everything = True
        self._stopping = False
        # Where each partition was last seen, and what of each log dir does not work; the thread's own from `run` on.
        self._known: dict[TopicPartition, tuple[Listing, ...]] = {}
        self._epochs = EpochReader() if epochs is None else epochs
        self.looked_at: float | None = None  # when a look began last, by the monotonic clock; others read it
        self._watched: set[Path] = set()
        self._troubles: dict[tuple[str, Path], int] = {}

    def start_watching(self) -> None:
        """Begin to receive events; `run` scans after that, so nothing falls between.

        Raises:
            OperatorError: a limit of inotify is reached, or none of the log dirs can be watched.
        """
        logging.getLogger(_WATCHDOG_INOTIFY_LOGGER).addHandler(self._overflow)
        try:
            self._observer = InotifyObserver()
        except OSError as error:
            raise OperatorError(f"the log dirs cannot be watched: {_explained(error)}") from error
        self._observer.start()
        failed = self._watch(self._observer)
        reached = [log_dir for log_dir, error in failed.items() if error.errno in _LIMITS]
        if reached or not self._watched:
            reasons = "; ".join(f"{log_dir}: {_explained(failed[log_dir])}" for log_dir in reached or failed)
            raise OperatorError(f"the log dirs cannot be watched: {reasons}")

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
            self.looked_at = time.monotonic()
            if everything:
                began = time.monotonic()
                self.scan_everything()
                self._scanned(time.monotonic() - began)
                next_scan = time.monotonic() + self._scan_seconds
            else:
                for partition in partitions:
                    self._scan_partition(partition)
            if checkpoints and any(len(listings) > 1 for listings in self._known.values()):
                everything = True  # which of several directories counts is told by all log dirs' checkpoints together
            for log_dir in self._log_dirs if everything else checkpoints:
                self._read_checkpoint(log_dir)

    def stop(self) -> None:
        """End `run` and give the inotify instances back."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        logging.getLogger(_WATCHDOG_INOTIFY_LOGGER).removeHandler(self._overflow)
        if self._observer is not None and self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    @property
    def watching(self) -> bool:
        """Whether every thread that receives events is alive."""
        if self._observer is None or not self._observer.is_alive():
            return False
        # A copy: the watcher's thread adds those of log dirs that could not be watched before.
        return all(emitter.is_alive() for emitter in self._observer.emitters.copy())

    def hint(self, partition: TopicPartition, *, whole: bool = False) -> None:
        """Look at a partition's directories soon.

        Args:
            partition: whose.
            whole: look again, a bounded number of times, until a listing is whole.
        """
        with self._changed:
            self._partitions.add(partition)
            if whole:
                self._looks[partition] = _LOOKS
            self._changed.notify()

    def hint_all(self) -> None:
        """Look at everything soon."""
        with self._changed:
            self._everything = True
            self._changed.notify()

    def _overflowed(self) -> None:
        with self._changed:
            self.overflows += 1
        self.hint_all()

    def _hint_checkpoint(self, log_dir: Path) -> None:
        with self._changed:
            self._checkpoints.add(log_dir)
            self._changed.notify()

    def _watch(self, observer: InotifyObserver) -> dict[Path, OSError]:
        """Watch the log dirs that are not watched yet; those that cannot be, and why."""
        failed = {}
        for log_dir in self._log_dirs:
            if log_dir in self._watched:
                continue
            try:
                os.scandir(log_dir).close()  # watchdog passes over a refusal in silence
                handler = _HintHandler(log_dir, self.hint, self._hint_checkpoint)
                observer.schedule(handler, str(log_dir), recursive=True, event_filter=_EVENTS)
            except OSError as error:
                failed[log_dir] = error
            else:
                self._watched.add(log_dir)
            self._report(_NOT_WATCHED, log_dir, failed.get(log_dir))
        return failed

    def scan_everything(self) -> None:
        """List every partition; for the thread in `run`, or before it runs."""
        if self._observer is not None:
            self._watch(self._observer)  # even at a limit the agent goes on: events are hints
        found: dict[TopicPartition, list[Path]] = {}
        complete = True
        for log_dir in self._log_dirs:
            try:
                for partition, is_link in partition_directories(log_dir):
                    if not self._wanted(partition.topic):
                        continue
                    if is_link:  # it could lead out of the log dirs
                        link = str(log_dir / str(partition))
                        log.error("partition_directory_is_symlink", message="not followed", directory=link)
                    else:
                        found.setdefault(partition, []).append(log_dir)
            except OSError as error:
                self._report(_NOT_READ, log_dir, error)
                complete = False
            else:
                self._report(_NOT_READ, log_dir, None)
        for partition, places in found.items():
            self._look(partition, places, complete=complete, everything=True)
        for partition in self._known.keys() - found.keys():
            if complete or not self._wanted(partition.topic):
                self._gone(partition)
        self._epochs.keep({str(listing.directory) for listings in self._known.values() for listing in listings})

    def _scan_partition(self, partition: TopicPartition) -> None:
        if not self._wanted(partition.topic):
            return
        places, complete = [], True
        for log_dir in self._log_dirs:
            try:
                if holds_partition(log_dir, partition):
                    places.append(log_dir)
            except OSError as error:
                self._report(_NOT_READ, log_dir, error)
                complete = False
        self._look(partition, places, complete=complete)

    def _look(
        self,
        partition: TopicPartition,
        places: Sequence[Path],
        *,
        complete: bool,
        everything: bool = False,
    ) -> None:
        """List a partition's directories.

        Args:
            partition: whose.
            places: the log dirs that hold one.
            complete: all log dirs could be read, so there are no other places.
            everything: it is one look of a scan of everything.
        """
        self.looked_at = time.monotonic()
        listings = []
        known = {listing.log_dir: listing for listing in self._known.get(partition, ())}
        for log_dir in places:
            earlier = known.get(log_dir)
            directory = log_dir / str(partition) if earlier is None else earlier.directory
            try:
                listing = list_partition(partition, directory, log_dir, self._epochs, earlier)
            except OSError as error:
                log.error("partition_directory_unreadable", directory=str(directory), error=str(error))
                complete = False
                continue
            except Exception as error:
                log.exception("internal_error", message="please report it", directory=str(directory), error=str(error))
                complete = False
                continue
            if listing is not None:
                listings.append(listing)
        if not listings:
            if complete:
                self._gone(partition)
            return
        self._known[partition] = tuple(listings)
        if len(listings) == 1:
            self._emit(listings[0])
            self._look_again(listings[0], changed=everything and bool(known))
            return
        if list(known) != [listing.log_dir for listing in listings]:  # once: it may last for days
            directories = [str(listing.directory) for listing in listings]
            log.warning("partition_has_several_directories", directories=directories)
        self._emit(SeveralDirectories(partition, tuple(listings)))

    def _look_again(self, listing: Listing, *, changed: bool) -> None:
        """See to whole listings where they are asked for, and once a scan of a directory that changes all the time.

        A log cleaner that never rests changes a directory before each look that an event leads to.
        """
        with self._changed:
            left = self._looks.pop(listing.partition, _LOOKS if changed else 0)
            if left and not listing.whole:
                self._looks[listing.partition] = left - 1
                self._partitions.add(listing.partition)

    def _gone(self, partition: TopicPartition) -> None:
        with self._changed:
            self._looks.pop(partition, None)
        if self._known.pop(partition, None) is not None:
            self._emit(DirectoryGone(partition))

    def _read_checkpoint(self, log_dir: Path) -> None:
        try:
            watermarks = read_high_watermarks(log_dir)
        except OSError as error:
            self._report(_NO_CHECKPOINT, log_dir, error)
            watermarks = HighWatermarks(log_dir, None, None)
        except Exception as error:
            log.exception(
                "internal_error",
                message="please report it",
                log_dir=str(log_dir),
                file=HIGH_WATERMARK_CHECKPOINT,
                error=str(error),
            )
            watermarks = HighWatermarks(log_dir, None, None)
        else:
            self._report(_NO_CHECKPOINT, log_dir, None)
        self._emit(watermarks)

    def _report(self, trouble: str, log_dir: Path, error: OSError | None) -> None:
        """Say once that something does not work, and once that it does again: a failed disk may stay for days."""
        before = self._troubles.pop((trouble, log_dir), None)
        if error is not None:
            self._troubles[trouble, log_dir] = error.errno or -1
            if before != self._troubles[trouble, log_dir]:
                log.error(trouble, log_dir=str(log_dir), error=_explained(error))
        elif before is not None:
            log.info("log_dir_recovered", log_dir=str(log_dir), trouble=trouble)


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


def _explained(error: OSError) -> str:
    return f"{error}; {_LIMITS[error.errno]}" if error.errno in _LIMITS else str(error)


class _OverflowHandler(logging.Handler):
    """watchdog logs an overflow of the kernel's queue and tells no handler; this hears the log line."""

    def __init__(self, overflowed: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._overflowed = overflowed

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage():
            self._overflowed()
