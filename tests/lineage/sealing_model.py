"""The model of sealed cache objects: each step of agents, repair, forger, election and reader.

Its agents also seal below a compacted copy, where real ones save the request: readers would list all.
"""

from collections.abc import Iterable, Iterator

from tests.lineage.clauses import Property, Violation
from tests.lineage.sealing import (
    ALL_OF_16,
    ANSWERED,
    LATE_BASE,
    SEGMENTS,
    SHORT,
    Commit,
    Reader,
    Rule16,
    Sealed,
    Sealer,
    SealJson,
    State,
)


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
        own = ("a0", "a1", "compacted")
        rows: list[str] = []
        for name in own:
            base, end, *_, compacted = SEGMENTS[name]
            if name not in sealer.listed or base != sum(SEGMENTS[row].end - SEGMENTS[row].base for row in rows):
                break
            others = sealer.listed.difference(own)
            if Rule16.WHOLE in self.clauses and any(base <= SEGMENTS[other].base < end for other in others):
                break
            if compacted is not None and Rule16.DENSE in self.clauses:
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
        doubted = bool(holes) and Rule16.HOLES in self.clauses
        if rows and Rule16.COMPACTED in self.clauses:
            doubted |= bool(_without_record(found, range(SEGMENTS[rows[-1]].end, reader.commit.next)))
        if doubted:
            found = _union(reader.commit, state.stored)
        expected = _union(reader.commit, reader.stored)
        for offset in _without_record(found, offsets):
            if expected[offset] != found[offset]:
                raise Violation(Property.C1, f"a reader returns nothing at {offset}, which is in {expected[offset]}")
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
    for name in sorted(listed, key=lambda name: (name == "good", name != "compacted", name)):
        segment = SEGMENTS[name]
        end = segment.end if segment.log == commit.log else min(segment.end, LATE_BASE)
        found.update(dict.fromkeys(range(segment.base, end), name))
    for name in sealed:
        found.update(dict.fromkeys(range(*SEGMENTS[name][:2]), name))
    return found


def _without_record(found: dict[int, str], offsets: Iterable[int]) -> list[int]:
    """Return the offsets whose record is missing in the object that was found."""
    return [offset for offset in offsets if offset in found and SEGMENTS[found[offset]].compacted == offset]
