"""The condition of an agent as a whole: the cause is first, and nothing is well while nothing is shipped."""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

import pytest

from ts_common.errors import (
    AccessDenied,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.model import TopicPartition
from ts_common.store.wrappers.counted import StoreCounts
from ts_uploader.health.conditions import CONDITIONS, AgentState, Condition, Facts, state_of
from ts_uploader.health.store_health import Failing, StoreHealth, WatchedCounts
from ts_uploader.process.progress import Progress, own_work
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.stuck import Waiting

NOW = 1000.0


def fails(reason: str, seconds: float) -> tuple[Failing, ...]:
    """A request that has failed for so long."""
    return (Failing("s3://b/p", "put", reason, NOW - seconds, NOW, 2, "PutObject s3://b/p/k: no"),)


def waits(seconds: float, quiet: float, *, ordinary: bool = True) -> Waiting:
    """A partition that waits for its upload."""
    wait = Wait(WaitReason.UPLOAD, "the upload of segment 5", ordinary)
    return Waiting(TopicPartition("t", 0), wait, seconds, quiet)


# The first row counts before all others: each fact is added to those of the rows below it.
CASES: list[tuple[dict[str, object], Condition, str]] = [
    ({"hangs": "The main thread does not answer."}, Condition.HANGS, "main thread"),
    ({"failing": fails("access_denied", 0)}, Condition.STORE_DENIED, "denies access to this identity: PutObject"),
    ({"failing": fails("bucket_missing", 0)}, Condition.STORE_MISSING, "does not exist"),
    ({"failing": fails("wrong_clock", 0)}, Condition.WRONG_CLOCK, "this host's time"),
    ({"failing": fails("full", 0)}, Condition.STORE_FULL, "no space left"),
    ({"failing": fails("rejected", 0)}, Condition.STORE_REJECTS, "The store rejects a request"),
    ({"failing": fails("unavailable", 31)}, Condition.STORE_FAILS, "s3://b/p fails each put for 31 s"),
    (
        {"silent": (31.0, "s3://b/p"), "failing": ()},
        Condition.STORE_HANGS,
        "s3://b/p has not answered a request for 31 s",
    ),
    ({"unanswered": ["store"], "running": 61.0, "silent": None}, Condition.STORE_HANGS, "since the start, 61 s ago"),
    ({"away": 31.0, "broker_away": True, "unanswered": []}, Condition.BROKER_AWAY, "The broker has not answered"),
    ({"away": 31.0, "away_reason": "no route"}, Condition.LEADERSHIP_UNKNOWN, "unknown for 31 s: .*: no route"),
    (
        {"deletions": ["t-0: DataLoss", "t-1: no"], "away": None},
        Condition.DELETED_FAILS,
        "2 deleted partitions: .*first: t-0: DataLoss",
    ),
    ({"holes": 2, "deletions": ()}, Condition.HOLE, "2 partitions: the broker has no segment"),
    ({"urgent": 1, "holes": 0}, Condition.RETENTION_NEAR, "less than half of the retention"),
    ({"stuck": 1, "waiting": waits(900, 10), "urgent": 0}, Condition.STUCK, "t-0, which waits for the upload"),
    ({"waiting": waits(61, 61), "stuck": 0}, Condition.WAITS, "nothing was committed for 61 s. The longest: t-0"),
    ({"unreported": 2, "waiting": None}, Condition.WAITS, "2 partitions: the source of leadership has not reported"),
    (
        {"unreported": 0, "blocked": 3, "waiting": waits(5, 5, ordinary=False)},
        Condition.WAITS,
        "3 partitions: the agent waits",
    ),
    ({"unanswered": ["leadership"], "blocked": 0}, Condition.STARTING, "Not answered yet: the source of leadership"),
    ({"tail": "each round fails"}, Condition.TAIL_LATE, "each round fails"),
    ({"tail": None, "snapshots": "no route to host"}, Condition.SNAPSHOTS_FAIL, "no route to host"),
    ({"throttled": 40.0, "unanswered": []}, Condition.THROTTLED, "40 per second"),
    ({"throttled": None}, Condition.WELL, "All is well."),
]


@pytest.mark.parametrize("row", range(len(CASES)))
def test_the_cause_counts_before_what_it_causes(row: int) -> None:
    """With everything below it in the table, each fact decides the condition, and the text has what was observed."""
    given: dict[str, object] = {"running": 5.0, "now": NOW}
    for facts, _, _ in reversed(CASES[row:]):
        given |= facts
    _, condition, words = CASES[row]
    state = state_of(Facts(**given))  # type: ignore[arg-type]  # rows of a table
    assert state.condition is condition
    first, _, rest = words.partition(".*")
    assert first in state.text
    assert rest in state.text


@pytest.mark.parametrize(
    "facts",
    [
        {"failing": fails("unavailable", 5)},
        {"silent": (20.0, "s3://b/p")},
        {"away": 20.0, "broker_away": True},
        {"waiting": waits(500, 20)},
        {"waiting": waits(20, 500)},
        {"waiting": waits(90, 90), "uploads": True},
        {"failing": (replace(fails("unavailable", 90)[0], times=1),)},
    ],
)
def test_what_ends_soon_is_ordinary(facts: dict[str, object]) -> None:
    """A failed request, a slow one, a broker that restarts, a large upload, and one partition of many."""
    assert state_of(Facts(running=5.0, now=NOW, **facts)).condition is Condition.WELL  # type: ignore[arg-type]


def test_a_condition_decides_readiness_and_whether_someone_must_look() -> None:
    """A cause makes the agent unready; a partition in trouble does not, but it is not well."""
    states = {condition: AgentState(condition, text, 90.0) for condition, text in CONDITIONS.items()}
    assert set(states) == set(Condition)
    ready = {condition for condition, state in states.items() if state.is_ready}
    partitions = {Condition.DELETED_FAILS, Condition.HOLE, Condition.RETENTION_NEAR, Condition.STUCK}
    late = {Condition.TAIL_LATE, Condition.SNAPSHOTS_FAIL, Condition.WAITS, Condition.THROTTLED}
    assert ready == {*partitions, *late, Condition.WELL}
    assert {condition for condition, state in states.items() if state.is_well} == {Condition.THROTTLED, Condition.WELL}
    assert not any(state.is_well and state.is_bad for state in states.values())
    assert all(
        state.fails == ("store" if "store" in condition or "clock" in condition else state.fails)
        for condition, state in states.items()
    )
    assert {condition for condition, state in states.items() if state.fails == "leadership"} == {
        Condition.BROKER_AWAY,
        Condition.LEADERSHIP_UNKNOWN,
    }


def test_a_request_fails_until_one_of_its_kind_succeeds() -> None:
    """A store that denies PUT answers LIST; other directories, a missing object and a throttled request are answers."""
    clock = [0.0]
    health = StoreHealth(lambda: clock[0])
    total = StoreCounts()
    counts = WatchedCounts(total, health, "s3://b/p")

    def request(operation: str, error: TieredStorageError | None = None, key: str = "t-0/5.log") -> None:
        with suppress(TieredStorageError), counts.counted(operation, key):
            clock[0] += 10
            if error is not None:
                raise error

    for error, reason in (
        (AccessDenied("no"), "access_denied"),
        (OutcomeUnknown("no answer"), "no_answer"),
        (StoreFull("full"), "full"),
        (StoreUnavailable("reset"), "unavailable"),
        (OperatorError("KMS.DisabledException"), "rejected"),
    ):
        request("put", error)
        request("put", error)
        request("list")
        request("put", key="t-1/5.log")
        request("get", ObjectNotFound("absent"))
        assert [(each.operation, each.reason, each.since) for each in health.failing()] == [("put", reason, 0.0)]
    request("put", StoreThrottled("slow down"))
    assert [each.times for each in health.failing()] == [10]
    request("put")
    assert health.failing() == []
    request("put", AccessDenied("no"))
    assert len(health.failing()) == 1
    clock[0] += 121  # nothing repeats it
    assert health.failing() == []
    assert total.requests["put"] == 18
    request("get", ObjectFrozen("GLACIER"))
    assert health.failing() == []
    request("put", OutcomeUnknown("no answer"), key="moved-0/5.log")
    assert len(health.failing()) == 1
    request("put")  # the partition moved to another broker, and puts succeed
    assert health.failing() == []


def test_a_listing_that_its_caller_ends_is_an_answer() -> None:
    """The agent reads the first objects of a listing; a failure before is over then, and each object is progress."""
    clock = [0.0]
    health = StoreHealth(lambda: clock[0])
    counts = WatchedCounts(StoreCounts(), health, "s3://b/p")

    def listed() -> Generator[int, None, None]:
        with counts.counted("list", "t-0/"):
            for number in range(3):
                clock[0] += 20
                counts.arrived()
                yield number

    with suppress(StoreUnavailable), counts.counted("list", "t-0/"):
        raise StoreUnavailable("503")
    assert len(health.failing()) == 1
    found = listed()
    next(found)
    assert health.silent(0.0) == (0.0, "s3://b/p")
    found.close()
    assert health.failing() == []
    assert health.silent(0.0) is None


def test_a_request_without_an_answer_is_silent_from_its_last_progress() -> None:
    """A piece that an upload reads is progress; a limit excuses all."""
    clock = [0.0]
    health, progress = StoreHealth(lambda: clock[0]), Progress(60)
    assert health.silent(0.0) is None
    with health.request("s3://b/p", "put", "t-0/5.index"):
        clock[0] = 40.0
        assert health.silent(0.0) == (40.0, "s3://b/p")
        assert health.silent(25.0) == (15.0, "s3://b/p")
    with progress.doing("Ship", TopicPartition("t", 0)), health.request("s3://b/p", "put", "t-0/5.log"):
        work = own_work()
        assert work is not None
        work.moved_at, clock[0] = 60.0, 70.0
        assert health.silent(0.0) == (10.0, "s3://b/p")
