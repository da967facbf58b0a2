"""The agent beside a broker, and what its own log says of it.

bench_agent(...)      an agent for one broker of a local cluster, that logs JSON
AgentLog              the events of its log, read as they come
ship_with_agent(...)  one run over segments that are closed already, and its Cost
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.processes import ProcessWatch
from bench.topics import ClosedPart
from ts_local.agent import AgentProcess, write_config
from ts_local.cluster import LocalCluster, wait_for
from ts_local.process import ServerDiedError

CLUSTER = "bench"
_SECONDS = 600.0


@dataclass(frozen=True)
class Cost:
    """What shipping cost.

    Attributes:
        began: when the first segment was taken, as `time.time()` tells it.
        ended: when the last `.log` object was there.
        cpu_seconds: of the process, from the first segment taken to the last commit.
        peak_mib: most resident memory, start-up included.
    """

    began: float
    ended: float
    cpu_seconds: float
    peak_mib: float

    @property
    def seconds(self) -> float:
        """From the first segment taken to the last `.log` object."""
        return self.ended - self.began


class AgentLog:
    """The events of an agent's log, read as far as they are written; each read goes on where the last one ended.

    Args:
        path: of a log with one JSON object a line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def events(self, name: str) -> list[dict[str, Any]]:
        """All events of one name so far, with `at` as `time.time()` would tell it."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                written = file.read()
            whole = written[: written.rfind(b"\n") + 1]  # the last line may still be being written
            self._position += len(whole)
            for line in whole.splitlines():
                if line.startswith(b"{"):
                    event = json.loads(line)
                    event["at"] = datetime.fromisoformat(event["timestamp"]).timestamp()
                    self._events[event["event"]].append(event)
        return self._events[name]

    def next_offsets(self) -> dict[str, int]:
        """How far each partition is committed, by its name."""
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
    """An agent that was not started yet.

    Args:
        cluster: of the broker.
        url: where to ship to.
        topics: regular expressions of those that are shipped.
        name: of the agent's log and directory; another for each.
        broker: beside which it runs.
        threads: of uploads.
        environment: S3's.
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
        WaitTimedOutError: it did not.
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
    """Start an agent on an empty place in the store, wait until all is committed, and end it.

    It waits for leadership and a high watermark checkpoint first; what it uses until it takes the first segment is not
    counted.

    Args:
        cluster: its broker 1 has the files.
        url: where to ship to.
        topic: the only one that is shipped.
        parts: what is closed.
        name: of the agent's log and directory; another for each run.
        threads: of uploads.
        environment: S3's.

    Raises:
        WaitTimedOutError, ServerDiedError: the agent's.
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
