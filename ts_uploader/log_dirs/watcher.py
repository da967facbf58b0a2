"""Watches the log directories: one thread that scans, hinted by inotify.

It watches first, then scans; it scans again on a timer and after an overflow of the kernel's queue (protocol rule 11).
An event only names a directory to list, so a missed event costs time and nothing else. The high watermark checkpoints
are read when the broker replaces them, and on the timer.

If one of several disks fails, the broker continues without it, and so does the watcher. The content of such a log dir
is unknown, which is not "removed", and each scan tries it again.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from pathlib import Path

import structlog

from ts_common.errors import OperatorError
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.deleted_directories import DeletedDirectories
from ts_uploader.log_dirs.directory_scan import (
    HIGH_WATERMARK_CHECKPOINT,
    CheckpointReader,
    directory_names,
    holds_partition,
    is_unchanged,
    list_partition,
)
from ts_uploader.log_dirs.inotify_hints import LIMITS, InotifyHints, explained
from ts_uploader.messages.observations import DirectoryGone, HighWatermarks, Listing, Observation, SeveralDirectories

log = structlog.get_logger()

# A roll creates four files within a few milliseconds: one listing is enough for all of them.
_GATHER_SECONDS = 0.02
_LOOKS = 10  # listings of one directory until one is whole; `_GATHER_SECONDS` pass between two
_SKIPS = 120  # of so many scans in a row, one lists a directory that did not change
_NOT_WATCHED = "log_dir_not_watched"
_NOT_READ = "log_dir_unreadable"
_NO_CHECKPOINT = "high_watermark_checkpoint_unreadable"


class LogDirectoryWatcher:
    """Turns changes in the log dirs into observations.

    Args:
        log_dirs: as in the broker's own file.
        wanted: returns whether a topic is shipped.
        emit: receives each observation, on the watcher's thread.
        scan_seconds: between two scans of all log dirs.
        scanned: receives the duration of each scan of all log dirs, in seconds.
        checkpoint_seconds: the interval of the broker's high watermark checkpoints.

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
        checkpoint_seconds: float = 5.0,
        unnamed: Callable[[], None] = lambda: None,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._wanted = wanted
        self._emit = emit
        self._scan_seconds = scan_seconds
        self._hints: InotifyHints | None = None
        self._scanned = scanned
        self.overflows = 0
        self._changed = threading.Condition()
        # Hints for the thread; guarded by the condition.
        self._partitions: set[TopicPartition] = set()
        self._checkpoints: set[Path] = set()
        self._looks: dict[TopicPartition, int] = {}  # listings left until one has to be whole
        self._everything = True
        self._stopping = False
        # The last listings of each partition by the name of its directory, which a scan need not parse then, and the
        # errors of each log dir; from `run` on only its thread uses them.
        self._known: dict[str, tuple[Listing, ...]] = {}
        self._several: set[str] = set()  # of these, the names with several listings
        self._deleted = DeletedDirectories(self._log_dirs, wanted, emit, checkpoint_seconds, unnamed)
        self.looked_at: float | None = None  # when the last listing began, by the monotonic clock; read by others
        self._troubles: dict[tuple[str, Path], int] = {}
        self._readers = {log_dir: CheckpointReader(log_dir) for log_dir in self._log_dirs}
        self._scans = 0
        # Partitions that a checkpoint can change with equal entries; replaced by the main loop, never changed.
        self.unsettled: Set[TopicPartition] = frozenset()
        self._links: set[str] = set()  # directories of partitions that are links, as of the last scan

    def start_watching(self) -> None:
        """Begin to receive events; `run` scans after that, so no change is missed.

        Raises:
            OperatorError: a limit of inotify is reached, or none of the log dirs can be watched.
        """
        try:
            self._hints = InotifyHints(self.hint, self._hint_checkpoint, self._overflowed)
        except OSError as error:
            raise OperatorError(f"the log dirs cannot be watched: {explained(error)}") from error
        failed = self._watch(self._hints)
        reached = [log_dir for log_dir, error in failed.items() if error.errno in LIMITS]
        if reached or len(failed) == len(self._log_dirs):
            reasons = "; ".join(f"{log_dir}: {explained(failed[log_dir])}" for log_dir in reached or failed)
            raise OperatorError(f"the log dirs cannot be watched: {reasons}")

    def run(self) -> None:
        """Scan after each hint and on the timer, until `stop`."""
        next_scan = time.monotonic()
        while (hinted := self._wait(next_scan)) is not None:
            everything, partitions, checkpoints = hinted
            self.looked_at = time.monotonic()
            if everything:
                began = time.monotonic()
                self.scan_everything(partitions)
                self._scanned(time.monotonic() - began)
                next_scan = time.monotonic() + self._scan_seconds
            else:
                for partition in partitions:
                    self._scan_partition(partition)
            if checkpoints and self._several:
                everything = True  # the checkpoints of all log dirs decide together which of several directories counts
            for log_dir in self._log_dirs if everything else checkpoints:
                self._read_checkpoint(log_dir)

    def _wait(self, next_scan: float) -> tuple[bool, set[TopicPartition], set[Path]] | None:
        """Wait for hints or for the time of the next scan; return whether to scan everything, and the hints.

        None ends `run`.
        """
        with self._changed:
            while not (self._stopping or self._everything or self._partitions or self._checkpoints):
                timeout = next_scan - time.monotonic()
                if timeout <= 0:
                    break
                self._changed.wait(timeout)
            if not self._stopping:
                self._changed.wait_for(lambda: self._stopping, _GATHER_SECONDS)
            if self._stopping:
                return None
            everything = self._everything or time.monotonic() >= next_scan
            partitions, self._partitions = self._partitions, set()
            checkpoints, self._checkpoints = self._checkpoints, set()
            self._everything = False
            return everything, partitions, checkpoints

    def stop(self) -> None:
        """End `run` and close the inotify instance."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._hints is not None:
            self._hints.close()

    @property
    def watching(self) -> bool:
        """Whether events are received."""
        return self._hints is not None and self._hints.is_alive

    def hint(self, partition: TopicPartition, *, whole: bool = False) -> None:
        """List a partition's directories soon.

        Args:
            whole: list again, a bounded number of times, until a listing is whole.
        """
        with self._changed:
            self._partitions.add(partition)
            if whole:
                self._looks[partition] = _LOOKS
            self._changed.notify()

    def hint_all(self) -> None:
        """Scan all log dirs soon."""
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

    def _watch(self, hints: InotifyHints) -> dict[Path, OSError]:
        """Watch the log dirs that are not watched; return the errors of those that cannot be."""
        failed = {}
        for log_dir in [each for each in self._log_dirs if each not in hints.watched]:
            try:
                hints.watch(log_dir)
            except OSError as error:
                failed[log_dir] = error
            self._report(_NOT_WATCHED, log_dir, failed.get(log_dir))
        return failed

    def scan_everything(self, hinted: Set[TopicPartition] = frozenset()) -> None:
        """List every partition whose directory changed; on the thread of `run`, or before it runs.

        Args:
            hinted: partitions to list in any case.
        """
        self._scans += 1
        if self._hints is not None:
            self._watch(self._hints)  # the agent continues even at a limit: events are only hints
        found: dict[str, tuple[Path, ...]] = {}
        links: set[str] = set()
        wanted = cache(self._wanted)
        complete = True
        for log_dir in self._log_dirs:
            alone = (log_dir,)
            try:
                for name, is_link in directory_names(log_dir):
                    partition = self._partition(name)
                    if partition is None or not wanted(partition.topic):
                        continue
                    if is_link:  # it could lead out of the log dirs
                        links.add(str(log_dir / name))
                    else:
                        found[name] = (*found[name], log_dir) if name in found else alone
            except OSError as error:
                self._report(_NOT_READ, log_dir, error)
                complete = False
            else:
                self._report(_NOT_READ, log_dir, None)
        self._deleted.report(self._known)
        for link in sorted(links - self._links):  # once: it can stay for days
            log.error("partition_directory_is_symlink", message="not followed", directory=link)
        self._links = links if complete else self._links | links
        named = {str(partition) for partition in hinted}
        for name, places in found.items():
            if name in named or not self._is_as_listed(name, places):
                partition = self._partition(name)
                if partition is not None:
                    self._look(partition, places, complete=complete, everything=True)
        for name in self._known.keys() - found.keys():
            partition = self._known[name][0].partition
            if complete or not wanted(partition.topic):
                self._gone(partition)

    def _partition(self, name: str) -> TopicPartition | None:
        """Return the partition of a directory, as `TopicPartition.parse`."""
        known = self._known.get(name)
        return TopicPartition.parse(name) if known is None else known[0].partition

    def _is_as_listed(self, name: str, places: tuple[Path, ...]) -> bool:
        """Return whether a scan may skip a partition: its only directory did not change, and is not in its turn."""
        known = self._known.get(name, ())
        return (
            len(known) == len(places) == 1
            and known[0].log_dir is places[0]
            and (hash(name) + self._scans) % _SKIPS != 0
            and is_unchanged(known[0], f"{places[0]}/{name}")
        )

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
            places: the log dirs that contain one.
            complete: all log dirs could be read, so there are no other directories.
            everything: this listing is part of a scan of all log dirs.
        """
        self.looked_at = time.monotonic()
        name = str(partition)
        known = {listing.log_dir: listing for listing in self._known.get(name, ())}
        listings, failed = self._listings(partition, places, known)
        if failed and known:  # the next scan does not skip it
            self._remember(name, [replace(listing, whole=False) for listing in known.values()])
        if not listings:
            if complete and not failed:
                self._gone(partition)
            return
        if {listing.identity for listing in known.values()} - {listing.identity for listing in listings}:
            self._deleted.report(self._known)
        self._remember(name, listings)
        if len(listings) == 1:
            self._emit(listings[0])
            self._look_again(listings[0], changed=everything and bool(known))
            return
        if list(known) != [listing.log_dir for listing in listings]:  # once: it may last for days
            directories = [str(listing.directory) for listing in listings]
            log.warning("partition_has_several_directories", directories=directories)
        self._emit(SeveralDirectories(partition, tuple(listings)))

    def _remember(self, name: str, listings: Sequence[Listing]) -> None:
        """Keep the last listings of a partition; none of one without a directory."""
        if listings:
            self._known[name] = tuple(listings)
        else:
            self._known.pop(name, None)
        if len(listings) > 1:
            self._several.add(name)
        else:
            self._several.discard(name)

    def _listings(
        self, partition: TopicPartition, places: Sequence[Path], known: Mapping[Path, Listing]
    ) -> tuple[list[Listing], bool]:
        """Return the listings of a partition's directories, and whether one could not be listed."""
        listings, failed = [], False
        for log_dir in places:
            earlier = known.get(log_dir)
            directory = f"{log_dir}/{partition}"
            try:
                listing = list_partition(partition, log_dir, None, earlier)
            except OSError as error:
                log.error("partition_directory_unreadable", directory=directory, error=str(error))
                failed = True
            except Exception as error:
                log.exception("internal_error", message="please report it", directory=directory, error=str(error))
                failed = True
            else:
                listings += [] if listing is None else [listing]
        return listings, failed

    def _look_again(self, listing: Listing, *, changed: bool) -> None:
        """List again until the listing is whole, if that was requested; once a scan if the directory keeps changing.

        A log cleaner that never rests changes a directory before each listing that an event causes.
        """
        with self._changed:
            left = self._looks.pop(listing.partition, _LOOKS if changed else 0)
            if left and not listing.whole:
                self._looks[listing.partition] = left - 1
                self._partitions.add(listing.partition)

    def _gone(self, partition: TopicPartition) -> None:
        with self._changed:
            self._looks.pop(partition, None)
        if str(partition) in self._known:
            self._deleted.report(self._known)
            self._remember(str(partition), ())
            self._emit(DirectoryGone(partition))

    def _read_checkpoint(self, log_dir: Path) -> None:
        try:
            watermarks = self._readers[log_dir].read(self.unsettled)
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
        """Log an error once, and its end once: a failed disk may stay for days."""
        before = self._troubles.pop((trouble, log_dir), None)
        if error is not None:
            self._troubles[trouble, log_dir] = error.errno or -1
            if before != self._troubles[trouble, log_dir]:
                log.error(trouble, log_dir=str(log_dir), error=explained(error))
        elif before is not None:
            log.info("log_dir_recovered", log_dir=str(log_dir), trouble=trouble)
