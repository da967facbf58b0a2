"""The condition of an agent as a whole: one answer from what fails, what waits, and since when.

Page, `/readyz`, `/status.json`, `tsctl status` and metrics show this answer. The cause is first: a store that denies
access explains why partitions wait. A partition in trouble does not make the agent unready, a cause does. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ts_common.wording import counted
from ts_uploader.health.store_health import Failing
from ts_uploader.tracking.stuck import Waiting

# The pages promise a cause within this time (docs/monitoring.md). What ends sooner is ordinary.
NAMED_WITHIN_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 30.0  # of a request, or of failures without a success


class Condition(StrEnum):
    """The condition of an agent; the first that applies counts."""

    HANGS = "hangs"
    STORE_DENIED = "store_denied"
    STORE_MISSING = "store_missing"
    WRONG_CLOCK = "wrong_clock"
    STORE_FULL = "store_full"
    STORE_REJECTS = "store_rejects"
    STORE_HANGS = "store_hangs"
    STORE_FAILS = "store_fails"
    BROKER_AWAY = "broker_away"
    LEADERSHIP_UNKNOWN = "leadership_unknown"
    DELETED_FAILS = "deleted_fails"
    HOLE = "hole"
    RETENTION_NEAR = "retention_near"
    STUCK = "stuck"
    WAITS = "waits"
    TAIL_LATE = "tail_late"
    SNAPSHOTS_FAIL = "snapshots_fail"
    THROTTLED = "throttled"
    STARTING = "starting"
    WELL = "well"


CONDITIONS: Final[Mapping[Condition, str]] = {
    Condition.HANGS: "a thread of the agent has ended, or makes no progress: restart the agent",
    Condition.STORE_DENIED: "the store denies access to this identity",
    Condition.STORE_MISSING: "the bucket, container or directory does not exist",
    Condition.WRONG_CLOCK: "the store rejects this host's time",
    Condition.STORE_FULL: "the store has no space left",
    Condition.STORE_REJECTS: "the store rejects a request, and would reject it again",
    Condition.STORE_HANGS: "the store does not answer a request",
    Condition.STORE_FAILS: "the store fails: no connection, timeout, reset, 5xx",
    Condition.BROKER_AWAY: "the broker does not answer, or is not registered",
    Condition.LEADERSHIP_UNKNOWN: "the source of leadership does not answer",
    Condition.DELETED_FAILS: "the last records of a deleted topic are not shipped, and the broker removes its files",
    Condition.HOLE: "the broker has no segment that continues the shipped ones of a partition",
    Condition.RETENTION_NEAR: "a partition has less than half of the retention left for unshipped segments",
    Condition.STUCK: "a partition has waited for longer than `stuck.after.ms`",
    Condition.WAITS: "a partition lacks what it needs to ship, or its leader; or nothing was committed for a minute",
    Condition.TAIL_LATE: "the live tail is late or fails; closed segments are shipped all the same",
    Condition.SNAPSHOTS_FAIL: "metadata snapshots fail three times in a row; the agent ships all the same",
    Condition.THROTTLED: "a store limits requests; the agent ships more slowly",
    Condition.STARTING: "the agent has started, and not everything has answered yet",
    Condition.WELL: "all closed segments are shipped, or are being shipped",
}
_BY_REASON: Final = {
    "access_denied": Condition.STORE_DENIED,
    "bucket_missing": Condition.STORE_MISSING,
    "wrong_clock": Condition.WRONG_CLOCK,
    "full": Condition.STORE_FULL,
    "rejected": Condition.STORE_REJECTS,
}
_CAUSES: Final = frozenset(
    {
        Condition.HANGS,
        *_BY_REASON.values(),
        Condition.STORE_HANGS,
        Condition.STORE_FAILS,
        Condition.BROKER_AWAY,
        Condition.LEADERSHIP_UNKNOWN,
    }
)
_PASSING: Final = frozenset({Condition.WAITS, Condition.THROTTLED, Condition.STARTING, Condition.WELL})
_UNANSWERED: Final = {
    "store": "an object store",
    "log_dirs": "the log dirs",
    "leadership": "the source of leadership",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides the condition. Times are seconds before now.

    Attributes:
        running: seconds since the start of the agent.
        hangs: why a restart would help; None if it would not.
        failing: the requests that stores fail, the longest first.
        now: the monotonic time, as `failing` has it.
        silent: how long a request to a store has had no answer and made no progress, and the store; None without one.
        unanswered: the dependencies that have not answered since the start.
        away: how long leadership has been unknown; None if it is known.
        broker_away: whether the broker does not answer, or is not registered.
        away_reason: why leadership is unknown; None if no reason is known.
        deletions: the partitions of deleted topics whose last records are not shipped, each with the reason.
        holes: partitions with a hole.
        urgent: partitions with less than half of their retention left.
        stuck: partitions that are stuck.
        blocked: partitions that lack what they need to ship.
        unreported: partitions with a directory here whose leader was not reported for a minute.
        uploads: whether an upload makes progress.
        waiting: what has waited longest; None if nothing waits.
        throttled: requests per second that a store allows; None without a limit.
        snapshots: why metadata snapshots fail; None while they do not.
        tail: why the live tail is late; None while it is not, and without one.
    """

    running: float
    hangs: str | None = None
    failing: Sequence[Failing] = ()
    now: float = 0.0
    silent: tuple[float, str] | None = None
    unanswered: Sequence[str] = ()
    away: float | None = None
    broker_away: bool = False
    away_reason: str | None = None
    deletions: Sequence[str] = ()
    holes: int = 0
    urgent: int = 0
    stuck: int = 0
    blocked: int = 0
    unreported: int = 0
    uploads: bool = False
    waiting: Waiting | None = None
    throttled: float | None = None
    snapshots: str | None = None
    tail: str | None = None


@dataclass(frozen=True, slots=True)
class AgentState:
    """The answer.

    Attributes:
        text: one sentence for people, with what was observed.
        seconds: how long the condition has lasted; None if that is unknown.
    """

    condition: Condition
    text: str
    seconds: float | None = None

    @property
    def fails(self) -> str | None:
        """The dependency of readiness that fails now; None if none does."""
        if self.condition in {Condition.BROKER_AWAY, Condition.LEADERSHIP_UNKNOWN}:
            return "leadership"
        stores = {*_BY_REASON.values(), Condition.STORE_HANGS, Condition.STORE_FAILS}
        return "store" if self.condition in stores else None

    @property
    def is_ready(self) -> bool:
        """Whether nothing prevents the agent as a whole from shipping."""
        return self.condition not in _CAUSES and self.condition is not Condition.STARTING

    @property
    def is_bad(self) -> bool:
        """Whether an operator must act now."""
        return self.condition not in _PASSING

    @property
    def is_well(self) -> bool:
        """Whether no operator needs to look: a wait of less than a minute is ordinary."""
        if self.condition is Condition.WAITS:
            return (self.seconds or 0.0) < NAMED_WITHIN_SECONDS
        return self.condition in {Condition.WELL, Condition.THROTTLED}


def state_of(facts: Facts) -> AgentState:
    """Return the condition of an agent."""
    if facts.hangs is not None:
        return AgentState(Condition.HANGS, facts.hangs)
    if (state := _store(facts)) is not None:
        return state
    if (state := _leadership(facts)) is not None:
        return state
    waiting = facts.waiting
    longest = "" if waiting is None else f" The longest: {waiting.partition}, which waits for {waiting.wait.text}."
    if (state := _endangered(facts, longest)) is not None:
        return state
    return _waits(facts, longest)


def _endangered(facts: Facts, longest: str) -> AgentState | None:
    """Return what an operator must act on in some partition, before Kafka deletes what is not shipped."""
    if facts.deletions:
        deleted = counted(len(facts.deletions), "deleted partition")
        text = f"{deleted}: each attempt to ship the last records fails, and the broker removes the files. The first: "
        return AgentState(Condition.DELETED_FAILS, f"{text}{facts.deletions[0]}")
    if facts.holes:
        holes = counted(facts.holes, "partition")
        return AgentState(Condition.HOLE, f"{holes}: the broker has no segment that continues the shipped ones.")
    if facts.urgent:
        urgent = counted(facts.urgent, "partition")
        left = f"{urgent}: less than half of the retention is left for unshipped segments."
        return AgentState(Condition.RETENTION_NEAR, left)
    if facts.stuck:
        seconds = None if facts.waiting is None else facts.waiting.seconds
        return AgentState(Condition.STUCK, f"{counted(facts.stuck, 'partition')} stuck.{longest}", seconds)
    return None


def _waits(facts: Facts, longest: str) -> AgentState:
    """Return what the agent waits for, if no part of it fails."""
    waiting, limit = facts.waiting, None
    if facts.throttled is not None:
        limit = f"A store limits requests: the agent sends {facts.throttled:.0f} per second."
    quiet = 0.0 if waiting is None or facts.uploads else min(waiting.seconds, waiting.quiet_seconds)
    if quiet >= NAMED_WITHIN_SECONDS:
        waits = f"Closed segments wait, and nothing was committed for {quiet:.0f} s.{longest}"
        return AgentState(Condition.WAITS, waits if limit is None else f"{limit} {waits}", quiet)
    if facts.unreported:
        unreported = counted(facts.unreported, "partition")
        waits = f"{unreported}: the source of leadership has not reported the leader (see `topics_denied` in the log)."
        return AgentState(Condition.WAITS, waits, NAMED_WITHIN_SECONDS)
    if facts.blocked:
        waits = f"{counted(facts.blocked, 'partition')}: the agent waits before it can ship.{longest}"
        return AgentState(Condition.WAITS, waits, None if waiting is None else waiting.seconds)
    if facts.unanswered:
        names = ", ".join(_UNANSWERED.get(name, name) for name in facts.unanswered)
        return AgentState(Condition.STARTING, f"The agent has started. Not answered yet: {names}.", facts.running)
    if facts.tail is not None:
        return AgentState(
            Condition.TAIL_LATE, f"The live tail is late, while closed segments are shipped: {facts.tail}"
        )
    if facts.snapshots is not None:
        text = f"Metadata snapshots fail, while the agent ships: {facts.snapshots}"
        return AgentState(Condition.SNAPSHOTS_FAIL, text)
    if limit is not None:
        return AgentState(Condition.THROTTLED, limit)
    return AgentState(Condition.WELL, "All is well.")


def _store(facts: Facts) -> AgentState | None:
    """Return what a store does not do. What an operator must change is first, and needs no time to show."""
    for reason, condition in _BY_REASON.items():
        for each in facts.failing:
            if each.reason == reason:
                text = f"{CONDITIONS[condition][:1].upper()}{CONDITIONS[condition][1:]}: {each.message}"
                return AgentState(condition, text, facts.now - each.since)
    for each in facts.failing:
        if (seconds := facts.now - each.since) >= _SILENT_SECONDS and each.times > 1:
            text = f"{each.location} fails each {each.operation} for {seconds:.0f} s: {each.message}"
            return AgentState(Condition.STORE_FAILS, text, seconds)
    if facts.silent is not None and facts.silent[0] >= _SILENT_SECONDS:
        seconds, location = facts.silent
        return AgentState(Condition.STORE_HANGS, f"{location} has not answered a request for {seconds:.0f} s.", seconds)
    if "store" in facts.unanswered and facts.running >= NAMED_WITHIN_SECONDS:
        text = f"An object store has not answered since the start, {facts.running:.0f} s ago."
        return AgentState(Condition.STORE_HANGS, text, facts.running)
    return None


def _leadership(facts: Facts) -> AgentState | None:
    """Return why the agent does not learn which partitions to ship. A restart of a broker is ordinary."""
    if facts.away is None or facts.away < _SILENT_SECONDS:
        return None
    reason = f": {facts.away_reason}" if facts.away_reason else ""
    if facts.broker_away:
        text = f"The broker has not answered for {facts.away:.0f} s, so the agent starts no new partition{reason}."
        return AgentState(Condition.BROKER_AWAY, text, facts.away)
    text = (
        f"Leadership is unknown for {facts.away:.0f} s: its source does not answer, so the agent starts no new "
        f"partition{reason}."
    )
    return AgentState(Condition.LEADERSHIP_UNKNOWN, text, facts.away)
