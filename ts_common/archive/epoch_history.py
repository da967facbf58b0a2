"""Leader epochs over offsets: which leader epoch wrote which offset.

A list of (epoch, start offset) pairs, both strictly rising, says that offsets from a pair's start up to the next
pair's start were written in that epoch. Kafka's own `leader-epoch-checkpoint` has this form (KIP-101), and so has the
commit. Batches of magic 0 and 1 carry no epoch (-1 here): they neither kill nor die.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from operator import itemgetter

NO_EPOCH = -1


def epoch_borne(copy: Iterable[tuple[int, int]], offset: int) -> int:
    """The leader epoch that a copy's own (epoch, first base offset with it) pairs give an offset; -1 below them all."""
    pairs = (pair for pair in copy if pair[1] <= offset)
    return max(pairs, key=itemgetter(1), default=(NO_EPOCH, 0))[0]


@dataclass(frozen=True, slots=True)
class EpochHistory:
    """An immutable list of (epoch, start offset) pairs.

    Raises:
        ValueError: epochs or start offsets that do not rise.
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
        """A segment's epochs without what has none: batches of old magic belong to the epoch on both sides of them."""
        pairs: list[tuple[int, int]] = []
        for epoch, first in epochs:
            if epoch != NO_EPOCH and (not pairs or epoch > pairs[-1][0]):
                pairs.append((epoch, first))
        return cls(tuple(pairs))

    def at(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None below the first pair, where nothing is known."""
        index = bisect_right(self.pairs, offset, key=lambda pair: pair[1])
        return self.pairs[index - 1][0] if index else None

    def below(self, end: int) -> "EpochHistory":
        """What the list says of offsets below `end`."""
        return EpochHistory(tuple(pair for pair in self.pairs if pair[1] < end))

    def from_offset(self, start: int) -> "EpochHistory":
        """What the list says of offsets from `start` on."""
        later = tuple(pair for pair in self.pairs if pair[1] > start)
        epoch = self.at(start)
        return EpochHistory(later if epoch is None else ((epoch, start), *later))

    def continued(self, other: "EpochHistory", at: int) -> "EpochHistory":
        """This list for offsets below `at`, the other for those from `at` on.

        Where the other's epoch at `at` began before, its leadership simply goes on. Pairs of the other that would make
        an epoch fall are left out: an older leader epoch cannot follow a newer one. An epoch that both know begins
        where the earlier of the two says: it has one leader, in whose log it begins at one offset; a follower learns of
        it with the first batch that compaction left.
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
        """This list below `at`, and what the other says of later epochs that begin from there on."""
        pairs = self.below(at).pairs
        last = pairs[-1][0] if pairs else NO_EPOCH
        return EpochHistory((*pairs, *(pair for pair in other.pairs if pair[1] >= at and pair[0] > last)))

    def with_evidence(self, epoch: int, offset: int) -> "EpochHistory":
        """This list where it is known that `epoch` wrote `offset`; what that contradicts is left out."""
        before = tuple(pair for pair in self.pairs if pair[1] < offset and pair[0] <= epoch)
        after = tuple(pair for pair in self.pairs if pair[1] > offset and pair[0] > epoch)
        here = () if before and before[-1][0] == epoch else ((epoch, offset),)
        return EpochHistory((*before, *here, *after))

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """What a leader with this list answers to "where did `epoch` end?" (Kafka's OffsetsForLeaderEpoch).

        Args:
            epoch: asked for; not above the last of this list.
            log_end: end of the leader's log.

        Returns:
            the greatest epoch at or below the one asked for, and where it ended; the asked one itself, with the start
            of the whole list, where all epochs are above it.

        Raises:
            ValueError: `epoch` is above the last of this list, so a leader of it was never here.
        """
        if not self.pairs or epoch > self.pairs[-1][0]:
            raise ValueError(f"epoch {epoch} is above all of {self.pairs}")
        if epoch == self.pairs[-1][0]:
            return epoch, log_end
        following = bisect_right(self.pairs, epoch, key=lambda pair: pair[0])
        floor = self.pairs[following - 1][0] if following else epoch
        return floor, self.pairs[following][1]

    def shared_end(self, end: int, leader: "EpochHistory", leader_end: int) -> int:
        """Where a follower whose log ends at `end` would truncate to, so that it holds nothing else than the leader.

        KIP-279: the follower asks for its last epoch; where the leader knows only a lower one, it drops what it wrote
        since and asks again, until both name the same (Kafka's `AbstractFetcherThread.getOffsetTruncationState`).

        Args:
            end: end of the follower's log; this list is the follower's.
            leader: the leader's list.
            leader_end: end of the leader's log.

        Raises:
            ValueError: this list knows an epoch above all of the leader's.
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
        """Whether every batch of a copy in `[start, end)` bears the epoch that this list gives its offset.

        Args:
            copy: (epoch, first base offset with it) wherever the epoch changes in the copy.
            start: first offset that is asked about.
            end: the offset after the last.
        """
        return self.live_end(copy, start, end) == end

    def live_end(self, copy: Iterable[tuple[int, int]], start: int, end: int) -> int:
        """Where the live part of a copy ends (reading rule 2).

        What is dead in a copy is always its tail. An offset agrees where a stretch of the copy's own epochs names it
        with the epoch that this list gives it. All below the last offset that agrees lives: a replica with a batch of
        an epoch has followed that epoch's leader, whose log is this list's up to there. It may bear other epochs there
        all the same where compaction left nothing: a follower learns of an epoch with the first batch of it that is
        left. Behind that offset, the first batch of another epoch than this list gives it begins what is dead. The
        epoch of a batch is compared at its first offset and, since this list may change within the copy's stretch of
        one epoch, at each start of a pair of this list. Epoch -1 (old magic) agrees with nothing and contradicts
        nothing. Without pairs (a foreign commit) nothing is dead here. Below the first pair nothing is known but that
        epochs never fall: a batch of a later epoch than that pair's is dead.
        """
        starts = [(epoch, first) for epoch, first in copy if first < end]
        if not starts:  # a segment that compaction emptied
            return end
        if len(starts) == 1:  # nearly all; what follows says the same of them
            begun, ended = self._stretch(starts[0][0])
            if begun <= starts[0][1] and end <= ended:
                return end
        ends = [first for _, first in starts[1:]] + [end]
        stretches = [(epoch, first, last) for (epoch, first), last in zip(starts, ends, strict=True)]
        for epoch, first, last in stretches:
            begun, ended = self._stretch(epoch)
            if max(first, begun) < min(last, ended):
                start = max(start, last if last <= ended else int(ended))
        for epoch, first, last in stretches:
            if epoch == NO_EPOCH or last <= start:
                continue
            begin = max(first, start)
            index = bisect_right(self.pairs, begin, key=itemgetter(1))
            offset = begin
            while True:
                if not index:  # below the list nothing lives of a later epoch than its first
                    if self.pairs and epoch > self.pairs[0][0] != NO_EPOCH:
                        return offset
                elif self.pairs[index - 1][0] not in {NO_EPOCH, epoch}:
                    return offset
                if index == len(self.pairs) or self.pairs[index][1] >= last:
                    break
                offset = self.pairs[index][1]
                index += 1
        return end

    def _stretch(self, epoch: int) -> tuple[float, float]:
        """Offsets `[start, end)` that an epoch wrote by this list; nothing where it is not in it."""
        index = bisect_left(self.pairs, epoch, key=lambda pair: pair[0])
        if index == len(self.pairs) or self.pairs[index][0] != epoch:
            return 0, 0
        return self.pairs[index][1], self.pairs[index + 1][1] if index + 1 < len(self.pairs) else inf


def _lowered(line: EpochHistory, known: Iterable[tuple[int, int]]) -> EpochHistory:
    """A list in which no epoch begins later than is known; what would then begin behind a later epoch is left out."""
    starts = dict(known)
    pairs: list[tuple[int, int]] = []
    for epoch, start in line.pairs:
        begin = min(start, starts.get(epoch, start))
        while pairs and pairs[-1][1] >= begin:
            pairs.pop()
        pairs.append((epoch, begin))
    return EpochHistory(tuple(pairs))
