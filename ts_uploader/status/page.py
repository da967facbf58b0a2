"""The page at `/`: the state of the agent for a person with a browser or a phone, trouble first.

It has no scripts and fetches nothing. The template escapes every text. With ten thousand partitions it shows the worst
and the totals, so it stays as small as with fifty.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ts_common.model import TopicPartition
from ts_common.printable import printable
from ts_common.wording import counted
from ts_uploader.health.conditions import Condition
from ts_uploader.health.tail_state import TailState
from ts_uploader.status.last_errors import LastError
from ts_uploader.status.partition_status import PartitionStatus, Totals
from ts_uploader.status.snapshot import AgentStatus, StatusSnapshot
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import WAIT_REASONS

if TYPE_CHECKING:
    from jinja2 import Template

WORST = 50  # partitions on the page
_ERRORS = 10  # in each of the two tables
_WORKS = 20
_MESSAGE = 400  # characters
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_WAITING = {"uploads": "upload", "commits": "commit", "lookups": "store request"}


def status_page(status: AgentStatus) -> Iterator[bytes]:
    """Yield the page as HTML in UTF-8, in pieces."""
    backlog = status.backlog()
    totals, worst = status.worst(backlog, WORST)
    snapshot = status.snapshot()
    state = snapshot.state
    current, earlier = _split_errors(snapshot, backlog)
    values = {
        "name": f"Broker {snapshot.broker} of {snapshot.cluster}",
        "now": _clock(snapshot.now),
        "state": state,
        "kind": "bad" if state.is_bad else "good" if state.condition is Condition.WELL else "warn",
        "troubles": [trouble for trouble in _troubles(snapshot, totals) if trouble != state.text],
        "current_errors": _errors(current, snapshot.now),
        "earlier_errors": _errors(earlier, snapshot.now),
        "totals": _totals(snapshot, totals),
        "shown": f"the worst {len(worst)} of {totals.partitions:,}" if totals.partitions > len(worst) else "all",
        "partitions": [_row(one, is_well=not state.is_bad) for one in worst],
        "works": _works(snapshot),
        "version": snapshot.version,
        "started": _clock(snapshot.started),
        "led": counted(len(backlog), "partition"),
    }
    for piece in _template().generate(values):
        yield piece.encode()


@lru_cache(maxsize=1)
def _template() -> "Template":
    # Loaded with the first page: most agents never show one.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
    )
    return environment.get_template("page.html.j2")


def _without_control_characters(value: object) -> object:
    """Escape characters that reorder or break a line; jinja2 then escapes markup."""
    return printable(value) if type(value) is str else value


def _troubles(snapshot: StatusSnapshot, totals: Totals) -> Iterator[str]:
    """Yield one sentence for each trouble, the worst first; the state of the agent is above them."""
    if not snapshot.answering:
        yield "The agent's main thread does not answer: restart the agent."
    for name in snapshot.dead:
        yield f"Thread {name} is dead: the agent ends."
    for work in snapshot.stuck:
        since = _span(time.monotonic() - work.moved_at)
        yield f"Thread {work.thread} has made no progress for {since} ({work.operation}{_whose(work.partition)})."
    if totals.holes:
        yield f"{counted(totals.holes, 'partition')}: the broker has no segment that continues the shipped ones."
    if totals.urgent:
        yield f"{counted(totals.urgent, 'partition')}: less than half of the retention is left for unshipped segments."
    for reason, (partition, stuck) in snapshot.stuck_partitions.longest_by_reason().items():
        count = counted(snapshot.stuck_partitions.counts()[reason], "partition")
        yield (
            f"{count} stuck: {WAIT_REASONS[reason]}. The agent has committed nothing of {partition} for "
            f"{_span(stuck.seconds)}."
        )
    if snapshot.leadership_trouble and snapshot.leadership_trouble not in snapshot.state.text:
        yield f"Leadership: {snapshot.leadership_trouble}."
    if snapshot.request_limit is not None:
        yield f"A store limits requests: the agent sends {snapshot.request_limit:.0f} per second."


def _split_errors(
    snapshot: StatusSnapshot, backlog: Mapping[TopicPartition, Backlog]
) -> tuple[list[LastError], list[LastError]]:
    """Return the errors of partitions that still wait, and those of the others, each the newest first.

    An error of the whole agent is one of its check of the stores. It is over once every store was usable.
    """
    waiting = {str(partition) for partition, one in backlog.items() if one.hole or one.waits_for is not None}
    waiting |= {str(partition) for partition in snapshot.stuck_partitions.by_partition}
    waiting |= {str(work.partition) for work in snapshot.stuck}
    current: list[LastError] = []
    earlier: list[LastError] = []
    for error in snapshot.errors:
        waits = error.partition in waiting if error.partition else not snapshot.answered["store"]
        # If the main thread does not answer, the backlog is empty.
        (current if waits or not snapshot.answering else earlier).append(error)
    return current, earlier


def _errors(errors: Sequence[LastError], now: float) -> list[Mapping[str, str]]:
    return [
        {
            "partition": error.partition,
            "when": f"{_span(max(0.0, now - error.time))} ago",
            "what": error.operation + (f", {error.times} times" if error.times > 1 else ""),
            "message": error.message if len(error.message) <= _MESSAGE else f"{error.message[:_MESSAGE]} ...",
        }
        for error in errors[:_ERRORS]
    ]


def _totals(snapshot: StatusSnapshot, totals: Totals) -> Mapping[str, str]:
    queues = ", ".join(counted(count, _WAITING.get(kind, kind)) for kind, count in snapshot.queues.items() if count)
    tail = {f"Live tail {each.log}": _tail(each) for each in snapshot.tail}
    return {
        "Partitions led": f"{totals.partitions:,}",
        "Not shipped yet": _bytes(totals.unshipped_bytes),
        "Closed segments not shipped": f"{totals.unshipped_segments:,}",
        "Offsets behind": f"{totals.lag_offsets:,}",
        **tail,
        "Queued tasks": queues or "none",
        "Upload limit": "none" if snapshot.upload_limit is None else f"{_bytes(snapshot.upload_limit)}/s",
    }


def _tail(state: TailState) -> str:
    beginning = f", {counted(state.beginning, 'partition')} still at the beginning" if state.beginning else ""
    return f"{counted(state.partitions, 'partition')}, {_span(state.lag_seconds)} behind{beginning}"


def _row(one: PartitionStatus, *, is_well: bool) -> Mapping[str, Any]:
    kind, trouble = _trouble(one)
    if kind == "good" and one.unshipped_segments and not is_well:
        kind, trouble = "warn", "waits for what the agent lacks"
    waits = one.unshipped_segments > 0
    unshipped = f"{_bytes(one.unshipped_bytes)}, {counted(one.unshipped_segments, 'segment')}"
    return {
        "name": f"{one.topic}-{one.partition}",
        "kind": kind,
        "trouble": trouble,
        "retention_left": f"{one.retention_left_ratio:.0%}",
        "oldest": _span(one.oldest_unshipped_age_seconds) if waits else "\N{EN DASH}",
        "unshipped": unshipped if waits else "nothing",
        "lag": "unknown" if one.lag_offsets is None else f"{one.lag_offsets:,}",
        "next_offset": "unknown" if one.next_offset is None else str(one.next_offset),
    }


def _trouble(one: PartitionStatus) -> tuple[str, str]:
    """Return the class of the cell, and its text."""
    if one.hole:
        return "bad", "nothing here continues the shipped segments"
    if one.urgent:
        return "bad", "Kafka may delete it soon" + (f"; {_waits(one)}" if one.waits_for else "")
    if one.stuck_seconds is not None:
        return "bad", _waits(one)
    if one.waits_for is not None:
        return "warn", _waits(one)
    return "good", "none"


def _waits(one: PartitionStatus) -> str:
    stuck = "" if one.stuck_seconds is None else f"stuck for {_span(one.stuck_seconds)}; "
    return f"{stuck}waits for {one.waits_for}"


def _works(snapshot: StatusSnapshot) -> list[str]:
    now = time.monotonic()
    works = [
        f"{work.thread}: {work.operation}{_whose(work.partition)} for {_span(now - work.began_at)}"
        for work in snapshot.works[:_WORKS]
    ]
    return [*works, f"and {len(snapshot.works) - _WORKS} more"] if len(snapshot.works) > _WORKS else works


def _whose(partition: TopicPartition) -> str:
    return f" {partition}" if partition.topic else ""


def _bytes(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _span(seconds: float) -> str:
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 72 else counted(round(days), "day")


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
