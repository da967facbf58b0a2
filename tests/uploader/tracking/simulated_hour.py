"""An hour of one partition, with a clock of its own."""

import heapq
import itertools
import random
from collections import Counter

from tests.uploader.tracking.led_partition import led
from tests.uploader.tracking.messages import changed, failed, listing, succeeded
from ts_common.store.retry import backoff_seconds
from ts_uploader.messages.results import Result
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Rescan, Ship, WriteCommit

HOUR = 3600.0


class Hour:
    """An hour of one partition on a simulated clock: the pure tracker with the delays of the queues, without threads.

    Args:
        fates: the result of each attempt to ship a segment, by base.
        hints: seconds between two listings that other events cause than the tracker's own tasks.
        commits_fail: whether each commit fails.
        merging: whether each listing has one segment less than the one before, as while the cleaner merges.
        heals_at: from then on everything succeeds.
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
        self.pending = 0  # listings that are scheduled now
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
        return succeeded(task, self.next_offset)

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
