"""Nothing waits in silence: a reason for each partition that does not move, and one retry of each at a time (U35)."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.uploader.checkpoint_files import until_they_count, written
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader import workers
from ts_uploader.events import EpochFile, HighWatermarks, LastEpoch, Leadership, Led, Listing, SeveralDirectories
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.tasks import (
    AnyTask,
    Changed,
    Committed,
    Failed,
    Fenced,
    LookBelow,
    LookDue,
    PassGap,
    Position,
    PositionRead,
    ReadPosition,
    Rescan,
    Result,
    Ship,
    Shipped,
    Task,
    WriteCommit,
)
from ts_uploader.tracking.blocked import WAIT_REASONS, Wait, WaitReason
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.retries import Retries
from ts_uploader.tracking.stuck import SERIES, StuckPartitions, StuckWatch
from ts_uploader.tracking.tracker import SEGMENTS_IN_FLIGHT, Tracker
from ts_uploader.work_queue import WorkQueue
from ts_uploader.workers import backoff_seconds

TP = TopicPartition("t", 0)
LOG_DIR = Path("/log")
LEADERSHIP = Leadership(epoch=1, topic_id="id", seen_at=100)
STUCK_SECONDS = 900.0
HOUR = 3600.0


def listing(*bases: int, topic_id: str = "id", taken_at: int = 100, swapping: bool = False) -> Listing:
    return Listing(TP, LOG_DIR / "t-0", (1, 1), LOG_DIR, bases, (), swapping, topic_id, taken_at)


def elsewhere(*bases: int) -> Listing:
    """The same partition on another disk."""
    other = Path("/other")
    return replace(listing(*bases), directory=other / "t-0", identity=(2, 1), log_dir=other)


def watermark(offset: int) -> HighWatermarks:
    return written(LOG_DIR, {("t", 0): offset})


def watermarks(tracker: Tracker, offset: int) -> list[AnyTask]:
    """Up to the first checkpoint that counts."""
    return until_they_count(tracker, LOG_DIR, {("t", 0): offset})


def position(next_offset: int) -> Position:
    return Position(ClusterKeys("c").partition(TP), 0, next_offset, None, EpochHistory(), None, None)


def shipped(task: Ship, end: int | None = None) -> Shipped:
    return Shipped(
        partition=task.partition,
        generation=task.generation,
        leadership=task.leadership,
        base=task.base,
        next_base=task.next_base,
        end=task.next_base if end is None else end,
        epochs=((1, task.base),),
        last_stable_offset=None,
        bytes_sent=1,
        corruptions=0,
        seconds=0.0,
    )


def failed(task: Task) -> Failed:
    base = task.base if isinstance(task, Ship) else None
    return Failed(task.partition, task.generation, task.leadership, base, type(task).__name__, "because")


def changed(task: Task) -> Changed:
    assert isinstance(task, Ship)
    return Changed(task.partition, task.generation, task.leadership, task.base, "the cleaner")


def well(task: AnyTask, next_offset: int) -> Result:
    """What a task that goes well ends with, in a store whose run ends at `next_offset`."""
    match task:
        case ReadPosition():
            return PositionRead(task.partition, task.generation, task.leadership, position(next_offset))
        case Ship():
            return shipped(task)
        case WriteCommit():
            return Committed(task.partition, task.generation, task.leadership, position(task.run[-1].end))
        case PassGap():
            return Committed(task.partition, task.generation, task.leadership, position(task.end))
        case Rescan():
            return LookDue(task.partition, task.generation)
    raise AssertionError(task)


def led(*live: int, high_watermark: int = 10**6) -> tuple[Tracker, ReadPosition]:
    """A partition that is led and listed, and the question where to go on."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(*live))
    (ask,) = watermarks(tracker, high_watermark)
    assert isinstance(ask, ReadPosition)
    return tracker, ask


def without(*events: Led | Listing | SeveralDirectories | HighWatermarks) -> Tracker:
    tracker = Tracker(OffsetReset.EARLIEST)
    for event in (Led(TP, LEADERSHIP), *events):
        assert tracker.observe(event) == []
    return tracker


def repeated(kind: type[Task], end: Callable[[Task], Result]) -> Tracker:
    """Each task of a kind ends so, four times; all others go well, but that nothing is ever shipped below it."""
    tracker, ask = led(0, 100)
    tasks: list[AnyTask] = [ask]
    for ends in itertools.count():
        task = next(task for task in tasks if isinstance(task, kind) or not isinstance(task, Ship | WriteCommit))
        tasks.remove(task)
        if not isinstance(task, kind):
            tasks += tracker.conclude(well(task, 0))
            tasks += tracker.observe(listing(0, 100)) if isinstance(task, Rescan) else []
            continue
        tasks += tracker.conclude(end(task))
        if ends > 8:
            return tracker
    raise AssertionError


def fenced() -> Tracker:
    tracker, ask = led(0, 100)
    tracker.conclude(Fenced(TP, ask.generation, LEADERSHIP, "later"))
    return tracker


def torn() -> Tracker:
    tracker, ask = led(0, 100, 200)
    ship = tracker.conclude(well(ask, 50))[0]
    assert isinstance(ship, Ship)
    tracker.conclude(shipped(ship, end=40))
    return tracker


def gone() -> Tracker:
    tracker, ask = led(300, 400)
    tracker.conclude(well(ask, 50))
    return tracker


def asking() -> Tracker:
    return led(0, 100)[0]


def short() -> Tracker:
    tracker, ask = led(0, 100, high_watermark=60)
    tracker.conclude(well(ask, 0))
    for _ in range(3):
        tracker.observe(watermark(60))
    return tracker


def committing() -> Tracker:
    tracker, ask = led(0, 100)
    (ship,) = tracker.conclude(well(ask, 0))
    (commit,) = tracker.conclude(well(ship, 0))
    for _ in range(3):
        assert isinstance(commit, WriteCommit)
        (ask,) = tracker.conclude(failed(commit))  # type: ignore[assignment]
        (commit,) = tracker.conclude(well(ask, 0))
    return tracker


def stopped() -> Tracker:
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    for event in (Led(TP, LEADERSHIP), listing(0, 100)):
        tracker.observe(event)
    (ask,) = until_they_count(tracker, LOG_DIR, {("t", 0): 100})
    answer = well(ask, 0)
    assert isinstance(answer, PositionRead)
    tracker.conclude(replace(answer, position=replace(answer.position, next_offset=cast("int", "x"))))
    return tracker


# What brings a partition to wait for each; a reason that nothing brings about is no reason.
WAITS: dict[WaitReason, Callable[[], Tracker]] = {
    WaitReason.SEGMENT: lambda: without(listing()),
    WaitReason.TOPIC_ID: lambda: without(listing(0, 100, topic_id="another"), watermark(100)),
    WaitReason.DIRECTORIES: lambda: without(SeveralDirectories(TP, (listing(0, 100), elsewhere(0, 100)))),
    WaitReason.EPOCH: lambda: without(replace(listing(0, 100), last_epoch=LastEpoch(EpochFile.READ, 0))),
    WaitReason.RENAMES: lambda: without(listing(0, 100, swapping=True), watermark(100)),
    WaitReason.HIGH_WATERMARK: lambda: without(listing(0, 100)),
    WaitReason.STORE: lambda: repeated(ReadPosition, failed),
    WaitReason.LEADERSHIP: fenced,
    WaitReason.HOLE: torn,
    WaitReason.GAP: gone,
    WaitReason.POSITION: asking,
    WaitReason.BELOW_HIGH_WATERMARK: short,
    WaitReason.CHANGED: lambda: repeated(Ship, changed),
    WaitReason.UPLOAD: lambda: repeated(Ship, failed),
    WaitReason.COMMIT: committing,
    WaitReason.DEFECT: stopped,
}
# Of these a partition is not shown to wait before it is stuck in them.
ORDINARY = {WaitReason.POSITION}
# Nobody leads it here as far as is known, so that it is in no backlog.
UNHEARD = {WaitReason.LEADER}


def test_each_reason_is_tried() -> None:
    """A reason that is added is brought about here, and explained."""
    assert WAITS.keys() | UNHEARD == set(WaitReason) == WAIT_REASONS.keys()


@pytest.mark.parametrize("reason", WaitReason)
def test_u35_each_wait_has_its_reason_its_series_and_its_line(reason: WaitReason) -> None:
    """From what a partition goes through, by the tracker's word, to the one series that the alert goes by."""
    watch = StuckWatch()
    tracker = Tracker(OffsetReset.EARLIEST) if reason in UNHEARD else WAITS[reason]()
    unheard = {TP: Wait(reason, "its leader")} if reason in UNHEARD else {}
    backlog = tracker.backlog()
    if reason not in UNHEARD:
        wait = backlog[TP].wait
        assert wait is not None
        assert (wait.reason, wait.ordinary) == (reason, reason in ORDINARY)
        assert (backlog[TP].waits_for is None) == wait.ordinary
    for seconds in (0.0, STUCK_SECONDS - 1):
        look = watch.look(backlog, unheard, STUCK_SECONDS, seconds)
        assert (len(look.stuck), look.begun, look.ended) == (0, [], [])
    with capture_logs() as logs:
        for seconds in (STUCK_SECONDS, STUCK_SECONDS + 2):
            look = watch.look(backlog, unheard, STUCK_SECONDS, seconds)
            look.log()
    assert [(line["log_level"], line["partition"], line["reason"]) for line in logs] == [("error", "t-0", reason.value)]
    registry = CollectorRegistry()
    registry.register(BacklogCollector(lambda: backlog, lambda _: TopicRetention(), stuck=lambda: look.stuck))
    labels = {"topic": "t", "partition": "0", "reason": reason.value}
    assert registry.get_sample_value("ts_uploader_partition_stuck_seconds", labels) == STUCK_SECONDS + 2
    counts = {one: registry.get_sample_value("ts_uploader_stuck_partitions", {"reason": one}) for one in WaitReason}
    assert counts == {one: float(one is reason) for one in WaitReason}
    with capture_logs() as logs:
        watch.look({}, {}, STUCK_SECONDS, STUCK_SECONDS + 4).log()
    assert [(line["log_level"], line["partition"]) for line in logs] == [("info", "t-0")]


def test_u35_a_partition_is_stuck_from_its_first_wait_or_its_last_progress() -> None:
    """A commit that moves begins the time again; another reason, a new file or a lost position does not."""
    tracker = WAITS[WaitReason.CHANGED]()
    before = tracker.backlog()[TP]
    watch = StuckWatch()

    def stuck(now: float, **changes: object) -> bool:
        return bool(watch.look({TP: replace(before, **changes)}, {}, STUCK_SECONDS, now).stuck)  # type: ignore[arg-type]

    assert not stuck(0.0, next_offset=10)
    assert not stuck(500.0, next_offset=11)
    other = Wait(WaitReason.UPLOAD, "x")
    assert [stuck(1399.0, next_offset=None), stuck(1400.0, next_offset=11, wait=other)] == [False, True]
    assert not stuck(1402.0, next_offset=12)
    assert not stuck(2301.0, next_offset=5)  # an election lost what was committed
    assert stuck(2302.0, next_offset=5)


def test_u35_what_has_nothing_to_commit_is_not_stuck() -> None:
    """A partition whose segments are all shipped waits for nothing, however long."""
    tracker, ask = led(0, 100)
    tracker.conclude(well(ask, 100))
    backlog = tracker.backlog()
    assert backlog[TP].wait is None
    watch = StuckWatch()
    assert [len(watch.look(backlog, {}, STUCK_SECONDS, now).stuck) for now in (0.0, 10 * HOUR)] == [0, 0]


def test_u35_of_very_many_stuck_partitions_the_longest_stuck_have_a_series() -> None:
    """The total counts all of them."""
    backlog = WAITS[WaitReason.CHANGED]().backlog()[TP]
    watch = StuckWatch()
    known = {}
    for number in range(SERIES + 50):
        known[TopicPartition("t", number)] = backlog
        found = watch.look(known, {}, STUCK_SECONDS, float(number)).stuck
    found = watch.look(known, {}, STUCK_SECONDS, HOUR).stuck
    registry = CollectorRegistry()
    registry.register(BacklogCollector(dict, lambda _: TopicRetention(), stuck=lambda: found))
    (family,) = [one for one in registry.collect() if one.name == "ts_uploader_partition_stuck_seconds"]
    assert {sample.labels["partition"] for sample in family.samples} == {str(number) for number in range(SERIES)}
    assert registry.get_sample_value("ts_uploader_stuck_partitions", {"reason": "changed"}) == SERIES + 50
    assert len(list(StuckPartitions().longest())) == 0


def test_a_first_failure_and_what_is_under_way_are_ordinary() -> None:
    """They are reasons, and neither shown nor counted."""
    tracker, ask = led(0, 100, 200, high_watermark=100)
    assert tracker.backlog()[TP].wait == Wait(WaitReason.POSITION, "an answer of the store where to go on", True)
    (ship,) = tracker.conclude(well(ask, 0))
    seen = [tracker.backlog()[TP].wait]
    tracker.conclude(changed(ship))  # type: ignore[arg-type]
    seen.append(tracker.backlog()[TP].wait)
    tracker.conclude(LookDue(TP, ask.generation))
    (ship,) = tracker.observe(listing(0, 100, 200))
    (commit,) = tracker.conclude(well(ship, 0))
    seen.append(tracker.backlog()[TP].wait)
    tracker.conclude(well(commit, 0))
    seen.append(tracker.backlog()[TP].wait)
    reasons = (WaitReason.UPLOAD, WaitReason.CHANGED, WaitReason.COMMIT, WaitReason.BELOW_HIGH_WATERMARK)
    assert [(wait.reason, wait.ordinary) for wait in seen if wait is not None] == [(one, True) for one in reasons]


def test_u35_a_commit_that_another_agent_made_instead_is_not_waited_for() -> None:
    """Of two agents beside one broker the second is refused, finds all committed, and shows nothing that waits."""
    tracker, ask = led(0, 100)
    (ship,) = tracker.conclude(well(ask, 0))
    (commit,) = tracker.conclude(well(ship, 0))
    assert isinstance(commit, WriteCommit)
    (ask,) = tracker.conclude(failed(commit))  # type: ignore[assignment]
    wait = tracker.backlog()[TP].wait
    assert wait is not None
    assert wait.reason is WaitReason.COMMIT
    assert not tracker.conclude(well(ask, 100))
    assert tracker.backlog()[TP].wait is None


class Hour:
    """An hour of one partition by a clock of its own: the pure tracker, delays as the queues have them, no threads.

    Args:
        fates: of segments by base: what each attempt to ship them ends with.
        hints: seconds between two listings that other events than the tracker's own looks bring.
        commits_fail: each commit does.
        merging: each listing shows a segment less than the one before, as while the cleaner merges.
        heals_at: from when on everything goes well.
    """

    def __init__(
        self,
        fates: dict[int, str],
        hints: float,
        *,
        commits_fail: bool = False,
        merging: bool = False,
        heals_at: float = HOUR,
    ) -> None:
        self.heals_at = heals_at
        self.random = random.Random(7)
        self.fates = fates
        self.commits_fail = commits_fail
        self.merging = merging
        self.bases = tuple(sorted({*fates, max(fates) + 100}))
        self.done: Counter[str] = Counter()
        self.pending = 0  # looks that are scheduled now
        self.most_pending = 0
        self.next_offset = 0
        self._order = itertools.count()
        self._events: list[tuple[float, int, AnyTask | None]] = []
        self.tracker, ask = led(*self.bases)
        self._put(0.0, [ask])
        for number in range(int(HOUR / hints)):
            heapq.heappush(self._events, (number * hints, next(self._order), None))

    def run(self) -> "Hour":
        while self._events and self._events[0][0] < HOUR:
            now, _, task = heapq.heappop(self._events)
            if task is None:
                self._put(now, self._listed(now))
                continue
            self.done[type(task).__name__] += 1
            if now >= self.heals_at:
                self.fates, self.commits_fail = {}, False
            result = self._result(task)
            self._put(now, self.tracker.conclude(result))
            if isinstance(task, Rescan):
                self.pending -= 1
                self._put(now, self._listed(now))
        return self

    def _listed(self, now: float) -> list[AnyTask]:
        if self.merging and len(self.bases) > 3:
            self.bases = (self.bases[0], *self.bases[2:])
        return self.tracker.observe(listing(*self.bases, taken_at=100 + int(now * 1e9)))

    def _result(self, task: AnyTask) -> Result:
        if isinstance(task, Ship):
            fate = self.fates.get(task.base, "well")
            if fate in {"changed", "failed"}:
                return changed(task) if fate == "changed" else failed(task)
        elif isinstance(task, WriteCommit):
            if self.commits_fail:
                return failed(task)
            self.next_offset = task.run[-1].end
        return well(task, self.next_offset)

    def _put(self, now: float, tasks: list[AnyTask]) -> None:
        for task in tasks:
            delay = 0.01
            if isinstance(task, Rescan):
                delay += task.after_seconds + backoff_seconds(task.attempt)
                self.pending += 1
                self.most_pending = max(self.pending, self.most_pending)
                self.done["logged"] += bool(task.reason)
            elif isinstance(task, ReadPosition):
                delay += backoff_seconds(task.attempt)
            heapq.heappush(self._events, (now + delay, next(self._order), task))


# In an hour: one retry each 15 seconds at the soonest, once delays have doubled to that, and those before.
RETRIES = int(HOUR / 15) + 12
# In flight, and those that changed or were shipped ahead of the run.
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
    """Whatever fails or changes, and however often events bring listings: tasks and log lines stay few in an hour."""
    hour = Hour({0: first, **fates}, hints, commits_fail=commits_fail, merging=merging).run()
    segments = len(fates) + 1  # each may move the next offset once, and the delays begin again
    assert hour.most_pending <= 1
    assert hour.done["logged"] <= RETRIES + 12 * segments, hour.done
    assert hour.done["ReadPosition"] <= RETRIES + 12 * segments, hour.done
    assert hour.done["Ship"] <= TRIED_AT_ONCE * (RETRIES + 12 * segments), hour.done


def test_u35_segments_that_all_keep_changing_are_tried_some_hundred_times_an_hour() -> None:
    """Of 99 segments that a busy cleaner rewrites (it was 260 log lines a minute) nothing is lost of sight either."""
    hour = Hour({base * 100: "changed" for base in range(99)}, hints=1.0).run()
    assert hour.most_pending == 1
    assert 120 <= hour.done["logged"] <= RETRIES
    assert hour.done["Ship"] <= TRIED_AT_ONCE * RETRIES
    wait = hour.tracker.backlog()[TP].wait
    assert wait is not None
    assert (wait.reason, wait.ordinary) == (WaitReason.CHANGED, False)


def test_u35_once_the_cause_is_gone_all_is_committed() -> None:
    """Within one delay; nothing that was held back is forgotten, and the delays begin again at the shortest."""
    hour = Hour({base * 100: "changed" for base in range(20)}, hints=30.0, heals_at=HOUR - 60).run()
    assert hour.next_offset == 2000
    assert hour.tracker._partitions[TP].retries == Retries()


def test_u35_a_listing_alone_does_not_bring_what_changed_back() -> None:
    """It is tried again once the delay is over, and from a listing that was taken after that."""
    tracker, ask = led(0, 100, 200)
    ships = tracker.conclude(well(ask, 0))
    tasks = [task for ship in ships for task in tracker.conclude(changed(ship))]  # type: ignore[arg-type]
    assert tasks == [Rescan(TP, ask.generation, 1, reason="the cleaner")]
    assert tracker.observe(listing(0, 100, 200)) == tracker.observe(listing(0, 200)) == []
    assert tracker.conclude(LookDue(TP, ask.generation)) == []
    assert [ship.base for ship in tracker.observe(listing(0, 200)) if isinstance(ship, Ship)] == [0]


def test_u35_other_segments_go_on_while_one_keeps_changing() -> None:
    """As behind an upload that fails: so many that there is no standstill, and no more."""
    hour = Hour({0: "changed", **{base * 100: "well" for base in range(1, 99)}}, hints=3.0).run()
    assert 2 * SEGMENTS_IN_FLIGHT <= hour.done["Ship"] <= RETRIES + 2 * SEGMENTS_IN_FLIGHT
    assert hour.next_offset == 0


def test_u35_the_queue_of_an_agent_never_holds_two_looks_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real queue and its delays, while hints bring a listing after each change."""
    monkeypatch.setattr(workers, "_FIRST_WAIT_SECONDS", 0.002)
    monkeypatch.setattr(workers, "_LONGEST_WAIT_SECONDS", 0.02)
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

    rescans, ships = list(dispatch(tracker.conclude(well(ask, 0)))), 0
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
    """The delay of the next question doubles with each round; only a commit that moves ends that."""
    tracker, ask = led(0, 100, 200, 300, 400, 500)
    attempts = []
    for _ in range(3):
        first, *others, last = tracker.conclude(well(ask, 0))
        asked = tracker.conclude(failed(first))  # type: ignore[arg-type]
        for other in others:
            asked += tracker.conclude(failed(other))  # type: ignore[arg-type]
        asked += tracker.conclude(well(last, 0))
        (ask,) = asked  # type: ignore[assignment]
        assert isinstance(ask, ReadPosition)
        attempts.append(ask.attempt)
    assert attempts == [1, 2, 3]


def test_u35_a_look_at_deleted_files_that_fails_is_named_with_its_error() -> None:
    """A gap that cannot be judged waits for that look, and the line tells why it fails."""
    tracker, ask = led(300, 400)
    tasks = tracker.observe(replace(listing(300, 400), deleted=(100,), whole=True))
    tasks += tracker.conclude(well(ask, 50))
    (look,) = [task for task in tasks if isinstance(task, LookBelow)]
    tracker.conclude(failed(look))
    wait = tracker.backlog()[TP].wait
    assert wait is not None
    assert (wait.reason, wait.text) == (WaitReason.GAP, "a look at the .deleted files: because")
