"""The model: which states follow a state, and what must be so in each."""

from collections.abc import Iterator
from functools import cache

from tests.lineage.agent import BEGIN, STEPPED_BACK, Rules, Step
from tests.lineage.clauses import ALL, Clause, Habit, Property, Violation
from tests.lineage.others import Collected, Looked, collector_steps, lost, overwritten, reader_step, shipped_by_java
from tests.lineage.scenarios import Scenario
from tests.lineage.state import (
    Agent,
    Collect,
    Collector,
    Commit,
    Read,
    Reader,
    State,
    Store,
    first_hole,
    lineage_epoch,
)

_SETTLES_WITHIN = 60


class Model:
    """One scenario under a set of clauses.

    What one party does depends on its own state and the store's, so it is computed once for each pair. Of
    `tolerated`, S2 alone counts: the search passes over states that violate it.
    """

    def __init__(
        self,
        scenario: Scenario,
        clauses: frozenset[Clause] = ALL,
        habits: frozenset[Habit] = frozenset(),
        tolerated: frozenset[Property] = frozenset(),
    ) -> None:
        self.scenario, self.clauses, self.tolerated = scenario, clauses, tolerated
        self.rules = Rules(scenario.history, clauses, habits)
        self.settled: set[tuple[int, Store]] = set()
        self._agent_step = cache(self._uncached_agent_step)
        self._collected = cache(self._uncached_collected)
        self._looked = cache(self._uncached_looked)

    def start(self) -> State:
        """Nothing is archived, or a Java uploader has shipped all that the first leader closed."""
        scenario = self.scenario
        return State(
            moment=0,
            store=shipped_by_java(scenario.history[0].log) if scenario.java_first else Store(),
            agents=(STEPPED_BACK if scenario.java_first else BEGIN, *(BEGIN,) * (scenario.history[-1].epoch - 1)),
            collector=Collector(Collect.READ_LOG_START, scenario.plans),
            reader=Reader(Read.COMMIT, 1) if scenario.reader else None,
            faults=scenario.faults,
        )

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that is possible, and where it leads.

        Raises:
            Violation: of S1 or S5, by a step.
        """
        for label, after in self._following(state):
            before, now = state.store.log_start, after.store.log_start
            if before and now and lineage_epoch(now.lineage) < lineage_epoch(before.lineage):
                raise Violation(Property.S5, f"{label}, was {before}")
            yield label, after

    def _following(self, state: State) -> Iterator[tuple[str, State]]:
        moment, store, agents, collector, reader, faults = state
        if moment + 1 < len(self.scenario.history):
            yield f"Kafka: {self.scenario.stages[moment + 1]}", State(moment + 1, *state[1:])
        for number in range(self.scenario.history[moment].epoch):
            agent, before, behind = agents[number], agents[:number], agents[number + 1 :]
            step = self._agent_step(number + 1, moment, agent, store)
            if step is not None:
                yield step.label, State(moment, step.store, (*before, step.agent, *behind), collector, reader, faults)
            if faults.kills and agent not in {BEGIN, STEPPED_BACK}:
                left = faults._replace(kills=faults.kills - 1)
                yield (
                    f"agent {number + 1} is killed",
                    State(moment, store, (*before, BEGIN, *behind), collector, reader, left),
                )
        # The readers' grace: deletions do not begin while a reader reads. Those begun before may be late.
        if not (collector.do == Collect.WAIT and reader is not None and reader.do != Read.COMMIT):
            for collected in self._collected(collector, store):
                yield collected.label, State(moment, collected.store, agents, collected.collector, reader, faults)
        looked = self._looked(reader, store) if reader is not None else None
        if looked is not None:
            yield looked.label, State(moment, store, agents, collector, looked.reader, faults)
        if faults.losses:
            for label, after in lost(store):
                yield label, State(moment, after, agents, collector, reader, faults._replace(losses=faults.losses - 1))
        if faults.java:
            for label, after in overwritten(store):
                yield label, State(moment, after, agents, collector, reader, faults._replace(java=faults.java - 1))

    def _uncached_agent_step(self, epoch: int, moment: int, agent: Agent, store: Store) -> Step | None:
        step = self.rules.step(epoch, moment, agent, store)
        return step and step._replace(label=f"agent {epoch}: {step.label}")

    def _uncached_collected(self, collector: Collector, store: Store) -> tuple[Collected, ...]:
        steps = collector_steps(collector, store, self.scenario.passes, self.clauses)
        return tuple(step._replace(label=f"collector: {step.label}") for step in steps)

    def _uncached_looked(self, reader: Reader, store: Store) -> Looked | None:
        looked = reader_step(reader, store, self.clauses)
        return looked and looked._replace(label=f"reader: {looked.label}")

    def check(self, state: State) -> None:
        """S2, S3 and S4: what the leader alone, started again, makes of a state.

        Raises:
            Violation: of one of them.
        """
        key = state.moment, state.store
        if key not in self.settled:
            self._check_settled(*self._settle(*key))
            self.settled.add(key)

    def _settle(self, moment: int, store: Store) -> tuple[int, Store]:
        agent, label = BEGIN, ""
        for _ in range(_SETTLES_WITHIN):
            step = self._agent_step(self.scenario.history[moment].epoch, moment, agent, store)
            if step is None:
                if agent == STEPPED_BACK:
                    raise Violation(Property.S4, f"the leader stepped back for good: {label}")
                return moment, store
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
