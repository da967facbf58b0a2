"""The plan of a table's next commit: the steps of all partitions, the state after them, and the work.

The promise of a table is "as of the commit that the plan read": an election between plan and commit is found by the
next plan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.read_log import kept_end
from ts_common.archive.sealed_ranges import Part, as_ranges
from ts_common.errors import DataLoss, OperatorError
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.following.commit_snapshot import Observer
from ts_reader.following.ends import PartitionEnd
from ts_reader.query.bounds import Loss, loss_of
from ts_reader.query.plan_query import splits_of
from ts_reader.query.query import Query
from ts_reader.query.splits import PartitionRanges, bytes_of
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.transactions import find_hidden, stable_end
from ts_tables.claims.advance import ClaimStep, OnLost, OnTakenBack, Policy, Seen, advance, begin, needs_view, parting
from ts_tables.claims.state import IncarnationState, PartitionClaims, TableState, without
from ts_tables.planning.claimable import Claimable, ClaimablePartitions, known_of, seen_of
from ts_tables.planning.claimed import Claimed, claimed_of
from ts_tables.planning.erased import Erased, erased_of
from ts_tables.planning.work import Covered, Work

Begins = Callable[[TopicPartition], int | None]


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Rows of a partition that an election removed from its log.

    Attributes:
        start: first offset.
        end: the offset after the last.
    """

    partition: TopicPartition
    directory: str
    topic_id: str | None
    start: int
    end: int


def left_of(covered: Iterable[Covered], taken_back: Sequence[TakenBack]) -> list[Covered]:
    """Return offsets without those of rows that are deleted.

    Args:
        taken_back: entries whose rows are deleted from it.
    """
    return [
        replace(each, start=start, end=end)
        for each in covered
        for start, end in without(
            (each.start, each.end),
            [
                (one.start, one.end)
                for one in taken_back
                if (one.partition, one.topic_id) == (each.partition, each.topic_id)
            ],
        )
    ]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a commit adds to a table.

    Attributes:
        state: after the commit.
        work: splits to read, by topic, partition and offset; those of late claims last.
        taken_back: rows to delete, or to keep with the new ones.
        keeps: whether they are kept.
        late: the number of passed holes that are claimed now.
        waits: one sentence for each hole that the table waits at.
        behind: offsets of each topic that are shipped and not claimed, before the commit.
        lag: the same after it.
        has_more: whether the archive has more for the table, left for the next commit.
        notes: one sentence for each partition whose first commit may be under way.
    """

    state: TableState
    work: tuple[Work, ...]
    taken_back: tuple[TakenBack, ...]
    keeps: bool
    late: int
    waits: tuple[str, ...]
    behind: Mapping[str, int]
    lag: Mapping[str, int]
    has_more: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the commit would change nothing."""
        return not (self.work or self.taken_back or self.late)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan of one partition.

    Attributes:
        claimable: the partition.
        step: of its claims.
        view: of it; None if its commit has no news, like the next two.
        known: its claims before the step.
        seen: what the archive shows.
        ranges: to read for each claim.
        late: to read for late claims, each with the transactions that hid its rows.
    """

    claimable: Claimable
    step: ClaimStep
    view: PartitionView | None = None
    known: PartitionClaims | None = None
    seen: Seen | None = None
    ranges: tuple[PartitionRanges, ...] = ()
    late: tuple[tuple[PartitionRanges, tuple[AbortedTransaction, ...]], ...] = ()


class Planner:
    """Plans the commits of one table from the topics of one location; not thread-safe.

    Args:
        query: settled; its subscription, isolation level and limits.
        begins: returns where a table begins in a partition; None for the start of its log.
        most_bytes: of segments that one commit adds; None for no limit.
    """

    def __init__(
        self,
        store: ObjectStore,
        query: Query,
        policy: Policy,
        begins: Begins = lambda _: None,
        most_bytes: int | None = None,
    ) -> None:
        self.store = store
        self._query = query
        self._policy = policy
        self._begins = begins
        self._most_bytes = most_bytes
        self._observer = Observer(store, query)
        self._partitions = ClaimablePartitions(self._observer, query.keys, store.location, policy.on_recreated)

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return what the next commit adds.

        Args:
            is_first: whether the table begins: topics that it names must exist.

        Raises:
            OperatorError: the table has the records of another cluster, or of another isolation level.
            QueryError: the store does not hold the cluster, or a topic that a new table names.
            DataLoss: the table fails: an election removed rows, offsets are lost, a topic was created again, or a
                commit is missing; with every case.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        self._check(state)
        look = self._observer.look(is_first=is_first)
        problems: list[str] = []
        lost: list[str] = []
        notes: list[str] = []
        claimable = self._partitions.find(state, look, problems, lost, notes)
        stepped: list[_Planned] = []
        moved = [each.end.keys for each in claimable if _has_news(each, known_of(state, each))]
        views = dict(zip(moved, self._observer.views(moved), strict=True))
        steps = in_threads(
            lambda each: self._step(each, known_of(state, each), views.get(each.end.keys), state), claimable
        )
        for one, found in zip(claimable, steps, strict=True):
            if isinstance(found, _Planned):
                stepped.append(found)
            elif (known := known_of(state, one)) is not None:
                problems.append(f"{found}; claims end at {known.end}")
            else:
                lost.append(str(found))
        problems += [f"{each}. on_lost: pass reads the others" for each in lost if self._policy.on_lost is OnLost.FAIL]
        problems += [
            f"{each.claimable.partition}: offsets {problem.start} to {problem.end - 1} {problem.reason}"
            for each in stepped
            if (problem := each.step.problem) is not None
        ]
        if problems:
            raise DataLoss("; ".join(problems))
        limited = self._limited(stepped)
        planned = in_threads(self._with_ranges, limited)
        behind = _lag(state, claimable)
        for each in planned:
            state = _with_step(state, each)
        return TablePlan(
            state=state,
            work=(*self._work(planned), *self._late_work(planned)),
            taken_back=tuple(
                TakenBack(
                    each.claimable.partition, each.claimable.directory, each.claimable.topic_id, *each.step.taken_back
                )
                for each in planned
                if each.step.taken_back is not None
            ),
            keeps=self._policy.on_taken_back is OnTakenBack.KEEP,
            late=sum(len(each.step.late) for each in planned),
            waits=(*(_waiting(each) for each in planned if each.step.waits is not None), *lost),
            behind=behind,
            lag=_lag(state, claimable),
            has_more=limited != stepped,
            notes=tuple(notes),
        )

    def _check(self, state: TableState) -> None:
        """Check that claims are of this cluster and isolation level.

        Raises:
            OperatorError: they are not.
        """
        if state.cluster != self._query.cluster:
            raise OperatorError(
                f"the table has records of cluster {state.cluster}, and the archive is of {self._query.cluster}: "
                "correct `cluster` below `archive`, or create another table"
            )
        if state.read_committed != self._query.read_committed:
            levels = {True: "read_committed", False: "read_uncommitted"}
            raise OperatorError(
                f"isolation is {levels[self._query.read_committed]}, and the table was created with "
                f"{levels[state.read_committed]}: change it back, or create another table"
            )

    @property
    def keys(self) -> ClusterKeys:
        """The keys of the cluster."""
        return self._query.keys

    def claimed(self, state: TableState) -> Claimed:
        """Return what a table has claimed, as the archive shows it now; for a comparison.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        self._check(state)
        return claimed_of(self.store, self._query, self._observer, state)

    def erased(self, state: TableState) -> Erased:
        """Return what lists of erased offsets hide of a table's claims, beyond what it obeys; raise as `claimed`."""
        self._check(state)
        return erased_of(self.store, self._query, self._observer, state)

    def _start(self, view: PartitionView, state: TableState) -> int:
        """Return where a table without claims of a directory begins: above former places that it has claimed."""
        claimed = (
            state.incarnation(view.partition.topic, part.keys.incarnation) is not None
            for part in view.former
            if part.keys.cluster == view.keys.cluster
        )
        return view.own.start if any(claimed) else view.start

    def _step(
        self, one: Claimable, known: PartitionClaims | None, view: PartitionView | None, state: TableState
    ) -> _Planned | Loss:
        """Return the step of a partition, or its loss; without news of its commit, there is no view."""
        if view is None:
            assert known is not None  # noqa: S101  (`_has_news`)
            return _Planned(one, ClaimStep(known))
        if (loss := loss_of(view)) is not None:
            return loss
        end = self._end_in(one.end, view)
        if known is None:
            first = self._begins(view.partition) if one.is_first else None
            known = begin(Seen(self._start(view, state), end.next_offset, end.shown, end.log), first)
        seen = seen_of(
            self.store,
            view,
            end,
            known.below(parting(known, end.next_offset, end.log)),
            read_committed=self._query.read_committed,
        )
        return _Planned(one, advance(known, seen, self._policy), view, known, seen)

    def _end_in(self, end: PartitionEnd, view: PartitionView) -> PartitionEnd:
        """Return the end by a commit, as far as a view that was read later shows the same log: nothing else is claimed.

        Its tail can end earlier, without a marker that the commit's had. An election can have removed records since.
        """
        kept = kept_end(end.next_offset, end.log.below(end.next_offset), view.log, view.end)
        if (shared := min(kept, view.end)) >= end.next_offset:
            return end
        stable = stable_end(self.store, view) if self._query.read_committed else shared
        return replace(end, next_offset=shared, shown=min(end.shown, shared, stable))

    def _limited(self, stepped: list[_Planned]) -> list[_Planned]:
        """Return the steps for one commit: each partition gets its share of bytes, one segment at least."""
        weighed = [[(part.end, bytes_of(part)) for part in _parts(each)] for each in stepped]
        total = sum(size for parts in weighed for _, size in parts)
        if self._most_bytes is None or total <= self._most_bytes:
            return stepped
        limited = []
        for each, parts in zip(stepped, weighed, strict=True):
            allowed = self._most_bytes * sum(size for _, size in parts) // total
            until, used = None, 0
            for end, size in parts:
                if until is not None and used + size > allowed:
                    break
                until, used = end, used + size
            if until is None or each.known is None or each.seen is None:
                limited.append(each)
            else:
                seen = replace(each.seen, stable=min(until, each.seen.stable))
                limited.append(replace(each, step=advance(each.known, seen, self._policy)))
        return limited

    def _with_ranges(self, planned: _Planned) -> _Planned:
        """Return the plan of a partition with what to read."""
        view = planned.view
        if view is None:
            return planned
        late = []
        for hole in planned.step.late:
            withheld = tuple(AbortedTransaction(name, first, hole.start - 1, -1) for name, first in hole.withheld)
            first = max(hole.first, view.start)  # retention may have removed some of what was withheld
            if withheld and first < hole.start:
                late.append((self._ranges(view, first, hole.start), withheld))
            if hole.start < hole.end:
                late.append((self._ranges(view, hole.start, hole.end), ()))
        ranges = tuple(self._ranges(view, *claim) for claim in planned.step.claims)
        return replace(planned, ranges=ranges, late=tuple(late))

    def _ranges(self, view: PartitionView, start: int, end: int) -> PartitionRanges:
        """Return what to read of a claim."""
        parts: list[Part] = []
        for part in view.runs(start, end):
            if isinstance(part, Hole):
                raise DataLoss(f"{view.partition}: offsets {part.start} to {part.end - 1} disappeared during the plan")
            parts.append(part)
        hidden = find_hidden(self.store, view, start, end).transactions if self._query.read_committed else ()
        return PartitionRanges(as_ranges(parts), hidden, erased=view.erased)

    def _work(self, planned: Sequence[_Planned]) -> Iterator[Work]:
        former = {
            part.keys.prefix: each.claimable.topic_id
            for each in planned
            if each.view is not None
            for part in each.view.former
        }
        # A former place that the table has claimed itself is claimed as such only.
        topic_ids = former | {each.claimable.end.keys.prefix: each.claimable.topic_id for each in planned}
        for split in splits_of(self.store, [part for each in planned for part in each.ranges], self._query):
            yield Work(split, topic_ids[split.ranges[0].copies[0].keys.prefix])

    def _late_work(self, planned: Sequence[_Planned]) -> Iterator[Work]:
        for each in planned:
            for part, withheld in each.late:
                for split in splits_of(self.store, [part], self._query):
                    yield Work(split, each.claimable.topic_id, withheld)


def _has_news(one: Claimable, known: PartitionClaims | None) -> bool:
    return known is None or needs_view(known, one.end.next_offset, one.end.shown, one.end.log)


def _parts(planned: _Planned) -> Iterator[ReadRange]:
    """Yield the ranges of a partition's claims."""
    if planned.view is not None and planned.step.problem is None:
        for start, end in planned.step.claims:
            yield from (part for part in planned.view.plan(start, end) if isinstance(part, ReadRange))


def _with_step(state: TableState, planned: _Planned) -> TableState:
    one = planned.claimable
    topic, number = one.partition.topic, one.partition.partition
    known = state.incarnation(topic, one.directory) or IncarnationState(one.directory, one.topic_id)
    claims = planned.step.state
    if number not in known.partitions and planned.view is not None:
        claims = replace(claims, obeyed=planned.view.lists)  # later lists have all offsets of these
    return state.with_incarnation(topic, replace(known, partitions={**known.partitions, number: claims}))


def _waiting(planned: _Planned) -> str:
    hole, end = planned.step.waits, planned.step.state.end
    assert hole is not None  # noqa: S101  (the caller's condition)
    below = f", and waits at offset {end}, where a transaction that is open there begins" if end < hole.start else ""
    return (
        f"{planned.claimable.partition}: offsets {hole.start} to {hole.end - 1} are missing in the archive{below}; "
        "on_hole: pass notes them and continues"
    )


def _lag(state: TableState, claimable: Iterable[Claimable]) -> dict[str, int]:
    lag: dict[str, int] = {}
    for one in claimable:
        known = known_of(state, one)
        left = one.end.next_offset - (0 if known is None else known.end)
        lag[one.partition.topic] = lag.get(one.partition.topic, 0) + max(0, left)
    return lag


class NothingNew:
    """Plans commits without new rows."""

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return a plan that adds nothing."""
        del is_first
        return TablePlan(state, (), (), keeps=False, late=0, waits=(), behind={}, lag={})

    def claimed(self, state: TableState) -> Claimed:
        """Return nothing: no row is read again."""
        del state
        return Claimed((), {}, ())

    def erased(self, state: TableState) -> Erased:
        """Return nothing: no row is hidden."""
        del state
        return Erased()
