"""What the agent is on a broker's host: a reader without rights of its own, and a small one."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from dev.local.cached_pages import cached_pages, uncache
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import CutBefore
from dev.local.proxy.rules import Rule
from dev.local.proxy.s3 import S3FaultProxy
from tests.faults.files import paused
from tests.uploader.beside import BUCKET, PREFIX, Archive, archives
from tests.uploader.log_dirs.page_reader import READER
from tests.uploader.produced import records

SECONDS = 120.0
TOPIC = "guest"
PARTITIONS = 2
THREADS = 4
_EVENT = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name
_CHANGES = {
    "modified": 0x2,
    "attributes": 0x4,
    "written": 0x8,
    "moved from": 0x40,
    "moved to": 0x80,
    "created": 0x100,
    "deleted": 0x200,
}
_OVERFLOW = 0x4000


class Watch:
    """Every change of a directory and of those below it, as the kernel reports it."""

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0
        self._paths = {
            libc.inotify_add_watch(self._descriptor, os.fsencode(path), sum(_CHANGES.values())): path
            for path in (directory, *(path for path in directory.rglob("*") if path.is_dir()))
        }
        assert min(self._paths) > 0

    def changes(self) -> list[str]:
        """What changed since the last call."""
        found = []
        while data := self._read():
            while data:
                watch, mask, _, length = _EVENT.unpack_from(data)
                assert not mask & _OVERFLOW
                name = os.fsdecode(data[_EVENT.size : _EVENT.size + length].rstrip(b"\0"))
                found += [f"{self._paths[watch] / name} {what}" for what, bit in _CHANGES.items() if mask & bit]
                data = data[_EVENT.size + length :]
        return found

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return b""


@contextmanager
def watched(directory: Path) -> Iterator[Watch]:
    watch = Watch(directory)
    try:
        yield watch
    finally:
        watch.close()


@pytest.fixture(scope="module")
def lone() -> Iterator[LocalCluster]:
    """One broker, which is its own controller: its last state stays while it is stopped."""
    with LocalCluster(s3=True, buckets=[BUCKET], properties={"log.segment.bytes": "60000"}, name="guest") as cluster:
        yield cluster


@pytest.fixture
def archive(lone: LocalCluster, tmp_path: Path) -> Iterator[tuple[Archive, S3FaultProxy]]:
    assert lone.s3 is not None
    properties = {PREFIX + "upload.thread.count": str(THREADS)}
    with S3FaultProxy(lone.s3) as proxy, archives(lone, tmp_path) as archive_of:
        yield archive_of(TOPIC, properties=properties, proxy=proxy), proxy


def bounds(threads: int, stores: int) -> tuple[int, int]:
    """The most threads and descriptors, as in docs/deploy.md."""
    return 24 + threads + stores * (threads + 2), 23 + 2 * threads + stores * (3 * threads + 16)


def held(logs: list[Path]) -> dict[Path, int]:
    """Return how many pages of each of these files are cached, if any are."""
    return {log: pages for log in logs if (pages := sum(cached_pages(log)))}


def dropped(logs: list[Path]) -> bool:
    """Drop all pages of these files, and return whether the kernel did: it keeps pages in use."""
    for log in logs:
        uncache(log)
    return not held(logs)


def test_a_user_who_may_only_read_ships_everything_and_changes_nothing(
    lone: LocalCluster, archive: tuple[Archive, S3FaultProxy]
) -> None:
    """The broker is paused, so another process made each change in its log dir; threads and descriptors are few."""
    shipped, proxy = archive
    lone.create_topic(TOPIC, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        lone.produce(TOPIC, records(3_000), partition=partition)
    broker = lone.brokers[1]
    (log_dir,) = broker.log_dirs
    logs = [log for n in range(PARTITIONS) for log in sorted(broker.partition_directory(TOPIC, n).glob("*.log"))[:-1]]
    assert len(logs) > 10 * PARTITIONS
    cut = CutBefore()
    proxy.script(Rule(cut, methods={"PUT"}, target=r"\.log$", times=None))
    agent = shipped.agent(prefix=READER)
    if READER:
        assert psutil.Process(agent.pid).uids().effective == 65534
    # All partitions are known, and their high watermarks: from here on the agent needs nothing more of the broker.
    wait_for(lambda: cut.fired >= 10, "uploads to begin", SECONDS, state=agent.tail)
    gauge = 'ts_uploader_partition_unshipped_segments{{partition="{}",topic="{}"}}'
    wait_for(
        lambda: all(agent.metrics().get(gauge.format(n, TOPIC), 0) > 10 for n in range(PARTITIONS)),
        "the backlog to be known",
        SECONDS,
    )
    process = psutil.Process(agent.pid)
    most_threads = most_descriptors = 0

    def all_shipped() -> bool:
        nonlocal most_threads, most_descriptors
        most_threads = max(most_threads, process.num_threads())
        most_descriptors = max(most_descriptors, process.num_fds())
        return all(
            shipped.next_offset(n) >= max(int(p.stem) for p in broker.partition_directory(TOPIC, n).glob("*.log"))
            for n in range(PARTITIONS)
        )

    with paused(broker), watched(log_dir) as watch:
        # Pages that were cached when the agent opened a file are the broker's, also if it reads them again later.
        with paused(agent):
            opened = {each.readlink() for each in Path(f"/proc/{agent.pid}/fd").iterdir()}
            closed = [log for log in logs if log not in opened]
            wait_for(lambda: dropped(closed), "the kernel to drop all pages", SECONDS)
            proxy.clear()
        assert len(closed) > len(logs) // 2
        wait_for(all_shipped, "everything to be shipped", SECONDS, state=agent.tail)
        assert watch.changes() == []
        # Of fifteen pages each. The agent closes the last files after it has shipped them.
        wait_for(
            lambda: sum(held(closed).values()) <= len(closed),
            "the agent to drop its pages",
            SECONDS,
            state=lambda: held(closed),
        )
        with TemporaryDirectory(dir=log_dir):
            pass
        assert len(watch.changes()) == 2  # it would have been seen
    threads, descriptors = bounds(THREADS, 1)
    assert most_threads <= threads
    assert most_descriptors <= descriptors
    for partition in range(PARTITIONS):
        assert shipped.read(partition) == shipped.oracle(partition, shipped.next_offset(partition))
