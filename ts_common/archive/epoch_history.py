"""The leader epochs of a log: which leader epoch wrote which offset.

The form is that of Kafka's `leader-epoch-checkpoint` (KIP-101) and of the commit: a list of (epoch, start offset)
pairs, both strictly rising. A pair's epoch wrote the offsets from its start up to the next pair's start. Batches of
magic 0 and 1 have no epoch (-1 here): they are always live, and make no other batch dead.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from operator import attrgetter, itemgetter
from typing import Annotated, Final

from ts_common.archive.stored_object import FieldKind
from ts_common.json_objects import epoch_pair, rows

NO_EPOCH = -1


def epoch_borne(copy: Iterable[tuple[int, int]], offset: int) -> int:
    """Return the leader epoch of an offset by a copy's own (epoch, first base offset) pairs; -1 below the first."""
    pairs = (pair for pair in copy if pair[1] <= offset)
    return max(pairs, key=itemgetter(1), default=(NO_EPOCH, 0))[0]


@dataclass(frozen=True, slots=True)
class EpochHistory:
    """An immutable list of (epoch, start offset) pairs.

    Raises:
        ValueError: epochs or start offsets do not rise.
    """

    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for (epoch, start), (next_epoch, next_start) in pairwise(self.pairs):
            if next_epoch <= epoch or next_start <= start:
                raise ValueError(f"epochs do not rise: ({epoch}, {start}) before ({next_epoch}, {next_start})")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)

    @classmethod
    def of_batches(cls, epochs: Iterable[tuple[int, int]]) -> "EpochHistory":
        """Return a segment's epochs without batches of magic 0 and 1, which belong to the epoch around them."""
        pairs: list[tuple[int, int]] = []
        for epoch, first in epochs:
            if epoch != NO_EPOCH and (not pairs or epoch > pairs[-1][0]):
                pairs.append((epoch, first))
        return cls(tuple(pairs))

    def at(self, offset: int) -> int | None:
        """Return the epoch that wrote `offset`; None below the first pair, where it is unknown."""
        index = bisect_right(self.pairs, offset, key=lambda pair: pair[1])
        return self.pairs[index - 1][0] if index else None

    def below(self, end: int) -> "EpochHistory":
        """Return the list for offsets below `end`."""
        return EpochHistory(tuple(pair for pair in self.pairs if pair[1] < end))

    def from_offset(self, start: int) -> "EpochHistory":
        """Return the list for offsets from `start` on."""
        later = tuple(pair for pair in self.pairs if pair[1] > start)
        epoch = self.at(start)
        return EpochHistory(later if epoch is None else ((epoch, start), *later))

    def continued(self, other: "EpochHistory", at: int) -> "EpochHistory":
        """Return this list for offsets below `at`, and the other for those from `at` on.

        If the other's epoch at `at` began earlier, it continues. Pairs of the other that would make an epoch fall are
        left out: an older leader epoch cannot follow a newer one. For an epoch in both lists, the smaller start counts.
        It has one start in its leader's log, but a follower learns of the epoch with the first batch that compaction
        left.
        """
        line = _lowered(other, [pair for pair in self.pairs if pair[1] >= at])
        pairs = list(self.below(at).pairs)
        epoch = line.at(at)
        tail = [(epoch, at)] if epoch is not None else []
        tail += [pair for pair in line.pairs if pair[1] > at]
        for pair in tail:
            if not pairs or pair[0] > pairs[-1][0]:
                pairs.append(pair)
        return EpochHistory(tuple(pairs))

    def with_next(self, other: "EpochHistory", at: int) -> "EpochHistory":
        """Return this list below `at`, with the later epochs of the other that begin at or above it."""
        pairs = self.below(at).pairs
        last = pairs[-1][0] if pairs else NO_EPOCH
        return EpochHistory((*pairs, *(pair for pair in other.pairs if pair[1] >= at and pair[0] > last)))

    def with_evidence(self, epoch: int, offset: int) -> "EpochHistory":
        """Return this list with the fact that `epoch` wrote `offset`; pairs that contradict it are left out."""
        before = tuple(pair for pair in self.pairs if pair[1] < offset and pair[0] <= epoch)
        after = tuple(pair for pair in self.pairs if pair[1] > offset and pair[0] > epoch)
        here = () if before and before[-1][0] == epoch else ((epoch, offset),)
        return EpochHistory((*before, *here, *after))

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the end of an epoch, as a leader with this list does (Kafka's OffsetsForLeaderEpoch).

        Args:
            epoch: the requested epoch; not above the last of this list.
            log_end: end of the leader's log.

        Returns:
            the greatest epoch at or below the requested one, and its end offset. If all epochs are above the requested
            one: the requested one, and the start of the list.

        Raises:
            ValueError: `epoch` is above the last of this list, so its leader never had this log.
        """
        if not self.pairs or epoch > self.pairs[-1][0]:
            raise ValueError(f"epoch {epoch} is above all of {self.pairs}")
        if epoch == self.pairs[-1][0]:
            return epoch, log_end
        following = bisect_right(self.pairs, epoch, key=lambda pair: pair[0])
        floor = self.pairs[following - 1][0] if following else epoch
        return floor, self.pairs[following][1]

    def shared_end(self, end: int, leader: "EpochHistory", leader_end: int) -> int:
        """Return the offset that a follower with this list would truncate its log to.

        KIP-279: the follower requests the end of its last epoch. If the leader returns a lower epoch, the follower
        drops its later epochs and repeats the request, until both have the same epoch (Kafka's
        `AbstractFetcherThread.getOffsetTruncationState`).

        Args:
            end: end of the follower's log.
            leader_end: end of the leader's log.

        Raises:
            ValueError: this list has an epoch above all of the leader's.
        """
        position = end
        mine = EpochHistory(tuple(pair for pair in self.pairs if pair[1] <= end))
        while mine.pairs:
            epoch, ended = leader.end_of(mine.pairs[-1][0], leader_end)
            known, my_end = mine.end_of(epoch, position)
            position = min(position, my_end)
            if known == epoch:
                return min(position, ended)
            mine = mine.below(position)
        return position

    def agrees_with(self, copy: Iterable[tuple[int, int]], start: int, end: int) -> bool:
        """Return whether every batch of a copy in `[start, end)` has the epoch that this list gives its offset.

        Args:
            copy: pairs (epoch, first base offset) at each change of epoch in the copy.
            start: first offset to check.
            end: the offset after the last.
        """
        return self.live_end(copy, start, end) == end

    def live_end(self, copy: Iterable[tuple[int, int]], start: int, end: int) -> int:
        """Return the end of the live part of a copy (reading rule 2).

        Dead batches are always the tail of a copy. An offset agrees if the copy's own epochs give it the epoch that
        this list gives it. All batches below the last offset that agrees are live: a replica with a batch of an epoch
        has followed that epoch's leader, whose log is that of this list up to there. Earlier batches can have other
        epochs where compaction removed some, because a follower learns of an epoch with the first batch that is left.

        After the last offset that agrees, the dead tail begins with the first batch of another epoch than this list
        gives it. The epoch of a batch is compared at its first offset, and at each start of a pair of this list,
        because the list can change within the copy's range of one epoch.

        Epoch -1 (magic 0 and 1) neither agrees nor contradicts. Without pairs (a foreign commit) no batch is dead.
        Below the first pair only one fact is known, that epochs never fall: a batch of a later epoch than that pair's
        is dead.
        """
        starts = [(epoch, first) for epoch, first in copy if first < end]
        if not starts:  # a segment that compaction emptied
            return end
        if len(starts) == 1:  # nearly all copies; a shortcut with the same result
            begun, ended = self._stretch(starts[0][0])
            if begun <= starts[0][1] and end <= ended:
                return end
        ends = [first for _, first in starts[1:]] + [end]
        stretches = [(epoch, first, last) for (epoch, first), last in zip(starts, ends, strict=True)]
        start = self._agreed_to(stretches, start)
        for epoch, first, last in stretches:
            if epoch != NO_EPOCH and start < last:
                dead = self._dead_from(epoch, max(first, start), last)
                if dead is not None:
                    return dead
        return end

    def _agreed_to(self, stretches: Iterable[tuple[int, int, int]], start: int) -> int:
        """Return the offset after the last one that agrees; `start` without one."""
        for epoch, first, last in stretches:
            begun, ended = self._stretch(epoch)
            if max(first, begun) < min(last, ended):
                start = max(start, last if last <= ended else int(ended))
        return start

    def _dead_from(self, epoch: int, offset: int, last: int) -> int | None:
        """Return where batches of an epoch in `[offset, last)` are dead from, by this list; None if they are live."""
        index = bisect_right(self.pairs, offset, key=itemgetter(1))
        while True:
            if not index:  # below the list, a batch of a later epoch than its first is dead
                if self.pairs and epoch > self.pairs[0][0] != NO_EPOCH:
                    return offset
            elif self.pairs[index - 1][0] not in {NO_EPOCH, epoch}:
                return offset
            if index == len(self.pairs) or self.pairs[index][1] >= last:
                return None
            offset = self.pairs[index][1]
            index += 1

    def _stretch(self, epoch: int) -> tuple[float, float]:
        """Return the offsets `[start, end)` that an epoch wrote by this list; an empty range if it lacks the epoch."""
        index = bisect_left(self.pairs, epoch, key=lambda pair: pair[0])
        if index == len(self.pairs) or self.pairs[index][0] != epoch:
            return 0, 0
        return self.pairs[index][1], self.pairs[index + 1][1] if index + 1 < len(self.pairs) else inf


def _decoded(value: object) -> EpochHistory:
    return EpochHistory(tuple([epoch_pair(each) for each in rows(value)]))


EPOCHS: Final = FieldKind(_decoded, attrgetter("pairs"))
StoredEpochs = Annotated[EpochHistory, EPOCHS]


def _lowered(line: EpochHistory, known: Iterable[tuple[int, int]]) -> EpochHistory:
    """Return the list with the smaller start of each known epoch, without pairs that a later epoch then precedes."""
    starts = dict(known)
    pairs: list[tuple[int, int]] = []
    for epoch, start in line.pairs:
        begin = min(start, starts.get(epoch, start))
        while pairs and pairs[-1][1] >= begin:
            pairs.pop()
        pairs.append((epoch, begin))
    return EpochHistory(tuple(pairs))
