"""The agent, run once over segments that are closed already, and what its own log says of it."""

import json
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
        seconds: from the first segment taken to the last `.log` object.
        cpu_seconds: of the process, from the first segment taken to the last commit.
        peak_mib: most resident memory, start-up included.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float


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
    config_dir = cluster.directory / name / "conf"
    properties = {
        "storage.service.endpoint.url": url,
        "ts.segment.uploader.kafka.topics.include": topic,
        "ts.segment.uploader.upload.thread.count": str(threads),
    }
    write_config(config_dir, CLUSTER, properties)
    agent = AgentProcess(
        cluster.directory / name,
        cluster.logs,
        config_dir,
        cluster.brokers[1].server_properties,
        CLUSTER,
        environment=environment,
        arguments=("--log-format", "json"),
        name=name,
    )
    wanted = {f"{topic}-{part.partition}": part.end for part in parts if part.logs}

    def all_committed() -> bool:
        if not agent.alive:
            raise ServerDiedError(f"{name} ended before everything was shipped.\n{agent.tail()}")
        committed = {event["partition"]: event["next_offset"] for event in _events(agent.log, "committed")}
        return all(committed.get(partition, -1) >= end for partition, end in wanted.items())

    agent.launch()
    try:
        with ProcessWatch(agent.pid) as watch:
            wait_for(
                all_committed,
                f"{name} to ship {sum(len(part.logs) for part in parts)} segments",
                _SECONDS,
                every=0.1,
                state=agent.tail,
            )
        shipped = _events(agent.log, "shipped")
        began = min(_instant(event) - event["seconds"] for event in shipped)
        ended = max(_instant(event) for event in shipped)
        settled = max(_instant(event) for event in _events(agent.log, "committed"))
        return Cost(ended - began, watch.cpu_seconds(began, settled), watch.peak_mib)
    finally:
        agent.stop()


def _events(log: Path, name: str) -> list[dict[str, Any]]:
    """The log's events of one name; the last line may still be being written."""
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if f'"event": "{name}"' in line and line.endswith("}")]


def _instant(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()
