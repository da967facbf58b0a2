"""What must be true at every moment, checked in the store itself while everything around it breaks.

The pair (epoch, next) never falls, and in partitions without unclean elections neither does the next offset. Readers
return every acknowledged record below it once, with the acknowledged offset and id; no offset is missing. What was
readable once stays the same, and a `.log` never changes.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.soak.load import Ledger
from tests.soak.rows import Reader, View
from tests.soak.stage import COMPACTED, PARTITIONS, STRICT, Stage
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.errors import TransientError
from ts_common.model import TopicPartition

_EVERY_SECONDS = 0.2
_COMMITS_PER_VIEW = 4
_REMEMBERED = 6


class Violated(AssertionError):
    """An invariant is violated; the message has the invariant, the place and the values."""


@dataclass
class Invariants:
    """Reads the store repeatedly; owned by the thread that calls `watch`, and after it by the thread that joined it.

    Attributes:
        polls: rounds over the commits of all partitions.
        views: whole views that were read.
        missed: polls that the store did not answer.
        commits: number of different commits.
        last: of each partition, the last commits.
    """

    stage: Stage
    ledger: Ledger
    polls: int = 0
    views: int = 0
    missed: int = 0
    commits: int = 0
    last: dict[TopicPartition, deque[Commit]] = field(
        default_factory=lambda: {partition: deque(maxlen=_REMEMBERED) for partition in PARTITIONS}
    )
    _shown: dict[TopicPartition, View] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.reader = Reader(self.stage.store, self.stage.keys)

    def stop(self) -> None:
        """End `watch` soon."""
        self._stop.set()

    def watch(self) -> None:
        """Poll until `stop`.

        Raises:
            Violated: at once.
        """
        while not self._stop.wait(_EVERY_SECONDS):
            self._answered(self.check_commits)
            if self.polls % _COMMITS_PER_VIEW == 0:
                partition = PARTITIONS[self.polls // _COMMITS_PER_VIEW % len(PARTITIONS)]
                self._answered(partial(self.check_view, partition))
            self.polls += 1

    def check_commits(self) -> None:
        """Check that the pair (epoch, next) of no partition has fallen."""
        for partition in PARTITIONS:
            found, _ = read_commit(self.stage.store, self.stage.keys.partition(partition))
            before = self.last[partition][-1] if self.last[partition] else None
            if found is None:
                if before is not None:
                    raise Violated(f"{partition}: the commit is gone; it was {before}")
                continue
            if not isinstance(found, Commit):
                raise Violated(f"{partition}: a commit of nobody: {found}")
            if before is not None and found.nonce == before.nonce:
                continue
            self.commits += 1
            self.last[partition].append(found)
            if before is None:
                continue
            if (found.epoch, found.next_offset) < (before.epoch, before.next_offset):
                raise Violated(f"{partition}: (epoch, next) fell from {before} to {found}")
            if partition.topic == STRICT and found.next_offset < before.next_offset:
                raise Violated(f"{partition}: without an unclean election next fell from {before} to {found}")

    def check_view(self, partition: TopicPartition) -> None:
        """Check that the view of a partition is complete."""
        view = self.reader.view(partition)
        if view.warning is not None and view.end > view.start:
            raise Violated(f"{partition}: {view.warning}")
        if view.holes:
            raise Violated("\n".join([f"{partition}: holes at {view.holes}", *view.around]))
        if self.reader.changed:
            raise Violated(f"{self.reader.changed} changed")
        offsets = [offset for offset, _ in view.rows]
        if partition.topic == COMPACTED:
            if sorted(set(offsets)) != offsets:
                raise Violated(f"{partition}: offsets do not rise")
        elif offsets != list(range(view.start, view.end)) or (view.rows and view.start != 0):
            lost = sorted(set(range(view.end)) - set(offsets))
            raise Violated(
                f"{partition}: {len(offsets)} rows in [{view.start}, {view.end}), "
                f"{len(offsets) - len(set(offsets))} of them twice, {len(lost)} missing: {lost[:20]}"
            )
        if partition.topic == STRICT:
            self._check_records(partition, view)
        self._shown[partition] = view
        self.views += 1

    def _check_records(self, partition: TopicPartition, view: View) -> None:
        rows = dict(view.rows)
        wrong = {
            offset: (id_, rows.get(offset))
            for offset, id_ in self.ledger.below(partition, view.end).items()
            if rows.get(offset) != id_
        }
        if wrong:
            offset, (id_, there) = min(wrong.items())
            raise Violated(
                f"{partition}: {len(wrong)} acknowledged records below {view.end} are not shown; the first is {id_} at "
                f"{offset}, where {there} stands"
            )
        before = self._shown.get(partition)
        if before is not None and view.rows[: len(before.rows)] != before.rows:
            raise Violated(f"{partition}: rows below {before.end} are not what they were")

    def _answered(self, poll: Callable[[], None]) -> None:
        try:
            poll()
        except TransientError:
            self.missed += 1
