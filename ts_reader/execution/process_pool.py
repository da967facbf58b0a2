"""Worker processes of this process: started when a scan is large, kept for the next one, ended with this process.

Processes, not threads: around each batch of 16 KiB two threads of one interpreter wait for its lock, and two of them
decode 0.75 to 1.7 times what one decodes; two processes 1.65 to 1.9 times.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar, cast

import pyarrow as pa
import structlog

from ts_common.errors import StoreUnavailable
from ts_common.logs import is_first
from ts_common.store.shared_stores import store_environment
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.shared_memory import MappedBlocks, ReleasePipe, SharedBatch
from ts_reader.execution.worker_messages import (
    Blocks,
    Channel,
    Do,
    Done,
    Logged,
    More,
    PeerGone,
    ReadSplit,
    SplitEnd,
    Stop,
    error_of,
)
from ts_reader.query.splits import Split

_ROOT: Final = str(Path(__file__).parents[2])
_LEVELS: Final = {"warning", "error", "info", "debug", "critical"}

_T = TypeVar("_T")

log = structlog.get_logger("ts_reader")


class WorkerProcess:
    """One worker process; one thread uses it at a time."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
        with there:
            self._process = subprocess.Popen(  # noqa: S603  (this interpreter, with this module)
                # -P: modules of the current directory are not for the worker.
                [sys.executable, "-P", "-m", "ts_reader.execution.worker_start", str(there.fileno()), str(readable)],
                pass_fds=(there.fileno(), readable),
                process_group=0,  # Ctrl-C reaches the reader's process only, which ends this one
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
        os.close(readable)
        self._channel = Channel(here)
        self._blocks = MappedBlocks(ReleasePipe(writable))  # the last batch on it closes the pipe
        self.environment = store_environment()
        self._columns: Columns | None = None  # that the worker has
        self.is_broken = False

    def read(self, split: Split, columns: Columns) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches of a split on the worker's memory; raise what the worker raised.

        Closing the generator waits until the worker has stopped.

        Raises:
            StoreUnavailable: the worker process ended, for instance because the kernel killed it.
        """
        ended = False
        try:
            self._channel.send(ReadSplit(split, None if columns is self._columns else columns))
            self._columns = columns
            while not ended:
                message, descriptors = self._channel.receive()
                match message:
                    case SharedBatch():
                        yield self._blocks.batch(message, columns.schema)
                        self._channel.send(More())
                    case SplitEnd():
                        ended = True
                        if (error := error_of(message)) is not None:
                            raise error
                    case _:
                        self._handle(message, descriptors)
        except PeerGone as error:
            self.is_broken = ended = True
            self._process.wait()
            raise StoreUnavailable(
                f"a worker process of the reader ended with status {self._process.returncode}; -9: the kernel or a "
                "user killed it, perhaps for its memory: a smaller memory_limit starts fewer workers. Run the scan "
                "again"
            ) from error
        finally:
            if not ended:
                self._stop()

    def do(self, task: Callable[[], _T]) -> _T:
        """Return what a task returns in this process.

        Args:
            task: can be pickled, as what it returns.

        Raises:
            StoreUnavailable: the process ended meanwhile.
            what the task raises; of errors of other projects, a `RuntimeError` with their text.
        """
        try:
            self._channel.send(Do(task))
            while True:
                message, descriptors = self._channel.receive()
                match message:
                    case Done(value):
                        return cast("_T", value)
                    case SplitEnd() if (error := error_of(message)) is not None:
                        raise error
                    case _:
                        self._handle(message, descriptors)
        except PeerGone as error:
            self.is_broken = True
            self._process.wait()
            raise StoreUnavailable(
                f"a worker process ended with status {self._process.returncode}; -9: the kernel or a user killed it, "
                "perhaps for its memory: fewer workers need less. Run it again"
            ) from error

    def _stop(self) -> None:
        try:
            self._channel.send(Stop())
            while True:
                message, descriptors = self._channel.receive()
                if isinstance(message, SplitEnd):
                    return
                self._handle(message, descriptors)
        except PeerGone:
            self.is_broken = True

    def _handle(self, message: object, descriptors: Sequence[int]) -> None:
        match message:
            case SharedBatch():
                self._blocks.release(message)
            case Blocks(added, dropped):
                self._blocks.change(added, descriptors, dropped)
            case Logged(level, event, fields) if level in _LEVELS:
                # A worker logs it once. Others of the same scan may have logged it before.
                if "scan" not in fields or is_first((event, fields["scan"], fields.get("topic"))):
                    getattr(log, level)(event, **fields)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def abandon(self) -> None:
        """Close the descriptors of a worker in a forked process: the worker belongs to the parent."""
        self._process.returncode = 0  # else `Popen` warns of a process that still runs
        self._channel.close()

    def kill(self) -> None:
        """End the process at once; it has no state."""
        self._process.kill()
        self._process.wait()
        self._channel.close()


class ProcessPool:
    """Idle worker processes of this process; thread-safe.

    A process that was forked off has none: the workers belong to its parent.

    Args:
        most_idle: the number of workers that are kept for the next scan; None for the number of processors.
    """

    def __init__(self, most_idle: int | None = None) -> None:
        self._most_idle = most_idle or len(os.sched_getaffinity(0))
        self._is_ending: bool | None = None  # None before the first worker; guarded by the lock
        self._all: set[WorkerProcess] = set()  # guarded by the lock
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # Also in a forked process, where a thread of its parent may have held the lock, which nothing would release.
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []  # guarded by the lock
        workers, self._all = self._all, set()
        for worker in workers:
            worker.abandon()

    def take(self) -> WorkerProcess:
        """Return an idle worker, or a new one.

        Raises:
            StoreUnavailable: the interpreter ends.
        """
        while (idle := self._pop_idle()) is not None:
            if not idle.has_ended and idle.environment == store_environment():
                return idle
            # The kernel or a user killed it since the last scan; or it would open stores as another identity.
            idle.is_broken = True
            self.give_back(idle)
        worker = WorkerProcess()
        with self._lock:
            self._all.add(worker)
        return worker

    def _pop_idle(self) -> WorkerProcess | None:
        with self._lock:
            if self._is_ending is None:
                # Called before the threads of scans are stopped, which was registered earlier: they wait for workers.
                atexit.register(self.end)
                self._is_ending = False
            if self._is_ending:
                raise StoreUnavailable("no worker process is started while the interpreter ends")
            return self._idle.pop() if self._idle else None

    def give_back(self, worker: WorkerProcess) -> None:
        """Keep a worker for the next scan, unless it is broken, or enough are idle."""
        with self._lock:
            is_kept = not worker.is_broken and len(self._idle) < self._most_idle
            if is_kept:
                self._idle.append(worker)
        if not is_kept:
            worker.kill()  # the batches of it that a consumer holds stay: their memory is this process's too
            with self._lock:
                self._all.discard(worker)

    def end(self) -> None:
        """Kill all workers of this process, at its end."""
        with self._lock:
            self._is_ending = True
            workers, self._all, self._idle = self._all, set(), []
        for worker in workers:
            worker.kill()


POOL: Final = ProcessPool()


def read_in_worker(split: Split, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a split, read by a worker process of the pool."""
    worker = POOL.take()
    try:
        with closing(worker.read(split, columns)) as batches:
            yield from batches
    finally:
        POOL.give_back(worker)


def run_in_worker(task: Callable[[], _T]) -> _T:
    """Return what a task returns in a worker process of the pool; see `WorkerProcess.do`."""
    worker = POOL.take()
    try:
        return worker.do(task)
    except BaseException:
        worker.is_broken = True  # it may still run the task
        raise
    finally:
        POOL.give_back(worker)
