"""Makes the plan of a restore from the archive: steps, cut, open transactions, and what is lost.

Segments are read where their metadata is not enough: around a cut by time, and from the last stable offset on. A cut
below the end of a partition with transactions reads all of it, because an open transaction can be of any age.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import CHUNK_BYTES
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole as PlannedHole
from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Ended
from ts_common.archive.segment_metadata import TxnIndexState
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData, QueryError
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.query.timestamps import time_text
from ts_reader.reading.missing_markers import may_be_lost
from ts_reader.reading.transactions import find_hidden
from tsctl.restore.chain import Batch, clean, read_batches, united
from tsctl.restore.partition_plan import Hole, PartitionPlan, Step
from tsctl.restore.transactions import OpenTransaction, Transactions

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
UNCUT: Final = frozenset({"_schemas"})  # records refer to its newest entries
MOST_OLDER_PERCENT: Final = 1  # records beyond a cut by time that are not later than it
_NAMED: Final = 10  # in a note
_DAMAGED: Final = "the broker's file was damaged there; transactions that ended there show as committed"


@dataclass(slots=True)
class Planned:
    """A partition while its plan is made.

    Attributes:
        ranges: what is read, in order, each below `end`.
        end: the offset after the last that is restored.
        stable: from it on transactions were searched.
        still_open: at the end.
    """

    store: ObjectStore
    view: PartitionView
    end: int
    ranges: list[ReadRange] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stable: int = 0
    still_open: tuple[OpenTransaction, ...] = ()

    @property
    def keys(self) -> PartitionKeys:
        """Of the partition in the archive."""
        return self.view.keys

    def finished(self, replicas: Sequence[int], ended: Sequence[Ended], homes: Sequence[int] = ()) -> PartitionPlan:
        """Return the plan; transactions that `ended` does not have are left open."""
        has_end = {(one.producer_id, one.first_offset) for one in ended}
        return PartitionPlan(
            start=min(self.view.start, self.end),
            end=self.end,
            stored_end=self.view.end,
            stable=self.stable,
            replicas=tuple(replicas),
            steps=tuple(map(Step.of, self.ranges)),
            lost=tuple(self.holes),
            ended=tuple(ended),
            epochs=self.view.epochs.below(self.end),
            lineage=self.view.lineage,
            notes=tuple(self.notes),
            homes=tuple(homes),
            left_open=tuple(one for one in self.still_open if (one.producer_id, one.first_offset) not in has_end),
        )


def new_plan_id() -> str:
    """Return an id that no other plan has."""
    return secrets.token_hex(8)


def plan_partition(
    store: ObjectStore, catalog: PartitionCatalog, at: int | None, end: int | None, tails: TailLogs | None = None
) -> Planned:
    """Return what is restored of a partition, without the ends of its transactions.

    Args:
        at: ms since the epoch: the cut is before the first batch with a later timestamp; None for no cut by time.
        end: no offset from it on is restored; None for no such cut. It counts instead of `at`.
        tails: of the cluster, read after its commits; None to end at the next offset.

    Raises:
        QueryError: the commit is lost, or a cut by time removes too many records that are not later.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    view = open_view(store, catalog, tails=tails)
    if view.state in {CommitState.MISSING, CommitState.DAMAGED}:
        raise QueryError(f"{view.warning}; or leave the topic out of the plan")
    planned = Planned(store, view, view.end)
    if view.warning is not None:
        planned.notes.append(view.warning)
    if catalog.keys.partition.topic in UNCUT and end is None:
        at = None
    if end is not None and end > view.end:
        raise QueryError(f"--end {view.partition}={end}: the archive ends at {view.end}; choose an offset up to it")
    if end is not None and end < view.end:
        planned.end = _edge(planned, lambda header: header.last_offset >= end, view.start)
    elif at is not None and end is None:
        _cut_at(planned, at)
    for step in view.plan(view.start, planned.end):
        if isinstance(step, PlannedHole):
            why = "recorded by an agent: no broker had them" if step.recorded else "no object has them"
            planned.holes.append(Hole(step.start, step.end, why))
        else:
            planned.ranges.append(_as_one_log(planned, step))
            planned.holes += _damaged(planned, planned.ranges[-1])
    _note_copies(planned)
    _find_transactions(planned)
    return planned


def _find_transactions(part: Planned) -> None:
    """Find the transactions that are open at the end; note those that a hole cuts, or whose marker is missing."""
    stable = part.view.last_stable_offset
    is_known = stable is not None and (part.end == part.view.end or _has_no_marker(part.view))
    part.stable = min(stable, part.end) if is_known and stable is not None else part.view.start
    hidden = _hidden(part)
    has_holes = any(one.end < other.start for one, other in pairwise(part.ranges))
    begin = part.view.start if hidden or has_holes else part.stable
    transactions, reached = Transactions(), begin
    aborted: list[AbortedTransaction] = []
    cut: list[str] = []
    for step in part.ranges:
        if step.end <= begin:
            continue
        if step.start > reached:  # the restore aborts them where offsets are lost
            aborted += (
                AbortedTransaction(one.producer_id, one.first_offset, reached, 0) for one in transactions.by_offset
            )
            where = f"where offsets {reached} to {step.start - 1} are lost"
            cut += (f"{_name(one.producer_id, one.first_offset)} {where}" for one in transactions.by_offset)
            transactions.open.clear()
        reached = step.end
        for header, data in batches_of(part, step):
            if header.last_offset >= begin:
                aborted += transactions.add(header, bytes(data[HEADER_SIZE:]) if header.is_control else b"")
    part.still_open = tuple(one for one in transactions.by_offset if one.first_offset >= part.stable)
    if cut:
        part.notes.append(f"{counted(len(cut), 'transaction')} cut by a hole, and aborted there: {listed(cut)}")
    shown = [
        f"{_name(one.producer_id, one.first_offset)} to {one.last_offset}"
        for one in hidden
        if one.last_offset < part.end and not any(_is_within(one, other) for other in aborted)
    ]
    if shown:
        part.notes.append(
            f"{counted(len(shown), 'aborted transaction')} shown as committed after the restore, because compaction or "
            f"damage removed the marker: {listed(shown)}"
        )


def _hidden(part: Planned) -> Sequence[AbortedTransaction]:
    """Return the transactions that readers hide below a hole-free end; none if every marker is in the segments.

    Copies of other leaders and indexes show them, although the marker is not there any more.
    """
    copies = [copy for step in part.ranges for copy in step.copies]
    if not may_be_lost(copies) and not any(copy.metadata.corruptions for copy in copies):
        return ()
    stable = part.view.last_stable_offset
    try:
        found = find_hidden(
            part.store, part.view, part.view.start, part.end if stable is None else min(stable, part.end)
        )
    except CorruptData as error:
        part.notes.append(f"aborted transactions without a marker are not listed, but shown as committed: {error}")
        return ()
    cut = {(one.producer_id, one.first) for one in found.cut_off}
    return [one for one in found.transactions if (one.producer_id, one.first_offset) not in cut]


def _is_within(one: AbortedTransaction, other: AbortedTransaction) -> bool:
    return (
        one.producer_id == other.producer_id
        and other.first_offset <= one.first_offset
        and one.last_offset <= other.last_offset
    )


def _name(producer_id: int, first_offset: int) -> str:
    return f"producer {producer_id} from offset {first_offset}"


def listed(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _has_no_marker(view: PartitionView) -> bool:
    """Return whether every offset is a record: then no transaction of the view has ended, below a cut or beyond it."""
    return all(
        isinstance(step, ReadRange) and all(copy.dense and copy.metadata.control == 0 for copy in step.copies)
        for step in view.plan(view.start, view.end)
    )


def _cut_at(part: Planned, at: int) -> None:
    """Cut before the first batch with a timestamp later than a time in ms; note what is older beyond it."""
    view = part.view
    part.end = _edge(part, lambda header: header.max_timestamp > at, view.start, at)
    kept = [step for step in view.plan(view.start, part.end) if isinstance(step, ReadRange)]
    if any(copy.metadata.time_max is None and copy.segment.size for step in kept for copy in step.copies):
        part.notes.append("records without a timestamp (magic 0) are below the cut, whenever they were written")
    older = _older_beyond(part, at)
    whole = part.end - view.start + older
    if older * 100 > MOST_OLDER_PERCENT * whole:
        raise QueryError(
            f"{view.partition}: a cut at {time_text(at)} is offset {part.end}, and {older} of {whole} records "
            f"that are not later are beyond it, more than {MOST_OLDER_PERCENT} %: a producer's clock was ahead. Choose "
            f"the offset with --end {view.partition}=OFFSET"
        )
    if older:
        part.notes.append(
            f"not restored, although not later than {time_text(at)}: {counted(older, 'record')} beyond the cut"
        )


def _older_beyond(part: Planned, at: int) -> int:
    """Return the number of records beyond the cut that are not later than a time in ms."""
    beyond = (step for step in part.view.plan(part.end, part.view.end) if isinstance(step, ReadRange))
    headers = (header for step in beyond for header, _ in batches_of(part, step) if not header.is_control)
    return sum(header.record_count or 1 for header in headers if header.max_timestamp <= at)


def _edge(part: Planned, is_beyond: Callable[[BatchHeader], bool], start: int, at: int | None = None) -> int:
    """Return the base offset of the first batch that is beyond a cut; the view's end without one."""
    for step in part.view.plan(start, part.view.end):
        if isinstance(step, PlannedHole):
            continue
        times = [copy.metadata.time_max for copy in step.copies]
        if at is not None and all(time is not None and time <= at for time in times):
            continue
        reached = step.start
        for header, _ in batches_of(part, step):
            if is_beyond(header):
                # A compressed wrapper of magic 0 or 1 does not have the offset of its first message.
                first = reached if header.record_count is None else header.base_offset
                return max(first, part.view.start)
            reached = header.last_offset + 1
    return part.view.end


def _as_one_log(part: Planned, step: ReadRange) -> ReadRange:
    """Return a range whose copies can be united; of compressed messages of magic 0 and 1 it has one copy."""
    if len(step.copies) == 1 or all(copy.metadata.records is not None for copy in step.copies):
        return step
    furthest = max(step.copies, key=lambda copy: (copy.end, copy.segment.name.rank))
    part.notes.append(
        f"offsets {step.start} to {step.end - 1}: copies that were compacted at different times have compressed "
        f"messages of magic 0 or 1; only {furthest.key} is restored, and readers of the archive can return more"
    )
    return replace(step, copies=(furthest,))


def _damaged(part: Planned, step: ReadRange) -> Iterator[Hole]:
    """Yield the offsets of a range that were damaged in the broker's file; of compacted copies nothing is known."""
    if len(step.copies) > 1 or not step.copies[0].metadata.corruptions:
        return
    places, reached = list[str](), step.start
    for header, _ in batches_of(part, step, places.append):
        if places and header.base_offset > reached:
            yield Hole(reached, header.base_offset, _DAMAGED)
        places.clear()
        reached = header.last_offset + 1
    if places and reached < step.end:
        yield Hole(reached, step.end, _DAMAGED)


def batches_of(part: Planned, step: ReadRange, damage: Callable[[str], None] = lambda _: None) -> Iterator[Batch]:
    """Yield the batches of a range in order; damaged ones are left out.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    copies = [read_batches(_chunks(part.store, copy), copy.segment.size, damage) for copy in step.copies]
    return clean(united(copies), step.start, step.end, is_first=True)


def _chunks(store: ObjectStore, copy: SegmentCopy) -> Iterator[bytes]:
    with copy.reader(store) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk


def _note_copies(part: Planned) -> None:
    """Note what the copies of a partition cannot give back exactly."""
    mixed = [step for step in part.ranges if len(step.copies) > 1]
    copies = {copy.key: copy.metadata for step in part.ranges for copy in step.copies}.values()
    if mixed:
        part.notes.append(
            f"offsets {mixed[0].start} to {mixed[-1].end - 1}: copies that were compacted at different times are "
            "united, as readers do; deleted keys can appear again"
        )
    if any(each.txnindex is not None and each.txnindex[1] is TxnIndexState.LATE for each in copies):
        part.notes.append("a segment was shipped late: compaction may have removed markers of aborted transactions")
    frozen = {copy.key for step in part.ranges for copy in step.copies if copy.segment.is_frozen}
    if frozen:
        part.notes.append(f"{counted(len(frozen), 'segment')} in an archive class: thaw them first with `tsctl thaw`")
    if damaged := sum(each.corruptions for each in copies):
        part.notes.append(f"the broker's files were damaged in {damaged} places, which are left out")


def replicas_of(
    topic: str, partitions: int, brokers: Sequence[int], factor: int, former: Mapping[int, Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    """Return the brokers of each partition, the preferred leader first.

    Args:
        brokers: ids of the new cluster.
        factor: replication factor.
        former: the replicas that a snapshot has; used where they have this factor and are all among `brokers`.

    Raises:
        QueryError: there are fewer brokers than replicas.
    """
    if not 0 < factor <= len(brokers):
        raise QueryError(
            f"topic {topic}: replication factor {factor} with {len(brokers)} brokers; set --replication-factor"
        )
    shift = sum(topic.encode())  # topics begin with different brokers
    found = {}
    for number in range(partitions):
        before = tuple(former.get(number, ()))
        is_usable = len(before) == factor and set(before) <= set(brokers)
        ring = tuple(brokers[(shift + number + place) % len(brokers)] for place in range(factor))
        found[number] = before if is_usable else ring
    return found
