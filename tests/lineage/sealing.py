"""The model of sealed cache objects (protocol rule 16, reading rule 10): its states, and the clauses.

A partition has the offsets 0 to 5. Broker 1 has the segments [0,2) and [2,4), broker 2 has [3,6), which is late: it
begins below a sealed end of 4. The agents of both seal, in any order of single store operations, and each can be late
with every operation. A repair puts a good copy of [2,4), and can be killed. An election can lose the records from 3 on.
A commit can pass the offsets 4 and 5 by a gap record that broker 2's agent fills later. Retention can have removed
[0,2), and `log.start` can be lost then. Any identity can write an earlier `seal.json` again, with another lineage and
any sealed object, or other bytes under a sealed object's name. Records are named by their log, 1 or 2.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tests.lineage.clauses import Described, Property, Violation

LATE_BASE: Final = 3  # of broker 2's segment, and where the logs part
ANSWERED: Final = 4  # steps of a repair
SHORT: Final = "a0 whole"  # a damaged sealed object: its one row claims all offsets below 4


class Segment(NamedTuple):
    """A `.log`: its coverage, the log of its records below and from `LATE_BASE` on, and whether its name is plain."""

    base: int
    end: int
    log: int = 1
    plain: bool = True


SEGMENTS: Final = {
    "a0": Segment(0, 2),
    "a1": Segment(2, 4),
    "good": Segment(2, 4, plain=False),  # names a1 in `ts-replaces`
    "late": Segment(3, 6),
    "other": Segment(3, 4, log=2),
    "more": Segment(4, 6, log=2),
    SHORT: Segment(0, 4),
}


class Rule16(Described):
    """A clause that the model can drop; each member's docstring names what it is of."""

    ON_ETAG = (
        "etag",
        """An agent writes `seal.json` on the ETag that it read.
        Without it (C3): it seals a range that a repair has unsealed since its listing.""",
    )
    LIST_AFTER = (
        "list",
        """An agent lists after it has read `seal.json`.
        Without it (C3): a repair begins and ends in between, and the sealed object lacks its good copy.""",
    )
    TOKEN = (
        "token",
        """A repair enters a token, also where nothing is sealed.
        Without it (C3): an agent reads `seal.json` and lists before the repair puts, and seals after it.""",
    )
    OVER_TOKEN = (
        "over",
        """An agent never seals over a token.
        Without it (C3): it reads `seal.json` with the token, lists before the repair puts, and seals.""",
    )
    DROPS = (
        "drop",
        """The write that enters the token drops the ranges.
        Without it (C3): readers use the sealed object, which lacks the good copy.""",
    )
    TOKEN_STAYS = (
        "stays",
        """The token is removed after the put only.
        Without it (C3): an agent lists between the removal and the put, and seals.""",
    )
    WHOLE = (
        "whole",
        """A sealed object has every `.log` that begins in its range.
        Without it (C3): an agent that begins after the repair leaves out the good copy, which has no plain name.""",
    )
    OF_COMMIT = (
        "commit",
        """A reader uses sealed objects of the commit's lineage and epochs only.
        Without it (C2): the agent of a discarded log sealed its records.""",
    )
    HOLES = (
        "holes",
        """A reader lists all if what it found leaves a hole.
        Without it (C1): it never sees the segment that begins below the sealed end.""",
    )
    RECORDED = (
        "recorded",
        """A recorded gap is such a hole.
        Without it (C1): a late segment has filled the gap, and readers return the gap.""",
    )
    CHECKED = (
        "crc",
        """A reader compares a sealed object with the CRC-32C in its name.
        Without it (C2): another identity wrote other rows there, and the reader returns fewer records.""",
    )
    STARTED = (
        "started",
        """A reader without `log.start` lists all.
        Without it (C1): the view begins at a segment that retention removed.""",
    )


ALL_OF_16: Final = frozenset(Rule16)


class Commit(NamedTuple):
    """A commit: the next offset, and the log, which is its lineage too."""

    next: int = 4
    log: int = 1


class Sealed(NamedTuple):
    """A sealed object: its rows and its lineage."""

    rows: tuple[str, ...]
    log: int

    @property
    def end(self) -> int:
        """Where its range ends."""
        return SEGMENTS[self.rows[-1]].end


class SealJson(NamedTuple):
    """`seal.json`: its nonce, the sealed object of the one range, whether a token is entered."""

    nonce: int = 0
    sealed: Sealed | None = None
    token: bool = False


class Sealer(NamedTuple):
    """An agent that seals, with what it has read."""

    log: int
    step: int = 0
    json: SealJson | None = None
    listed: frozenset[str] = frozenset()


class Reader(NamedTuple):
    """A reader, with what it has read."""

    step: int = 0
    stored: frozenset[str] = frozenset()  # when it began
    answered: bool = False  # when it began
    commit: Commit = Commit()
    json: SealJson = SealJson()
    sealed: Sealed | None = None
    listed: frozenset[str] | None = None  # by a driver that reads a directory once, before `seal.json`


class State(NamedTuple):
    """The archive, and who works on it; None or a step beyond the last for what a scenario does not have."""

    commit: Commit = Commit()
    stored: frozenset[str] = frozenset({"a0", "a1"})
    gap: bool = False
    has_start: bool = True
    json: SealJson = SealJson()
    nonce: int = 0
    objects: frozenset[Sealed] = frozenset()
    damaged: frozenset[Sealed] = frozenset()
    sealers: tuple[Sealer, ...] = (Sealer(1),)
    ship: int = 9
    election: bool = False  # one follows that loses records
    repair: int = 9
    kills: int = 0
    forgeries: int = 0
    forged: bool = False
    reader: Reader = Reader()


SCENARIOS: Final = {
    "late": State(ship=0),
    "gap": State(commit=Commit(6), gap=True, ship=0),
    "lost": State(sealers=(Sealer(1), Sealer(2)), election=True),
    "repaired": State(repair=0, kills=1),
    "sealed": State(
        json=SealJson(1, Sealed(("a0", "a1"), 1)), nonce=1, objects=frozenset({Sealed(("a0", "a1"), 1)}), repair=0
    ),
    "two": State(sealers=(Sealer(1), Sealer(1)), repair=0),
    "retention": State(
        stored=frozenset({"a1"}),
        has_start=False,
        json=SealJson(1, Sealed(("a0", "a1"), 1)),
        nonce=1,
        objects=frozenset({Sealed(("a0", "a1"), 1)}),
        sealers=(),
    ),
    "forged-late": State(ship=0, forgeries=1),
    "forged-gap": State(commit=Commit(6), gap=True, ship=0, forgeries=1),
    "forged-lost": State(sealers=(Sealer(1), Sealer(2)), election=True, forgeries=1),
    "forged-repair": State(repair=0, kills=1, forgeries=1),
}
# Where each clause's counterexample is.
DROPPED: Final = {
    Rule16.ON_ETAG: "repaired",
    Rule16.LIST_AFTER: "repaired",
    Rule16.TOKEN: "repaired",
    Rule16.OVER_TOKEN: "repaired",
    Rule16.DROPS: "sealed",
    Rule16.TOKEN_STAYS: "repaired",
    Rule16.WHOLE: "repaired",
    Rule16.OF_COMMIT: "lost",
    Rule16.HOLES: "late",
    Rule16.RECORDED: "gap",
    Rule16.CHECKED: "forged-late",
    Rule16.STARTED: "retention",
}


class SealingModel:
    """One scenario under a set of clauses."""

    def __init__(self, first: State, clauses: frozenset[Rule16] = ALL_OF_16) -> None:
        self.first = first
        self.clauses = clauses

    def start(self) -> State:
        """The scenario's first state."""
        return self.first

    def check(self, state: State) -> None:
        """Nothing: a reader's last step checks."""

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step that is possible, and where it leads; raise C1, C2 or C3 by a reader's last step."""
        for number, sealer in enumerate(state.sealers):
            for label, after, then in self._seal(state, sealer):
                sealers = (*state.sealers[:number], after, *state.sealers[number + 1 :])
                yield f"agent {number}: {label}", then._replace(sealers=sealers)
        yield from self._ship(state)
        yield from self._repair(state)
        if state.forgeries:
            yield from self._forge(state)
        yield from self._read(state)
        if state.election:
            yield (
                "Kafka: an election loses 3; the commit goes back",
                state._replace(commit=Commit(3, 2), election=False),
            )
        elif state.commit == Commit(3, 2):
            stored = state.stored | {"other", "more"}
            yield "agent of broker 2: PUT [3,4), [4,6), offset.wm", state._replace(commit=Commit(6, 2), stored=stored)

    def _written(self, state: State, sealed: Sealed | None, *, token: bool) -> State:
        nonce = state.nonce + 1
        return state._replace(json=SealJson(nonce, sealed, token), nonce=nonce)

    def _seal(self, state: State, sealer: Sealer) -> Iterator[tuple[str, Sealer, State]]:
        order = ("json", "list", "object", "write")
        if Rule16.LIST_AFTER not in self.clauses:
            order = ("list", "json", "object", "write")
        if sealer.step == len(order) or sealer.log > state.commit.log:
            return
        after = sealer._replace(step=sealer.step + 1)
        match order[sealer.step]:
            case "json":
                yield f"GET seal.json: {state.json}", after._replace(json=state.json), state
            case "list":
                yield f"LIST: {sorted(state.stored)}", after._replace(listed=state.stored), state
            case "object":
                if (found := self._sealed(sealer)) is not None:
                    yield f"PUT {found}", after, state._replace(objects=state.objects | {found})
            case _:
                found = self._sealed(sealer)
                if state.json == sealer.json or Rule16.ON_ETAG not in self.clauses:
                    yield f"PUT seal.json: {found}", after, self._written(state, found, token=state.json.token)

    def _sealed(self, sealer: Sealer) -> Sealed | None:
        """Return what an agent seals by what it has read."""
        assert sealer.json is not None
        if sealer.json.token and Rule16.OVER_TOKEN in self.clauses:
            return None
        rows: list[str] = []
        for name in ("a0", "a1"):
            base, end, *_ = SEGMENTS[name]
            if name not in sealer.listed or base != sum(SEGMENTS[row].end - SEGMENTS[row].base for row in rows):
                break
            others = sealer.listed - {"a0", "a1"}
            if Rule16.WHOLE in self.clauses and any(base <= SEGMENTS[other].base < end for other in others):
                break
            if sealer.log != 1 and end > LATE_BASE:
                break  # its tail is dead by the commit's epochs
            rows.append(name)
        return Sealed(tuple(rows), sealer.log) if rows else None

    def _ship(self, state: State) -> Iterator[tuple[str, State]]:
        match state.ship:
            case 0:
                stored = state.stored | {"late"}
                yield "agent of broker 2: PUT 3.log", state._replace(stored=stored, ship=1)
            case 1:
                yield "agent of broker 2: PUT offset.wm: next 6", state._replace(commit=Commit(6), ship=2)

    def _repair(self, state: State) -> Iterator[tuple[str, State]]:
        order = ["unseal", "put", "remove", "answer"]
        if Rule16.TOKEN_STAYS not in self.clauses:
            order = ["unseal", "remove", "put", "answer"]
        if state.repair >= ANSWERED:
            return
        after = state._replace(repair=state.repair + 1)
        match order[state.repair]:
            case "unseal":
                if Rule16.TOKEN not in self.clauses and state.json.sealed is None:
                    yield "repair: GET seal.json: nothing is sealed", after
                else:
                    sealed = None if Rule16.DROPS in self.clauses else state.json.sealed
                    yield "repair: PUT seal.json: a token", self._written(after, sealed, token=True)
            case "put":
                yield "repair: PUT the good copy", after._replace(stored=state.stored | {"good"})
            case "remove":
                if state.json.token:
                    yield "repair: PUT seal.json: no token", self._written(after, state.json.sealed, token=False)
                else:
                    yield "repair: GET seal.json: no token", after
            case _:
                yield "repair: PUT the answer", after
        if state.kills and state.repair:
            yield "the repair is killed", state._replace(repair=0, kills=0)

    def _forge(self, state: State) -> Iterator[tuple[str, State]]:
        once = state._replace(forgeries=0, forged=True)
        for found in state.objects:
            yield f"forged seal.json: {found}", self._written(once, found, token=False)
            yield f"forged {found}", once._replace(damaged=frozenset({found}))
        absent = Sealed(("a0", "a1"), state.commit.log)
        if absent not in state.objects:
            yield f"forged seal.json: {absent}, which is missing", self._written(once, absent, token=False)

    def _read(self, state: State) -> Iterator[tuple[str, State]]:
        reader = state.reader
        after = reader._replace(step=reader.step + 1)
        match reader.step:
            case 0:
                begun = after._replace(stored=state.stored, answered=state.repair == ANSWERED, commit=state.commit)
                yield f"reader: GET offset.wm: {state.commit}", state._replace(reader=begun)
            case 1:
                yield f"reader: GET seal.json: {state.json}", state._replace(reader=after._replace(json=state.json))
                if reader.listed is None:
                    listed = reader._replace(listed=state.stored)
                    yield f"reader: LIST: {sorted(state.stored)}", state._replace(reader=listed)
            case 2:
                found = reader.json.sealed
                if found is not None and (found not in state.objects or not self._usable(state, reader, found)):
                    found = None
                if found in state.damaged:
                    found = None if Rule16.CHECKED in self.clauses else Sealed((SHORT,), reader.commit.log)
                yield f"reader: GET {found}", state._replace(reader=after._replace(sealed=found))
            case 3:
                self._check(state, reader)
                yield "reader: LIST", state._replace(reader=after)

    def _usable(self, state: State, reader: Reader, found: Sealed) -> bool:
        if not state.has_start and Rule16.STARTED in self.clauses:
            return False
        return found.log == reader.commit.log or Rule16.OF_COMMIT not in self.clauses

    def _check(self, state: State, reader: Reader) -> None:
        """Raise C1, C2 or C3 by what a reader returns."""
        rows = reader.sealed.rows if reader.sealed else ()
        seen = state.stored if reader.listed is None else reader.listed
        listed = {name for name in seen if not rows or SEGMENTS[name].base >= SEGMENTS[rows[-1]].end}
        found = _union(reader.commit, listed, rows)
        start = 0 if state.has_start else min(SEGMENTS[name].base for name in (*listed, *rows))
        offsets = range(start, reader.commit.next)
        holes = [offset for offset in offsets if offset not in found]
        if Rule16.RECORDED not in self.clauses and state.gap:
            holes = [offset for offset in holes if offset < SEGMENTS["a1"].end]
        if holes and Rule16.HOLES in self.clauses:
            found = _union(reader.commit, state.stored)
        expected = _union(reader.commit, reader.stored)
        for offset in offsets:
            name = found.get(offset)
            if name is None:
                if offset in expected:
                    raise Violation(Property.C1, f"offset {offset} is in {expected[offset]}")
                continue
            if name == SHORT:
                if offset >= SEGMENTS["a0"].end:
                    raise Violation(Property.C2, f"a reader returns nothing at {offset}")
                continue
            if name not in state.stored:
                raise Violation(Property.C1, f"{name} of the sealed object does not exist")
            log = 1 if offset < LATE_BASE else SEGMENTS[name].log
            if log != (1 if offset < LATE_BASE else reader.commit.log):
                raise Violation(Property.C2, f"a reader returns offset {offset} of log {log}")
            # Where a forger shows the damaged object, its CRC fails, and the reader with it.
            if name == "a1" and reader.answered and not state.forged:
                raise Violation(Property.C3, f"a reader reads offset {offset} in the damaged object")


def _union(commit: Commit, listed: Iterable[str], sealed: Iterable[str] = ()) -> dict[int, str]:
    """Return the object that has each offset, by reading rule 2; sealed rows count as live."""
    found: dict[int, str] = {}
    for name in sorted(listed, key=lambda name: (name == "good", name)):
        segment = SEGMENTS[name]
        end = segment.end if segment.log == commit.log else min(segment.end, LATE_BASE)
        found.update(dict.fromkeys(range(segment.base, end), name))
    for name in sealed:
        found.update(dict.fromkeys(range(*SEGMENTS[name][:2]), name))
    return found
