"""The steps of one host: fetch, place, check; each leaves the host's record in the directory of the restore."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ts_common.errors import OperatorError, QueryError, TransientError
from ts_common.model import TopicPartition
from ts_common.store.wrappers.bandwidth import Allowance
from tsctl.archive_options import OpenArchive
from tsctl.durable_files import check_space, disk_errors
from tsctl.restore.chain import read_batches
from tsctl.restore.documents import Done, HostRecord, Staged
from tsctl.restore.fetching import STAGING, STATE, PartitionFetch
from tsctl.restore.hosts import Host, check_placed, place, replica_of, staged, write_checkpoints
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.restore.restore_directory import RestoreDirectory

_THREADS: Final = 4  # partitions that are fetched at once
_INDEX_SHARE: Final = 200  # indexes need less than a part of this size of their segments
_KEPT_SHARE: Final = 20  # such a part of a serving broker's disk stays free: its other topics grow meanwhile
_STOP_SECONDS: Final = 0.1  # between two looks at a broker that stops
_WATCH_SECONDS: Final = 2.0  # between two checks of the cluster until it does

_MOST_MARKER_BYTES: Final = 1 << 20  # of a log that has no record


class _Ended(Exception):
    """Another partition failed, so that this one ends where it is."""


class HostRun:
    """The steps of one host.

    Args:
        directory: with the plan and the records.

    Raises:
        QueryError: the plan has no replica for this broker, or the topics do not exist.
        OperatorError: another user owns the broker's directories.
        CorruptData, NewerFormat: a record is damaged, or of a later release.
    """

    def __init__(self, directory: RestoreDirectory, host: Host) -> None:
        self._directory = directory
        self._host = host
        self._plan_id = directory.plan.plan
        self.partitions: Mapping[TopicPartition, PartitionPlan] = directory.plan.of_broker(host.broker)
        if not self.partitions:
            raise QueryError(f"broker {host.broker}: the plan has no replica for it; it has {directory.plan.brokers}")
        self.places: Mapping[TopicPartition, Path] = host.directories(self.partitions, directory.created())
        self._check_user()

    def fetch(self, archive: OpenArchive, allowance: Allowance, advance: Callable[[int], None]) -> HostRecord:
        """Fetch the files of all replicas, and leave the record.

        Args:
            advance: is called with each number of bytes, from several threads.

        Raises:
            OperatorError: a disk has too little space, or a file cannot be written.
            QueryError: the files are in place already.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        self._check_unchecked()
        self._check_writable()
        if self._host.is_locked:
            raise QueryError(
                f"broker {self._host.broker}: the files are placed, or being placed; continue with `place`"
            )
        self._check_space()
        topics, time_of_markers = self._directory.plan.topics, self._directory.plan.time

        ended = threading.Event()

        def advance_unless_ended(count: int) -> None:
            if ended.is_set():
                raise _Ended
            advance(count)

        def fetch_one(name: TopicPartition) -> Staged:
            fetch = PartitionFetch(
                archive.store_of(name.topic),
                archive.keys.partition(name, topics[name.topic].directory),
                self.partitions[name],
                self._plan_id,
                time_of_markers,
                self.places[name],
                allowance,
                advance_unless_ended,
            )
            try:
                return fetch.run()
            except OSError as error:
                error.filename = error.filename or str(self.places[name])  # a write that found a full disk has no name
                raise

        with disk_errors(), ThreadPoolExecutor(_THREADS, "fetch") as pool:
            fetching = {name: pool.submit(fetch_one, name) for name in self.partitions}
            try:
                states = {name: each.result() for name, each in fetching.items()}
            except BaseException:  # after an error, or Ctrl-C, the others end with their next chunk
                ended.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return self._record(Done.FETCHED, states)

    def wait_until_stopped(self, check: Callable[[int | None], None], note: Callable[[str], None]) -> None:
        """Return once the broker is stopped. No line is printed before it can be stopped without harm to other topics.

        Args:
            check: raises if it cannot; gets the broker's id if it is stopped already, or stops, else None.
            note: is called with a line for the operator.

        Raises:
            QueryError: a host has not fetched its files, this one was checked before, or a producer wrote records.
            Others: of `check`, also if another broker stops while this one runs.
        """
        self._check_unchecked()
        self._check_writable()
        self._directory.check_hosts(Done.FETCHED)
        broker = self._host.broker
        with disk_errors():
            self._check_empty({name: self._staged(name) for name in self.places})
            check(None if self._host.runs else broker)
            if self._host.runs:
                note(f"every replica is in sync: stop broker {broker} cleanly now; its files are placed at once")
            self._watch(check)

    def _watch(self, check: Callable[[int | None], None]) -> None:
        """Return once the broker is stopped; the line that let it stop holds only while `check` does."""
        due = time.monotonic() + _WATCH_SECONDS
        while self._host.runs:
            time.sleep(_STOP_SECONDS)
            if time.monotonic() < due:
                continue
            try:
                check(self._host.broker)
            except TransientError:
                pass  # the broker that answers can be the one that stops
            except QueryError:
                if self._host.runs:
                    raise
            due = time.monotonic() + _WATCH_SECONDS

    def place(self) -> HostRecord:
        """Move the files into place while the broker is stopped, and leave the record; the broker stays locked.

        Raises:
            QueryError: a host has not fetched its files, or the broker runs.
            CorruptData, OperatorError: a file is missing, or cannot be moved.
        """
        self._check_unchecked()
        self._check_writable()
        self._directory.check_hosts(Done.FETCHED)
        states = {name: self._staged(name) for name in self.places}
        with disk_errors(), self._host.stopped():
            self._check_empty(states)
            self._host.lock()
            for name, state in states.items():
                place(self.places[name], state)
            for log_dir in self._host.log_dirs:
                placed = {
                    name: (self.partitions[name], state)
                    for name, state in states.items()
                    if self.places[name].parent == log_dir
                }
                write_checkpoints(log_dir, placed)
            return self._record(Done.PLACED, states)

    def check(self) -> None:
        """Check that all hosts have placed their files and that these are here; then let the broker start.

        A host that was checked before is not checked again: its broker may have new records. If serving brokers are
        restarted one after the other, each has the only replica of its partitions: no other host counts.

        Raises:
            QueryError: a host has not, or replicas differ.
            CorruptData: a file is missing or has another size.
        """
        if not self._directory.plan.restarted:
            self._directory.check_hosts(Done.PLACED)
        with disk_errors():
            if self._host.is_locked:
                with self._host.stopped():
                    for name, directory in self.places.items():
                        state = self._staged(name)
                        check_placed(directory, state)
                        self._check_record(name, state)
                    self._host.unlock()
            for directory in self.places.values():
                if (directory / STAGING).exists():  # a check that was killed has removed some of them
                    shutil.rmtree(directory / STAGING)

    @property
    def damaged(self) -> Iterator[str]:
        """The places of stored segments that were left out, because the old broker's files were damaged there."""
        for name in self.places:
            yield from self._staged(name).damaged

    def _staged(self, name: TopicPartition) -> Staged:
        return staged(self.places[name], self._plan_id, self.partitions[name])

    def _check_unchecked(self) -> None:
        """Check that this host was not checked yet: its broker may have new records."""
        record = self._directory.host(self._host.broker)
        if record is not None and record.done is Done.PLACED and not self._host.is_locked:
            raise QueryError(f"broker {self._host.broker}: this host was checked before; start its broker")

    def _check_record(self, name: TopicPartition, state: Staged) -> None:
        record = self._directory.host(self._host.broker)
        if record is None or record.partitions.get(name) != replica_of(state):
            raise QueryError(
                f"{name}: {self._directory.host_file(self._host.broker)} is of other files than this host has; copy "
                "the record that `tsctl restore place` wrote here"
            )

    def _check_user(self) -> None:
        """Check that this process has the broker's user: the broker must be able to write the files."""
        owner = next(iter(self.places.values())).stat().st_uid
        if owner != os.geteuid():
            raise OperatorError(
                f"the log dirs of broker {self._host.broker} belong to user {owner}, and this process is of user "
                f"{os.geteuid()}; run the command as the broker's user, for example by sudo -u '#{owner}'"
            )

    def _check_writable(self) -> None:
        """Check that this process can leave its record, which it writes after hours."""
        probe = self._directory.path / f".broker-{self._host.broker}"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise OperatorError(
                f"{self._directory.path}: user {os.geteuid()} cannot write the record of this host: {error.strerror}; "
                "let the broker's user write in this directory, and repeat the command"
            ) from error

    def _check_empty(self, states: Mapping[TopicPartition, Staged]) -> None:
        """Check that no replica has records of a producer: these files replace all that is there.

        While other brokers serve, coordinators can have written markers of transactions that had no record there.
        """
        for name, directory in self.places.items():
            left = {path.name for path in (directory / STAGING).iterdir()}
            placed = {entry.name: entry.size for entry in states[name].files if entry.name not in left}
            logs = [path for path in directory.glob("*.log") if path.stat().st_size not in {0, placed.get(path.name)}]
            if logs and not (self._directory.plan.is_served and all(map(_has_only_markers, logs))):
                raise QueryError(
                    f"{directory}: records of {name} are there; the restore would replace them, and stops here"
                )

    def _check_space(self) -> None:
        """Check that each file system has room for what is not fetched yet."""
        needed: dict[int, int] = {}
        path_of: dict[int, Path] = {}
        for name, directory in self.places.items():
            state = Staged.load(directory / STAGING / STATE)
            done = state.steps if state is not None and state.plan == self._plan_id else 0
            left = sum(step.size for step in self.partitions[name].steps[done:])
            device = directory.stat().st_dev
            needed[device] = needed.get(device, 0) + left + left // _INDEX_SHARE
            path_of[device] = directory.parent
        for device, wanted in needed.items():
            advice = "give the broker more log dirs and move partitions there while it is stopped"
            kept = shutil.disk_usage(path_of[device]).total // _KEPT_SHARE if self._directory.plan.restarted else 0
            check_space(path_of[device], wanted + kept, advice)

    def _record(self, done: Done, states: Mapping[TopicPartition, Staged]) -> HostRecord:
        partitions = {name: replica_of(state) for name, state in states.items()}
        record = HostRecord(self._plan_id, self._host.broker, done, int(time.time() * 1000), partitions)
        record.save(self._directory.host_file(self._host.broker))
        return record


def _has_only_markers(log: Path) -> bool:
    if log.stat().st_size > _MOST_MARKER_BYTES:
        return False
    data, damage = log.read_bytes(), list[str]()
    return all(header.is_control for header, _ in read_batches([data], len(data), damage.append)) and not damage
