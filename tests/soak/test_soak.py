"""The soak: every fault at once, at random, under load, for ten minutes.

`SOAK_SEED=... ` repeats the order and the times of the faults; how they meet the threads of four kinds of servers is
never the same twice. A failed test reports its seed, the timeline, and the last commits of each partition.
"""

import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.local.kafka.cluster import wait_for
from dev.local.oracle import OracleRecord, dump
from tests.archive import read_archive
from tests.soak.gauges import Gauges
from tests.soak.invariants import Invariants
from tests.soak.load import Load, id_of
from tests.soak.runner import FAULTS, Runner, revive
from tests.soak.stage import ASSIGNMENTS, COMPACTED, PARTITIONS, STRICT, UNCLEAN, Stage, staged
from ts_common.model import TopicPartition

_SECONDS = 600
_MORE_SECONDS = 120  # of faults, if the machine is so slow that some have not happened in time
_SPARED = 2  # the broker whose agent is not ended after the first deck


@pytest.mark.timeout(1500)
@pytest.mark.full
def test_every_fault_at_random_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """During the faults nothing readable is wrong; after them everything is readable; the agents stay small."""
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbits(32))
    with staged(tmp_path) as stage:
        load = Load(stage.cluster, PARTITIONS, seed)
        invariants, gauges, runner = Invariants(stage, load.ledger), Gauges(stage), Runner(stage, seed, _SPARED)
        with told(seed, stage, invariants, runner):
            with watched(load, gauges, invariants) as running:
                runner.run(_SECONDS, longest=_SECONDS + _MORE_SECONDS)
                for watch in running:
                    if watch.done():
                        watch.result()
                settle(stage, runner, load)
            assert runner.missing() == []
            for partition in PARTITIONS:
                invariants.check_view(partition)
            compare(stage, load)
            gauges.check()
            check_logs(stage)
        with capsys.disabled():
            sys.stdout.write(f"\n{summary(seed, stage, invariants, runner, load, gauges)}\n")


@contextmanager
def watched(load: Load, gauges: Gauges, invariants: Invariants) -> Iterator["list[Future[None]]"]:
    """Run load, samples and polls in a thread each; raise their exceptions at the end, the invariants' first."""
    watchers = (invariants, gauges, load)
    with ThreadPoolExecutor(len(watchers)) as pool:
        running = [pool.submit(invariants.watch), pool.submit(gauges.watch), pool.submit(load.run)]
        for watch in running:
            watch.add_done_callback(lambda _: invariants.stage.over.set())
        try:
            yield running
        finally:
            for watcher in watchers:
                watcher.stop()
            for watch in running:
                watch.result()


@contextmanager
def told(seed: int, stage: Stage, invariants: Invariants, runner: Runner) -> Iterator[None]:
    """Add what happened before to the report of any failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"SOAK_SEED={seed}; fired: {dict(runner.fired)}")
        error.add_note("\n".join(f"{seconds:8.2f} s  {text}" for seconds, text in list(stage.timeline)))
        for partition, commits in invariants.last.items():
            error.add_note("\n".join([f"last commits of {partition}:", *map(str, commits)]))
        raise


def settle(stage: Stage, runner: Runner, load: Load) -> None:
    """Repair everything; wait until the replicas are in sync and every closed segment is committed."""
    cluster = stage.cluster
    stage.note("all is mended")
    load.stop()
    for partition in PARTITIONS:
        wait_for(
            lambda: cluster.in_sync(partition.topic, partition.partition) == {1, 2},  # noqa: B023
            f"both replicas of {partition} in sync",
            60,
        )

    def shipped(partition: TopicPartition) -> bool:
        revive(stage, runner.resources)
        leader = cluster.leader(partition.topic, partition.partition)
        if leader is None:
            return False
        directory = cluster.brokers[leader].partition_directory(partition.topic, partition.partition)
        active = max(int(path.stem) for path in directory.glob("*.log"))
        return stage.next_offset(partition) >= active

    for partition in PARTITIONS:
        wait_for(lambda: shipped(partition), f"{partition} to be shipped", 120, every=0.2)  # noqa: B023
    stage.note("all is shipped")


def compare(stage: Stage, load: Load) -> None:
    """Compare the archive with Kafka's own consumer, record by record, and both with what was acknowledged."""
    held: dict[TopicPartition, list[OracleRecord]] = {partition: [] for partition in PARTITIONS}
    # In a JVM of its own: the resident one has no room for so many records.
    for record in dump(stage.cluster.bootstrap, tuple(ASSIGNMENTS), line="4"):
        held[TopicPartition(record.topic, record.partition)].append(record)
    for partition, records in held.items():
        end = stage.next_offset(partition)
        assert end > 0, f"{partition}: nothing was shipped"
        below = [record for record in records if record.offset < end]
        if partition.topic != COMPACTED:
            assert read_archive(stage.store, stage.keys, partition) == below, partition
        if partition.topic == STRICT:
            ids = {record.offset: id_of(record.value) for record in records}
            lost = load.ledger.below(partition, sys.maxsize).items() - ids.items()
            assert not lost, f"{partition}: Kafka itself lost what it had acknowledged: {sorted(lost)[:10]}"
            assert load.ledger.unplaced.get(partition, set()) <= set(ids.values())
    compacted = [partition for partition in PARTITIONS if partition.topic == COMPACTED]
    for partition in compacted:
        shown = dict(Invariants(stage, load.ledger).reader.view(partition).rows)
        end = stage.next_offset(partition)
        kept = [record for record in held[partition] if record.offset < end]
        # Another broker's cleaner may have removed more before a segment was shipped, so only the newest of each key
        # counts.
        newest = {record.key: (record.offset, id_of(record.value)) for record in kept}
        assert set(newest.values()) <= shown.items(), f"{partition}: of some keys the newest record is not shown"
        assert len(kept) < end, f"{partition}: nothing was compacted"


def check_logs(stage: Stage) -> None:
    """Check that no thread of an agent failed, and that nothing was lost unless it could be, or could look so."""
    for broker in stage.agents:
        for line in stage.agent_log(broker).splitlines():
            assert "thread_died" not in line, line
            assert "gap_recorded" not in line, line
            # A follower without an epoch that the leader's cleaner emptied looks like one after an election that lost
            # records. `compare` checks that the newest record of each key is shown.
            assert "committed_records_lost" not in line or UNCLEAN in line or COMPACTED in line, line


def summary(seed: int, stage: Stage, invariants: Invariants, runner: Runner, load: Load, gauges: Gauges) -> str:
    """Return what happened, to show that the soak had effects."""
    said: Counter[str] = Counter()
    for broker in stage.agents:
        log = stage.agent_log(broker)
        said.update(
            {text: log.count(text) for text in ("leadership_given_up", "committed_records_lost", "task_failed")}
        )
    objects = [info.key for info in stage.store.list()]
    logs = [key for key in objects if key.endswith(".log")]
    lines = [
        f"SOAK_SEED={seed}: {sum(runner.fired.values())} faults in {stage.timeline[-1][0]:.0f} s",
        *(
            f"  {runner.fired[fault.name]:4}  {fault.name}, first after {runner.first[fault.name]:.0f} s"
            for fault in FAULTS
        ),
        f"{load.ledger.count()} records acknowledged, {load.ledger.failed} not, {load.ledger.fatal} producers replaced",
        f"{len(logs)} segments, {sum('.e' in key.rpartition('/')[2] for key in logs)} of them variants; "
        f"{invariants.commits} commits seen in {invariants.polls} polls, {invariants.views} whole views, "
        f"{invariants.missed} polls unanswered",
        f"agents: {dict(said)}; {gauges.summary()}",
    ]
    return "\n".join(lines)
