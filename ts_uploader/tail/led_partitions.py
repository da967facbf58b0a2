"""The partitions whose tail this agent ships to one log: what each has shipped, and what waits.

A partition is shipped from this leadership's own commit on (tail rule 1), which names the log. It continues where the
chain of that commit ends (tail rule 2). While that commit is not known, only the high watermark is requested: the
position of a partition that is written to is read before its turn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from operator import is_, is_not
from typing import NamedTuple

from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.tail_chain import TailEntry
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.tasks import Position
from ts_uploader.tail.live_log import LiveLog, Piece
from ts_uploader.tail.merged_body import LogPlace
from ts_uploader.tracking.backlog import Backlog


class OwnCommit(NamedTuple):
    """A commit of the leadership that ships.

    Attributes:
        keys: of its incarnation.
        directory: of `keys`, which make another text each time. Entries that share one are sorted and counted faster.
    """

    commit: Commit
    keys: PartitionKeys
    directory: str


@dataclass(slots=True, eq=False)
class LedPartition:
    """One partition in one leadership.

    Attributes:
        listing: the newest one of its directory, which is the same in one leadership.
        epoch: leader epoch of the leadership.
        own: this leadership's newest commit; None while it is not known.
        high: its high watermark, as last answered; -1 before that.
        changes: how often another one was answered.
        since: since when records above `end` are known to be acknowledged, seconds of a monotonic clock; None without.
        is_beginning: whether it has not reached its high watermark yet in this leadership, and its log can be read.
        is_lost: whether its log has not the batches that were shipped before `end`.
    """

    partition: TopicPartition
    listing: Listing
    epoch: int
    own: OwnCommit | None = None
    high: int = -1
    changes: int = 0
    since: float | None = None
    is_beginning: bool = True
    is_lost: bool = False
    _log: LiveLog | None = None
    _known: LiveLog | None = None  # while the chain has to be read: the log as it was read before

    @property
    def end(self) -> int | None:
        """Where the next entry begins; None while the chain has to be read."""
        return None if self._log is None else self._log.end

    @property
    def place(self) -> LogPlace | None:
        """Where that is in its log; None while that is not known."""
        return None if self._log is None else self._log.place

    @property
    def is_waiting(self) -> bool:
        """Whether records above its end are acknowledged, and this leadership has its commit."""
        if self.own is None:
            return False
        return self.is_lost or self.high > (self.own.commit.next_offset if self._log is None else self._log.end)

    def take_commit(self, own: OwnCommit) -> None:
        """Continue with a later commit of this leadership."""
        before, self.own = self.own, own
        following = own.commit.next_offset
        is_other = before is None or before.commit.next_offset > following or before.keys != own.keys
        if before is None or is_other or own.commit.lineage != before.commit.lineage:
            self._log = self._known = None
        elif _former(before.commit) - _former(own.commit) and following < beginning(own.commit):
            self.continue_at(None)  # the commit was lost and rebuilt, or own entries cover what the former ones had
        elif self._log is not None and following > self._log.end - self.is_lost:
            self.continue_at(following)

    def continue_at(self, end: int | None, unproved: TailEntry | None = None) -> None:
        """Begin the next entry at an offset.

        Args:
            end: None: where the chain ends, which has to be read.
            unproved: the entry of this leadership that ends there, if another process may have shipped it.
        """
        known, self._known, self._log = self._log or self._known, None, None
        self.is_lost = False
        if end is None:
            self._known = known
        else:
            self._log = known if known is not None and known.moves_to(end) else self.log_from(end, unproved)

    def log_from(self, start: int, unproved: TailEntry | None = None) -> LiveLog:
        """Return its log from an offset on; `unproved` as of `LiveLog`."""
        return LiveLog(self.listing.directory, self.listing.identity, self.epoch, start, unproved)

    def read(self, most: int) -> Piece | None:
        """Return the next batches, as `LiveLog.read` does. After an error the log is opened again."""
        if self._log is None:
            return None
        try:
            return self._log.read(self.high, most)
        except BaseException:
            self._log = self.log_from(self._log.end, self._log.unproved)
            raise

    def take(self, piece: Piece) -> None:
        """Continue after a piece, which the store has."""
        if self._log is not None:
            self._log.take(piece)


class LedPartitions:
    """All partitions of one log.

    Attributes:
        waiting: those with `is_waiting`.

    Args:
        log: its name.
        selects: whether a topic's tail is shipped to the log.
    """

    def __init__(self, log: str, selects: Callable[[str], bool]) -> None:
        self.waiting: dict[TopicPartition, LedPartition] = {}
        self._log = log
        self._selects = selects
        self._led: dict[TopicPartition, LedPartition] = {}
        self._seen: Mapping[TopicPartition, Backlog] = {}
        self._epochs: Mapping[TopicPartition, int] = {}

    def __iter__(self) -> Iterator[LedPartition]:
        return iter(self._led.values())

    def __len__(self) -> int:
        return len(self._led)

    @property
    def epochs(self) -> Mapping[TopicPartition, int]:
        """The leader epoch of each; another object after a change."""
        return self._epochs

    def update(self, backlog: Mapping[TopicPartition, Backlog], now: float) -> None:
        """Accept the tracker's view of all partitions that this broker leads."""
        if backlog is self._seen:
            return
        seen, is_changed = self._seen, False
        changed: Iterable[tuple[TopicPartition, Backlog]] = backlog.items()
        # Mostly a copy of the last view with some other values: then ten thousand are compared without look-ups.
        has_same = len(backlog) == len(seen) and all(map(is_, backlog, seen))
        if has_same:
            changed = compress(changed, map(is_not, backlog.values(), seen.values()))
        selected: dict[str, bool] = {}  # by topic; a checkpoint changes the backlog of thousands of partitions
        for partition, known in changed:
            before, topic = seen.get(partition), partition.topic
            if known is before:
                continue
            if topic not in selected:
                selected[topic] = self._selects(topic)
            if not selected[topic]:
                is_changed |= self._drop(partition)
            elif (
                before is None
                or partition not in self._led
                or (known.listing, known.position) != (before.listing, before.position)
            ):
                is_changed |= self._update(partition, known, now)
        for partition in () if has_same else self._led.keys() - backlog.keys():
            is_changed |= self._drop(partition)
        self._seen = backlog
        if is_changed:
            self._epochs = {partition: led.epoch for partition, led in self._led.items()}

    def note(self, high_watermarks: Mapping[TopicPartition, int], now: float) -> list[LedPartition]:
        """Accept new high watermarks; return the partitions that have one and no commit of this leadership."""
        unread = []
        for partition, high in high_watermarks.items():
            led = self._led.get(partition)
            if led is not None and led.high != high:
                led.high = high
                led.changes += 1
                self.look(led, now)
                if led.own is None:
                    unread.append(led)
        return unread

    def look(self, led: LedPartition, now: float) -> None:
        """Note whether a partition waits now."""
        if not led.is_waiting:
            self.waiting.pop(led.partition, None)
            led.since = None
            led.is_beginning &= led.own is None or led.high < 0
        elif led.partition not in self.waiting:
            self.waiting[led.partition] = led
            led.since = now

    def begin_again(self, now: float) -> None:
        """Have all chains read again: what the store has is unknown."""
        for led in self._led.values():
            led.continue_at(None)
            self.look(led, now)

    def _update(self, partition: TopicPartition, known: Backlog, now: float) -> bool:
        """Accept the tracker's view of one partition; return whether the leader epochs changed."""
        epoch, position = known.listing.last_epoch.epoch, known.position
        if epoch is None:
            return self._drop(partition)
        led = self._led.get(partition)
        is_new = led is None or led.epoch != epoch or _place(led.listing) != _place(known.listing)
        if led is None or is_new:
            self._drop(partition)
            led = self._led[partition] = LedPartition(partition, known.listing, epoch)
        led.listing = known.listing
        own = self._own(position, epoch)
        if own is not None and (led.own is None or own.commit is not led.own.commit):
            led.take_commit(own)
            self.look(led, now)
        return is_new

    def _own(self, position: Position | None, epoch: int) -> OwnCommit | None:
        """Return the commit of a position if it is of the leadership, and names this log."""
        commit = None if position is None else position.commit
        if position is None or not isinstance(commit, Commit) or commit.live is None:
            return None
        if (commit.epoch, commit.live.log) != (epoch, self._log):
            return None
        return OwnCommit(commit, position.keys, position.keys.directory)

    def _drop(self, partition: TopicPartition) -> bool:
        self.waiting.pop(partition, None)
        return self._led.pop(partition, None) is not None


def beginning(commit: Commit) -> int:
    """Return where a commit's leadership begins, by its epochs; the next offset if they do not have it."""
    ahead = () if commit.live is None else commit.live.ahead
    return max(
        (first for epoch, first in (*commit.epochs, *ahead) if epoch == commit.epoch), default=commit.next_offset
    )


def _former(commit: Commit) -> set[tuple[str, int]]:
    return set() if commit.live is None else {*commit.live.former}


def _place(listing: Listing) -> tuple[object, ...]:
    """Return what distinguishes directories of one partition."""
    return listing.log_dir, listing.renamed, listing.identity
