"""Many segments: a backlog behind an unavailable store, an end under load, a long life (faults U15, U22, U23)."""

import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import psutil
import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import Answer, CutBefore, Delay, Hold
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.ends import exit_status
from tests.faults.files import SECONDS, wait_until_said
from tests.faults.store_faults import (
    ANY_TIMES,
    TINY,
    assert_complete,
    assert_view,
    closed,
    ends_of,
    fill,
    kafkas,
    knows,
    puts,
    wait_led,
    wait_shipped,
)
from tests.uploader.beside import BUCKET, Archive
from ts_uploader.agent import STOP_SECONDS
from ts_uploader.tracking.task_selection import SEGMENTS_IN_FLIGHT

FULL = (pytest.mark.full, pytest.mark.timeout(3600))
MIB = 1 << 20
LONG = 900.0


@dataclass(frozen=True)
class Gauges:
    """The resources of an agent's process.

    Attributes:
        resident: bytes.
        descriptors: open files and sockets.
        threads: of the process.
    """

    resident: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, agent: AgentProcess) -> Self:
        """Return the resources now."""
        process = psutil.Process(agent.pid)
        return cls(process.memory_info().rss, process.num_fds(), process.num_threads())


# --- U15 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "down"),
    [
        pytest.param(8, CutBefore, id="48 segments, link cut"),
        pytest.param(500, CutBefore, id="3000 segments, link cut", marks=FULL),
        pytest.param(500, lambda: Answer(503, "ServiceUnavailable"), id="3000 segments, 503", marks=FULL),
    ],
)
def test_u15_u23_what_piled_up_while_the_store_was_down_is_caught_up_with(
    cluster: LocalCluster,
    proxy: S3FaultProxy,
    archive_of: ArchiveOf,
    segments: int,
    down: Callable[[], CutBefore | Answer],
) -> None:
    """Memory and descriptors stay flat; then each partition ships its oldest first, with fairness among partitions."""
    partitions = 6
    topic = f"piled-{segments}-{down().__class__.__name__}"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]] * partitions, config=TINY)
    agent = archive.agent()
    fill(cluster, topic, 2, partitions)
    wait_shipped(archive, ends_of(archive, partitions))
    before, passed = Gauges.of(agent), len(proxy.requests())
    outage = down()
    proxy.script(Rule(outage, times=ANY_TIMES))
    fill(cluster, topic, segments, partitions, start=1000)
    ends = ends_of(archive, partitions)
    assert sum(len(closed(archive, partition)) for partition in range(partitions)) >= segments * partitions
    wait_for(lambda: outage.fired >= 5 * partitions, "every partition to fail a few times", SECONDS)
    piled = Gauges.of(agent)
    assert piled.resident - before.resident < 30 * MIB
    proxy.clear()
    wait_shipped(archive, ends, LONG)
    after = Gauges.of(agent)
    assert after.resident - before.resident < 30 * MIB
    assert after.threads <= before.threads + 2
    assert after.descriptors <= before.descriptors + 16
    assert_order(proxy, passed)
    assert_complete(archive, ends, kafkas(archive, partitions))


@pytest.mark.full
def test_u15_what_piles_up_while_the_store_is_down_is_shown(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf
) -> None:
    """The position cannot be read from the store: the gauges use the last known one, and show the backlog."""
    topic = "piled-and-shown"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    agent = archive.agent()
    fill(cluster, topic, 2)
    ends = ends_of(archive)
    wait_for(lambda: knows(agent, archive, ends), "the first segments to be shipped", SECONDS)
    outage = CutBefore()
    proxy.script(Rule(outage, times=ANY_TIMES))
    fill(cluster, topic, 20, start=1000)
    wait_until_said(agent, "task_failed", "ReadPosition")
    assert outage.fired > 0
    assert archive.next_offset() == ends[0]
    shown = agent.metrics()

    def gauge(name: str) -> float:
        return shown.get(f'ts_uploader_partition_{name}{{partition="0",topic="{topic}"}}', 0)

    assert gauge("unshipped_segments") >= 20
    assert gauge("unshipped_bytes") >= 10_000
    assert gauge("oldest_unshipped_age_seconds") > 0


def assert_order(proxy: S3FaultProxy, passed: int) -> None:
    """Check the logs after this many requests: oldest first by partition, and no partition left out for long.

    If a request of a partition failed, the agent reads the position again after a delay. That does not affect fairness.
    """
    sent: dict[str, list[tuple[int, str]]] = defaultdict(list)
    failed: dict[str, set[int]] = defaultdict(set)
    place = 0
    for request in proxy.requests():
        partition, name = request.path.split("?")[0].split("/")[-2:]
        if request.number < passed:
            continue
        if request.status is None or request.status >= 500:
            failed[partition].add(place)
        elif request.status == 200 and request.method == "PUT" and name.endswith(".log"):
            sent[partition].append((place, name))
            place += 1
    for partition, logs in sent.items():
        for run in unbroken(logs, failed[partition]):
            names = [name for _, name in run]
            # As many as are in flight can change their order on the way.
            ranks = enumerate(sorted(names))
            moved = [name for rank, name in ranks if abs(rank - names.index(name)) > SEGMENTS_IN_FLIGHT]
            assert moved == [], f"{partition} sent {names}"
            # Each has its turn once a round; a round of everything in flight is the cost of scheduling.
            longest = max((later - earlier for (earlier, _), (later, _) in pairwise(run)), default=0)
            assert longest <= 2 * SEGMENTS_IN_FLIGHT * len(sent), f"{partition} waited for {longest} others"


def unbroken(logs: list[tuple[int, str]], failures: set[int]) -> Iterator[list[tuple[int, str]]]:
    """Return the runs of logs, each with its place among all, without a failure of the same partition in between."""
    run = logs[:1]
    for before, log in pairwise(logs):
        if failures & set(range(before[0], log[0] + 1)):
            yield run
            run = []
        run.append(log)
    yield run


# --- U22 ---------------------------------------------------------------------------------------------------------


def unfinished_uploads(archive: Archive) -> list[str]:
    """Return the keys of multipart uploads that were begun and neither completed nor aborted."""
    client = archive.s3.client()
    try:
        found = client.list_multipart_uploads(Bucket=BUCKET, Prefix=archive.location.rpartition("/")[2])
    finally:
        client.close()
    return [upload["Key"] for upload in found.get("Uploads", ())]


@pytest.mark.parametrize(
    "stuck", [False, pytest.param(True, marks=pytest.mark.full)], ids=["slow uploads", "stuck uploads"]
)
def test_u22_sigterm_under_load_ends_in_order(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, stuck: bool
) -> None:
    """Uploads in flight end or are cut off within the deadline, nothing is half done, and a restart completes."""
    partitions = 3
    topic = f"terminated-{stuck}"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]] * partitions, config=TINY)
    fill(cluster, topic, 30 if stuck else 12, partitions)
    slow = Hold() if stuck else Delay(1.0)
    proxy.script(Rule(slow, methods={"PUT"}, target=r"\.log$", times=ANY_TIMES, skip=10))
    agent = archive.agent()
    wait_for(lambda: slow.fired >= 3, "uploads to be in flight", SECONDS)
    under_way = [request for request in puts(proxy, r"\.log$") if request.status is None]
    assert under_way != []
    began = time.monotonic()
    os.kill(agent.pid, signal.SIGTERM)
    assert exit_status(agent, SECONDS) == 0
    took = time.monotonic() - began
    assert took < STOP_SECONDS + 40  # the allowance for a busy machine; a hang ends at the wait above
    text = agent.log.read_text(errors="replace")
    assert "agent_stopping" in text
    assert ("shutdown_timed_out" in text) == stuck
    assert unfinished_uploads(archive) == []
    oracle, ends = kafkas(archive, partitions), ends_of(archive, partitions)
    assert any(archive.next_offset(partition) < end for partition, end in ends.items()), "it was under load"
    assert_view(archive, oracle)
    if not stuck:
        numbers = {request.number for request in under_way}
        wait_for(
            lambda: all(request.finished for request in proxy.requests() if request.number in numbers),
            "what was in flight to end",
            SECONDS,
        )
        finished = [request for request in proxy.requests() if request.number in numbers]
        assert {request.status for request in finished} == {200}, "what had begun was seen through"
    proxy.clear()
    if isinstance(slow, Hold):
        slow.release()
    again = archive.agent()
    wait_for(lambda: knows(again, archive, ends), "the rest to be shipped", SECONDS)
    assert_complete(archive, ends, oracle)
    assert unfinished_uploads(archive) == []


# --- U23 ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("segments", [10_000])
def test_u23_nothing_grows_with_the_segments_that_were_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, segments: int
) -> None:
    """Descriptors, threads and memory stay as after a fifth; the bucket has exactly the catalog's objects."""
    partitions = 4
    topic = f"rolled-{segments}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]] * partitions, config=TINY)
    agent = archive.agent()
    wait_led(agent, partitions)
    fill(cluster, topic, segments // partitions, partitions)
    ends = ends_of(archive, partitions)
    total = Counter({partition: len(closed(archive, partition)) for partition in range(partitions)}).total()
    assert total >= segments

    def shipped() -> float:
        return sum(v for name, v in agent.metrics().items() if name.startswith("ts_uploader_segments_total"))

    taken: list[Gauges] = []

    def done() -> bool:
        count = shipped()
        if count >= total / 5:
            taken.append(Gauges.of(agent))
        return count >= total

    wait_for(done, f"{total} segments to be shipped", 1800, state=shipped, every=0.1)
    assert len(taken) >= 3
    wait_shipped(archive, ends)
    first, *later, last = [*taken, Gauges.of(agent)]
    assert max(gauges.threads for gauges in (*later, last)) <= first.threads + 2
    assert max(gauges.descriptors for gauges in (*later, last)) <= first.descriptors + 16
    assert last.resident - first.resident < 25 * MIB
    assert [value for name, value in agent.metrics().items() if name.startswith("ts_uploader_errors_total")] == []
    assert_complete(archive, ends, kafkas(archive, partitions))
