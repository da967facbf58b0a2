"""The body of `/status.json`, and the facts of `/healthz` that it repeats."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from ts_common.printable import printable_json
from ts_uploader.status.partition_status import Totals
from ts_uploader.status.snapshot import AgentStatus, StatusSnapshot

_TOGETHER = 100  # partitions in one piece of JSON


def health_facts(snapshot: StatusSnapshot) -> dict[str, object]:
    """Return the facts that `/healthz` reports with its status."""
    return {
        "phase": "running" if snapshot.begun else "starting",
        "tracker_answers": snapshot.answering,
        "leadership": "watched" if snapshot.leadership_connected else "unknown",
        "leadership_trouble": snapshot.leadership_trouble,
        "dead_threads": list(snapshot.dead),
        "stuck": [work.thread for work in snapshot.stuck],
    }


def state_fields(snapshot: StatusSnapshot) -> dict[str, object]:
    """Return the condition of the agent as a whole, for programs."""
    state = snapshot.state
    return {
        "condition": state.condition.value,
        "text": state.text,
        "seconds": None if state.seconds is None else round(state.seconds, 1),
        "well": state.is_well,
    }


def status_json(status: AgentStatus) -> Iterator[bytes]:
    """Yield the object of `/status.json` in pieces: the text of ten thousand partitions is never in memory at once."""
    backlog = status.backlog()
    status.count(backlog)
    snapshot, shipping = status.snapshot(), status.sources.shipping
    head = {
        "version": snapshot.version,
        "cluster": snapshot.cluster,
        "broker": snapshot.broker,
        "started": _iso(snapshot.started),
        "time": _iso(snapshot.now),
        "ready": snapshot.ready,
        "healthy": snapshot.healthy,
        "state": state_fields(snapshot),
        "answered": dict(snapshot.answered),
        **health_facts(snapshot),
        "failing_requests": [
            {
                "location": each.location,
                "operation": each.operation,
                "reason": each.reason,
                "seconds": round(time.monotonic() - each.since, 1),
                "message": each.message,
            }
            for each in status.sources.health.failing()
        ],
        "last_shipped": None if shipping.last is None else _iso(shipping.last),
        "shipped_bytes_per_second": round(shipping.bytes_per_second()),
        "log_dirs": [str(log_dir) for log_dir in status.sources.environment.log_dirs],
        "queue_length": sum(snapshot.queues.values()),
        "queues": dict(snapshot.queues),
        "working": [
            {
                "thread": work.thread,
                "operation": work.operation,
                "partition": str(work.partition),
                "seconds": round(time.monotonic() - work.began_at, 1),
            }
            for work in snapshot.works
        ],
        "request_limit": snapshot.request_limit,
        "upload_limit_bytes_per_second": snapshot.upload_limit,
        "tail": [asdict(each) for each in snapshot.tail],
        "stuck": len(snapshot.stuck_partitions),
        "stuck_partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "reason": stuck.wait.reason.value,
                "waits_for": stuck.wait.text,
                "seconds": round(stuck.seconds, 1),
            }
            for partition, stuck in snapshot.stuck_partitions.longest()
        ],
        "last_errors": [{**asdict(error), "time": _iso(error.time)} for error in snapshot.errors],
    }
    yield f'{printable_json(json.dumps(head))[:-1]}, "partitions": ['.encode()
    totals = Totals()
    lines: list[str] = []
    before = "\n"
    for partition in status.partitions(backlog):
        totals.add(partition)
        lines.append(printable_json(json.dumps(asdict(partition))))
        if len(lines) == _TOGETHER:
            yield (before + ",\n".join(lines)).encode()
            before = ",\n"
            lines.clear()
    if lines:
        yield (before + ",\n".join(lines)).encode()
    yield f'], "totals": {json.dumps(asdict(totals))}}}\n'.encode()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
