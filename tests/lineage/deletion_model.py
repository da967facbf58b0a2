"""The model of a deleted topic: which states follow a state, and what must be so in each (protocol rule 14)."""

from collections.abc import Iterator

from tests.lineage.clauses import Property, Violation
from tests.lineage.deleted_directory import Directory, Rules, Step
from tests.lineage.deletion import ALL_OF_14, REBORN, Deletion, Do, Rule14, State, Worker
from tests.lineage.kafka import Log
from tests.lineage.state import Commit, Store, lives

_SETTLES_WITHIN = 200
_ENDED = {Do.DONE, Do.LOST}
_SEE = Worker(Do.SEE)


class DeletionModel:
    """One run under a set of clauses."""

    def __init__(self, scenario: Deletion, clauses: frozenset[Rule14] = ALL_OF_14) -> None:
        self.scenario, self.clauses = scenario, clauses
        self._settled: set[tuple[object, ...]] = set()

    def start(self) -> State:
        """Nothing is archived; an incarnation that was continued is open."""
        scenario = self.scenario
        leading = [Worker(Do.OPEN)] * len(scenario.history) + [Worker(Do.OPEN)] * scenario.reborn
        return State(
            deleted=False,
            reborn=False,
            removed=(False, False),
            ids=(0,) if scenario.continued else (),
            archives=(Store(), Store()),
            deleting=(_SEE, _SEE),
            leading=tuple(leading),
            faults=scenario.faults,
        )

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that is possible, and where it leads.

        Raises:
            Violation: of a property, by a step.
        """
        scenario, faults = self.scenario, state.faults
        if not state.deleted:
            removed = tuple(broker == scenario.removed for broker in range(2))
            what = "deletes the topic" if scenario.moved is None else f"moves the replica of broker {scenario.moved}"
            yield f"Kafka: {what}", state._replace(deleted=True, removed=removed)
        elif scenario.reborn and not state.reborn:
            yield "Kafka: creates the topic again", state._replace(reborn=True)
        for broker in range(2):
            if state.deleted and not state.removed[broker]:
                removed = tuple(each or number == broker for number, each in enumerate(state.removed))
                yield f"broker {broker}: removes its directory", state._replace(removed=removed)
        for number, worker in enumerate(state.leading):
            step = self._leading(number, worker, state)
            after = state
            while step is not None:
                after = _applied(after, step, leading=number)
                if scenario.late or step.worker.do == Do.SHIP:
                    yield f"leader {number + 1}: {step.label}", after
                    break
                step = self._leading(number, step.worker, after)
        for broker in range(2):
            yield from self._deleting(broker, state)
        if faults.kills:
            for broker, worker in enumerate(state.deleting):
                if worker.do not in {*_ENDED, Do.SEE}:
                    begun = _with(state.deleting, broker, Worker(Do.SEE, restarted=True))
                    left = faults._replace(kills=faults.kills - 1)
                    yield f"agent {broker} is killed", state._replace(deleting=begun, faults=left)

    # ---------------------------------------------------------------- the agents

    def _leading(self, number: int, worker: Worker, state: State) -> Step | None:
        scenario = self.scenario
        if number == len(scenario.history):
            if not state.reborn:
                return None
            directory = Directory(1, 1, REBORN, REBORN.end, is_deleted=False, is_there=True, led=True)
        else:
            moment = scenario.history[number]
            if state.deleted and scenario.moved is None and not scenario.late:
                return None
            is_there = not state.deleted or scenario.moved is not None
            known = scenario.counted[moment.leader]
            directory = Directory(0, moment.epoch, moment.log, known, is_deleted=False, is_there=is_there, led=True)
        return self._rules(directory, worker, state).step()

    def _deleting(self, broker: int, state: State) -> Iterator[tuple[str, State]]:
        step = self._step(broker, state)
        if step is None:
            return
        before, after = state.deleting[broker], _applied(state, step, deleting=broker)
        self._check_step(broker, before, step, after)
        yield f"agent {broker}: {step.label}", after
        # Late metadata has the topic's absence although it exists.
        may_be_late = state.faults.late_answers and Rule14.TWICE not in self.clauses
        if may_be_late and before.do == Do.ASK and step.worker.do != Do.OPEN:
            late = state.faults._replace(late_answers=state.faults.late_answers - 1)
            begun = _with(after.deleting, broker, step.worker._replace(do=Do.OPEN))
            yield f"agent {broker}: late metadata lacks the topic", after._replace(faults=late, deleting=begun)

    def _step(self, broker: int, state: State) -> Step | None:
        """The next step of a broker's agent on its `-delete` directory; None where it waits, or has nothing to do."""
        scenario, worker = self.scenario, state.deleting[broker]
        if not state.deleted or scenario.moved not in {None, broker}:
            return None
        log, is_there = self._log(broker), not state.removed[broker]
        if worker.do == Do.SEE:
            if not is_there or not log.epochs or (not scenario.has_id and Rule14.HAS_ID in self.clauses):
                return None
            seen = worker._replace(do=Do.ASK, known=self._known(broker, worker, state))
            return Step("lists the directory", seen, state.ids, state.archives)
        if worker.do == Do.ASK:
            asked = worker._replace(do=Do.OPEN if self._is_deleted() else Do.ASK, log=worker.log or is_there)
            if asked.do == Do.ASK and not is_there:
                asked = asked._replace(do=Do.DONE)
            return (
                None
                if asked == worker and not state.faults.late_answers
                else Step(f"is the topic deleted? {asked.do == Do.OPEN}", asked, state.ids, state.archives)
            )
        last = scenario.last
        led = not worker.restarted and last.leader == broker
        directory = Directory(0, log.epochs[-1][0], log, worker.known, is_deleted=True, is_there=is_there, led=led)
        return self._rules(directory, worker, state).step()

    def _rules(self, directory: Directory, worker: Worker, state: State) -> Rules:
        return Rules(self.clauses, self.scenario.has_id, directory, worker, state.ids, state.archives)

    def _log(self, broker: int) -> Log:
        return self.scenario.last.logs[broker]

    def _is_deleted(self) -> bool:
        """What the cluster answers, without late metadata."""
        if self.scenario.moved is None or Rule14.DELETED not in self.clauses:
            return True
        return self.scenario.continued and Rule14.CONTINUED not in self.clauses

    def _known(self, broker: int, worker: Worker, state: State) -> int | None:
        """The high watermark that counts, by clause 5."""
        scenario = self.scenario
        if not worker.restarted:
            later = state.reborn and Rule14.READ_LIVE not in self.clauses
            return REBORN.end if later else scenario.counted[broker]
        if state.reborn:
            return None if Rule14.ONE_NAME in self.clauses else REBORN.end
        if scenario.early[broker] is not None and Rule14.TWO_INTERVALS not in self.clauses:
            return scenario.early[broker]
        return scenario.checkpoint[broker]

    # ---------------------------------------------------------------- the properties

    def _check_step(self, broker: int, before: Worker, step: Step, after: State) -> None:
        """Raise D1, D3, D4 or D5, by a step of an agent on a `-delete` directory."""
        scenario, log = self.scenario, self._log(broker)
        if step.worker.do == Do.DONE and before.do not in {Do.ASK, Do.DONE}:
            fenced = log.epochs[-1][0] < scenario.last.epoch
            silent = _missing(after.archives[0], log, scenario.committed if fenced else log.end)
            if silent:
                raise Violation(Property.D1, f"agent {broker} ended, and {silent} are neither stored nor a gap")
        if step.segment is not None and step.segment.end > scenario.committed:
            raise Violation(Property.D3, f"agent {broker} shipped {step.segment}, committed is {scenario.committed}")
        if before.do == Do.GAP:
            self._check_gap(broker, before.gaps, after)

    def _check_gap(self, broker: int, gaps: frozenset[int], state: State) -> None:
        scenario, leader = self.scenario, self.scenario.last.leader
        holds = range(scenario.last.log.end)
        if scenario.moved is None:
            holds = range(scenario.counted[leader])
            other = state.deleting[leader]
            if broker == leader or state.removed[broker] or state.removed[leader] or other.restarted:
                return
        covered = sorted(offset for offset in gaps & set(holds) if offset >= self._log(broker).start)
        if covered:
            raise Violation(Property.D5, f"agent {broker} records a gap of {covered}, which the leader has")

    def check(self, state: State) -> None:
        """Check D2 and D4.

        Raises:
            Violation: of one of them.
        """
        if 1 in state.ids and state.ids[-1] != 1:
            raise Violation(Property.D4, f"readers use the last of {state.ids}, the topic is 1")
        if any(segment.records[0] not in REBORN.records for segment in state.archives[1].segments):
            raise Violation(Property.D4, "a record of the deleted topic is in the incarnation of the other")
        for archive in state.archives:
            commit = archive.commit
            if isinstance(commit, Commit) and archive.log_start is not None:
                holes = [
                    offset
                    for offset in range(archive.log_start.offset, commit.next)
                    if offset not in archive.gaps and not lives(archive.segments, commit.epochs, offset)
                ]
                if holes:
                    raise Violation(Property.S1, f"a reader finds nothing at {holes}: {commit}")
        if state.deleted and self.scenario.moved is None:
            key = state.removed, state.ids, state.archives, state.deleting
            if key not in self._settled:
                self._check_settled(state)
                self._settled.add(key)

    def _check_settled(self, state: State) -> None:
        """D2: if no directory is removed from here on, each agent ships what is below its high watermark."""
        settled = state
        for _ in range(_SETTLES_WITHIN):
            for broker in range(2):
                step = self._step(broker, settled)
                if step is not None:
                    settled = _applied(settled, step, deleting=broker)
                    break
            else:
                break
        else:
            raise Violation(Property.D2, "the agents never settle")
        if 0 not in settled.ids and self.scenario.has_id:
            return  # a later topic id is open: the agents report the loss
        archive = settled.archives[0]
        epoch = self.scenario.last.epoch
        for broker in range(2):
            log, worker = self._log(broker), settled.deleting[broker]
            if settled.removed[broker] or worker.do in {Do.SEE, Do.LOST} or log.epochs[-1][0] < epoch:
                continue
            commit = archive.commit
            epochs = commit.epochs if isinstance(commit, Commit) else ()
            known = min(worker.known or 0, log.end)
            left = [offset for offset in range(log.start, known) if not lives(archive.segments, epochs, offset)]
            if left:
                raise Violation(Property.D2, f"agent {broker} has {left}, and does not ship them: {commit}")


def _with(workers: tuple[Worker, ...], number: int, worker: Worker) -> tuple[Worker, ...]:
    return (*workers[:number], worker, *workers[number + 1 :])


def _applied(state: State, step: Step, *, leading: int | None = None, deleting: int | None = None) -> State:
    after = state._replace(ids=step.ids, archives=step.archives)
    if leading is not None:
        return after._replace(leading=_with(state.leading, leading, step.worker))
    assert deleting is not None
    return after._replace(deleting=_with(state.deleting, deleting, step.worker))


def _missing(archive: Store, log: Log, end: int) -> list[int]:
    """Return the offsets of a log below `end` that the view neither shows nor has a gap record for."""
    commit = archive.commit if isinstance(archive.commit, Commit) else None
    epochs, following = (commit.epochs, commit.next) if commit else ((), 0)
    return [
        offset
        for offset in range(log.start, min(end, log.end))
        if offset >= following or (offset not in archive.gaps and not lives(archive.segments, epochs, offset))
    ]
