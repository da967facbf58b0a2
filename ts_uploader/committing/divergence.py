"""Compares an archive with this broker's log: how much of the run is the log's past (protocol rule 5).

An election can lose records that were committed and shipped: an unclean election, or one that the last in-sync replica
wins after it returned empty or behind. Then the commit and this broker's log differ from some offset on. A Kafka
follower with the commit's epochs would truncate to that offset (KIP-279). Readers must not read beyond it
before the new leader epoch's records are there.

Logs of magic 0 and 1 have no epochs. There the bytes decide (`batch_comparison`): the last committed batch is either in
the local log, or it is not.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf

from ts_common.archive.catalog import read_snapshot
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory, epoch_borne
from ts_common.archive.object_keys import PartitionKeys
from ts_common.errors import SegmentChanged
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.batch_comparison import shared_end_by_bytes
from ts_uploader.committing.gap_recording import describe_readable
from ts_uploader.log_dirs.hanging import hanging_epochs
from ts_uploader.log_dirs.local_batches import first_batch
from ts_uploader.log_dirs.local_log import local_epochs, log_end
from ts_uploader.messages.observations import Leadership, Listing
from ts_uploader.messages.tasks import Position


def past_end(store: ObjectStore, position: Position, listing: Listing, leadership: Leadership) -> int:
    """Return the end of the part of a run that is this log's past; the run's end if all of it is.

    Args:
        position: the end of the run.
        leadership: of the broker that has the log. Its own commits are not checked.

    Raises:
        SegmentChanged: the log differs from its listing, or its checkpoint is not complete yet: list again.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: of stored segments.
    """
    next_offset = position.next_offset
    if isinstance(position.commit, Commit) and not position.commit.has_run:
        active = listing.bases[-1]  # nothing was committed that could differ
        held = next_offset if active >= next_offset else min(next_offset, log_end(listing.directory, active))
        # If a later epoch begins below, all replicas lost the log, and no one else has the new records.
        return min(held, _later_than(position, listing, next_offset))
    end = shared_end(position, listing)
    if end is None:
        return shared_end_by_bytes(store, read_snapshot(store, position.keys), next_offset, listing)
    end = min(end, _later_than(position, listing, next_offset))
    if end < next_offset:
        if is_compacted_away(position, end, listing, leadership):
            return next_offset
    elif isinstance(position.commit, Commit) and position.commit.epoch >= leadership.epoch:
        return next_offset
    # An earlier going back may have joined two lines: its leader's list began above the offset where they part.
    while (contradicted := contradicted_from(store, _gone_back(position, end, listing), listing)) is not None:
        end = contradicted
    return end


def _gone_back(position: Position, end: int, listing: Listing) -> Position:
    """Return the position as it would be after going back to `end`: with another list, other copies are live."""
    if end == position.next_offset:
        return position
    local = log_epochs(position, listing)
    return replace(position, next_offset=end, epochs=rewound(position.epochs, end, local))


def _later_than(position: Position, listing: Listing, none: int) -> int:
    """Return the start of this log's first leader epoch that is later than the commit; `none` without one.

    A commit contains no batch of a later epoch than its own. Its list may have no entry for the offsets below the next
    one: a leader whose list retention cut has shipped `.deleted` segments since. KIP-279 then sees no difference.
    """
    if not isinstance(position.commit, Commit):
        return none
    vouched = position.commit.epoch
    return next((start for epoch, start in local_epochs(listing.directory) or () if epoch > vouched), none)


def log_epochs(position: Position, listing: Listing) -> EpochHistory | None:
    """Return the epochs of a log with its `.deleted` files that hang above the next offset; None without a checkpoint.

    Retention cuts the broker's list at the start of the live log. The epochs of those files are of the same log, and
    may be the only ones that contradict an epoch of the run: epochs never fall.

    Args:
        position: the end of the run.

    Raises:
        SegmentChanged: the lowest live segment no longer exists: list again.
    """
    local, next_offset = local_epochs(listing.directory), position.next_offset
    if local is None or not local.pairs or local.pairs[0][1] <= next_offset:
        return local
    vouched = position.commit.epoch if isinstance(position.commit, Commit) else NO_EPOCH
    return hanging_epochs(listing, local, position.epochs, next_offset, vouched).continued(local, local.pairs[0][1])


def shared_end(position: Position, listing: Listing) -> int | None:
    """Return the end of the part of a run that is this log's past, by epochs; None if only bytes can decide.

    Args:
        position: the end of the run.

    Raises:
        SegmentChanged: the active segment no longer exists; or the checkpoint is older than the run, or not written
            yet: list again.
    """
    epochs, next_offset = position.epochs, position.next_offset
    if not epochs.pairs:
        return None
    local = log_epochs(position, listing)
    if local is None:
        # A follower with a replaced disk has no checkpoint either, until it fetches its first batch.
        raise SegmentChanged(
            f"{listing.directory}: no leader epoch checkpoint, and the archive's segments have leader epochs; a broker "
            "removes the file where message.format.version is below 0.11: set 0.11.0 or later"
        )
    active = listing.bases[-1]
    # A log reaches at least to its active segment; only if the run ends above that is the segment read.
    end = active if active >= next_offset else log_end(listing.directory, active)
    try:
        return epochs.shared_end(next_offset, local, end)
    except ValueError as behind:
        raise SegmentChanged(f"{listing.directory}: {behind}") from behind


def is_compacted_away(position: Position, end: int, listing: Listing, leadership: Leadership) -> bool:
    """Return whether a log that seems to part from the run at `end` only lacks records that compaction removed.

    In a compacted topic all batches of the run's last epoch can be removed. A replica that was filled since then does
    not have that epoch; if it is elected, its checkpoint looks like that of a replica that lost it (protocol rule 5
    compares epochs only). It is the same log on three conditions: this leadership is the very next one, it began at or
    above the next offset, and no batch lies in between here. The batches that follow must not be of an older epoch than
    the run's last: a log whose cleaner emptied the very range that another leader epoch rewrote would look the same.

    Raises:
        SegmentChanged: a segment no longer exists: list again.
    """
    local = local_epochs(listing.directory)
    if local is None or not position.epochs.pairs:
        return False
    last = position.epochs.pairs[-1][0]
    vouched = max(last, position.commit.epoch) if isinstance(position.commit, Commit) else last
    begun = next((start for epoch, start in local if epoch == leadership.epoch), None)
    if begun is None or begun < position.next_offset or leadership.epoch > vouched + 1:
        return False
    if end < listing.bases[0]:
        return False  # the content of that range is unknown
    first = first_batch(listing, end, position.next_offset)
    if first is not None and first.base_offset < position.next_offset:
        return False
    behind = first_batch(listing, position.next_offset)
    if behind is not None:
        return behind.leader_epoch >= last
    return log_end(listing.directory, listing.bases[-1]) >= position.next_offset


def living_epochs(position: Position, listing: Listing) -> EpochHistory:
    """Return the run's epochs without those that begin at its end or above, and were lost with all their records.

    A commit that went back names the leaderships that follow its next offset. Another election may have ended them
    before any of their records was shipped. A batch of a lower epoch at that place in this log shows it.

    Raises:
        SegmentChanged: a segment no longer exists: list again.
    """
    epochs, end = position.epochs, position.next_offset
    if epochs.pairs and epochs.pairs[-1][1] >= end:
        first = first_batch(listing, end)
        if first is not None and first.leader_epoch != NO_EPOCH:
            said = [epoch for epoch, start in epochs if end <= start <= first.base_offset]
            if said and said[-1] > first.leader_epoch:
                return rewound(epochs, end, local_epochs(listing.directory))
    return epochs


def first_disagreement(epochs: EpochHistory, end: int, listing: Listing) -> int | None:
    """Return the lowest offset below `end` where a batch of this log has another epoch than a list; None without one.

    Lists alone differ where compaction removed all of an epoch, so only a batch can contradict one.

    Args:
        end: first offset that is not compared.

    Raises:
        SegmentChanged: a segment no longer exists: list again.
    """
    local = local_epochs(listing.directory) or EpochHistory()
    lowest = listing.bases[0]
    starts = {max(start, lowest) for line in (epochs, local) for _, start in line}
    for offset in sorted(start for start in starts if start < end and _differ(epochs.at(start), local.at(start))):
        first = first_batch(listing, offset, end)
        here = max(offset, first.base_offset) if first is not None else end
        if first is not None and here < end and _differ(epochs.at(here), first.leader_epoch):
            return here
    return None


def contradicted_from(store: ObjectStore, position: Position, listing: Listing) -> int | None:
    """Return the lowest offset below the next one with another record here than in the run; None without evidence.

    Protocol rule 5 compares ends. If the last epoch agrees, all below it agrees, as long as one line wrote the run. A
    leader whose own log began above cannot see what an unclean election killed there. A leader that has those offsets
    can. Only a copy without a missing record is evidence: elsewhere lists of epochs differ because compaction removed
    all of one.

    Epochs never fall along a log, and its list names none before its first batch. So no batch at an offset has an epoch
    below the one in this log's list, or above that of this log's first batch from there on.

    Raises:
        SegmentChanged: a local segment no longer exists: list again.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: of stored segments.
    """
    local = local_epochs(listing.directory) or EpochHistory()
    doubtful = list(_doubtful(position, local, listing.bases[0]))
    if not doubtful:
        return None
    copies = _dense_below(store, position.keys, doubtful[-1].stop)
    begun = {first for copy in copies for _, first in copy.metadata.epochs or ()}
    for stretch in doubtful:
        for offset in sorted({stretch.start, *(first for first in begun if first in stretch)}):
            others = {_epoch_at(copy, offset, position.epochs) for copy in copies} - {NO_EPOCH, local.at(offset)}
            if _contradict(others, local.at(offset), listing, offset):
                return offset
    return None


def _dense_below(store: ObjectStore, keys: PartitionKeys, offset: int) -> list[SegmentCopy]:
    """Return the readable copies without a missing record that begin below an offset."""
    catalog = read_snapshot(store, keys)
    below = [stored for stored in catalog.segments if stored.name.base < offset]
    return [copy for copy in describe_readable(store, catalog, below) if copy.dense]


def _contradict(epochs: Collection[int], here: int | None, listing: Listing, offset: int) -> bool:
    """Return whether one of these epochs of copies is below this log's at an offset, or above all that it can have."""
    return bool(epochs) and (min(epochs) < (here or 0) or max(epochs) > _highest_from(listing, offset))


def _doubtful(position: Position, local: EpochHistory, lowest: int) -> Iterator[range]:
    """Yield the offsets of the view where this log's list has an epoch, and the run's list another one or no epoch.

    If the run's list has no epoch for an offset, readers use any copy there.
    """
    begin, end = max(position.log_start, lowest), position.next_offset
    starts = {start for line in (position.epochs, local) for _, start in line}
    if begin >= end:
        return
    bounds = [begin, *sorted(start for start in starts if begin < start < end), end]
    for start, stop in pairwise(bounds):
        if local.at(start) is not None and position.epochs.at(start) not in {NO_EPOCH, local.at(start)}:
            yield range(start, stop)


def _epoch_at(copy: SegmentCopy, offset: int, epochs: EpochHistory) -> int:
    """Return the epoch of a copy without a missing record at an offset; -1 if readers do not use the copy there."""
    theirs = copy.metadata.epochs or ()
    if not copy.base <= offset < epochs.live_end(theirs, copy.base, copy.end):
        return NO_EPOCH
    return epoch_borne(theirs, offset)


def _highest_from(listing: Listing, offset: int) -> float:
    """Return the epoch of a log's first batch that ends at or above an offset: no batch below has a higher one."""
    first = first_batch(listing, offset)
    return inf if first is None or first.leader_epoch == NO_EPOCH else first.leader_epoch


def _differ(epoch: int | None, other: int | None) -> bool:
    """Return whether two epochs are known and differ."""
    return None not in (epoch, other) and NO_EPOCH not in (epoch, other) and epoch != other


def is_legacy(position: Position, end: int) -> bool:
    """Return whether a commit that goes back to `end` loses batches of magic 0 or 1: the run's epochs begin above.

    Such batches have no epoch. Readers cannot see that the copies of the lost ones are dead (reading rule 2).
    """
    return position.epochs.at(max(end, position.log_start)) is None


def rewound(epochs: EpochHistory, end: int, local: EpochHistory | None) -> EpochHistory:
    """Return a run's epochs up to `end`, continued by the local checkpoint."""
    return epochs.continued(local or EpochHistory(), end)
