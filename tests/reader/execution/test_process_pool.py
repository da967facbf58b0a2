"""Worker processes: the rows of this process, memory that is used again only when it is free, faults, ends."""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from dev.local.waiting import wait_for
from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER
from tests.matrix import cases
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import SHAPES, SOME_SHAPES, fill, rows_of, scanned
from ts_common.errors import CorruptData, StoreUnavailable
from ts_reader import Archive, Scan
from ts_reader.execution import run
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.process_pool import POOL, ProcessPool, WorkerProcess, run_in_worker
from ts_reader.options.given import Option
from ts_reader.options.value_types import whole

SEGMENTS = 60
RECORDS = 20


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> ScannedArchive:
    """Return an archive with every shape of batch, and `many`: two partitions of many segments, a batch each."""
    made = ScannedArchive(tmp_path_factory.mktemp("shapes") / "store")
    fill(made)
    for partition in range(2):
        for base in range(0, SEGMENTS * RECORDS, RECORDS):
            records = [
                record(delta, b"%d" % (base + delta), b"%07d" % (base + delta) * (1 + delta), [(b"h", b"%d" % base)])
                for delta in range(RECORDS)
            ]
            made.put_segment("many", base, batch(base, records), partition=partition)
        made.commit("many", SEGMENTS * RECORDS, partition=partition, highest_base=(SEGMENTS - 1) * RECORDS)
    return made


@pytest.fixture(autouse=True)
def _processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every scan of several splits use worker processes."""
    monkeypatch.setattr(run, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr("ts_reader.archive.structlog.is_configured", lambda: True)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the memory limit of a scan whose batches hardly wait, so that workers continue as batches are read."""
    monkeypatch.setattr("ts_reader.archive.MEMORY_LIMIT", Option("memory_limit", whole(1), 1))
    monkeypatch.setattr(run, "_WORKER_BYTES", 1000)
    return {"memory_limit": 2600}


def scan_of(shapes: ScannedArchive, topic: Any, **arguments: Any) -> Scan:
    """Return a scan on two worker processes."""
    return Archive(shapes.location, CLUSTER, workers=2).scan(topic, **arguments)


def workers() -> list[psutil.Process]:
    """Return the worker processes of this process."""
    return [psutil.Process(worker._process.pid) for worker in POOL._all]


@pytest.mark.parametrize("name", cases(SHAPES, quick=SOME_SHAPES))
def test_rows_of_workers_equal_those_of_this_process(shapes: ScannedArchive, name: str) -> None:
    """For every shape of batch, with the same types; and two workers are enough for all of them."""
    topic, arguments = scanned(name)
    with capture_logs():
        expected = shapes.scan(topic, **arguments).to_table()
        for _ in range(2):
            found = scan_of(shapes, topic, **arguments).to_table()
            found.validate(full=True)
            assert found.schema == expected.schema
            assert rows_of(found) == rows_of(expected)
    assert len(workers()) == 2


def test_offsets_of_a_partition_ascend(shapes: ScannedArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if several workers read its splits."""
    monkeypatch.setattr("ts_reader.arguments._PACKED_BYTES", 20_000)
    scan = scan_of(shapes, "many", columns=["partition", "offset"])
    assert len(scan._planned.plan.splits) > 6
    table = scan.to_table()
    for partition in range(2):
        offsets = [row["offset"] for row in table.to_pylist() if row["partition"] == partition]
        assert offsets == list(range(SEGMENTS * RECORDS))


def all_idle() -> None:
    """Wait until no worker reads; a scan that was closed does not wait for its workers."""
    wait_for(lambda: len(POOL._idle) == len(POOL._all), "all workers are idle")


def values_of(batches: list[pa.RecordBatch]) -> list[list[dict[str, Any]]]:
    return [one.to_pylist() for one in batches]


def test_batches_that_are_held_never_change(shapes: ScannedArchive, small: dict[str, int]) -> None:
    """All of a long scan, or some of them while the memory of the others is used again."""
    scan = scan_of(shapes, "many", include_headers=True, **small)
    then: list[list[dict[str, Any]]] = []
    held = []
    for one in scan:
        held.append(one)
        then.append(one.to_pylist())
    assert len(held) == 2 * SEGMENTS
    some, some_then = [], []
    for number, one in enumerate(scan):
        if number % 4 == 0:
            some.append(one.slice(3, 5))
            some_then.append(some[-1].to_pylist())
    del one
    assert scan_of(shapes, "many").to_table().num_rows == 2 * SEGMENTS * RECORDS
    assert values_of(held) == then
    assert values_of(some) == some_then
    assert rows_of(pa.Table.from_batches(held)) == rows_of(shapes.scan("many", include_headers=True).to_table())


def test_a_scan_that_is_closed_early_leaves_its_workers_ready(shapes: ScannedArchive, small: dict[str, int]) -> None:
    """Nothing of it reaches the next one, wherever it was closed."""
    expected = rows_of(shapes.scan("many").to_table())
    for count in (0, 3, 50):
        with closing(scan_of(shapes, "many", **small).to_batches()) as batches:
            for _ in range(count):
                next(batches)
        left = scan_of(shapes, "fields", **small).to_reader()
        left.read_next_batch()
        del left
        assert rows_of(scan_of(shapes, "many", **small).to_table()) == expected
        all_idle()
    assert len(workers()) <= 6  # of three scans; two may have been about to stop


def test_scans_at_the_same_time_are_independent(shapes: ScannedArchive, small: dict[str, int]) -> None:
    """Each has workers of its own."""
    scan = scan_of(shapes, "many", columns=["partition", "offset", "value"], **small)
    pairs = list(zip(scan.to_batches(), scan.to_batches(), strict=True))
    first, second = (pa.Table.from_batches(list(batches)) for batches in zip(*pairs, strict=True))
    assert rows_of(first) == rows_of(second) == rows_of(shapes.scan("many", columns=first.column_names).to_table())


def kill_workers() -> set[int]:
    """Kill all workers; return their ids."""
    killed = list(POOL._all)
    for worker in killed:
        worker._process.kill()
    wait_for(lambda: all(worker.has_ended for worker in killed), "all workers are dead")
    return {worker._process.pid for worker in killed}


def test_a_worker_that_was_killed_is_named_or_replaced(shapes: ScannedArchive, small: dict[str, int]) -> None:
    """While it reads, the scan ends with an error that names the way out. The next scan starts others."""
    all_idle()
    scan = scan_of(shapes, "many", **small)
    expected = rows_of(scan.to_table())
    batches = scan.to_batches()
    next(batches)
    killed = kill_workers()
    with pytest.raises(StoreUnavailable, match=r"ended with status -9; .* smaller memory_limit .*Run the scan again"):
        list(batches)
    batches.close()
    all_idle()
    assert rows_of(scan.to_table()) == expected
    all_idle()
    descriptors = len(os.listdir("/proc/self/fd"))
    killed |= kill_workers()  # now they are idle
    assert rows_of(scan.to_table()) == expected
    assert not killed & {worker.pid for worker in workers()}
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_changed_environment_gets_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker would open stores with the credentials that it was started with."""
    pool = ProcessPool()
    try:
        first = pool.take()
        pool.give_back(first)
        monkeypatch.setenv("AWS_PROFILE", "another")
        second = pool.take()
        assert second is not first
        assert first.has_ended
        pool.give_back(second)
        assert pool.take() is second
    finally:
        pool.end()


def test_r04_damage_has_the_error_of_this_process(shapes: ScannedArchive) -> None:
    """The class and the message."""
    raised = []
    for scan in (shapes.scan("damaged"), scan_of(shapes, "damaged")):
        with pytest.raises(CorruptData) as caught:
            scan.to_table()
        raised.append(str(caught.value).replace("damaged-1", "damaged-0"))
    assert raised[0] == raised[1]
    assert scan_of(shapes, "fields").to_table().num_rows == 200


def test_a_task_runs_in_a_worker() -> None:
    """Its value is returned, its error raised, and the worker is ready for the next one."""
    pid = run_in_worker(os.getpid)
    assert pid != os.getpid()
    with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
        run_in_worker(partial(int, "x"))
    assert run_in_worker(os.getpid) != os.getpid()


def test_a_worker_loads_no_package_only_because_it_is_installed() -> None:
    """pyarrow would import pandas, and structlog rich."""
    loaded = run_in_worker(partial(eval, "{*__import__('sys').modules} & {'numpy', 'pyarrow', 'pandas', 'rich'}"))
    assert loaded == {"numpy", "pyarrow"}


def test_a_task_whose_worker_is_killed_reports_it() -> None:
    """And what may have killed it."""
    with pytest.raises(StoreUnavailable, match="worker process ended with status -9"):
        run_in_worker(partial(signal.raise_signal, signal.SIGKILL))


def test_log_events_of_workers_are_logged_here(shapes: ScannedArchive) -> None:
    """With their level and their facts, as in one process."""
    found = []
    for scan in (shapes.scan("damaged", mode="DROPMALFORMED"), scan_of(shapes, "damaged", mode="DROPMALFORMED")):
        with capture_logs() as logs:
            scan.to_table()
        found.append(sorted(logs, key=lambda entry: str(entry["key"])))
    assert [dict(entry) for entry in found[0]] == [dict(entry) for entry in found[1]]
    assert len(found[0]) == 2


def test_the_current_directory_has_no_modules_of_a_worker(
    shapes: ScannedArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the analyst may have the name of a module."""
    for name in ("numpy", "pyarrow", "ts_common", "select"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(5)\n")
    monkeypatch.chdir(tmp_path)
    split, *_ = scan_of(shapes, "fields")._planned.plan.splits
    worker = WorkerProcess()
    try:
        rows = sum(one.num_rows for one in worker.read(split, Columns(["offset"])))
    finally:
        worker.kill()
    assert rows == 100


def test_a_pool_that_has_ended_starts_no_worker() -> None:
    """A thread of a scan may still want one while the interpreter ends."""
    pool = ProcessPool()
    worker = pool.take()
    assert is_alive(worker._process.pid)
    pool.end()
    with pytest.raises(StoreUnavailable, match="while the interpreter ends"):
        pool.take()
    assert not is_alive(worker._process.pid)


def test_no_more_workers_are_kept_than_a_machine_can_use(shapes: ScannedArchive) -> None:
    """The others end with their scan; batches that a consumer holds stay."""
    assert POOL._most_idle == len(os.sched_getaffinity(0))
    split, *_ = scan_of(shapes, "fields")._planned.plan.splits
    pool = ProcessPool(most_idle=1)
    try:
        first, second = pool.take(), pool.take()
        found = list(second.read(split, Columns(["offset"])))
        then = values_of(found)
        pool.give_back(first)
        pool.give_back(second)
        assert (pool._idle, pool._all) == ([first], {first})
        assert [first.has_ended, second.has_ended] == [False, True]
        assert values_of(found) == then
    finally:
        pool.end()


def test_a_worker_ends_with_the_socket_of_its_reader() -> None:
    """Also if the reader's process was killed and could not end it."""
    worker = WorkerProcess()
    worker._channel.close()
    wait_for(lambda: worker.has_ended, "the worker has ended")
    worker.kill()


def memory_of(process: psutil.Process) -> int:
    """Return the bytes of a process, shared memory that it has touched included."""
    return int(process.memory_info().rss)


@pytest.mark.full
def test_the_memory_of_a_worker_stays_bounded(shapes: ScannedArchive) -> None:
    """Over many scans of large and small records, some of them left early."""

    def scans(count: int) -> None:
        for number in range(count):
            scan = scan_of(shapes, ["large", "many"][number % 2], include_headers=True)
            with closing(scan.to_batches()) as batches:
                for place, _ in enumerate(batches):
                    if number % 5 == 0 and place == 3:
                        break
            all_idle()
        gc.collect()

    scans(12)
    before = {worker.pid: memory_of(worker) for worker in workers()}
    scans(16)
    after = {worker.pid: memory_of(worker) for worker in workers()}
    assert set(after) == set(before)
    assert max(after[pid] - before[pid] for pid in before) < 40 << 20


def test_no_descriptor_is_left_open(shapes: ScannedArchive) -> None:
    """Neither of shared memory nor of messages, also while batches are held."""
    scan_of(shapes, "many").to_table()
    before = len(os.listdir("/proc/self/fd"))
    held = [scan_of(shapes, "many").to_table() for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) <= before  # a pipe of an earlier test may be closed meanwhile
    assert held[0].num_rows == 2 * SEGMENTS * RECORDS


def test_a_forked_process_has_workers_of_its_own(shapes: ScannedArchive) -> None:
    """It drops copies of its parent's batches, and ends its own workers; the parent's batches and workers stay."""
    scan = scan_of(shapes, "many")
    held = list(scan)
    then = values_of(held)
    mine = {worker.pid for worker in workers()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process may hold locks
        child = os.fork()
    if not child:
        held.clear()
        gc.collect()
        has_idle, other = bool(POOL._idle), POOL.take()
        POOL.end()
        os._exit(1 if has_idle or other._process.pid in mine else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert {worker.pid for worker in workers()} == mine
    assert scan.to_table().num_rows == 2 * SEGMENTS * RECORDS
    assert values_of(held) == then


INTERRUPTED = """
import os, signal, sys
import ts_reader.archive, ts_reader.arguments
from ts_reader.execution import process_pool, run
from ts_reader.options.given import Option
from ts_reader.options.value_types import whole
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
location, moment = sys.argv[1:]
ts_reader.archive.MEMORY_LIMIT = Option("memory_limit", whole(1), 1)
run._WORKER_BYTES, run.PROCESSES_FROM_BYTES = 1000, 0
if moment == "starting":
    process_pool.POOL.give_back(process_pool.POOL.take())
batches = ts_reader.Archive(location, "prod", workers=2).scan("many", memory_limit=2600).to_batches()
if moment != "starting":
    next(batches)
pids = [worker._process.pid for worker in process_pool.POOL._all]
if moment == "waiting":  # for workers that do not answer
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
print(*pids, flush=True)
if moment == "waiting":
    for _ in batches:
        pass
signal.pause()
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Return a list of processes that are killed after the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("moment", cases(["starting", "waiting", "reading"], quick=["waiting"]))
def test_an_interrupt_ends_a_scan_at_once(
    shapes: ScannedArchive, started: list[subprocess.Popen[str]], moment: str
) -> None:
    """Ctrl-C reaches the process group: one traceback of KeyboardInterrupt, and no worker is left."""
    command = [sys.executable, "-c", INTERRUPTED, shapes.location, moment]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    started.append(process)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert pids
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begun < 20
    assert process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert errors.count("Traceback") == 1
    wait_for(lambda: not any(map(is_alive, pids)), "no worker is left")


def test_an_interrupt_while_a_batch_is_released_ends_a_scan(shapes: ScannedArchive) -> None:
    """A destructor cannot raise it, so Ctrl-C was lost, and the scan continued."""
    releasing = """
from ts_reader.execution import shared_memory
write = shared_memory.ReleasePipe.write
def interrupted(pipe, lease):
    shared_memory.ReleasePipe.write = write
    signal.raise_signal(signal.SIGINT)
    write(pipe, lease)
shared_memory.ReleasePipe.write = interrupted
for _ in batches:
    pass
"""
    command = [sys.executable, "-c", INTERRUPTED.replace("signal.pause()", releasing), shapes.location, "reading"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == -signal.SIGINT
    assert process.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "Exception ignored" not in process.stderr


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
