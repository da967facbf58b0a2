"""`python -m dev.bench.latency`: the time from a segment's roll until its records are visible in the store.

One broker in ZooKeeper mode with Kafka's default interval between high watermark checkpoints, 5 s, and a topic of 100
partitions. Each second, ten of them receive as much as a segment contains, so that each rolls one. A segment is rolled
when the next one's `.log` file is created (statx, read at the end of the run). It is visible when `offset.wm` in the
store covers it. Commits of partitions with pending segments are read every 0.2 s by conditional GETs. So times are late
by at most that interval and one sweep, and never early. The wait for the first checkpoint after the roll, and the
agent's time after it, are printed too.

The goal: p99 below the checkpoint interval plus 2 s. Exits with 1 if it is missed; `--no-gate` only prints.
"""

import argparse
import http.client
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.bench.measuring.agent_runs import CLUSTER, AgentLog, bench_agent, wait_committed
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table, quantile
from dev.bench.measuring.records import json_value, key
from dev.bench.measuring.topics import closed_parts
from dev.local.kafka.cluster import LocalCluster
from dev.local.ports import LOOPBACK
from dev.local.stores.s3 import S3Server
from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition

TOPIC = "bench"
BUCKET = "bench"
PREFIX = "latency"
BEYOND_SECONDS = 2.0
CHECKPOINT_MS = 5_000  # Kafka's default
SEGMENT_BYTES = 64 << 10
RECORDS_A_TURN = 205  # of 300 bytes and their overhead: a segment of 64 KiB, four batches
SWEEP_SECONDS = 0.2
_DRAIN_SECONDS = 60.0
_CHECKPOINT = "replication-offset-checkpoint"


@dataclass(frozen=True)
class Roll:
    """One closed segment.

    Attributes:
        rolled: when the next segment's `.log` was created.
        checkpoint: when the broker wrote the first checkpoint after that; None if no checkpoint was seen.
        visible: when the store's commit covered it.
    """

    rolled: float
    checkpoint: float | None
    visible: float


class CommitPoll:
    """Reads commits over one connection, each with a condition on the last ETag."""

    def __init__(self, s3: S3Server, partitions: int) -> None:
        keys = ClusterKeys(CLUSTER)
        self._keys = [f"{PREFIX}/{keys.partition(TopicPartition(TOPIC, n)).commit}" for n in range(partitions)]
        client = s3.client()
        self._paths = [
            client.generate_presigned_url(
                "get_object", Params={"Bucket": BUCKET, "Key": name}, ExpiresIn=7 * 24 * 3600
            ).removeprefix(s3.endpoint)
            for name in self._keys
        ]
        client.close()
        self._connection = http.client.HTTPConnection(LOOPBACK, s3.port, timeout=30)
        self._etags: dict[int, str] = {}
        self.next_offsets = [0] * partitions

    def ask(self, partition: int) -> bool:
        """Read a commit; return whether it changed. `next_offsets` then has its next offset.

        Raises:
            RuntimeError: the store returned an error, or a commit that no agent wrote.
        """
        etag = self._etags.get(partition)
        headers = {} if etag is None else {"If-None-Match": etag}
        self._connection.request("GET", self._paths[partition], headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status in {http.client.NOT_MODIFIED, http.client.NOT_FOUND}:
            return False
        if answer.status != http.client.OK:
            raise RuntimeError(f"{self._keys[partition]}: the store returned {answer.status}: {body[:200]!r}")
        commit = decode_commit(body, self._keys[partition])
        if not isinstance(commit, Commit):
            raise TypeError(f"{self._keys[partition]} is not a commit of the agent")
        self._etags[partition] = answer.headers["ETag"]
        moved = commit.next_offset > self.next_offsets[partition]
        self.next_offsets[partition] = commit.next_offset
        return moved

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Watching:
    """The log dir and the store over the run.

    Args:
        cluster: its broker 1 is written to.
    """

    def __init__(self, cluster: LocalCluster, partitions: int) -> None:
        if cluster.s3 is None:
            raise ValueError("a cluster without an S3 server")
        self._broker = cluster.brokers[1]
        self._directories = [self._broker.partition_directory(TOPIC, number) for number in range(partitions)]
        self._poll = CommitPoll(cluster.s3, partitions)
        self._seen: dict[int, list[tuple[float, int]]] = {number: [] for number in range(partitions)}
        self.checkpoints: set[float] = set()
        self.sweeps: list[float] = []

    def sweep(self) -> int:
        """Read the commit of each partition with pending segments; return how many still have some."""
        began, pending = time.monotonic(), 0
        for partition, directory in enumerate(self._directories):
            active = max(int(path.stem) for path in directory.glob("*.log"))
            if active > self._poll.next_offsets[partition]:
                if self._poll.ask(partition):
                    self._seen[partition].append((time.time(), self._poll.next_offsets[partition]))
                pending += active > self._poll.next_offsets[partition]
        self.checkpoints.add((self._broker.log_dirs[0] / _CHECKPOINT).stat().st_mtime)
        self.sweeps.append(time.monotonic() - began)
        return pending

    def rolls(self, since: float) -> list[Roll]:
        """Return every segment that was rolled after an instant.

        Raises:
            LookupError: a segment never became visible.
        """
        births = born([path for directory in self._directories for path in directory.glob("*.log")])
        checkpoints = sorted(self.checkpoints)
        rolls = []
        for path, rolled in births.items():
            base, partition = int(path.stem), int(path.parent.name.rpartition("-")[2])
            if base == 0 or rolled < since:
                continue
            visible = next((at for at, offset in self._seen[partition] if offset >= base), None)
            if visible is None:
                raise LookupError(f"the segment before {path} never became visible")
            rolls.append(Roll(rolled, next((at for at in checkpoints if at > rolled), None), visible))
        return rolls

    def close(self) -> None:
        """Close the connection to the store."""
        self._poll.close()


def born(files: Sequence[Path]) -> Mapping[Path, float]:
    """Return when each file was created, by statx, which Python 3.11 has no function for.

    Raises:
        RuntimeError: the file system does not store it.
        subprocess.CalledProcessError: a file was removed.
    """
    birth: dict[Path, float] = {}
    for at in range(0, len(files), 1000):
        command = ["stat", "--format=%.9W %n", *map(str, files[at : at + 1000])]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            instant, _, name = line.partition(" ")
            birth[Path(name)] = float(instant)
    if not all(birth.values()):
        raise RuntimeError("this file system does not store when a file was created")
    return birth


def run(cluster: LocalCluster, options: argparse.Namespace) -> tuple[list[Roll], Watching]:
    """Produce and read commits by turns; return the rolls after the warm-up."""
    if cluster.s3 is None:
        raise ValueError("a cluster without an S3 server")
    settings = {"segment.bytes": str(SEGMENT_BYTES), "segment.index.bytes": "4096"}
    cluster.create_topic(TOPIC, partitions=options.partitions, config=settings)
    generator = random.Random(7)
    values = [json_value(generator, number) for number in range(1_000)]
    producer = cluster.producer()

    def turn(number: int) -> None:
        for step in range(options.rolls):
            partition = (number * options.rolls + step) % options.partitions
            for record in range(RECORDS_A_TURN):
                producer.produce(TOPIC, values[record % len(values)], key(record), partition=partition)

    # One segment of each is closed before the agent starts; once they are shipped, the agent is warm.
    for number in range(2 * options.partitions // options.rolls):
        turn(number)
        producer.flush(30)
    environment = cluster.s3.environment()
    url = f"s3://{BUCKET}/{PREFIX}"
    agent = bench_agent(cluster, url, TOPIC, name="agent", threads=options.threads, environment=environment)
    agent.start()
    parts = closed_parts(cluster, TOPIC, range(options.partitions))
    wait_committed(agent, AgentLog(agent.log), {f"{TOPIC}-{part.partition}": part.end for part in parts if part.logs})
    watching = Watching(cluster, options.partitions)
    try:
        began = next_turn = time.monotonic()
        since, turns = time.time(), 0
        while time.monotonic() - began < options.seconds:
            if time.monotonic() >= next_turn:
                turn(turns)
                turns, next_turn = turns + 1, next_turn + 1.0
            swept = time.monotonic()
            watching.sweep()
            producer.poll(0)
            time.sleep(max(0.0, swept + SWEEP_SECONDS - time.monotonic()))
        producer.flush(30)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while watching.sweep() and time.monotonic() < deadline:
            time.sleep(SWEEP_SECONDS)
        return watching.rolls(since), watching
    finally:
        watching.close()
        agent.stop()


def report(rolls: Sequence[Roll], watching: Watching, options: argparse.Namespace) -> int:
    """Print the table and the goal; return 1 if it was missed."""
    seen = [roll for roll in rolls if roll.checkpoint is not None]
    parts = {
        "rolled to visible": [roll.visible - roll.rolled for roll in rolls],
        "rolled to the next checkpoint": [(roll.checkpoint or 0.0) - roll.rolled for roll in seen],
        "checkpoint to visible": [roll.visible - (roll.checkpoint or 0.0) for roll in seen],
    }
    print(
        f"{len(rolls)} segments rolled in {options.seconds} s by {options.rolls} of {options.partitions} partitions a "
        f"second; {options.threads} upload threads; {len(watching.checkpoints)} checkpoints seen;\n"
        f"commits read every {SWEEP_SECONDS} s, longest sweep {max(watching.sweeps):.2f} s"
    )
    rows = [(name, *(quantile(found, at) for at in (0.5, 0.9, 0.99)), max(found)) for name, found in parts.items()]
    print_table(("seconds", "p50", "p90", "p99", "max"), rows)
    print()
    bound = options.checkpoint_ms / 1000 + BEYOND_SECONDS
    found = quantile(parts["rolled to visible"], 0.99)
    return print_goals([Goal("p99 of rolled to visible", found, bound, at_least=False, unit=" s")])


def main() -> int:
    """Run and report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=100)
    arguments.add_argument("--rolls", type=int, default=10, help="partitions that roll each second")
    arguments.add_argument("--seconds", type=int, default=60, help="time of producing, after the agent is warm")
    arguments.add_argument("--threads", type=int, default=3, help="upload threads")
    arguments.add_argument("--checkpoint-ms", type=int, default=CHECKPOINT_MS, help="the broker's checkpoint interval")
    options = arguments.parse_args()
    properties = {"replica.high.watermark.checkpoint.interval.ms": str(options.checkpoint_ms)}
    with LocalCluster(s3=True, buckets=[BUCKET], properties=properties, name="bench") as cluster:
        missed = report(*run(cluster, options), options)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
