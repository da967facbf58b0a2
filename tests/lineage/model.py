"""The model: which states follow a state, and what must be so in each."""

from collections.abc import Callable, Iterator
from functools import cache

from tests.lineage.agent import BEGIN, STEPPED_BACK, Rules, Step
from tests.lineage.clauses import ALL, Clause, Described, Habit, Property, Violation
from tests.lineage.collector import Collected, Collecting, ended
from tests.lineage.erase_rules import ALL_OF_ERASE
from tests.lineage.eraser import Erase, Erased, Eraser, Erasing, begins, check_lists
from tests.lineage.others import (
    Looked,
    begins_at,
    forged,
    list_lost,
    lost,
    overwritten,
    reader_step,
    repaired,
    shipped_by_java,
    start_lost,
)
from tests.lineage.scenarios import Scenario
from tests.lineage.state import (
    Agent,
    Collect,
    Collector,
    Commit,
    Do,
    ErasedList,
    JavaCommit,
    LogStart,
    Read,
    Reader,
    State,
    Store,
    first_hole,
    lineage_epoch,
    lives,
)

_SETTLES_WITHIN = 60
_WRITTEN = {Do.SHIP, Do.COMMIT}
_WITHOUT_WRITES = {Collect.LIST, Collect.READ_LOG_START, Collect.LIST_LATE, Collect.DELETE}


class Model:
    """One scenario under a set of clauses.

    What one party does depends on its own state and the store's, so it is computed once for each pair. Of
    `tolerated`, S2 alone counts: the search passes over states that violate it.
    """

    def __init__(
        self,
        scenario: Scenario,
        clauses: frozenset[Described] = ALL | ALL_OF_ERASE,
        habits: frozenset[Habit] = frozenset(),
        tolerated: frozenset[Property] = frozenset(),
    ) -> None:
        self.scenario, self.clauses, self.tolerated = scenario, clauses, tolerated
        self.rules = Rules(scenario.history, clauses, habits)
        self.collecting = Collecting(clauses)
        self.erasing = Erasing(clauses)
        self.requests = frozenset[tuple[int, int]]().union(
            scenario.erased, *(each for of in scenario.erases for each in of)
        )
        self.settled: set[tuple[int, Store]] = set()
        self._agent_step = cache(self._uncached_agent_step)
        self._collected = cache(self._uncached_collected)
        self._looked = cache(self._uncached_looked)
        self._erases = cache(self._uncached_erases)

    def start(self) -> State:
        """Nothing is archived; or a Java uploader, or a leader's agent, shipped all that its leader closed."""
        scenario = self.scenario
        agents, store, passed = [BEGIN] * scenario.history[-1].epoch, Store(), scenario.shipped or 0
        if scenario.java_first:
            store, agents[0] = shipped_by_java(scenario.history[0].log), STEPPED_BACK
        elif scenario.shipped is not None:
            for moment in range(passed if scenario.late else 0, passed + 1):
                _, store, agent = self._settle(moment, store)
            assert store.log_start is not None
            released = max(scenario.begins, scenario.copy.offset if scenario.copy else 0)
            begun = store.log_start._replace(offset=scenario.begins)
            lost = frozenset(each for each in store.segments if each.base == scenario.lacks)
            store = store._replace(log_start=begun, segments=store.segments - lost, reclaimed=released)
            if scenario.copy:
                store = store._replace(copy=scenario.copy, released=scenario.copy.offset)
            if scenario.erased:
                named = begun._replace(written=1, erased=1)
                lists = frozenset({ErasedList(1, tuple(sorted(scenario.erased)))})
                store = store._replace(log_start=named, copy=named, lists=lists)
            agents[scenario.history[passed].epoch - 1] = agent._replace(log_start=store.log_start)
        if scenario.late is Do.COMMIT:
            agents[0] = Agent(Do.COMMIT, 0, Commit(0, 1, (), None, 0), LogStart(0, None))
        elif scenario.late is Do.FIND_START:
            agents[0] = Agent(Do.FIND_START)
        store = store._replace(hidden=(0,) * max(moment.log.end for moment in scenario.history))
        return _numbered(
            State(
                moment=passed,
                store=_seen(store),
                agents=tuple(agents),
                collectors=tuple(Collector(Collect.LIST, runs) for runs in scenario.runs),
                held=False,
                reader=Reader(Read.COMMIT, 1, is_old=scenario.older) if scenario.reader else None,
                faults=scenario.faults,
                erasers=self._erasers(store),
                erased=scenario.erased,
                listed=scenario.erased,
            )
        )

    def _erasers(self, store: Store) -> tuple[Eraser, ...]:
        """Return the erasers; one that is late has read that there is no list."""
        first = tuple(map(begins, self.scenario.erases))
        if not self.scenario.late_eraser:
            return first
        (record,), *_ = first[-1].requests
        late = first[-1]._replace(found=(record,), owed=frozenset({record}), log_start=store.log_start)
        return *first[:-1], late._replace(do=Erase.PUT, list=ErasedList(1, (record,)))

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that is possible, and where it leads.

        Raises:
            Violation: of S1 or S5, by a step.
        """
        for label, after in self._following(state):
            before, now = state.store.log_start, after.store.log_start
            if before and now and lineage_epoch(now.lineage) < lineage_epoch(before.lineage):
                raise Violation(Property.S5, f"{label}, was {before}")
            yield label, _numbered(self._without_spent(after._replace(store=_seen(after.store))))

    def _without_spent(self, state: State) -> State:
        """Return a state where agents of former epochs that can do nothing more have stepped back."""
        moment, store, agents = state.moment, state.store, state.agents
        former = self.scenario.history[moment].epoch - 1
        spent = [
            each == BEGIN or (each.do == Do.SHIP and self._agent_step(number + 1, moment, each, store) is None)
            for number, each in enumerate(agents[:former])
        ]
        if not any(spent):
            return state
        left = (STEPPED_BACK if is_spent else each for is_spent, each in zip(spent, agents, strict=False))
        return state._replace(agents=(*left, *agents[former:]))

    def _following(self, state: State) -> Iterator[tuple[str, State]]:
        moment, store, agents, collectors, held, reader, faults, *_ = state
        if moment + 1 < len(self.scenario.history):
            yield f"Kafka: {self.scenario.stages[moment + 1]}", state._replace(moment=moment + 1)
        for number in range(self.scenario.history[moment].epoch):
            agent, before, behind = agents[number], agents[:number], agents[number + 1 :]
            step = self._agent_step(number + 1, moment, agent, store)
            if step is not None:
                yield step.label, state._replace(store=step.store, agents=(*before, step.agent, *behind))
            begun = state._replace(agents=(*before, BEGIN, *behind))
            if faults.kills and agent not in {BEGIN, STEPPED_BACK}:
                yield f"agent {number + 1} is killed", _less(begun, "kills")
            if step is None and store.log_start is None and agent.do == Do.SHIP:
                yield f"agent {number + 1} begins again", begun
        for number, collector in enumerate(collectors):
            others = collectors[:number], collectors[number + 1 :]
            steps = self._collected(collector, store, held)
            for collected in steps:
                now = *others[0], collected.collector, *others[1]
                yield f"collector {number}: {collected.label}", state._replace(store=collected.store, collectors=now)
            if faults.ends and collector.do not in {Collect.LIST, Collect.READ_LOG_START}:
                now = *others[0], ended(collector), *others[1]
                yield f"collector {number} is killed", _less(state._replace(collectors=now), "ends")
        yield from self._erase(state)
        yield from self._read(state)
        # A grace is longer than any query. What a run decided before it can be late. Erasers wait for none.
        is_idle = reader is None or reader.do == Read.COMMIT or not self.scenario.runs
        older = store._replace(young=frozenset())
        if self.scenario.runs:
            older = older._replace(
                is_old=store.log_start is not None,
                is_copy_old=store.copy is not None,
                hidden=tuple(2 if each else 0 for each in store.hidden),
            )
        if is_idle and older != store:
            yield "a grace passes", state._replace(store=older)
        yield from self._faults(state)

    def _read(self, state: State) -> Iterator[tuple[str, State]]:
        """A step of the reader."""
        reader = state.reader
        if reader is None:
            return
        if reader.owed is None and self.requests:
            reader = reader._replace(owed=state.erased)
        try:
            looked = self._looked(reader, state.store)
        except Violation as violation:
            if violation.broken != Property.E3 or not self._lost_a_list(state):
                raise
            yield "reader: error", state._replace(reader=None)
            return
        if looked is None:
            return
        if reader.do == Read.LOG_START and state.store.log_start is None and self.scenario.faults.lists:
            looked = Looked("reader: no log.start", None)  # a documented limit: the list is lost too
        yield looked.label, state._replace(reader=looked.reader)

    def _erase(self, state: State) -> Iterator[tuple[str, State]]:
        """A step of each eraser."""
        for number, eraser in enumerate(state.erasers):
            before, behind = state.erasers[:number], state.erasers[number + 1 :]
            try:
                found = self._erases(eraser, state.store, self.scenario.history[state.moment].log.end)
            except Violation as violation:
                if violation.broken != Property.E3 or not self._lost_a_list(state):
                    raise
                yield f"eraser {number}: stops", state._replace(erasers=(*before, begins(()), *behind))
                continue
            for one in found:
                after = state._replace(store=one.store, erasers=(*before, one.eraser, *behind))
                ended = after._replace(erased=state.erased | one.owed, listed=state.listed | one.listed)
                yield f"eraser {number}: {one.label}", ended
            if state.faults.erasers and eraser.do not in {Erase.READ_COMMIT, Erase.SEARCH}:
                for left in (eraser.requests, eraser.requests[1:]):
                    killed = _less(state._replace(erasers=(*before, begins(left), *behind)), "erasers")
                    yield f"eraser {number} is killed, {len(left)} requests left", killed

    def _lost_a_list(self, state: State) -> bool:
        return state.faults.lists < self.scenario.faults.lists

    def _faults(self, state: State) -> Iterator[tuple[str, State]]:
        store, faults = state.store, state.faults
        if faults.holds:
            yield f"a hold {'ends' if state.held else 'begins'}", _less(state._replace(held=not state.held), "holds")
        log = self.scenario.history[0].log
        happen = (
            ("losses", lost(store) if faults.losses else ()),
            ("java", overwritten(store) if faults.java else ()),
            ("starts", start_lost(store) if faults.starts else ()),
            ("forged", forged(store) if faults.forged else ()),
            ("repairs", repaired(store, log) if faults.repairs else ()),
            ("lists", list_lost(store) if faults.lists else ()),
        )
        for name, found in happen:
            for label, after in found:
                yield label, _less(state._replace(store=after), name)

    def _uncached_agent_step(self, epoch: int, moment: int, agent: Agent, store: Store) -> Step | None:
        step = self.rules.step(epoch, moment, agent, store)
        return step and step._replace(label=f"agent {epoch}: {step.label}")

    def _uncached_collected(self, collector: Collector, store: Store, held: bool) -> tuple[Collected, ...]:
        return tuple(self.collecting.steps(collector, store, held=held))

    def _uncached_looked(self, reader: Reader, store: Store) -> Looked | None:
        looked = reader_step(reader, store, self.clauses, self.requests)
        return looked and looked._replace(label=f"reader: {looked.label}")

    def _uncached_erases(self, eraser: Eraser, store: Store, log_end: int) -> tuple[Erased, ...]:
        return tuple(self.erasing.steps(eraser, store, log_end))

    def check(self, state: State) -> None:
        """E2 and E3; S2, S3 and S4: what the leader alone, started again, makes of a state.

        Raises:
            Violation: of one of them.
        """
        if self.requests and not self._lost_a_list(state):
            check_lists(state.store, state.listed)
        key = state.moment, state.store
        if key not in self.settled:
            self._check_floor(state.store)
            self._check_settled(*self._settle(*key)[:2])
            self.settled.add(key)

    def _check_floor(self, store: Store) -> None:
        """Check R1, and R3 below the start."""
        log_start, commit, copy = store.log_start, store.commit, store.copy
        if copy is not None and copy.floor is not None and isinstance(commit, Commit):
            below = range(store.released, min(copy.floor, commit.next))
            kept = [offset for offset in below if lives(store.segments, commit.epochs, offset)]
            if kept:
                raise Violation(Property.R3, f"the copy {copy}, but {kept} are stored and were not released")
        if log_start is None or log_start.floor is None:
            return
        if log_start.floor > log_start.offset:
            raise Violation(Property.R1, f"log.start {log_start}")
        if isinstance(commit, Commit) and commit.lineage == log_start.lineage:
            end = min(log_start.offset, commit.lineage.offset if commit.lineage else commit.next)
            gone = [
                offset
                for offset in range(log_start.floor, end)
                if offset not in store.gaps and not lives(store.segments, commit.epochs, offset)
            ]
            if gone:
                raise Violation(Property.R3, f"log.start {log_start}, but {gone} are not stored")

    def _settle(self, moment: int, store: Store) -> tuple[int, Store, Agent]:
        agent, label = BEGIN, ""
        for _ in range(_SETTLES_WITHIN):
            step = self._agent_step(self.scenario.history[moment].epoch, moment, agent, store)
            if step is None:
                if agent == STEPPED_BACK:
                    raise Violation(Property.S4, f"the leader stepped back for good: {label}")
                return moment, store, agent
            label, store, agent = step
        raise Violation(Property.S4, f"the leader alone never settles: {label}")

    def _check_settled(self, moment: int, store: Store) -> None:
        log = self.scenario.history[moment].log
        commit, log_start, closed = store.commit, store.log_start, log.bases[-1]
        if commit is None and closed == log.start:
            return
        if not isinstance(commit, Commit) or not closed <= commit.next <= log.end:
            raise Violation(Property.S4, f"the commit stays at {commit}, segments are closed up to {closed}")
        other = log_start is None or log_start.lineage != commit.lineage
        if log_start is None or (other and Clause.NUMBER_STAYS in self.clauses):
            raise Violation(Property.S4, f"log.start {log_start} stays of another lineage than the commit {commit}")
        hidden = [*range(max(store.reclaimed, log.start), min(log_start.offset, closed))]
        if hidden and Property.S2 not in self.tolerated:
            what = f"log.start {log_start} hides {hidden}, the policy released offsets below {store.reclaimed}"
            raise Violation(Property.S2, what)
        hole = first_hole(store, commit.epochs, log_start.offset, commit.next)
        if hole is not None:
            raise Violation(Property.S3, f"the view [{log_start.offset}, {commit.next}) has a hole at {hole}: {commit}")


def _less(state: State, fault: str) -> State:
    """Return a state where a fault may happen once less."""
    left = getattr(state.faults, fault) - 1
    return state._replace(faults=state.faults._replace(**{fault: left}))


def _seen(store: Store) -> Store:
    """Return a store with what its readers see now: nothing without a commit, or while they fail.

    A lost `log.start` changes nothing here: readers then use the lowest stored base, which docs/faults.md names.
    """
    if store.commit is not None and store.log_start is None:
        return store
    begins, commit = begins_at(store), store.commit
    shown = range(begins, commit.next) if begins is not None and isinstance(commit, Commit) else range(0)
    hidden = tuple(0 if at in shown else max(1, each) for at, each in enumerate(store.hidden))
    return store if hidden == store.hidden else store._replace(hidden=hidden)


def _numbered(state: State) -> State:
    """Return a state whose writes are numbered in one order, so that equal states are equal."""
    written, nonces = {0: 0}, {0: 0}

    def of(content: LogStart | None) -> LogStart | None:
        if content is None:
            return None
        offset, lineage, floor, since, by, erased = content
        numbers = written.setdefault(since, len(written)), written.setdefault(by, len(written))
        return content if numbers == (since, by) else LogStart(offset, lineage, floor, *numbers, erased)

    def of_commit(commit: Commit | JavaCommit | None) -> Commit | JavaCommit | None:
        if not isinstance(commit, Commit):
            return commit
        number = nonces.setdefault(commit.nonce, len(nonces))
        return commit if number == commit.nonce else commit._replace(nonce=number)

    store, reader = state.store, state.reader
    marks = of_commit(store.commit), of(store.log_start), of(store.copy)
    if marks != store[:3]:
        store = store._replace(commit=marks[0], log_start=marks[1], copy=marks[2])
    agents = []
    for agent in state.agents:
        do, seen, commit, log_start, replaces = agent
        if log_start and do in _WRITTEN and commit and commit.lineage == log_start.lineage:
            log_start = LogStart(log_start.offset, log_start.lineage)  # it is not written again
        numbered = do, seen, of_commit(commit), of(log_start), of_commit(replaces)
        agents.append(agent if numbered == agent else Agent(*numbered))  # type: ignore[arg-type]
    collectors = tuple(_numbered_collector(each, of) for each in state.collectors)
    if reader is not None and reader.commit is not None:
        reader = reader._replace(commit=of_commit(reader.commit))
    erasers = tuple(each._replace(log_start=of(each.log_start)) for each in state.erasers)
    return State(state.moment, store, tuple(agents), collectors, state.held, reader, state.faults, erasers, *state[-2:])


def _numbered_collector(collector: Collector, of: Callable[[LogStart | None], LogStart | None]) -> Collector:
    if collector.do in _WITHOUT_WRITES:
        return collector
    return collector._replace(
        log_start=of(collector.log_start),
        copy=of(collector.copy),
        first=of(collector.first),
        next=of(collector.next),
        last=of(collector.last),
    )
