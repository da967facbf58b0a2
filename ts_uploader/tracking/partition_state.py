"""The state of one partition in the tracker, and what follows from it. Pure; the tracker's one thread owns it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, takewhile
from pathlib import Path

from ts_common.archive.commit import Commit
from ts_common.archive.repair_requests import RepairRequest
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import FileState, Leadership, Listing
from ts_uploader.messages.results import Hanging
from ts_uploader.messages.tasks import Position, Ship, Shipped
from ts_uploader.tracking.high_watermarks import Counted, Counting
from ts_uploader.tracking.live_directories import Rivals
from ts_uploader.tracking.retries import NO_ENTRIES, Retries, no_entries
from ts_uploader.tracking.shipped_segments import counts, follows, overlapping

# A late write of a Java uploader arrives soon or never, so each interval between two checks is twice the one before.
_FIRST_JAVA_CHECK_SECONDS = 30.0
_LAST_JAVA_CHECK_SECONDS = 3600.0
_NANOSECONDS = 1_000_000_000
_REPAIRS_AT_ONCE = 100
_NOTHING: frozenset[int] = frozenset()  # shared by all partitions: each of ten thousand would need 216 bytes


@dataclass(slots=True)
class PartitionState:
    """The state of one partition in the tracker. Times are nanoseconds of the monotonic clock.

    Attributes:
        generation: results of tasks of an earlier generation are dropped.
        leadership: None while this broker does not lead, or the store fenced its leadership.
        leadership_reported: whether the leadership source ever reported who leads.
        reported_leadership: as last reported, also while it is fenced.
        fenced: leaderships of its topic id up to this one have ended, whatever the source reports.
        listing: the newest; None without a directory, and while the last one is known to be out of date.
        directory: (identity, log dir) of the live directory that the broker uses; None without one.
        appeared_at: when that directory was first listed.
        rival_directories: where several are live; `directory` is then the one that the broker uses.
        counting: counts checkpoint files since the leadership or directory began.
        high_watermark: by the last checkpoint that counts.
        answer: the broker's last answer, and the count of checkpoint files that ends it; None without one.
        short_checkpoints: a base, and how many checkpoints in a row ended below the end of its segment.
        counted: of the directory, the newest high watermark that counts, with any leader; outlives leaderships.
        rechecked_high_watermark: below the next offset; the agent read the position again because of it.
        position: as last read or written; None while it has to be read.
        last_next_offset: in this leadership, also while the position is being read again.
        last_own_commit: this agent's last commit, as read or written here; outlives leaderships.
        reading_position: a `ReadPosition` is under way.
        committing: a task that writes the commit is under way.
        retries: what failed, and the pending listing.
        failed_reads: how many reads of the position failed in a row.
        failed_read_reason: of the last of them, one line.
        last_listing: the last one in this leadership without renames under way.
        last_whole_listing: the last whole one in this leadership.
        renamed_by_retention: next base by base, of segments that retention renamed in this leadership.
        hanging: `.deleted` files that hang on the live log, by base.
        deleted_below: bases of the `.deleted` files below the lowest live one that were read for that.
        deleted_below_wanted: the lowest offset that the store lacked then.
        reading_deleted: a `LookBelow` is under way.
        gap_seen_at: when a listing first showed that no file here contains the next offset.
        gap_end: the lowest offset above it that a file here contained then.
        java_recheck_seconds: between two checks whether a Java uploader wrote late; 0 if none wrote lately.
        java_checked_at: when the last of those checks began.
        in_flight: bases of the segments that are being uploaded.
        shipped: shipped segments that continue the run, or may, by base.
        shipped_into_gaps: shipped segments in recorded gaps, by base.
        gap_being_filled: by the commit that is under way.
        filled_gaps: gaps that this leadership filled; their records stay in the store.
        repairs: requests to repair without an answer.
        repair: the request of the `Repair` that is under way; None without one.
        repairing: bases of its segments; None without one.
        covered_from: own entries cover from there on what former leaderships shipped; None if they do not yet.
    """

    partition: TopicPartition
    generation: int
    leadership: Leadership | None = None
    leadership_reported: bool = False
    reported_leadership: Leadership | None = None
    fenced: Leadership | None = None
    listing: Listing | None = None
    directory: tuple[tuple[int, int], Path] | None = None
    appeared_at: int = 0
    rival_directories: Rivals | None = None
    counting: Counting = field(default_factory=Counting)
    high_watermark: int | None = None
    answer: tuple[int, int] | None = None
    short_checkpoints: tuple[int, int] = (-1, 0)
    counted: Counted | None = None
    rechecked_high_watermark: int | None = None
    position: Position | None = None
    last_next_offset: int | None = None
    last_own_commit: Commit | None = None
    reading_position: bool = False
    committing: bool = False
    retries: Retries = field(default_factory=Retries)
    failed_reads: int = 0
    failed_read_reason: str = ""
    last_listing: Listing | None = None
    last_whole_listing: Listing | None = None
    renamed_by_retention: Mapping[int, int] = field(default_factory=no_entries)
    hanging: Mapping[int, Hanging] = field(default_factory=no_entries)
    deleted_below: frozenset[int] = _NOTHING
    deleted_below_wanted: int = 0
    reading_deleted: bool = False
    gap_seen_at: int | None = None
    gap_end: int = 0
    java_recheck_seconds: float = 0.0
    java_checked_at: int | None = None
    in_flight: frozenset[int] = _NOTHING
    shipped: Mapping[int, Shipped] = field(default_factory=no_entries)
    shipped_into_gaps: Mapping[int, Shipped] = field(default_factory=no_entries)
    gap_being_filled: tuple[int, int] | None = None
    filled_gaps: tuple[tuple[int, int], ...] = ()
    repairs: tuple[RepairRequest, ...] = ()
    repair: RepairRequest | None = None
    repairing: frozenset[int] | None = None
    covered_from: int | None = None

    @property
    def is_here(self) -> bool:
        """Whether at least one log dir has a live directory of the partition."""
        return self.directory is not None or self.rival_directories is not None

    def is_settled(self, log_dir: Path, *, counted: bool, is_deferred: bool) -> bool:
        """Return whether another checkpoint with an equal entry would change nothing, if no message arrives before it.

        Args:
            log_dir: of the checkpoint that was applied last.
            counted: whether its high watermark counts for the directory, which was live after it.
            is_deferred: the position is read later, and nothing is to be shipped before that.
        """
        listing, position = self.listing, self.position
        if listing is None or self.directory is None or self.rival_directories is not None:
            return False
        if self.directory[1] != log_dir or not self.leadership_reported:
            return False
        if self.counting.key is None:
            return True  # none counts before the directory has a leader epoch
        if not counted:
            return False
        if self.leadership is None or is_deferred:
            return True
        # The checkpoints below the end of a closed segment are counted.
        return position is not None and next(self.segments_from(listing, position.next_offset), None) is None

    def start_over(self, generation: int) -> None:
        """Forget everything about the leadership or directory before. Results of tasks under way no longer count."""
        self.generation = generation
        self.high_watermark = self.rechecked_high_watermark = self.answer = None
        self.position = self.last_next_offset = None
        self.reading_position = self.committing = False
        self.retries.clear()
        self.failed_reads = 0
        self.short_checkpoints = (-1, 0)
        self.last_listing = self.last_whole_listing = None
        self.renamed_by_retention = NO_ENTRIES
        self.forget_deleted()
        self.reading_deleted = False
        self.gap_seen_at = None
        self.java_recheck_seconds = 0.0
        self.in_flight = _NOTHING
        self.shipped = self.shipped_into_gaps = NO_ENTRIES
        self.gap_being_filled = None
        self.filled_gaps = ()
        self.repairs = ()
        self.repair = self.repairing = None
        self.covered_from = None

    def forget_position(self) -> None:
        """Drop the position after a failure, so that the agent reads it from the store again.

        Failures while it is being read, or while a commit is under way, count as one round.
        """
        if self.position is not None or not (self.reading_position or self.committing):
            self.retries.failures += 1
        self.position = None

    def note_failed_read(self, reason: str) -> None:
        """Count a failed read of the position, or a failed precondition of that read."""
        self.failed_reads += 1
        self.failed_read_reason = reason

    def take_listing(self, listing: Listing) -> None:
        """Apply a new listing of the same directory."""
        self.listing = listing
        if listing.swapping or not listing.bases:
            return  # while renames are under way, neighbouring bases prove nothing
        self.retries.listed()
        self.last_listing = listing
        lowest = listing.bases[0]
        # If a base is not live while one at or below it is, the cleaner merged it or the broker truncated the log.
        seen = [
            *self.renamed_by_retention.items(),
            *(_below(self.last_whole_listing.bases, lowest) if self.last_whole_listing is not None else ()),
        ]
        renamed = {base: end for base, end in seen if base < lowest and base in listing.deleted}
        if listing.whole:
            self.retries.keep(chain(listing.bases, listing.deleted))
            self.renamed_by_retention = renamed or NO_ENTRIES
            self.last_whole_listing = listing
        elif renamed:  # it can miss names, so it removes nothing
            self.renamed_by_retention = {**self.renamed_by_retention, **renamed}

        # If the cleaner merged a segment or its neighbour, its coverage changed: the uploader compares it with the
        # stored object again. A segment that retention renamed is unchanged.
        def is_as_listed(base: int, done: Shipped) -> bool:
            return base < lowest or _following(listing.bases, base) == done.next_base

        self.shipped = _kept(self.shipped, is_as_listed)
        self.shipped_into_gaps = _kept(self.shipped_into_gaps, is_as_listed)

    def forget_deleted(self) -> None:
        """Forget what was read about `.deleted` files, so that they are read again."""
        self.hanging = NO_ENTRIES
        self.deleted_below = _NOTHING

    def has_unread_deleted(self, listing: Listing) -> bool:
        """Whether a `.deleted` file below the lowest live one was neither read nor seen live."""
        lowest = listing.bases[0]
        return any(
            base < lowest and base not in self.renamed_by_retention and base not in self.deleted_below
            for base in listing.deleted
        )

    def take_position(self, position: Position) -> None:
        """Apply a position that was read or written, and forget the segments below it."""
        if self.filled_gaps:
            position = replace(position, gaps=tuple(gap for gap in position.gaps if gap not in self.filled_gaps))
        if self.last_next_offset is None or position.next_offset > self.last_next_offset:
            self.retries.failures = 0
            self.retries.committed()  # another agent moved the commit, so the refused one is obsolete
        self.position = position
        self.last_next_offset = position.next_offset
        if isinstance(position.commit, Commit):
            self.last_own_commit = position.commit
        listing = self.listing or self.last_listing
        self.shipped = _kept(
            self.shipped,
            lambda _, done: (
                done.end > position.next_offset and counts(done, position) and follows(done, position, listing)
            ),
        )
        self.shipped_into_gaps = _kept(
            self.shipped_into_gaps,
            lambda base, done: bool(overlapping(position.gaps, base, done.end)) and counts(done, position),
        )

    def expect_java_commits(self) -> None:
        """Begin to check for late writes of a Java uploader, after one of its commits was found.

        It can replace a segment that filled a gap with a shorter one, so all gaps count again.
        """
        self.filled_gaps = ()
        self.java_recheck_seconds = _FIRST_JAVA_CHECK_SECONDS
        self.java_checked_at = None

    def is_java_check_due(self, now: int) -> bool:
        """Whether to read the position again in case a Java uploader wrote. Each interval doubles the one before.

        Args:
            now: when the directory was listed, in ns of the monotonic clock.
        """
        if not self.java_recheck_seconds or self.position is None or self.reading_position or self.committing:
            return False
        if self.java_checked_at is None:
            self.java_checked_at = now
        if now - self.java_checked_at < self.java_recheck_seconds * _NANOSECONDS:
            return False
        self.java_checked_at = now
        self.java_recheck_seconds *= 2
        if self.java_recheck_seconds > _LAST_JAVA_CHECK_SECONDS:
            self.java_recheck_seconds = 0.0
        return True

    def take_committed(self, position: Position) -> None:
        """Apply a commit that this agent wrote; it can be the one that fills a gap."""
        filled, self.gap_being_filled = self.gap_being_filled, None
        if filled is not None:
            self.filled_gaps += (filled,)
            self.retries.failures = 0
        self.retries.committed()
        self.take_position(position)

    def want_repair(self, request: RepairRequest) -> None:
        """Note a request to repair; of very many only the first ones, since the others are sent again."""
        if len(self.repairs) < _REPAIRS_AT_ONCE and request not in self.repairs:
            self.repairs += (request,)

    def begin_repair(self, request: RepairRequest, bases: frozenset[int]) -> None:
        """Note the repair that begins, with the bases of its segments."""
        self.repair, self.repairing = request, bases

    def fail_repair(self) -> None:
        """Drop the request that failed, which is sent again, and the position: reading it writes a lost `log.start`."""
        self.repairs = tuple(other for other in self.repairs if other != self.repair)
        self.repair = self.repairing = self.position = None

    def take_repaired(self, request: RepairRequest, *, changed: bool) -> None:
        """Drop a request that has its answer.

        Args:
            changed: whether the store has new objects. Then gaps that were filled once count again, and the agent reads
                which of them the store lacks.
        """
        self.repairs = tuple(other for other in self.repairs if other != request)
        self.repair = self.repairing = None
        filled = ((request.start, request.end),)
        if changed:
            self.filled_gaps = tuple(gap for gap in self.filled_gaps if not overlapping(filled, *gap))
            self.position = None

    def take_checkpoint(self) -> None:
        """Count the checkpoints in a row that are below the end of the segment to ship next."""
        if (
            self.listing is None
            or self.last_next_offset is None
            or self.high_watermark is None
            or not self.listing.bases
        ):
            return
        base, end = next(self.segments_from(self.listing, self.last_next_offset), (-1, 0))
        counted, times = self.short_checkpoints
        self.short_checkpoints = (base, times + 1 if base == counted else 1) if end > self.high_watermark else (-1, 0)

    def take_shipped(self, done: Shipped) -> None:
        """Note a shipped segment: part of the run, of a recorded gap, or of both.

        If the commit began a new lineage meanwhile, the segment may need another name. Then it is shipped again.
        """
        position = self.position
        if position is not None and not counts(done, position):
            return
        if position is None or done.next_base > position.next_offset:
            self.shipped = {**self.shipped, done.base: done}
        if position is not None and overlapping(position.gaps, done.base, done.next_base):
            self.shipped_into_gaps = {**self.shipped_into_gaps, done.base: done}

    def segments_from(self, listing: Listing, offset: int) -> Iterator[tuple[int, int]]:
        """Yield (base, next base) of the closed segments on this broker that reach above `offset`, by base.

        Segments that retention has renamed are first; the others are live. For a segment that hangs, the second number
        is the end of its last batch.
        """
        bases = listing.bases
        if self.renamed_by_retention or self.hanging:
            renamed = {base: file.end for base, file in self.hanging.items() if base in listing.deleted} | dict(
                self.renamed_by_retention
            )
            yield from sorted((base, end) for base, end in renamed.items() if base < bases[0] and end > offset)
        for index in range(max(0, bisect_right(bases, offset) - 1), len(bases) - 1):
            yield bases[index], bases[index + 1]

    def saw(self, base: int, next_base: int) -> bool:
        """Whether a whole listing of this leadership showed two bases as live neighbours."""
        return self.renamed_by_retention.get(base) == next_base or (
            self.last_whole_listing is not None and _following(self.last_whole_listing.bases, base) == next_base
        )

    def hangs(self, base: int, listing: Listing) -> FileState | None:
        """Return the `.deleted` file to ship; None for a segment that is live, or was seen live."""
        if base in self.renamed_by_retention or base >= listing.bases[0] or base not in self.hanging:
            return None
        return self.hanging[base].state

    def ship(
        self,
        leadership: Leadership,
        listing: Listing,
        position: Position,
        segment: tuple[int, int],
        gaps: tuple[tuple[int, int], ...],
    ) -> Ship:
        """Return the task to ship the segment `(base, next base)`, into these recorded gaps or to continue the run."""
        return Ship(
            self.partition,
            self.generation,
            leadership,
            position.keys,
            listing,
            *segment,
            position.epochs,
            position.next_offset,
            seen=self.saw(*segment),
            hangs=self.hangs(segment[0], listing),
            variants_below=position.lineage.highest if position.lineage is not None else 0,
            lineage=position.lineage,
            gaps=gaps,
        )

    def covers(self, listing: Listing, offset: int) -> bool:
        """Whether a segment on this broker, closed or active, is the one for `offset`."""
        if offset >= listing.bases[0]:
            return True
        base, _ = next(self.segments_from(listing, offset), (offset + 1, 0))
        return base <= offset

    def run(self, next_offset: int) -> tuple[Shipped, ...]:
        """Return the shipped segments that continue the run from `next_offset` without a hole, in order."""
        run = []
        for base in sorted(self.shipped):
            done = self.shipped[base]
            if done.base > next_offset:
                break
            if done.end > next_offset:
                run.append(done)
                next_offset = done.end
        return tuple(run)

    def has_lost_its_tail(self, base: int, next_offset: int) -> bool:
        """Whether the segment to ship next is already shipped, and does not reach beyond the next offset."""
        done = self.shipped.get(base)
        return done is not None and base not in self.in_flight and done.end <= next_offset


def _kept(shipped: Mapping[int, Shipped], is_kept: Callable[[int, Shipped], bool]) -> Mapping[int, Shipped]:
    """Return the segments to keep; the shared empty mapping for none."""
    return {base: done for base, done in shipped.items() if is_kept(base, done)} if shipped else NO_ENTRIES


def _below(bases: tuple[int, ...], lowest: int) -> Iterator[tuple[int, int]]:
    """Yield (base, next base) of the closed segments that begin below `lowest`."""
    return takewhile(lambda pair: pair[0] < lowest, pairwise(bases))


def _following(bases: tuple[int, ...], base: int) -> int | None:
    """Return the base after this one; None if it is missing or the last."""
    index = bisect_left(bases, base)
    return bases[index + 1] if index + 1 < len(bases) and bases[index] == base else None
