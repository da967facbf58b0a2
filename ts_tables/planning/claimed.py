"""What a table has claimed, as the archive shows it now; for a comparison."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.wording import some
from ts_reader.following.commit_snapshot import Observer
from ts_reader.following.ends import PartitionEnd
from ts_reader.query.bounds import loss_of
from ts_reader.query.plan_query import splits_of
from ts_reader.query.query import Query
from ts_reader.query.splits import PartitionRanges
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.transactions import apart, find_hidden
from ts_tables.claims.advance import parting
from ts_tables.claims.state import PartitionClaims, TableState, without
from ts_tables.planning.claimable import joined
from ts_tables.planning.work import Work


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a table has claimed, as the archive shows it.

    Attributes:
        skipped: by partition and topic id, ranges `[from, to)` of claims that cannot be compared.
        notes: sentences about these.
    """

    work: tuple[Work, ...]
    skipped: Mapping[tuple[TopicPartition, str | None], tuple[tuple[int, int], ...]]
    notes: tuple[str, ...]


def claimed_of(store: ObjectStore, query: Query, observer: Observer, state: TableState) -> Claimed:
    """Return what a table has claimed.

    Args:
        query: of the table, settled.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    partitions = [
        (query.keys.partition(TopicPartition(name, number), each.directory), each.topic_id, known)
        for name, incarnations in sorted(state.topics.items())
        for each in incarnations
        for number, known in sorted(each.partitions.items())
    ]
    ends = observer.ends_of([keys for keys, _, _ in partitions])
    shown = [keys for keys, _, _ in partitions if keys in ends]
    views = dict(zip(shown, observer.views(shown), strict=True))
    found = in_threads(
        lambda one: _claimed(store, query, one[0], one[2], ends.get(one[0]), views.get(one[0])), partitions
    )
    work: list[Work] = []
    for (_, topic_id, _), (parts, _, _) in zip(partitions, found, strict=True):
        work += [Work(split, topic_id) for split in splits_of(store, parts, query)]
    return Claimed(
        work=tuple(work),
        skipped={
            (keys.partition, topic_id): tuple(skipped)
            for (keys, topic_id, _), (_, skipped, _) in zip(partitions, found, strict=True)
            if skipped
        },
        notes=tuple(note for _, _, notes in found for note in notes),
    )


def _claimed(
    store: ObjectStore,
    query: Query,
    keys: PartitionKeys,
    known: PartitionClaims,
    end: PartitionEnd | None,
    view: PartitionView | None,
) -> tuple[list[PartitionRanges], list[tuple[int, int]], list[str]]:
    """Return what to read of a partition's claims, and the offsets that cannot be compared, with sentences."""
    skipped: list[tuple[int, int]] = []
    notes: list[str] = []

    def skip(start: int, end: int, why: str) -> None:
        if start < end:
            skipped.append((start, end))
            notes.append(f"{keys.partition}: offsets {start} to {end - 1} {why}")

    if end is None or view is None:
        skip(known.start, known.end, "were not compared: the commit of the partition is missing")
        return [], skipped, notes
    if (loss := loss_of(view)) is not None:
        skip(known.start, known.end, f"were not compared: {loss}")
        return [], skipped, notes
    parted = parting(known, end.next_offset, end.log)
    last = min(parted, max(view.end, known.start))
    skip(known.start, min(view.start, last), "are below the start of the log")
    if parted < known.end:  # of kept rows only the sum is known
        first = min([parted, *(kept.start for kept in known.kept if kept.end > parted)])
        skip(first, max([known.end, *(kept.end for kept in known.kept)]), "were removed from the log by an election")
    skip(last, parted, "are above the end of the commit")
    if not known.obeys(view.lists) and view.erased.meets(known.start, known.end):
        lists = some(f"{name} (list {number})" for name, number in view.lists)
        notes.append(f"{keys.partition}: the table can have rows of erased records of {lists}, until its next run")
    withheld = _withheld(known)
    low = max(known.start, view.start)
    noted = {(hole.start, hole.end) for hole in known.holes}
    for start, stop in _missing(store, query, view, known, (low, last)):
        skip(start, stop, "are missing in the archive, or hidden by what is missing")
    parts = []
    for start, stop in without((low, max(last, low)), noted, known.lost, skipped):
        for part in view.plan(start, stop):
            if isinstance(part, Hole):
                continue
            hidden = find_hidden(store, view, part.start, part.end).transactions if query.read_committed else ()
            aborted = apart((*hidden, *withheld)) if withheld else hidden
            parts.append(PartitionRanges((part,), aborted, erased=view.erased))
    return parts, skipped, notes


def _withheld(known: PartitionClaims) -> tuple[AbortedTransaction, ...]:
    """Return the transactions that passed holes hide, each up to its hole."""
    return tuple(
        AbortedTransaction(producer, first, hole.start - 1, -1)
        for hole in known.holes
        for producer, first in hole.withheld
    )


def _missing(
    store: ObjectStore, query: Query, view: PartitionView, known: PartitionClaims, bounds: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield offsets that a hole which the claims do not note hides: its own, and those of transactions open at it."""
    low, last = bounds
    noted = {(hole.start, hole.end) for hole in known.holes}
    holes = joined(part for part in view.runs(low, max(view.end, low)) if isinstance(part, Hole))
    cut_off: dict[tuple[int, int], int] = {}
    if query.read_committed and {*holes} - noted:
        for one in find_hidden(store, view, low, last).cut_off:
            hole = next(each for each in holes if each[0] <= one.hole.start < each[1])
            cut_off[hole] = min(one.first, cut_off.get(hole, one.first))
    for hole in holes:
        if not any(start <= hole[0] and hole[1] <= stop for start, stop in (*noted, *known.lost)):
            yield cut_off.get(hole, hole[0]), min(hole[1], last)
