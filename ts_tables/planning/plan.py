"""The plan of a table's next commit: the steps of all partitions, the state after them, and the work.

The promise of a table is "as of the commit that the plan read": an election between plan and commit is found by the
next plan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import PartitionView
from ts_common.errors import DataLoss, OperatorError
from ts_common.following.commit_snapshot import CommitSnapshot, Observer, PartitionEnd, TopicSnapshot
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.query.plan_query import splits_of
from ts_common.query.query import Query
from ts_common.query.split import bytes_of
from ts_common.query.splitting import PartitionRanges
from ts_common.reading.parallel import in_threads
from ts_common.reading.transactions import apart, find_hidden
from ts_common.store.contract import ObjectStore
from ts_tables.claims.advance import OnRecreated, OnTakenBack, Policy, Seen, Step, advance, begin, needs_view, parting
from ts_tables.claims.state import IncarnationState, PartitionState, PassedHole, TableState, without
from ts_tables.planning.work import Work

Begins = Callable[[TopicPartition], int | None]


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Rows of a partition that an election removed from its log.

    Attributes:
        partition: of the rows.
        directory: of the incarnation.
        topic_id: of the rows.
        start: first offset.
        end: the offset after the last.
    """

    partition: TopicPartition
    directory: str
    topic_id: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a commit adds to a table.

    Attributes:
        state: after the commit.
        work: splits to read, by topic, partition and offset; those of late claims last.
        taken_back: rows to delete, or to keep beside the new ones.
        keeps: whether they are kept.
        late: the number of passed holes that are claimed now.
        waits: one sentence for each hole that the table waits at.
        behind: offsets of each topic that are shipped and not claimed, before the commit.
        lag: the same after it.
        has_more: whether the archive has more for the table, left for the next commit.
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

    @property
    def is_empty(self) -> bool:
        """Whether the commit would change nothing."""
        return not (self.work or self.taken_back or self.late)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a table has claimed, as the archive shows it.

    Attributes:
        work: to read.
        skipped: by partition and topic id, ranges `[from, to)` of claims that cannot be compared.
        notes: sentences about these.
    """

    work: tuple[Work, ...]
    skipped: Mapping[tuple[TopicPartition, str | None], tuple[tuple[int, int], ...]]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sight:
    """A partition of an incarnation, its commit, and whether the table has claimed no earlier incarnation."""

    topic_id: str | None
    directory: str
    end: PartitionEnd
    is_first: bool = True

    @property
    def partition(self) -> TopicPartition:
        """The topic and partition."""
        return self.end.keys.partition


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan of one partition.

    Attributes:
        sight: of the partition.
        step: of its claims.
        view: of it; None if its commit has no news, like the next two.
        known: its claims before the step.
        seen: what the archive shows.
        ranges: to read for each claim.
        late: to read for late claims, each with the transactions that hid its rows.
    """

    sight: _Sight
    step: Step
    view: PartitionView | None = None
    known: PartitionState | None = None
    seen: Seen | None = None
    ranges: tuple[PartitionRanges, ...] = ()
    late: tuple[tuple[PartitionRanges, tuple[AbortedTransaction, ...]], ...] = ()


class Planner:
    """Plans the commits of one table from the topics of one location; not thread-safe.

    Attributes:
        store: of the topics.

    Args:
        store: of the topics.
        query: settled; its subscription, isolation level and limits.
        policy: of the table.
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

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return what the next commit adds.

        Args:
            state: of the table.
            is_first: whether the table begins: topics that it names must exist.

        Raises:
            QueryError: the store does not hold the cluster, or a topic that a new table names.
            DataLoss: the table fails: rows were taken back, offsets are lost, a topic was created again, or a commit is
                missing; with every case.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        self._check(state)
        look = self._observer.look(is_first=is_first)
        problems: list[str] = []
        sights = self._sights(state, look, problems)
        stepped = in_threads(lambda sight: self._step(sight, _known(state, sight)), sights)
        problems += [
            f"{each.sight.partition}: offsets {problem.start} to {problem.end - 1} {problem.reason}"
            for each in stepped
            if (problem := each.step.problem) is not None
        ]
        if problems:
            raise DataLoss("; ".join(problems))
        limited = self._limited(stepped)
        planned = in_threads(self._with_ranges, limited)
        behind = _lag(state, sights)
        for each in planned:
            state = _with_step(state, each)
        return TablePlan(
            state=state,
            work=(*self._work(planned), *self._late_work(planned)),
            taken_back=tuple(
                TakenBack(each.sight.partition, each.sight.directory, each.sight.topic_id, *each.step.taken_back)
                for each in planned
                if each.step.taken_back is not None
            ),
            keeps=self._policy.on_taken_back is OnTakenBack.KEEP,
            late=sum(len(each.step.late) for each in planned),
            waits=tuple(_waiting(each) for each in planned if each.step.waits is not None),
            behind=behind,
            lag=_lag(state, sights),
            has_more=limited != stepped,
        )

    def _check(self, state: TableState) -> None:
        """Check that claims are of this cluster and isolation level.

        Raises:
            OperatorError: they are not.
        """
        if state.cluster != self._query.cluster:
            raise OperatorError(
                f"the table has claimed of cluster {state.cluster}, and the archive given is of {self._query.cluster}: "
                "create another table"
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

        Args:
            state: of the table.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        self._check(state)
        partitions = [
            (self._query.keys.partition(TopicPartition(name, number), each.directory), each.topic_id, known)
            for name, incarnations in sorted(state.topics.items())
            for each in incarnations
            for number, known in sorted(each.partitions.items())
        ]
        found = in_threads(lambda one: self._claimed(one[0], one[2]), partitions)
        work: list[Work] = []
        for (_, topic_id, _), (parts, _, _) in zip(partitions, found, strict=True):
            work += [Work(split, topic_id) for split in splits_of(self.store, parts, self._query)]
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
        self, keys: PartitionKeys, known: PartitionState
    ) -> tuple[list[PartitionRanges], list[tuple[int, int]], list[str]]:
        """Return what to read of a partition's claims, and the offsets that cannot be compared, with sentences."""
        skipped: list[tuple[int, int]] = []
        notes: list[str] = []

        def skip(start: int, end: int, why: str) -> None:
            if start < end:
                skipped.append((start, end))
                notes.append(f"{keys.partition}: offsets {start} to {end - 1} {why}")

        end = self._observer.end_of(keys)
        if end is None:
            skip(known.start, known.end, "were not compared: the commit of the partition is missing")
            return [], skipped, notes
        view = self._observer.view(keys)
        parted = parting(known, end.next_offset, end.epochs)
        last = min(parted, max(view.end, known.start))
        skip(known.start, min(view.start, last), "are below the start of the log")
        if parted < known.end:
            skip(parted, max([known.end, *(kept.end for kept in known.kept)]), "were taken back by an election")
        skip(last, parted, "are above the end of the commit")
        withheld = tuple(
            AbortedTransaction(producer, first, hole.start - 1, -1)
            for hole in known.holes
            for producer, first in hole.withheld
        )
        low = max(known.start, view.start)
        noted = {(hole.start, hole.end) for hole in known.holes}
        holes = _joined(part for part in view.plan(low, max(last, low)) if isinstance(part, Hole))
        cut_off: dict[tuple[int, int], int] = {}
        if self._query.read_committed and {*holes} - noted:
            for one in find_hidden(self.store, view, low, last).cut_off:
                hole = next(each for each in holes if each[0] <= one.hole.start < each[1])
                cut_off[hole] = min(one.first, cut_off.get(hole, one.first))
        for hole in holes:
            if not any(start <= hole[0] and hole[1] <= stop for start, stop in (*noted, *known.lost)):
                skip(cut_off.get(hole, hole[0]), hole[1], "are missing in the archive, or hidden by what is missing")
        parts = []
        for start, stop in without((low, max(last, low)), noted, known.lost, skipped):
            for part in view.plan(start, stop):
                if isinstance(part, Hole):
                    continue
                hidden = (
                    find_hidden(self.store, view, part.start, part.end).transactions
                    if self._query.read_committed
                    else ()
                )
                parts.append(PartitionRanges((part,), apart((*hidden, *withheld)) if withheld else hidden))
        return parts, skipped, notes

    def _sights(self, state: TableState, look: CommitSnapshot, problems: list[str]) -> list[_Sight]:
        """Return the partitions that the table reads: of newest incarnations, and of those that it knows."""
        sights: list[_Sight] = []
        for name in sorted({*look.topics, *state.topics}):
            topic, known = look.topics.get(name), state.topics.get(name, ())
            if topic is None:
                problems.append(
                    f"topic {name} is not in {self.store.location}, or the table no longer names it; its claims stay: "
                    "name it again, or create another table"
                )
                continue
            newest = topic.incarnations.newest_directory
            directories = list(dict.fromkeys(each.directory for each in topic.incarnations.entries)) or [newest]
            begun = [directories.index(each.directory) for each in known if each.directory in directories]
            wanted = directories[min(begun) :] if begun else [newest]
            if known and known[-1].directory != newest and self._policy.on_recreated is OnRecreated.FAIL:
                problems.append(
                    f"topic {name} was created again, with topic id {topic.topic_id}; the table has claimed "
                    f"{known[-1].topic_id}. on_recreated: follow adds the records of the new topic too"
                )
                continue
            for directory in wanted:
                sights += self._incarnation(name, directory, topic, state, problems, is_first=not known)
        return sights

    def _incarnation(
        self,
        name: str,
        directory: str,
        topic: TopicSnapshot,
        state: TableState,
        problems: list[str],
        *,
        is_first: bool,
    ) -> Iterator[_Sight]:
        """Yield the partitions of an incarnation; those that the table has claimed must have a commit."""
        claimed = state.incarnation(name, directory)
        ends = dict(topic.ends) if directory == topic.incarnations.newest_directory else {}
        numbers = {*topic.numbers} | ({*claimed.partitions} if claimed is not None else set())
        keys = [self._query.keys.partition(TopicPartition(name, number), directory) for number in sorted(numbers)]
        lacking = [each for each in keys if each.partition not in ends]
        if directory != topic.incarnations.newest_directory:
            found = in_threads(self._observer.end_of, lacking)
            ends |= {each.partition: end for each, end in zip(lacking, found, strict=True) if end is not None}
        topic_id = next((each.topic_id for each in topic.incarnations.entries if each.directory == directory), None)
        for each in keys:
            number = each.partition.partition
            if each.partition in ends:
                known_id = topic_id if claimed is None else claimed.topic_id
                yield _Sight(known_id, directory, ends[each.partition], is_first)
            elif claimed is not None and number in claimed.partitions:
                problems.append(
                    f"{each.partition}: its commit {each.commit} is missing; claims end at "
                    f"{claimed.partitions[number].end}"
                )

    def _step(self, sight: _Sight, known: PartitionState | None) -> _Planned:
        """Return the step of a partition; open its view only if its commit has news."""
        end = sight.end
        if known is not None and not needs_view(known, end.next_offset, end.shown, end.epochs):
            return _Planned(sight, Step(known))
        view = self._observer.view(end.keys)
        if known is None:
            first = self._begins(view.partition) if sight.is_first else None
            known = begin(Seen(view.start, end.next_offset, end.shown, end.epochs), first)
        seen = self._seen(view, end, known.below(parting(known, end.next_offset, end.epochs)))
        return _Planned(sight, advance(known, seen, self._policy), view, known, seen)

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

    def _seen(self, view: PartitionView, end: PartitionEnd, known: PartitionState) -> Seen:
        start = max(view.start, min([known.end, *(hole.first for hole in known.holes)]))
        holes = _joined(part for part in view.plan(start, max(view.end, start)) if isinstance(part, Hole))
        seen = Seen(view.start, end.next_offset, end.shown, end.epochs, tuple(PassedHole(*each) for each in holes))
        noted = {(hole.start, hole.end) for hole in known.holes if hole.start >= view.start}
        is_unchanged = noted == {*holes}
        if is_unchanged or not self._query.read_committed:  # else headers are read to find open transactions
            return seen
        cut_off = find_hidden(self.store, view, start, max(start, end.shown)).cut_off
        withheld = {
            hole: tuple((one.producer_id, one.first) for one in cut_off if hole[0] <= one.hole.start < hole[1])
            for hole in holes
        }
        return replace(seen, holes=tuple(PassedHole(*hole, tuple(sorted(withheld[hole]))) for hole in holes))

    def _ranges(self, view: PartitionView, start: int, end: int) -> PartitionRanges:
        """Return what to read of a claim."""
        ranges = []
        for part in view.plan(start, end):
            if isinstance(part, Hole):
                raise DataLoss(f"{view.partition}: offsets {part.start} to {part.end - 1} went missing during the plan")
            ranges.append(part)
        hidden = find_hidden(self.store, view, start, end).transactions if self._query.read_committed else ()
        return PartitionRanges(tuple(ranges), hidden)

    def _work(self, planned: Sequence[_Planned]) -> Iterator[Work]:
        topic_ids = {each.sight.end.keys.prefix: each.sight.topic_id for each in planned}
        for split in splits_of(self.store, [part for each in planned for part in each.ranges], self._query):
            yield Work(split, topic_ids[split.ranges[0].copies[0].keys.prefix])

    def _late_work(self, planned: Sequence[_Planned]) -> Iterator[Work]:
        for each in planned:
            for part, withheld in each.late:
                for split in splits_of(self.store, [part], self._query):
                    yield Work(split, each.sight.topic_id, withheld)


def _parts(planned: _Planned) -> Iterator[ReadRange]:
    """Yield the ranges of a partition's claims."""
    if planned.view is not None and planned.step.problem is None:
        for start, end in planned.step.claims:
            yield from (part for part in planned.view.plan(start, end) if isinstance(part, ReadRange))


def _joined(holes: Iterable[Hole]) -> list[tuple[int, int]]:
    """Return holes as ranges; adjoining ones, which differ in their records only, are one."""
    joined: list[tuple[int, int]] = []
    for hole in holes:
        if joined and joined[-1][1] == hole.start:
            joined[-1] = (joined[-1][0], hole.end)
        else:
            joined.append((hole.start, hole.end))
    return joined


def _known(state: TableState, sight: _Sight) -> PartitionState | None:
    incarnation = state.incarnation(sight.partition.topic, sight.directory)
    return None if incarnation is None else incarnation.partitions.get(sight.partition.partition)


def _with_step(state: TableState, planned: _Planned) -> TableState:
    sight = planned.sight
    topic, number = sight.partition.topic, sight.partition.partition
    known = state.incarnation(topic, sight.directory) or IncarnationState(sight.directory, sight.topic_id)
    return state.with_incarnation(topic, replace(known, partitions={**known.partitions, number: planned.step.state}))


def _waiting(planned: _Planned) -> str:
    hole, end = planned.step.waits, planned.step.state.end
    assert hole is not None  # noqa: S101  (the caller's condition)
    below = f", and waits at offset {end}, where a transaction that is open there begins" if end < hole.start else ""
    return (
        f"{planned.sight.partition}: offsets {hole.start} to {hole.end - 1} are missing in the archive{below}; "
        "on_hole: pass notes them and goes on"
    )


def _lag(state: TableState, sights: Iterable[_Sight]) -> dict[str, int]:
    lag: dict[str, int] = {}
    for sight in sights:
        known = _known(state, sight)
        left = sight.end.next_offset - (0 if known is None else known.end)
        lag[sight.partition.topic] = lag.get(sight.partition.topic, 0) + max(0, left)
    return lag
