"""What the tracker knows of one partition, and what follows from it. Pure; the tracker's one thread owns it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, takewhile
from pathlib import Path

from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.model import TopicPartition
from ts_uploader.events import EpochFile, FileState, Leadership, Listing
from ts_uploader.tasks import Hanging, Position, Shipped
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.high_watermarks import Counting
from ts_uploader.tracking.live_directories import Rivals
from ts_uploader.tracking.retries import Retries

# One failure is the ordinary course of things: the leadership source may be ahead of the broker's own files.
_ANSWER_MISSED = 2
# A Java uploader's late write comes soon, if it comes: looked for after this long, then after twice as long, and so on.
_FIRST_LOOK_SECONDS = 30.0
_LAST_LOOK_SECONDS = 3600.0
_NANOSECONDS = 1_000_000_000
_NOTHING: frozenset[int] = frozenset()  # one for ten thousand partitions: each would take 216 bytes


@dataclass(slots=True)
class PartitionState:
    """What the tracker knows of one partition; see the comments for what each part is there for."""

    partition: TopicPartition
    generation: int
    leadership: Leadership | None = None
    leadership_reported: bool = False  # whether the source has said at all who leads it
    reported_leadership: Leadership | None = None  # the one that the source says, also where it is fenced
    fenced: Leadership | None = (
        None  # leaderships of its topic id up to this one are over, whatever the source still says
    )
    listing: Listing | None = None  # None: no directory, or what was known of it is known to be old
    directory: tuple[tuple[int, int], Path] | None = None
    appeared_at: int = 0  # of that directory; nanoseconds of the monotonic clock
    rival_directories: Rivals | None = (
        None  # where several directories are live; `directory` is then the one that counts, or None
    )
    counting: Counting = field(default_factory=Counting)
    high_watermark: int | None = None
    short_checkpoints: tuple[int, int] = (
        -1,
        0,
    )  # a base, and how many checkpoints in a row ended below the end of its segment
    counted_at: int | None = None
    rechecked_high_watermark: int | None = (
        None  # a high watermark below the next offset, for which the store was asked again
    )
    position: Position | None = None
    last_next_offset: int | None = (
        None  # the next offset as last known in this leadership, also while it is asked for anew
    )
    last_own_commit: Commit | None = None  # our last commit, as read or written here; outlives leaderships
    reading_position: bool = False
    committing: bool = False
    retries: Retries = field(default_factory=Retries)
    failed_reads: int = 0  # questions to the store that failed in a row
    failed_read_reason: str = ""  # what the last of them failed of; one line
    last_listing: Listing | None = None  # the last one in this leadership that met no renames
    last_whole_listing: Listing | None = None  # the last whole one in this leadership
    renamed_by_retention: dict[int, int] = field(
        default_factory=dict
    )  # next base by base, of what retention renamed in this leadership
    hanging: dict[int, Hanging] = field(default_factory=dict)  # `.deleted` files that hang on what lives, by base
    deleted_below: frozenset[int] = _NOTHING  # `.deleted` bases below the lowest live one that were looked at for that
    deleted_below_wanted: int = 0  # the lowest offset that was missing then
    reading_deleted: bool = False  # whether they are being looked at
    gap_seen_at: int | None = None  # when the next offset was first listed below all that is held; ns, monotonic
    gap_end: int = 0  # the lowest offset that was held then
    java_recheck_seconds: float = 0.0  # between two looks whether a Java uploader wrote late; 0: none did here of late
    java_checked_at: int | None = None  # when the store was last asked for that; ns, monotonic
    in_flight: frozenset[int] = _NOTHING
    shipped: dict[int, Shipped] = field(default_factory=dict)  # what continues the run, or may
    shipped_into_gaps: dict[int, Shipped] = field(default_factory=dict)  # what lies in a gap that was recorded before
    gap_being_filled: tuple[int, int] | None = None  # the gap that the commit under way is to say is filled
    filled_gaps: tuple[tuple[int, int], ...] = ()  # gaps that this leadership filled; their records stay for ever

    @property
    def is_here(self) -> bool:
        """Whether a log dir holds a live directory of it, or several do."""
        return self.directory is not None or self.rival_directories is not None

    def start_over(self, generation: int) -> None:
        """Forget everything that was true of the leadership or directory before; results under way no longer count."""
        self.generation = generation
        self.high_watermark = self.counted_at = self.rechecked_high_watermark = None
        self.position = self.last_next_offset = None
        self.reading_position = self.committing = False
        self.retries.clear()
        self.failed_reads = 0
        self.short_checkpoints = (-1, 0)
        self.last_listing = self.last_whole_listing = None
        self.renamed_by_retention.clear()
        self.look_again_below()
        self.reading_deleted = False
        self.gap_seen_at = None
        self.java_recheck_seconds = 0.0
        self.in_flight = _NOTHING
        self.shipped.clear()
        self.shipped_into_gaps.clear()
        self.gap_being_filled = None
        self.filled_gaps = ()

    def forget_position(self) -> None:
        """Something went wrong: progress is what the store says, so it is asked again.

        What fails while that is being asked, or before a commit that is under way has ended, belongs to the same round.
        """
        if self.position is not None or not (self.reading_position or self.committing):
            self.retries.failures += 1
        self.position = None

    def take_failed_question(self, reason: str) -> None:
        """The store, or what has to be so before it is asked, gave no answer."""
        self.failed_reads += 1
        self.failed_read_reason = reason

    def take_listing(self, listing: Listing) -> None:
        """A new look at the same directory."""
        self.listing = listing
        if listing.swapping or not listing.bases:
            return  # in the middle of renames neighbours are none
        self.retries.listed()
        self.last_listing = listing
        lowest = listing.bases[0]
        # What is not live any more, while something at or below it is, went into a merged segment or was cut off.
        seen = [
            *self.renamed_by_retention.items(),
            *(_below(self.last_whole_listing.bases, lowest) if self.last_whole_listing is not None else ()),
        ]
        if listing.whole:
            self.retries.keep(chain(listing.bases, listing.deleted))
            self.renamed_by_retention = {base: end for base, end in seen if base < lowest and base in listing.deleted}
            self.last_whole_listing = listing
        else:  # it may miss names, so it takes nothing back
            self.renamed_by_retention.update(
                (base, end) for base, end in seen if base < lowest and base in listing.deleted
            )
        # A segment that was merged, or whose neighbour was, is another one now: what was shipped of it stands in the
        # store, and is weighed anew. What retention took is what it was.
        for done in (self.shipped, self.shipped_into_gaps):
            for base, shipped in list(done.items()):
                if base >= lowest and _following(listing.bases, base) != shipped.next_base:
                    del done[base]

    def look_again_below(self) -> None:
        """What was found out about `.deleted` files is not so any more."""
        self.hanging.clear()
        self.deleted_below = _NOTHING

    def unknown_below(self, listing: Listing) -> bool:
        """Whether a `.deleted` file below the lowest live one was not looked at yet, and not seen live either."""
        lowest = listing.bases[0]
        return any(
            base < lowest and base not in self.renamed_by_retention and base not in self.deleted_below
            for base in listing.deleted
        )

    def take_position(self, position: Position) -> None:
        """The store's word, read or written; what lies below it needs no further thought."""
        if self.filled_gaps:
            position = replace(position, gaps=tuple(gap for gap in position.gaps if gap not in self.filled_gaps))
        if self.last_next_offset is None or position.next_offset > self.last_next_offset:
            self.retries.failures = 0
            self.retries.committed()  # what was refused is wanted no more: another agent beside this broker was first
        self.position = position
        self.last_next_offset = position.next_offset
        if isinstance(position.commit, Commit):
            self.last_own_commit = position.commit
        listing = self.listing or self.last_listing
        for base, done in list(self.shipped.items()):
            # A retry with the same run and directory would upload the same again; the commit logs why it rejects it.
            is_unchanged = listing is not None and listing.stamp == done.stamp
            is_as_good = is_unchanged and (done.run, done.run_end) == (position.epochs, position.next_offset)
            follows = is_as_good or _continues(done, position)
            if done.end <= position.next_offset or not _counts(done, position) or not follows:
                del self.shipped[base]
        for base, done in list(self.shipped_into_gaps.items()):
            if not overlapping(position.gaps, base, done.end) or not _counts(done, position):
                del self.shipped_into_gaps[base]

    def take_java(self) -> None:
        """A Java uploader's commit stood in the store, or did lately: what else it had queued may still come.

        By then it may have put a shorter segment over one that was filled in this leadership, so all gaps count again.
        """
        self.filled_gaps = ()
        self.java_recheck_seconds = _FIRST_LOOK_SECONDS
        self.java_checked_at = None

    def looks_again(self, now: int) -> bool:
        """Whether it is time to see that no Java uploader wrote since; each time is twice as far off as the last.

        Args:
            now: when the directory was listed, ns of the monotonic clock.
        """
        if not self.java_recheck_seconds or self.position is None or self.reading_position or self.committing:
            return False
        if self.java_checked_at is None:
            self.java_checked_at = now
        if now - self.java_checked_at < self.java_recheck_seconds * _NANOSECONDS:
            return False
        self.java_checked_at = now
        self.java_recheck_seconds *= 2
        if self.java_recheck_seconds > _LAST_LOOK_SECONDS:
            self.java_recheck_seconds = 0.0
        return True

    def take_committed(self, position: Position) -> None:
        """A commit stands; it may be the one that says of a gap that it is filled."""
        filled, self.gap_being_filled = self.gap_being_filled, None
        if filled is not None:
            self.filled_gaps += (filled,)
            self.retries.failures = 0
        self.retries.committed()
        self.take_position(position)

    def take_checkpoint(self) -> None:
        """Count the checkpoints in a row that end below the end of the segment to go on with."""
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
        """A segment is whole in the store: part of the run, of a recorded gap, or of both.

        Where the commit began a new lineage meanwhile, it may have to be shipped again under another name.
        """
        position = self.position
        if position is not None and not _counts(done, position):
            return
        if position is None or done.next_base > position.next_offset:
            self.shipped[done.base] = done
        if position is not None and overlapping(position.gaps, done.base, done.next_base):
            self.shipped_into_gaps[done.base] = done

    def waits_for_directory(self) -> Wait | None:
        """Which of several live directories the broker uses, where that is not sure."""
        if self.rival_directories is None or self.directory is not None:
            return None
        paths = ", ".join(str(listing.directory) for listing in self.rival_directories.listings)
        return Wait(
            WaitReason.DIRECTORIES,
            f"the high watermark checkpoints to show which of several live directories the broker uses: {paths}",
        )

    def waits_for(self, leadership: Leadership, listing: Listing) -> Wait | None:
        """What must be so before anything of the partition can go, and is not."""
        if not listing.bases:
            return Wait(WaitReason.SEGMENT, "a segment in its directory")
        if leadership.topic_id is not None and listing.topic_id != leadership.topic_id:
            said = listing.topic_id or "nothing"
            return Wait(WaitReason.TOPIC_ID, f"the topic id {leadership.topic_id}: its partition.metadata says {said}")
        if listing.swapping:  # what is lowest, or whose neighbour, cannot be told before
            return Wait(WaitReason.RENAMES, "the end of the log cleaner's renames")
        if (epoch := waits_for_epoch(leadership, listing)) is not None:
            return epoch
        if self.high_watermark is None:
            return Wait(
                WaitReason.HIGH_WATERMARK,
                "the partition's entry in the second high watermark checkpoint that the broker writes as its leader",
            )
        return None

    def blocked_by_store(self) -> Wait | None:
        """What keeps failing before anything of the partition can go."""
        if self.failed_reads < _ANSWER_MISSED:
            return None
        return Wait(WaitReason.STORE, f"where to go on: {self.failed_read_reason}")

    def segments_from(self, listing: Listing, offset: int) -> Iterator[tuple[int, int]]:
        """(base, next base) of the closed segments that are here and reach above `offset`, by base.

        Those that retention took and has only renamed so far come first; the others are live. Of those that hang, the
        end of the last batch is given instead of the next base.
        """
        bases = listing.bases
        if self.renamed_by_retention or self.hanging:
            gone = {
                base: file.end for base, file in self.hanging.items() if base in listing.deleted
            } | self.renamed_by_retention
            yield from sorted((base, end) for base, end in gone.items() if base < bases[0] and end > offset)
        for index in range(max(0, bisect_right(bases, offset) - 1), len(bases) - 1):
            yield bases[index], bases[index + 1]

    def saw(self, base: int, next_base: int) -> bool:
        """Whether a whole listing of this leadership showed two bases as live neighbours."""
        return self.renamed_by_retention.get(base) == next_base or (
            self.last_whole_listing is not None and _following(self.last_whole_listing.bases, base) == next_base
        )

    def hangs(self, base: int, listing: Listing) -> FileState | None:
        """The `.deleted` file that is to be shipped; None of a segment that is, or was seen, live."""
        if base in self.renamed_by_retention or base >= listing.bases[0] or base not in self.hanging:
            return None
        return self.hanging[base].state

    def covers(self, listing: Listing, offset: int) -> bool:
        """Whether a closed segment here, or the active one, is the one to hold `offset`."""
        if offset >= listing.bases[0]:
            return True
        base, _ = next(self.segments_from(listing, offset), (offset + 1, 0))
        return base <= offset

    def run(self, next_offset: int) -> tuple[Shipped, ...]:
        """The shipped segments that continue the run from `next_offset` on without a hole."""
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
        """Whether the segment to go on with is shipped, and does not reach beyond the next offset."""
        done = self.shipped.get(base)
        return done is not None and base not in self.in_flight and done.end <= next_offset


def waits_for_epoch(leadership: Leadership, listing: Listing) -> Wait | None:
    """What keeps the broker's own `leader-epoch-checkpoint` from saying that this leadership has begun, if anything."""
    last = listing.last_epoch
    if last.file is EpochFile.UNREADABLE:
        return Wait(WaitReason.EPOCH, f"a readable leader-epoch-checkpoint: {last.error}")
    if last.file is EpochFile.ABSENT or last.epoch == leadership.epoch:
        return None
    ends = "without an entry" if last.epoch is None else f"with {last.epoch}"
    return Wait(
        WaitReason.EPOCH, f"leader epoch {leadership.epoch} in the broker's leader-epoch-checkpoint, which ends {ends}"
    )


def _below(bases: tuple[int, ...], lowest: int) -> Iterator[tuple[int, int]]:
    """(base, next base) of the closed segments that begin below `lowest`."""
    return takewhile(lambda pair: pair[0] < lowest, pairwise(bases))


def _following(bases: tuple[int, ...], base: int) -> int | None:
    """The base after this one; None where it is not among them, or the last."""
    index = bisect_left(bases, base)
    return bases[index + 1] if index + 1 < len(bases) and bases[index] == base else None


def _counts(done: Shipped, position: Position) -> bool:
    """Whether a shipped segment bears a name that the commit's lineage allows.

    A new lineage may begin while segments are shipped: the commit was lost, or a Java uploader wrote over it. Then a
    deletion of an earlier lineage may still name what bears a plain name below the third element.
    """
    lineage = position.lineage
    return lineage is None or done.base >= lineage.highest or done.base < done.variants_below


def _continues(done: Shipped, position: Position) -> bool:
    """Whether the epochs of a shipped segment can follow those of the run.

    Those of a segment that compaction emptied were guessed from a run that reached less far. It is shipped anew then.
    """
    continued = position.epochs.continued(EpochHistory.of_batches(done.epochs), position.next_offset)
    return continued.agrees_with(done.epochs, done.base, done.end)


def overlapping(ranges: tuple[tuple[int, int], ...], start: int, end: int) -> bool:
    """Whether any of these ranges and `[start, end)` have an offset in common."""
    return any(low < end and start < high for low, high in ranges)
