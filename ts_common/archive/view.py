"""What readers may see of one partition, by reading rule 1: from `log.start` to below the next offset.

Where a foreign commit has no list of epochs, the copies give one: epochs never fall as offsets rise (reading rule 2).

Copies that end at or below the view's start are left out, and may vanish while a query runs: retention removes them.
Only metadata shows where a copy ends: leaders roll at different offsets, so the next base does not. A copy that the
cache of segment metadata does not hold is asked, and may be gone by then.

A partition that has segments and no commit shows nothing, with a warning: how far its run goes is not known. A commit
whose segments are gone shows a hole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.copies import NOTHING_KNOWN, SegmentCopy, describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import Hole, ReadRange, unite
from ts_common.errors import ObjectNotFound
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as readers see it.

    Attributes:
        keys: where it lies.
        start: first offset.
        end: the offset after the last; equal to `start` where there is nothing to see.
        epochs: which batches live.
        copies: the segments that may answer for offsets of the view; none that ends at or below its start.
        gaps: recorded ranges that exist nowhere.
        last_stable_offset: as the commit says; None where it does not.
        warning: what an operator should know; None where all is well.
        retired: the segments that were asked and end at or below the start; retention may remove them at any moment.
    """

    keys: PartitionKeys
    start: int
    end: int
    epochs: EpochHistory
    copies: tuple[SegmentCopy, ...]
    gaps: tuple[tuple[int, int], ...]
    last_stable_offset: int | None = None
    warning: str | None = None
    retired: tuple[SegmentCopy, ...] = ()

    @property
    def partition(self) -> TopicPartition:
        """Whose view it is."""
        return self.keys.partition

    def plan(self, start: int, end: int) -> Sequence[ReadRange | Hole]:
        """What is to be read for `[start, end)`, in order."""
        return unite(self.copies, self.epochs, start, end, self.gaps)


def open_view(
    store: ObjectStore,
    catalog: PartitionCatalog,
    known: Mapping[StoredSegment, SegmentCopy] = NOTHING_KNOWN,
    damaged: list[str] | None = None,
) -> PartitionView:
    """The view of a snapshot; asks the store for the metadata of its segments, except of those that are `known`.

    Args:
        store: where they lie.
        catalog: the snapshot.
        known: as in `describe`.
        damaged: as in `describe`.

    Raises:
        CorruptData: a segment's metadata is not, or it begins with no batch.
        ObjectNotFound: retention took a segment of the view since the snapshot.
        StoreUnavailable, AccessDenied: the store's.
    """
    keys, start = catalog.keys, catalog.start or 0
    if catalog.commit is None:
        warning = None
        if catalog.segments:
            count = len(catalog.segments)
            warning = f"{keys.partition}: {counted(count, 'segment')} and no {keys.commit}: nothing of them is shown"
        return PartitionView(keys, start, start, EpochHistory(), (), (), None, warning)
    gone: list[StoredSegment] = []
    described = describe(store, keys, catalog.committed, catalog.cache_objects, known, damaged, gone)
    copies = tuple(copy for copy in described if copy.end > start)
    stable = None
    if isinstance(catalog.commit, Commit):
        stable = catalog.commit.last_stable_offset
        end, epochs = catalog.commit.next_offset, catalog.commit.epochs
    else:  # it names a segment and no end; where that segment is gone, at least its base is missing
        end = catalog.commit.highest_base + 1
        epochs = living_line(described)
        end = max([end, *(epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end) for copy in copies)])
    _check_gone(store, keys, gone, start, unite(copies, epochs, start, end, catalog.gaps) if gone else ())
    warning = None
    if catalog.log_start is None and catalog.segments and isinstance(catalog.commit, Commit):
        # Each commit of ours follows a `log.start`; the agent writes it anew when it next asks.
        warning = f"{keys.partition}: {keys.log_start} is gone; the view begins with what is left"
    if not catalog.segments and catalog.log_start is None:
        # Neither a name nor `log.start` is left to say where the archive began; the commit still does.
        start = epochs.pairs[0][1] if epochs.pairs else catalog.commit.highest_base
    retired = tuple(copy for copy in described if copy.end <= start)
    return PartitionView(keys, start, max(start, end), epochs, copies, catalog.gaps, stable, warning, retired)


def _check_gone(
    store: ObjectStore, keys: PartitionKeys, gone: Iterable[StoredSegment], start: int, plan: Iterable[ReadRange | Hole]
) -> None:
    """Let pass what vanished since it was listed and ended at or below the view's start.

    How far a segment reached is not known once it is gone. One with its base below the start reached no further, as
    retention goes, and certainly not where the rest has no hole without a reason.

    Raises:
        ObjectNotFound: a segment of the view is gone.
    """
    has_hole = any(isinstance(step, Hole) and not step.recorded for step in plan)
    for segment in gone:
        if segment.name.base >= start or has_hole:
            raise ObjectNotFound(
                f"{keys.segment(segment.name)} in {store.location}: gone since it was listed, and the view begins at "
                f"{start} (retention?); run it again"
            )


def living_line(copies: Iterable[SegmentCopy], most: int | None = None) -> EpochHistory:
    """The epochs that the copies themselves give each offset: the highest that begins at or below it in any of them.

    So an epoch lives from its first batch in any copy up to the first batch of any higher one, and one that begins at
    or above the start of a higher one has nothing alive: epochs never fall as offsets rise (reading rule 2).

    Args:
        copies: of one partition.
        most: the highest epoch that can live; None where all can.
    """
    begins: dict[int, int] = {}
    for copy in copies:
        for epoch, first in copy.metadata.epochs or ():
            if epoch != NO_EPOCH and (most is None or epoch <= most):
                begins[epoch] = min(first, begins.get(epoch, first))
    pairs: list[tuple[int, int]] = []
    for epoch, first in sorted(begins.items(), reverse=True):
        if not pairs or first < pairs[-1][1]:
            pairs.append((epoch, first))
    return EpochHistory(tuple(reversed(pairs)))
