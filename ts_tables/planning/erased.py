"""What the lists of erased offsets hide of a table's claims, beyond what the table obeys already."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ts_common.archive.erased_offsets import ErasedOffsets, ErasedRun
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.json_objects import MAX_INT32
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.following.commit_snapshot import Observer
from ts_reader.following.ends import PartitionEnd
from ts_reader.query.bounds import loss_of
from ts_reader.query.plan_query import splits_of
from ts_reader.query.query import Query
from ts_reader.query.splits import PartitionRanges
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.transactions import find_hidden
from ts_tables.claims.advance import parting
from ts_tables.claims.state import Lists, PartitionClaims, TableState
from ts_tables.planning.work import Work

_ALL_EPOCHS: Final = ((MAX_INT32, 0),)  # of a copy whose epochs are unknown


@dataclass(frozen=True, slots=True)
class ErasedClaims:
    """What lists hide of a partition's claims.

    Attributes:
        directory: of the incarnation.
        lists: that hide it.
        offsets: all of their offsets that the table has claimed.
        doubtful: what to read of these: batches of a later leader epoch can be there, and the archive shows their
            records.
    """

    partition: TopicPartition
    directory: str
    topic_id: str | None
    lists: Lists
    offsets: ErasedOffsets
    doubtful: tuple[Work, ...] = ()


@dataclass(frozen=True, slots=True)
class Erased:
    """What lists hide of a table's claims.

    Attributes:
        claims: of each partition with a greater list than the table obeys.
        notes: a sentence about each partition whose lists are unknown.
    """

    claims: tuple[ErasedClaims, ...] = ()
    notes: tuple[str, ...] = ()


def erased_of(store: ObjectStore, query: Query, observer: Observer, state: TableState) -> Erased:
    """Return what lists hide of a table's claims.

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
        lambda one: _erased(store, query, *one, ends.get(one[0]), views.get(one[0])),
        partitions,
    )
    return Erased(
        tuple(each for each in found if isinstance(each, ErasedClaims)),
        tuple(each for each in found if isinstance(each, str)),
    )


def _erased(
    store: ObjectStore,
    query: Query,
    keys: PartitionKeys,
    topic_id: str | None,
    known: PartitionClaims,
    end: PartitionEnd | None,
    view: PartitionView | None,
) -> ErasedClaims | str | None:
    """Return what lists hide of one partition; a sentence if they are unknown; None if the table obeys them."""
    if end is None or view is None:
        return f"{keys.partition}: its commit is missing, so what is erased is unknown"
    if (loss := loss_of(view)) is not None:
        return f"{keys.partition}: what is erased is unknown: {loss}"
    if known.obeys(view.lists):
        return None
    offsets = view.erased.between(known.start, max([known.end, *(kept.end for kept in known.kept)]))
    # Rows of a log that an election replaced are not those that the archive has at their offsets.
    last = min(parting(known, end.next_offset, end.log), view.end)
    doubtful = [*_doubtful(view, offsets.between(view.start, max(view.start, last)))]
    work: list[Work] = []
    if doubtful:
        span = doubtful[0].start, doubtful[-1].end
        hidden = find_hidden(store, view, *span).transactions if query.read_committed else ()
        ranges = [part for run in doubtful for part in view.ranges(run.start, run.end)]
        parts = [PartitionRanges((part,), hidden, erased=view.erased) for part in ranges]
        work = [Work(split, topic_id) for split in splits_of(store, parts, query)]
    return ErasedClaims(keys.partition, keys.incarnation, topic_id, view.lists, offsets, tuple(work))


def _doubtful(view: PartitionView, offsets: ErasedOffsets) -> Iterator[ErasedRun]:
    """Yield the offsets where the archive can show a record: by the epochs of its copies, one can be of a later one."""
    if not offsets:
        return
    for part in view.plan(offsets.starts[0], offsets.ends[-1]):
        if isinstance(part, ReadRange):
            for run in offsets.between(part.start, part.end):
                begun = (each for copy in part.copies for each in copy.metadata.epochs or _ALL_EPOCHS)
                if any(epoch > run.epoch and first < run.end for epoch, first in begun):
                    yield run
