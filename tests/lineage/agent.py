"""One agent, one store operation a step: what protocol rules 4 to 8, 10 and 12 do to `offset.wm` and `log.start`.

An agent leads in one epoch. It checks its leadership only at the start of a cycle, so all later steps may be late.
After a rejected request it starts again (`Habit.PERSISTS`: even if it no longer leads). A PUT of a segment under a used
name and its comparison are one step.
"""

from typing import NamedTuple

from tests.lineage.clauses import Clause, Described, Habit, Property, Violation
from tests.lineage.collector import FRESH
from tests.lineage.erase_rules import EraseRule
from tests.lineage.kafka import Epochs, Log, Moment, shared_end
from tests.lineage.state import (
    Agent,
    Commit,
    Do,
    JavaCommit,
    Lineage,
    LogStart,
    Segment,
    Store,
    continued,
    epoch_at,
    lineage_epoch,
    listed,
    lives,
)

BEGIN = Agent()
STEPPED_BACK = Agent(Do.STEPPED_BACK)


class Step(NamedTuple):
    """What an agent did, what the store holds then, and what the agent does next."""

    label: str
    store: Store
    agent: Agent


class Rules(NamedTuple):
    """The protocol rules, and what Kafka does."""

    history: tuple[Moment, ...]
    clauses: frozenset[Described]
    habits: frozenset[Habit] = frozenset()

    def step(self, epoch: int, moment: int, agent: Agent, store: Store) -> Step | None:
        """The next step of the agent of `epoch`; None where it has nothing to do.

        Raises:
            Violation: it commits what its log does not hold.
        """
        match agent.do:
            case Do.BEGIN:
                return self._begin(epoch, moment, store) if self.history[moment].epoch == epoch else None
            case Do.AGAIN:
                return self._begin(epoch, agent.seen, store)
            case Do.FIND_START:
                return self._find_start(epoch, agent, store)
            case Do.TAKE_OVER | Do.REBUILD:
                return self._rebuild(epoch, agent, store)
            case Do.READ_LOG_START:
                return self._read_log_start(epoch, agent, store)
            case Do.RESTORE:
                return self._restore(epoch, agent, store)
            case Do.GO_BACK | Do.COMMIT:
                return self._commit(agent, store)
            case Do.WRITE_LOG_START:
                return self._write_log_start(agent, store)
            case Do.SHIP:
                return self._ship(epoch, moment, agent, store)
            case Do.STEPPED_BACK:
                return None

    def _begin(self, epoch: int, moment: int, store: Store) -> Step:
        """Protocol rule 7: an agent steps back from a commit of a higher epoch."""
        commit = store.commit
        if commit is None or isinstance(commit, JavaCommit):
            return Step(f"GET offset.wm: {commit or 'absent'}", store, Agent(Do.FIND_START, moment, replaces=commit))
        if commit.epoch > epoch:
            return Step(f"GET offset.wm: epoch {commit.epoch}, steps back", store, STEPPED_BACK)
        return Step(f"GET offset.wm: {commit}", store, Agent(Do.READ_LOG_START, moment, commit, replaces=commit))

    # ---------------------------------------------------------------- a commit that was read (protocol rule 5)

    def _read_log_start(self, epoch: int, agent: Agent, store: Store) -> Step:
        if self._steps_back(epoch, store.log_start):
            return Step("GET log.start: lineage of a higher epoch, steps back", store, STEPPED_BACK)
        agent = agent._replace(log_start=store.log_start)
        if store.log_start is None:
            assert agent.commit is not None
            lost = agent._replace(do=Do.RESTORE, log_start=self._restored(agent.commit, store))
            return Step(f"GET log.start: absent; list, GET the copy: {store.copy or 'absent'}", store, lost)
        return Step(f"GET log.start: {store.log_start}", store, self._follow(epoch, agent))

    def _restored(self, commit: Commit, store: Store) -> LogStart:
        """A lost `log.start`: by its copy; without one, where the stored run begins."""
        copy, erased = store.copy, self._erased(store)
        if copy is not None and Clause.COPY in self.clauses:
            offset = min(copy.offset, commit.next)
            if lineage_epoch(copy.lineage) < lineage_epoch(commit.lineage):
                assert commit.lineage is not None
                offset = min(copy.offset, commit.lineage.offset)
            floor = None if copy.floor is None else min(copy.floor, offset)
            return LogStart(offset, commit.lineage, floor, 0, FRESH, erased)
        living = (offset for offset in range(commit.next) if lives(store.segments, commit.epochs, offset))
        return LogStart(next(living, commit.next), commit.lineage, None, 0, FRESH if erased else 0, erased)

    def _erased(self, store: Store) -> int:
        """`erased` of a `log.start` that was lost: the greater of listing and copy."""
        greatest, copy = store.greatest, store.copy
        listed = greatest.number if greatest is not None and EraseRule.LISTING_COUNTS in self.clauses else 0
        return max(listed, copy.erased if copy is not None and EraseRule.COPY_COUNTS in self.clauses else 0)

    def _restore(self, epoch: int, agent: Agent, store: Store) -> Step:
        if store.log_start is not None or agent.log_start is None:
            return Step("PUT log.start: refused", store, self._again(agent))
        put = store._replace(log_start=agent.log_start, is_old=False)
        return Step(f"PUT log.start: {agent.log_start} (was lost)", put, self._follow(epoch, agent))

    def _steps_back(self, epoch: int, log_start: LogStart | None) -> bool:
        later = log_start is not None and lineage_epoch(log_start.lineage) > epoch
        return later and Clause.LATER_LOG_START in self.clauses

    def _follow(self, epoch: int, agent: Agent) -> Agent:
        """What a leader does that has read the commit and `log.start`."""
        commit, log_start = agent.commit, agent.log_start
        assert commit is not None
        back_to = self._past_end(commit.epochs, commit.next, agent)
        lineage = log_start.lineage if log_start else None
        later = lineage_epoch(lineage) > lineage_epoch(commit.lineage)
        above = log_start is not None and lineage == commit.lineage and log_start.offset > commit.next
        made_late = (later and Clause.LATER_LOG_START in self.clauses) or (
            above and Clause.LOG_START_ABOVE_NEXT in self.clauses
        )
        if Habit.HEEDS_ABOVE_HIGHEST in self.habits and commit.lineage and log_start and lineage != commit.lineage:
            made_late |= log_start.offset > commit.lineage.highest
        if back_to < commit.next or (made_late and commit == agent.replaces):
            return self._back(epoch, agent, back_to)
        if commit != agent.replaces:
            return agent._replace(do=Do.COMMIT)
        if commit.lineage == lineage:
            if Habit.ANNOUNCES in self.habits and commit.epoch < epoch:
                return agent._replace(do=Do.COMMIT, commit=commit._replace(epoch=epoch, nonce=0))
            return agent._replace(do=Do.SHIP, replaces=None)
        return BEGIN if later else self._write_next(agent._replace(replaces=None))

    def _past_end(self, epochs: Epochs, end: int, agent: Agent) -> int:
        """D of KIP-279; without epochs the log end decides."""
        log = self.history[agent.seen].log
        return shared_end(epochs, end, log) if epochs else min(end, log.end)

    def _back(self, epoch: int, agent: Agent, back_to: int) -> Agent:
        """Go back: the commit with a new lineage is written first.

        Args:
            epoch: the leader's.
            agent: with the commit that was read, or rebuilt.
            back_to: D.
        """
        commit, log_start = agent.commit, agent.log_start
        assert commit is not None
        highest = [commit.lineage.highest if commit.lineage else 0]
        if Clause.HIGHEST_NEXT in self.clauses:
            highest.append(commit.next)
        if log_start:
            highest += [log_start.offset, log_start.lineage.highest if log_start.lineage else 0]
        epochs = tuple(pair for pair in commit.epochs if pair[1] < back_to)
        lineage = Lineage(epoch, back_to, max(highest))
        return agent._replace(do=Do.GO_BACK, commit=Commit(back_to, epoch, epochs, lineage, 0))

    # ------------------------------------------------- a commit that is lost or foreign (protocol rules 5, 8, 12)

    def _find_start(self, epoch: int, agent: Agent, store: Store) -> Step:
        log = self.history[agent.seen].log
        if store.log_start is None:
            erased = self._erased(store)
            lowest = min((segment.base for segment in store.segments), default=log.start)
            put = LogStart(lowest, None, None, 0, FRESH if erased else 0, erased)
            # Where nothing is archived another agent may ship meanwhile, and its commit be lost: that one is rebuilt.
            do = Do.TAKE_OVER if agent.replaces or store.segments else Do.REBUILD
            if agent.replaces is None and store.copy is not None and store.segments and Clause.COPY in self.clauses:
                copy, do = store.copy, Do.REBUILD
                put = LogStart(copy.offset, copy.lineage, copy.floor, 0, FRESH, erased)
            over = STEPPED_BACK if self._steps_back(epoch, put) else agent._replace(do=do, log_start=put)
            written = store._replace(log_start=put, is_old=False, reclaimed=put.offset)
            return Step(f"PUT log.start: {put} (was absent)", written, over)
        if self._steps_back(epoch, store.log_start):
            return Step("GET log.start: lineage of a higher epoch, steps back", store, STEPPED_BACK)
        found = agent._replace(do=Do.REBUILD, log_start=store.log_start)
        return Step(f"GET log.start: {store.log_start}", store, found)

    def _rebuild(self, epoch: int, agent: Agent, store: Store) -> Step:
        log, log_start = self.history[agent.seen].log, agent.log_start
        assert log_start is not None
        if not store.segments:
            return self._start_empty(epoch, agent, store)
        if Habit.HEEDS_LATER_RECORDS in self.habits and any(segment.epoch > epoch for segment in store.segments):
            return Step("list: an object of a higher epoch, steps back", store, STEPPED_BACK)
        highest_base = agent.replaces.base if isinstance(agent.replaces, JavaCommit) else None
        end, epochs = walked(store, log_start.offset, highest_base)
        if agent.do == Do.TAKE_OVER or Clause.REBUILT_GOES_BACK not in self.clauses:
            rebuilt = agent._replace(commit=Commit(end, 0, epochs, log_start.lineage, 0))
            return Step(f"list and walk: next {end} epochs {listed(epochs)}", store, self._follow(epoch, rebuilt))
        back_to = min(self._past_end(epochs, end, agent), log.end)
        for offset in range(log.start, back_to):
            named = epoch_at(epochs, offset)
            if named is not None and named != log.epoch_of(offset):
                back_to = offset  # a walk can mix two lines, and KIP-279 handles them as one
                break
        if log_start.offset > log.start:
            back_to = min(back_to, log.start)
        if Habit.COUNTS_OWN_NAMES in self.habits and log_start.lineage is not None:
            back_to = _own_end(store, epochs, back_to, log_start.lineage)
        highest = max(segment.end for segment in store.segments)
        rebuilt = agent._replace(commit=Commit(highest, 0, epochs, log_start.lineage, 0))
        label = f"list and walk: next {end} epochs {listed(epochs)}, D {back_to}"
        return Step(label, store, self._back(epoch, rebuilt, back_to))

    def _start_empty(self, epoch: int, agent: Agent, store: Store) -> Step:
        """Nothing is archived: begin where `log.start` is, or at the lowest base that this leader holds below it."""
        log, log_start = self.history[agent.seen].log, agent.log_start
        assert log_start is not None
        begun = agent._replace(commit=Commit(log_start.offset, 0, (), log_start.lineage, 0))
        if log.start >= log_start.offset:
            return Step("list: empty", store, self._follow(epoch, begun))
        if Clause.EMPTY_GOES_BACK in self.clauses:
            label = "list: empty; log.start lies above the lowest base"
            return Step(label, store, self._back(epoch, begun, log.start))
        if store.log_start != log_start:
            return Step("PUT log.start: refused", store, self._again(agent))
        lowered = LogStart(log.start, log_start.lineage)
        down = store._replace(log_start=lowered, is_old=False, reclaimed=min(store.reclaimed, log.start))
        return Step(f"PUT log.start: {lowered} (down, nothing is archived)", down, agent._replace(log_start=lowered))

    # ---------------------------------------------------------------- writing

    def _again(self, agent: Agent) -> Agent:
        return Agent(Do.AGAIN, agent.seen) if Habit.PERSISTS in self.habits else BEGIN

    def _commit(self, agent: Agent, store: Store) -> Step:
        """Protocol rule 7; after going back `log.start` follows, and else where it names another lineage."""
        draft, going_back = agent.commit, agent.do == Do.GO_BACK
        assert draft is not None
        if store.commit != agent.replaces:
            return Step("PUT offset.wm: refused", store, self._again(agent))
        commit = draft._replace(nonce=FRESH)
        if not going_back:
            self._check_epochs(commit, agent)
        is_other = agent.log_start is None or agent.log_start.lineage != commit.lineage
        reclaimed = store.reclaimed
        if going_back and is_other:
            reclaimed = min(reclaimed, commit.next)
        elif going_back and agent.log_start:
            # An equal lineage is of the same log: what the policy released there stays so.
            reclaimed = max(reclaimed, agent.log_start.offset)
        written = store._replace(commit=commit, reclaimed=reclaimed)
        after = agent._replace(do=Do.SHIP, commit=commit, replaces=None)
        if is_other:
            after = self._write_next(after)
        label = f"PUT offset.wm: {'goes back, ' if going_back else ''}{commit}"
        return Step(label, written, after)

    def _check_epochs(self, commit: Commit, agent: Agent) -> None:
        """S1 where it begins: a commit that names another epoch than its writer's log."""
        log = self.history[agent.seen].log
        begins = max(log.start, agent.log_start.offset if agent.log_start else 0)
        for offset in range(begins, min(commit.next, log.end)):
            named = epoch_at(commit.epochs, offset)
            if named is not None and named != log.epoch_of(offset):
                raise Violation(
                    Property.S1,
                    f"the commit names epoch {named} for offset {offset}, the leader has {log.epoch_of(offset)}",
                )

    def _write_next(self, agent: Agent) -> Agent:
        stays = agent.log_start is not None and self._log_start(agent).offset == agent.log_start.offset
        skips = stays and Clause.NUMBER_STAYS not in self.clauses
        return agent._replace(do=Do.SHIP if skips else Do.WRITE_LOG_START)

    def _log_start(self, agent: Agent) -> LogStart:
        """Of the commit's lineage: the smaller of what was read and of the lowest offset from D on that is held."""
        commit, read = agent.commit, agent.log_start
        assert commit is not None
        held = max(commit.lineage.offset, self.history[agent.seen].log.start) if commit.lineage else commit.next
        if read is None:
            return LogStart(held, commit.lineage)
        start, floor = min(read.offset, held), read.floor
        erased = read.erased if EraseRule.AGENT_CARRIES in self.clauses else 0
        if Clause.AGENT_CARRIES_FLOOR not in self.clauses:
            floor = 0
        if Habit.DROPS_FLOOR in self.habits:
            return LogStart(start, commit.lineage)
        if floor is not None and Clause.AGENT_LOWERS_FLOOR in self.clauses:
            floor = min(floor, start)
        since = 0 if floor == start else read.since
        written = FRESH if floor is not None or since or erased else 0
        return LogStart(start, commit.lineage, floor, since, written, erased)

    def _write_log_start(self, agent: Agent, store: Store) -> Step:
        """Protocol rule 5: on the ETag that was read."""
        if store.log_start != agent.log_start:
            return Step("PUT log.start: refused", store, self._again(agent))
        written = self._log_start(agent)
        moved = store._replace(log_start=written, is_old=False)
        return Step(f"PUT log.start: {written}", moved, agent._replace(do=Do.SHIP, log_start=written))

    def _ship(self, epoch: int, moment: int, agent: Agent, store: Store) -> Step | None:
        """Protocol rules 4, 6 and 10: the segment that holds the next offset, or a gap record up to the lowest base."""
        seen = moment if self.history[moment].epoch == epoch else agent.seen
        log, commit = self.history[seen].log, agent.commit
        assert commit is not None
        closed = next(((base, end) for base, end in log.closed() if base <= commit.next < end), None)
        shipped = agent._replace(do=Do.COMMIT, seen=seen, replaces=commit)
        if closed is None:
            if log.start <= commit.next:
                return None
            gap = store._replace(gaps=store.gaps | set(range(commit.next, log.start)))
            draft = _moved_on(agent, epoch, log, log.start, log.start, store)
            return Step(f"PUT gap record [{commit.next}, {log.start})", gap, shipped._replace(commit=draft))
        base, end = closed
        records = log.records[base - log.start : end - log.start]
        segment = self._named(epoch, base, records, commit, store)
        draft = _moved_on(agent, epoch, log, commit.next, end, store)
        if segment is None:
            return Step(f"PUT {base}.log: taken by equal bytes, done", store, shipped._replace(commit=draft))
        put = store._replace(segments=store.segments | {segment})
        taken = ": taken, done" if segment in store.segments else ""
        return Step(f"PUT {segment}{taken}", put, shipped._replace(commit=draft))

    def _named(self, epoch: int, base: int, records: tuple[int, ...], commit: Commit, store: Store) -> Segment | None:
        """The segment's object; None where the plain name holds it already."""
        by = epoch if Clause.VARIANT_BY_LEADER in self.clauses else records[0]
        variant = Segment(base, by, records)
        if commit.lineage is not None and base < commit.lineage.highest:
            return variant._replace(lineage=commit.lineage) if Clause.VARIANT_OF_LINEAGE in self.clauses else variant
        taken = next((other for other in store.segments if (other.base, other.variant) == (base, None)), None)
        if taken is None:
            return Segment(base, None, records)
        return None if taken.records[: len(records)] == records else variant


def _own_end(store: Store, epochs: Epochs, end: int, lineage: Lineage) -> int:
    """Where a walk first finds a record under names of former lineages only, which a deletion may still remove."""
    own = frozenset(segment for segment in store.segments if segment.lineage == lineage)
    offsets = range(lineage.offset, min(end, lineage.highest))
    return next((offset for offset in offsets if not lives(own, epochs, offset)), end)


def _moved_on(agent: Agent, epoch: int, log: Log, start: int, end: int, store: Store) -> Commit:
    """The next commit; its epochs begin with the lowest segment, or with `log.start` if that is lower."""
    commit = agent.commit
    assert commit is not None
    epochs = continued(commit.epochs, log, start, end)
    begins = min((agent.log_start.offset if agent.log_start else 0, *(segment.base for segment in store.segments)))
    first = epoch_at(epochs, begins)
    if begins < end and first is not None:
        epochs = ((first, begins), *(pair for pair in epochs if pair[1] > begins))
    return Commit(end, epoch, epochs, commit.lineage, 0)


def walked(store: Store, start: int, highest_base: int | None) -> tuple[int, Epochs]:
    """The run from `start` on, where no commit names it: its end, and its epochs, which never fall (protocol rule 12).

    Args:
        start: where it begins.
        highest_base: of a Java commit; nothing above it was committed.
    """
    offset, epochs = start, list[tuple[int, int]]()
    while True:
        last = epochs[-1][0] if epochs else 0
        copies = [
            segment.records[offset - segment.base]
            for segment in store.segments
            if segment.base <= offset < segment.end and (highest_base is None or segment.base <= highest_base)
        ]
        epoch = max((copy for copy in copies if copy >= last), default=None)
        if epoch is None and offset not in store.gaps:
            return offset, tuple(epochs)
        if epoch is not None and epoch != last:
            epochs.append((epoch, offset))
        offset += 1
