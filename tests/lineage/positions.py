"""The model of a row of the positions object (protocol rule 8, 7 to 9): its states, and the clauses.

Broker A leads a partition, then perhaps B, then A again, and the topic can be created again. A's agent ships, commits,
writes its row, and is killed, in any order of single operations. Its next process defers the read of the position while
the row counts. A log is `a`, after an election that lost a record `b`, of the topic created again `c`. The row can be
stale; or anyone who may write it wrote what it has.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.lineage.clauses import Described, Property, Violation

ENDS: Final = (0, 1, 2, 3)  # of segments; the active segment begins at one of them


class RowClause(Described):
    """A clause that the model can drop; each member's docstring names what it is of."""

    TOPIC = (
        "topic",
        """A row counts for the topic id of the leadership.
        Without it (P1): the topic is created again, and the row of the former one counts.""",
    )
    EPOCH = (
        "epoch",
        """A row counts if its commit has the leader epoch of the leadership.
        Without it (P1): an election loses a record, and its loss stays unnoticed behind the row.""",
    )
    AT_ACTIVE = (
        "active",
        """A row counts while the active segment begins at its next offset.
        Without it (P1): the agent commits nothing of a segment that closes after its start.""",
    )
    WHOLE = (
        "whole",
        """A row counts if the archive had no gap that this log can fill.
        Without it (P1): the agent fills no gap until the next segment closes.""",
    )
    IN_TURN = (
        "turn",
        """The agent reads the position of each partition in turn, whatever the rows have.
        Without it (P2): a forged row keeps closed segments from the archive.""",
    )
    READ_FIRST = (
        "read",
        """The agent reads the position before its first put.
        Without it (P3): by a forged row it ships beyond the end of the run, and leaves a hole.""",
    )


ALL_OF_ROWS: Final = frozenset(RowClause)


class Commit(NamedTuple):
    """A commit: whose log it is of, its leader epoch, next offset, and whether a gap is recorded below."""

    log: str = "a"
    epoch: int = 0
    next: int = 0
    gap: bool = False


class Row(NamedTuple):
    """A row of the positions object, as its topic and commit; `honest`: the agent of this broker wrote it."""

    topic: int
    commit: Commit
    honest: bool


class State(NamedTuple):
    """The store, A's log, and A's agent; `position` is what the agent has read, if it has."""

    topic: int = 0
    epoch: int = 0
    log: str = "a"
    active: int = 0
    commit: Commit = Commit()
    row: Row | None = None
    leads: bool = True
    known: Row | None = None  # what the process read at its start
    position: Commit | None = Commit()
    elections: int = 1
    kills: int = 1
    forged: int = 1
    again: int = 1


class RowModel:
    """One run under a set of clauses."""

    def __init__(self, clauses: frozenset[RowClause] = ALL_OF_ROWS) -> None:
        self.clauses = clauses

    def start(self) -> State:
        """An empty archive, and an agent that has read it."""
        return State()

    def check(self, state: State) -> None:
        """Raise P1 or P2: the agent defers although there is something to do."""
        if state.position is not None or not state.leads or not self._counts(state) or not _has_work(state):
            return
        assert state.known is not None
        if state.known.honest:
            raise Violation(Property.P1, f"row {state.known}, commit {state.commit}, log {state.log} to {state.active}")
        if RowClause.IN_TURN not in self.clauses:
            raise Violation(Property.P2, f"row {state.known}, commit {state.commit}")

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that is possible, and where it leads; raise P3 by a put."""
        if state.leads and state.active < ENDS[-1]:
            yield "broker A: a segment closes", state._replace(active=state.active + 1)
        yield from self._agent(state)
        yield from _elections(state)
        if state.forged:
            for next_offset in ENDS:
                forged = Row(state.topic, Commit(state.log, state.epoch, next_offset), honest=False)
                yield f"someone: PUT positions: {forged.commit}", state._replace(row=forged, forged=0)
        if state.kills:
            yield "the agent is killed", state._replace(kills=0, position=None, known=state.row)

    def _counts(self, state: State) -> bool:
        row, clauses = state.known, self.clauses
        return (
            row is not None
            and (row.topic == state.topic or RowClause.TOPIC not in clauses)
            and (row.commit.epoch == state.epoch or RowClause.EPOCH not in clauses)
            and (row.commit.next == state.active or RowClause.AT_ACTIVE not in clauses)
            and (not row.commit.gap or RowClause.WHOLE not in clauses)
        )

    def _agent(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.leads:
            return
        position = state.position
        if position is None:
            in_turn = RowClause.IN_TURN in self.clauses
            if not self._counts(state) or in_turn:
                yield "agent: GET offset.wm, log.start", _read(state)
            if RowClause.READ_FIRST in self.clauses or state.known is None:
                return
            position = state.known.commit
        if position.gap:
            filled = position._replace(gap=False)
            yield "agent: PUT the segment of the gap, offset.wm", state._replace(position=filled, commit=filled)
        elif position.next < state.active:
            if position.next > state.commit.next:
                raise Violation(Property.P3, f"a segment from {position.next} on, the run ends at {state.commit.next}")
            moved = position._replace(next=position.next + 1)
            yield f"agent: PUT {position.next}.log, offset.wm", state._replace(position=moved, commit=moved)
        yield "agent: PUT positions", state._replace(row=Row(state.topic, position, honest=True))


def _elections(state: State) -> Iterator[tuple[str, State]]:
    if state.leads and state.elections:
        yield "Kafka: B leads", state._replace(leads=False, epoch=state.epoch + 1, elections=0)
    if not state.leads:
        back = state._replace(leads=True, epoch=state.epoch + 1, position=None)
        yield "Kafka: A leads again, with the records of B", back
        if state.commit.next:
            gap = state.commit._replace(epoch=state.epoch, gap=True)
            yield "agent of B: records a gap that A can fill; Kafka: A leads again", back._replace(commit=gap)
            yield "Kafka: A leads again, without the last record", back._replace(log="b", active=state.active)
    if state.again and state.leads:
        again = state._replace(topic=1, log="c", active=0, epoch=0, commit=Commit("c"), again=0, position=None)
        yield "Kafka: the topic is created again", again


def _has_work(state: State) -> bool:
    """Whether an agent that reads the position has something to write."""
    commit = state.commit
    is_behind = commit.next < state.active or commit.epoch < state.epoch
    return is_behind or commit.log != state.log or commit.gap


def _read(state: State) -> State:
    """The state after the agent has read its position, and has written the leadership into the commit."""
    commit = state.commit._replace(log=state.log, epoch=state.epoch)
    return state._replace(commit=commit, position=commit)
