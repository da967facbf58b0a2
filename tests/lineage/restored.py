"""The model of a restored partition (protocol rule 15, reading rule 9): its states, and the clauses.

The old archive has the offsets 0 to 3; the restore puts back 0 and 1. Four things then happen in any order of
single store operations: the restore's writes, an agent that can be killed, retention of both archives, and a reader.
The broker appends to the segment of the last restored record, so segments begin at 0, 1 and 3. An election can lose
the record 1, also before the agent begins. Records are named by their log: `o` of the old archive, `n` of the new one,
`m` after the election.
"""

from collections.abc import Iterator
from enum import IntEnum, auto
from typing import Final, NamedTuple

from tests.lineage.clauses import Described, Property, Violation

END: Final = 2
OLD: Final = ("o0", "o1", "o2", "o3")
LOGS: Final = (("o0", "o1", "n2", "n3"), ("o0", "m1", "m2", "m3"))
LOST_FROM: Final = 1  # by the election
SEGMENTS: Final = ((0, 1), (1, 3), (3, 4))


class Rule15(Described):
    """A clause that the model can drop; each member's docstring names what it is of."""

    HOLD_FIRST = (
        "hold",
        """The restore sets the hold on the old archive before it reads the records there.
        Without it (H3): retention of the old archive removes them before the hold.""",
    )
    RECORD_FIRST = (
        "record",
        """The restore writes `restored.json` before an agent begins the archive.
        Without it (H2): the agent begins at its lowest base, and ships the restored records again.""",
    )
    AT_END = (
        "end",
        """The first `log.start` is the end of the restored records.
        Without it (H2): as without RECORD_FIRST.""",
    )
    NOT_BACK = (
        "notback",
        """An agent that finds only `log.start` does not go back to its lowest base.
        Without it (H2): an agent that is killed after its first write ships the restored records again.""",
    )
    WHOLE = (
        "whole",
        """An agent whose log lacks restored records writes no first `log.start`.
        Without it (H1): readers return an old record where the log has another one.""",
    )
    LOST_GOES_BACK = (
        "lost",
        """An election that lost restored records lowers the start to where the logs part.
        Without it (H1): as without WHOLE, after the first `log.start`.""",
    )
    START_FIRST = (
        "start",
        """A reader reads `log.start` before `restored.json`.
        Without it (H3): it reads no record of the restore, and then a `log.start` that hides the restored records.""",
    )
    CUT = (
        "cut",
        """The old view ends at the start of the new one.
        Without it (H1): readers return records that the restore cut off.""",
    )
    WHILE = (
        "while",
        """The old view is shown while the start is at most the end of the restored records.
        Without it (H1): above, records that the restore cut off follow.""",
    )


ALL_OF_15: Final = frozenset(Rule15)


class Do(IntEnum):
    """The next operation of an agent."""

    READ_RECORD = auto()
    PUT_START = auto()
    SHIP = auto()
    COMMIT = auto()
    PUT_BACK = auto()


class Agent(NamedTuple):
    """An agent of the restored cluster, with what it has read."""

    do: Do = Do.READ_RECORD
    restored: bool = False
    next: int | None = None
    shipped: int | None = None


class Commit(NamedTuple):
    """A commit: the next offset, the log that it is of, and where the commit went back to, if it did."""

    next: int
    log: int
    back: int | None = None


class Reader(NamedTuple):
    """A reader, with what it has read; `has_record` has no value before `restored.json` is read."""

    step: int = 0
    commit: Commit | None = None
    start: int | None = None
    back: int | None = None
    log: int = 0
    has_record: bool | None = None


class State(NamedTuple):
    """Both archives, the log, and who works on them; `done` has the writes of the restore."""

    done: frozenset[str] = frozenset()
    log: int = 0
    old_start: int = 0
    has_old: bool = True
    start: int | None = None
    first_log: int = 0  # that the agent had when it wrote the first `log.start`
    back: int | None = None  # the lineage of `log.start`: where its commit went back to
    commit: Commit | None = None
    stored: frozenset[tuple[int, int]] = frozenset()  # number of the segment, log
    passed: bool = False  # retention of the new archive has passed the restored records
    agent: Agent | None = None
    reader: Reader = Reader()
    kills: int = 1
    elections: int = 1


class RestoredModel:
    """One run under a set of clauses."""

    def __init__(self, clauses: frozenset[Rule15] = ALL_OF_15) -> None:
        self.clauses = clauses

    def start(self) -> State:
        """Nothing is restored."""
        return State()

    def check(self, state: State) -> None:
        """Raise H2."""
        if any(SEGMENTS[number][1] <= END and log == 0 for number, log in state.stored):
            raise Violation(Property.H2, f"stored {sorted(state.stored)}")

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that is possible, and where it leads; raise H1 or H3 by a reader's last step."""
        yield from self._restore(state)
        yield from self._agent(state)
        yield from self._retention(state)
        yield from self._read(state)
        if "place" in state.done and state.elections:
            lost = state._replace(log=1, elections=0, agent=state.agent and Agent())
            yield "Kafka: an election loses the record 1", lost
        if state.agent is not None and state.kills:
            yield "the agent is killed", state._replace(agent=Agent(), kills=0)

    def _restore(self, state: State) -> Iterator[tuple[str, State]]:
        order = {"hold": set[str](), "record": set[str](), "place": {"hold"}, "agent": {"place", "record"}}
        if Rule15.HOLD_FIRST not in self.clauses:
            order["place"] = set()
        if Rule15.RECORD_FIRST not in self.clauses:
            order["agent"] = {"place"}
        for what, before in order.items():
            if what not in state.done and before <= state.done and (what != "place" or state.has_old):
                agent = Agent() if what == "agent" else state.agent
                yield f"restore: {what}", state._replace(done=state.done | {what}, agent=agent)

    def _agent(self, state: State) -> Iterator[tuple[str, State]]:
        agent = state.agent
        if agent is None:
            return
        match agent.do:
            case Do.READ_RECORD:
                read = agent._replace(restored="record" in state.done)
                yield "agent: GET restored.json, log.start, commit", self._decided(state, read)
            case Do.PUT_START:
                if state.start is None:
                    first = END if agent.restored and Rule15.AT_END in self.clauses else 0
                    put = state._replace(start=first, first_log=state.log, agent=agent._replace(do=Do.SHIP, next=first))
                    yield f"agent: PUT log.start: {first}", put
            case Do.PUT_BACK:
                assert state.commit is not None
                assert state.commit.back is not None
                low = min(state.start or 0, state.commit.back)
                put = state._replace(start=low, back=state.commit.back, agent=agent._replace(do=Do.SHIP))
                yield f"agent: PUT log.start: {low}, lineage", put
            case Do.SHIP:
                for number, (base, end) in enumerate(SEGMENTS[:-1]):
                    if agent.next is not None and base <= agent.next < end:
                        shipped = agent._replace(do=Do.COMMIT, shipped=end)
                        stored = state.stored | {(number, state.log)}
                        yield f"agent: PUT {base}.log", state._replace(stored=stored, agent=shipped)
            case Do.COMMIT:
                assert agent.shipped is not None
                back = None if state.commit is None else state.commit.back
                commit = Commit(agent.shipped, state.log, back)
                yield (
                    f"agent: PUT offset.wm: {commit}",
                    state._replace(commit=commit, agent=Agent(Do.SHIP, agent.restored, agent.shipped)),
                )

    def _decided(self, state: State, agent: Agent) -> State:
        """The state after an agent has read where to continue."""
        held = LOST_FROM if state.log else END
        if state.start is None:
            waits = agent.restored and held < END and Rule15.WHOLE in self.clauses
            return state._replace(agent=agent._replace(do=Do.READ_RECORD if waits else Do.PUT_START))
        if state.commit is None:
            keeps = agent.restored and Rule15.NOT_BACK in self.clauses
            begin = min(state.start, held if Rule15.LOST_GOES_BACK in self.clauses else END) if keeps else 0
        else:
            begin = state.commit.next
            if state.commit.log != state.log:
                begin = LOST_FROM if Rule15.LOST_GOES_BACK in self.clauses else END
        if state.commit is not None and state.commit.log == state.log:
            unsettled = state.commit.back != state.back
            return state._replace(agent=agent._replace(do=Do.PUT_BACK if unsettled else Do.SHIP, next=begin))
        if begin < (state.start if state.commit is None else state.commit.next):
            commit = Commit(begin, state.log, begin)
            return state._replace(commit=commit, agent=agent._replace(do=Do.PUT_BACK, next=begin))
        return state._replace(agent=agent._replace(do=Do.SHIP, next=begin))

    def _retention(self, state: State) -> Iterator[tuple[str, State]]:
        commit = state.commit
        settled = commit is not None and state.start is not None and commit.back == state.back
        if settled and commit is not None and state.start is not None and state.start < commit.next:
            yield f"collector: start {commit.next}", state._replace(start=commit.next, passed=True)
        if state.has_old and ("hold" not in state.done or state.passed):
            yield "collector of the old archive: deletes", state._replace(has_old=False, old_start=len(OLD))

    def _read(self, state: State) -> Iterator[tuple[str, State]]:
        reader = state.reader
        order = ("commit", "start", "record", "old")
        if Rule15.START_FIRST not in self.clauses:
            order = ("record", "commit", "start", "old")
        if reader.step == len(order):
            return
        what, step = order[reader.step], reader.step + 1
        match what:
            case "commit":
                read = reader._replace(commit=state.commit)
            case "start":
                read = reader._replace(start=state.start, back=state.back, log=state.first_log)
            case "record":
                read = reader._replace(has_record="record" in state.done)
            case _:
                self._check_rows(reader, has_old=state.has_old, passed=state.passed)
                read = reader
        yield f"reader: GET {what}", state._replace(reader=read._replace(step=step))

    def _check_rows(self, reader: Reader, *, has_old: bool, passed: bool) -> None:
        """Raise H1 or H3, by the rows of a reader that has read all but the old place."""
        commit, start = reader.commit, reader.start
        if start is None or (commit is None and reader.back is not None):
            return
        back = None if commit is None else commit.back
        if back != reader.back:
            if reader.back is not None:
                return  # it reads both again
            start = min(start, back or 0)
        log = LOGS[reader.log if commit is None else commit.log]
        shows = reader.has_record and (start <= END or Rule15.WHILE not in self.clauses) and has_old
        rows = {offset: OLD[offset] for offset in range(start)} if shows else {}
        if shows and Rule15.CUT not in self.clauses:
            rows = dict(enumerate(OLD))
        end = start if commit is None else commit.next
        wrong = {offset: row for offset, row in rows.items() if offset < max(end, start) and row != log[offset]}
        if wrong or max(rows, default=-1) >= max(end, start):
            raise Violation(Property.H1, f"a reader returns {rows}, the log has {log[:end]}")
        if not passed and start and len(rows) < start:
            raise Violation(Property.H3, f"a reader returns none of the offsets below {start}")
