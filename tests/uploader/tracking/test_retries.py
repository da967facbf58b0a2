"""Each partition has one retry at a time (U35)."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uploader.tracking.led_partition import led
from tests.uploader.tracking.messages import TP, changed, failed, listing, succeeded
from tests.uploader.tracking.simulated_hour import HOUR, Hour
from ts_common.store import retry
from ts_common.store.retry import backoff_seconds
from ts_uploader.messages.results import LookDue
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Rescan, Ship
from ts_uploader.process.work_queue import WorkQueue
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.retries import Retries
from ts_uploader.tracking.task_selection import SEGMENTS_IN_FLIGHT

# In an hour: one retry every 15 seconds, once delays have doubled to that, and the earlier ones.
RETRIES = int(HOUR / 15) + 12
# Those in flight, and those that changed or were shipped ahead of the run.
TRIED_AT_ONCE = 3 * SEGMENTS_IN_FLIGHT
FATES = st.dictionaries(
    st.integers(1, 30).map(lambda number: number * 100), st.sampled_from(["changed", "failed", "well"]), max_size=12
)


@given(
    FATES,
    st.sampled_from(["changed", "failed", "well"]),
    st.sampled_from([3.0, 30.0]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_u35_a_partition_has_one_retry_at_a_time(
    fates: dict[int, str], first: str, hints: float, commits_fail: bool, merging: bool
) -> None:
    """Whatever fails, and however often listings arrive: tasks and log lines stay few in an hour."""
    hour = Hour({0: first, **fates}, hints, commits_fail=commits_fail, merging=merging).run()
    segments = len(fates) + 1  # each may move the next offset once, and the delays begin again
    assert hour.most_pending <= 1
    assert hour.done["logged"] <= RETRIES + 12 * segments, hour.done
    assert hour.done["ReadPosition"] <= RETRIES + 12 * segments, hour.done
    assert hour.done["Ship"] <= TRIED_AT_ONCE * (RETRIES + 12 * segments), hour.done


def test_u35_segments_that_all_keep_changing_are_tried_some_hundred_times_an_hour() -> None:
    """A busy cleaner rewrites 99 segments (it was 260 log lines a minute): retries are few, and the reason is shown."""
    hour = Hour({base * 100: "changed" for base in range(99)}, hints=1.0).run()
    assert hour.most_pending == 1
    assert 120 <= hour.done["logged"] <= RETRIES
    assert hour.done["Ship"] <= TRIED_AT_ONCE * RETRIES
    wait = hour.tracker.backlog()[TP].wait
    assert wait is not None
    assert (wait.reason, wait.ordinary) == (WaitReason.CHANGED, False)


def test_u35_once_the_cause_is_removed_all_segments_are_committed() -> None:
    """Within one delay all segments are retried, and the delays begin again at the shortest."""
    hour = Hour({base * 100: "changed" for base in range(20)}, hints=30.0, heals_at=HOUR - 60).run()
    assert hour.next_offset == 2000
    assert hour.tracker._partitions[TP].retries == Retries()


def test_u35_a_listing_alone_does_not_bring_what_changed_back() -> None:
    """It is retried after the delay, from a listing that was made after that."""
    tracker, ask = led(0, 100, 200)
    ships = tracker.conclude(succeeded(ask, 0))
    tasks = [task for ship in ships for task in tracker.conclude(changed(ship))]  # type: ignore[arg-type]
    assert tasks == [Rescan(TP, ask.generation, 1, reason="the cleaner")]
    assert tracker.observe(listing(0, 100, 200)) == tracker.observe(listing(0, 200)) == []
    assert tracker.conclude(LookDue(TP, ask.generation)) == []
    assert [ship.base for ship in tracker.observe(listing(0, 200)) if isinstance(ship, Ship)] == [0]


def test_u35_other_segments_continue_while_one_keeps_changing() -> None:
    """As behind a failing upload: enough segments to avoid a standstill, and no more."""
    hour = Hour({0: "changed", **{base * 100: "well" for base in range(1, 99)}}, hints=3.0).run()
    assert 2 * SEGMENTS_IN_FLIGHT <= hour.done["Ship"] <= RETRIES + 2 * SEGMENTS_IN_FLIGHT
    assert hour.next_offset == 0


def test_u35_the_queue_of_an_agent_never_holds_two_looks_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real queue and its delays, while hints cause a listing after each change."""
    monkeypatch.setattr(retry, "_FIRST_BACKOFF_SECONDS", 0.002)
    monkeypatch.setattr(retry, "_LONGEST_BACKOFF_SECONDS", 0.02)
    tracker, ask = led(*range(0, 2000, 100))
    uploads: WorkQueue[AnyTask] = WorkQueue()
    questions: WorkQueue[AnyTask] = WorkQueue()

    def dispatch(tasks: list[AnyTask]) -> Iterator[Rescan]:
        for task in tasks:
            if isinstance(task, Rescan):
                questions.put(TP, task, task.after_seconds + backoff_seconds(task.attempt))
                yield task
            else:
                uploads.put(TP, task)

    rescans, ships = list(dispatch(tracker.conclude(succeeded(ask, 0)))), 0
    for _ in range(20):
        while len(uploads):
            ship = uploads.get()
            assert isinstance(ship, Ship)
            ships += 1
            rescans += dispatch(tracker.conclude(changed(ship)))
            rescans += dispatch(tracker.observe(listing(*range(0, 2000, 100))))
            assert len(questions) == 1
        look = questions.get()
        assert isinstance(look, Rescan)
        assert len(questions) == 0
        rescans += dispatch(tracker.conclude(LookDue(TP, look.generation)))
        rescans += dispatch(tracker.observe(listing(*range(0, 2000, 100))))
    assert [look.attempt for look in rescans] == list(range(1, 21))
    assert ships <= 20 * TRIED_AT_ONCE


def test_u35_uploads_that_fail_together_are_one_failure_and_one_that_succeeds_ends_none() -> None:
    """The delay of the next read doubles with each round; only a commit that moves resets it."""
    tracker, ask = led(0, 100, 200, 300, 400, 500)
    attempts = []
    for _ in range(3):
        first, *others, last = tracker.conclude(succeeded(ask, 0))
        asked = tracker.conclude(failed(first))  # type: ignore[arg-type]
        for other in others:
            asked += tracker.conclude(failed(other))  # type: ignore[arg-type]
        asked += tracker.conclude(succeeded(last, 0))
        (ask,) = asked  # type: ignore[assignment]
        assert isinstance(ask, ReadPosition)
        attempts.append(ask.attempt)
    assert attempts == [1, 2, 3]
