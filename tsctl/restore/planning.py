"""Makes the plan of a restore from the archive: steps, cut, open transactions, and what is lost.

Segments are read where their metadata is not enough: around a cut by time, and from the last stable offset on. A cut
below the end of a partition with transactions reads all of it, because an open transaction can be of any age.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit_state import CommitState
from ts_common.archive.fetch import fetch
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import Hole as PlannedHole
from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Ended, Outcome
from ts_common.archive.segment_metadata import TxnIndexState, known_crc32c
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import QueryError
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader
from ts_common.log_format.markers import ABORT, COMMIT, read_markers
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.query.timestamps import time_text
from tsctl.restore.chain import Batch, clean, read_batches, united
from tsctl.restore.documents import Hole, PartitionPlan, Source, Step
from tsctl.restore.transactions import Coordinated, OpenTransaction, Transactions

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
UNCUT: Final = frozenset({"_schemas"})  # records refer to its newest entries
MOST_OLDER_PERCENT: Final = 1  # records beyond a cut by time that are not later than it
_DAMAGED: Final = "the broker's file was damaged there; transactions that ended there show as committed"
_OUTCOMES: Final = {ABORT: Outcome.ABORT, COMMIT: Outcome.COMMIT}


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
            steps=tuple(map(_step, self.ranges)),
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


def plan_partition(store: ObjectStore, catalog: PartitionCatalog, at: int | None, end: int | None) -> Planned:
    """Return what is restored of a partition, without the ends of its transactions.

    Args:
        at: ms since the epoch: the cut is before the first batch with a later timestamp; None for no cut by time.
        end: no offset from it on is restored; None for no such cut. It counts instead of `at`.

    Raises:
        QueryError: the commit is lost, or a cut by time removes too many records that are not later.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    view = open_view(store, catalog)
    if view.state in {CommitState.MISSING, CommitState.DAMAGED}:
        raise QueryError(f"{view.warning}; or leave the topic out of the plan")
    planned = Planned(store, view, view.end)
    if view.warning is not None:
        planned.notes.append(view.warning)
    if catalog.keys.partition.topic in UNCUT and end is None:
        at = None
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
    _find_open(planned)
    return planned


def end_transactions(
    parts: Sequence[Planned], coordinated: Iterable[Coordinated] = (), *, aborts: bool = True
) -> dict[TopicPartition, list[Ended]]:
    """Return the ends of the transactions that are open at the end of each partition.

    A transaction has its true end if another partition has a marker of it below its cut, or its coordinator describes
    it. Else it is aborted, or left open for its coordinator. A marker is of the same transaction if it is of the same
    producer and not older than the transaction's newest record: the next transaction of a producer begins after all
    markers of this one.

    Args:
        coordinated: what the coordinators of a running cluster describe.
        aborts: whether a transaction without an outcome is aborted, and not left open.
    """
    wanted = {one.producer_id for part in parts for one in part.still_open}
    if not wanted:
        return {part.keys.partition: [] for part in parts}
    since = min(one.time for part in parts for one in part.still_open)
    markers = [marker for part in parts for marker in markers_of(part, since, wanted)]
    known = {each.producer_id: each for each in coordinated}
    found: dict[TopicPartition, list[Ended]] = {}
    for part in parts:
        found[part.keys.partition] = ended = []
        for one in part.still_open:
            outcome, why = _end_of(one, part.keys.partition, markers, known)
            if outcome is None and aborts:
                outcome = Outcome.ABORT
            if outcome is not None:
                ended.append(Ended(one.producer_id, one.producer_epoch, one.first_offset, outcome))
            part.notes.append(
                f"the transaction of producer {one.producer_id} from offset {one.first_offset} on is open at "
                f"{part.end}: {outcome or 'left open'} ({why})"
            )
    return found


def _end_of(
    one: OpenTransaction,
    partition: TopicPartition,
    markers: Iterable["Marker"],
    known: Mapping[int, Coordinated],
) -> tuple[Outcome | None, str]:
    """Return the end of a transaction, and why; None if it is unknown."""
    if (marker := _true_end(one, partition, markers)) is not None:
        return marker.outcome, f"as in {marker.partition}"
    coordinated = known.get(one.producer_id)
    if coordinated is not None and (outcome := coordinated.outcome_of(one)) is not None:
        return outcome, f"as its coordinator has of {coordinated.transactional_id}"
    return None, "no restored partition has its marker" + (", nor its coordinator its outcome" if known else "")


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker that ends a transaction.

    Attributes:
        begun: producer epoch of the transaction's batches in its partition; None if unknown.
        time: ms since the epoch, the leader's clock.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    begun: int | None
    time: int
    outcome: Outcome


def _true_end(one: OpenTransaction, partition: TopicPartition, markers: Iterable[Marker]) -> Marker | None:
    # With transaction.version 2 a marker has the next epoch of its producer.
    epochs = {one.producer_epoch, one.producer_epoch + 1}
    same = [
        each
        for each in markers
        if each.producer_id == one.producer_id
        and each.producer_epoch in epochs
        and each.begun in {None, one.producer_epoch}
    ]
    # Producers choose the times of records, brokers those of markers. Markers of the partition itself are earlier.
    earlier = max((each.time + 1 for each in same if each.partition == partition), default=one.time)
    after = [each for each in same if each.partition != partition and each.time >= max(one.time, earlier)]
    return min(after, key=lambda marker: marker.time, default=None)


def markers_of(
    part: Planned, since: int, producers: Collection[int] | None = None, *, with_last: bool = False
) -> Iterator[Marker]:
    """Yield the markers in a partition that are not older than a time.

    Args:
        since: ms since the epoch.
        producers: whose markers; None for all.
        with_last: whether to read the last segments with markers too, however old they are.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    begun: dict[int, int] = {}  # epoch of the newest batch, by producer
    last = max((at for at, step in enumerate(part.ranges) if has_markers(step)), default=-1) if with_last else -1
    for number, step in enumerate(part.ranges):
        is_old = all(each.metadata.time_max is not None and each.metadata.time_max < since for each in step.copies)
        if number != last and (is_old or not has_markers(step)):
            begun.clear()
            continue
        for header, data in batches_of(part, step):
            if header.is_transactional and not header.is_control:
                begun[header.producer_id] = header.producer_epoch
            if not header.is_control or not (with_last or header.max_timestamp >= since):
                continue
            if producers is not None and header.producer_id not in producers:
                continue
            for _, kind in read_markers(header, bytes(data[HEADER_SIZE:])):
                if kind in _OUTCOMES:
                    yield Marker(
                        part.keys.partition,
                        header.producer_id,
                        header.producer_epoch,
                        begun.pop(header.producer_id, None),
                        header.max_timestamp,
                        _OUTCOMES[kind],
                    )


def has_markers(step: ReadRange) -> bool:
    """Return whether a range may have markers."""
    return any(copy.metadata.control != 0 for copy in step.copies)


def _find_open(part: Planned) -> None:
    """Find the transactions that are open at the end."""
    stable = part.view.last_stable_offset
    is_known = stable is not None and (part.end == part.view.end or _has_no_marker(part.view))
    part.stable = min(stable, part.end) if is_known and stable is not None else part.view.start
    transactions, reached = Transactions(), None
    for step in part.ranges:
        if step.end <= part.stable:
            continue
        if reached is not None and step.start > reached:
            transactions.open.clear()  # the restore aborts them where offsets are lost
        reached = step.end
        for header, data in batches_of(part, step):
            if header.last_offset >= part.stable:
                transactions.add(header, bytes(data[HEADER_SIZE:]) if header.is_control else b"")
    part.still_open = tuple(transactions.by_offset)


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
    copies = [read_batches(fetch(part.store, copy.key), copy.segment.size, damage) for copy in step.copies]
    return clean(united(copies), step.start, step.end, is_first=True)


def _step(part: ReadRange) -> Step:
    sources = (
        Source(copy.key, copy.segment.size, known_crc32c(copy.metadata), copy.metadata.time_max) for copy in part.copies
    )
    return Step(part.start, part.end, tuple(sources))


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
        partitions: their number.
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
