"""Scans in a process that was forked while threads of its parent held locks: it waits for none of them."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from tests.made_archive import CLUSTER, batches
from tests.reader.archives import ScannedArchive
from ts_common.errors import QueryError
from ts_reader import Archive, Scan
from ts_reader.execution import run, scheduler
from ts_reader.execution.process_pool import POOL

SECONDS = 60  # after which a process that hangs is killed


@pytest.fixture
def scan(archive: ScannedArchive) -> Scan:
    """Return a scan of two partitions of ten records, on two workers."""
    for partition in range(2):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
        archive.commit("t", 10, partition=partition)
    return Archive(archive.location, CLUSTER, workers=2).scan("t")


def status_of(work: Callable[[], bool]) -> int:
    """Return the exit code of a forked process: 0 if `work` returned true there, -14 if it did not end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process hold locks: the subject
        child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own handler would run in this process
        signal.alarm(SECONDS)
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def held(*locks: Any) -> Iterator[None]:
    """Have another thread hold locks."""
    is_held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            is_held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("engine", ["this process", "threads", "processes"])
def test_a_scan_in_a_forked_process_waits_for_no_lock_of_its_parent(
    scan: Scan, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Neither for that of its plan, nor for those of the memory and the workers."""
    if engine == "threads":
        monkeypatch.setattr(run, "_DIRECTORY", "no directory")
    monkeypatch.setattr(run, "PROCESSES_FROM_BYTES", 0 if engine == "processes" else 1 << 60)
    assert scan.to_table().num_rows == 20  # the parent has memory and workers
    again = scan.planned_again()

    def work() -> bool:
        rows = again.to_table().num_rows
        POOL.end()
        return bool(rows == 20)

    with held(again._planned._planning, run.MEMORY._lock, POOL._lock):
        assert status_of(work) == 0
    assert again.to_table().num_rows == 20


def test_a_scan_that_was_begun_before_a_fork_is_continued_where_it_was_begun(
    scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forked process has none of its threads: it raises an error there, and neither its end nor its close waits."""
    monkeypatch.setattr(run, "_DIRECTORY", "no directory")
    with closing(scan.to_batches()) as begun:
        assert next(begun).num_rows == 10
        (running,) = [each for each in scheduler._running if not each._is_stopped]

        def work() -> bool:
            with pytest.raises(QueryError, match="begun before a fork"):
                next(begun)
            begun.close()
            scheduler._end_all()
            return bool(scan.to_table().num_rows == 20)

        with held(running._changed):
            assert status_of(work) == 0
        assert sum(rows.num_rows for rows in begun) == 10
