"""The agent in benchmarks, and the events of its log.

bench_agent(...)      an agent for one broker of a local cluster, that logs JSON
AgentLog              the events of its log, read while it runs
ship_with_agent(...)  one run over closed segments, and its Cost
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dev.bench.measuring.processes import ProcessWatch
from dev.bench.measuring.topics import ClosedPart
from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.process import ServerDiedError

CLUSTER = "bench"
_SECONDS = 600.0


@dataclass(frozen=True)
class Cost:
    """The cost of shipping.

    Attributes:
        began: when shipping of the first segment began, as `time.time()`.
        ended: when the last `.log` object was complete.
        cpu_seconds: of the process, from the first segment to the last commit.
        peak_mib: peak resident memory, start-up included.
    """

    began: float
    ended: float
    cpu_seconds: float
    peak_mib: float

    @property
    def seconds(self) -> float:
        """The seconds from the first segment to the last `.log` object."""
        return self.ended - self.began


class AgentLog:
    """The events of an agent's log so far; each read continues at the end of the previous one.

    Args:
        path: of a log with one JSON object on each line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return all events of one name so far, with `at` in seconds as `time.time()`."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                written = file.read()
            whole = written[: written.rfind(b"\n") + 1]  # the last line may be incomplete
            self._position += len(whole)
            for line in whole.splitlines():
                if line.startswith(b"{"):
                    event = json.loads(line)
                    event["at"] = datetime.fromisoformat(event["timestamp"]).timestamp()
                    self._events[event["event"]].append(event)
        return self._events[name]

    def next_offsets(self) -> dict[str, int]:
        """Return the latest next offset of each partition, by its name."""
        return {event["partition"]: event["next_offset"] for event in self.events("committed")}


def bench_agent(
    cluster: LocalCluster,
    url: str,
    topics: str,
    *,
    name: str,
    broker: int = 1,
    threads: int = 3,
    environment: Mapping[str, str],
    properties: Mapping[str, str] | None = None,
) -> AgentProcess:
    """Return an agent that is not started yet.

    Args:
        url: location of the store.
        topics: regular expressions of the topics to ship.
        name: of the agent's log and directory; unique.
        broker: the broker that it ships for.
        threads: of uploads.
        environment: credentials and endpoint of S3.
        properties: further ones of its configuration.
    """
    config_dir = cluster.directory / name / "conf"
    said = {
        "storage.service.endpoint.url": url,
        "ts.segment.uploader.kafka.topics.include": topics,
        "ts.segment.uploader.upload.thread.count": str(threads),
        **(properties or {}),
    }
    write_config(config_dir, CLUSTER, said)
    return AgentProcess(
        cluster.directory / name,
        cluster.logs,
        config_dir,
        cluster.brokers[broker].server_properties,
        CLUSTER,
        environment=environment,
        arguments=("--log-format", "json"),
        name=name,
    )


def wait_committed(
    agent: AgentProcess, log: AgentLog, wanted: Mapping[str, int], *, seconds: float = _SECONDS, every: float = 0.1
) -> None:
    """Wait until an agent has committed each partition up to an offset.

    Raises:
        WaitTimedOutError: it has not in time.
        ServerDiedError: it ended first.
    """

    def all_committed() -> bool:
        if not agent.alive:
            raise ServerDiedError(f"{agent.name} ended before everything was shipped.\n{agent.tail()}")
        committed = log.next_offsets()
        return all(committed.get(partition, -1) >= end for partition, end in wanted.items())

    what = f"{agent.name} to commit {len(wanted)} partitions"
    wait_for(all_committed, what, seconds, every=every, state=agent.tail)


def ship_with_agent(
    cluster: LocalCluster,
    url: str,
    topic: str,
    parts: Sequence[ClosedPart],
    *,
    name: str,
    threads: int = 3,
    environment: Mapping[str, str],
) -> Cost:
    """Start an agent with an empty prefix in the store, wait until all is committed, and stop it.

    It first waits for leadership and a high watermark checkpoint. Its resources before the first segment do not count.

    Args:
        cluster: its broker 1 has the files.
        url: location of the store.
        topic: the only topic to ship.
        parts: the closed segments.
        name: of the agent's log and directory; unique.
        threads: of uploads.
        environment: credentials and endpoint of S3.

    Raises:
        WaitTimedOutError, ServerDiedError: the agent failed.
    """
    agent = bench_agent(cluster, url, topic, name=name, threads=threads, environment=environment)
    log = AgentLog(agent.log)
    agent.launch()
    try:
        with ProcessWatch(agent.pid) as watch:
            wait_committed(agent, log, {f"{topic}-{part.partition}": part.end for part in parts if part.logs})
        shipped = log.events("segment_shipped")
        began = min(event["at"] - event["seconds"] for event in shipped)
        ended = max(event["at"] for event in shipped)
        settled = max(event["at"] for event in log.events("committed"))
        return Cost(began, ended, watch.cpu_seconds(began, settled), watch.peak_mib)
    finally:
        agent.stop()
