"""Two processes of `tsctl erase run` at once: in each order of requests nothing is lost, and the evidence is true.

One runs between two requests of the other, is killed there, or each draws which request is sent next. Then a later run
ends the request.
"""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import pytest

from tests.matrix import cases
from tests.tsctl.erase.killing import Killed, KilledAt, logs, shown, values
from tests.tsctl.erase.test_running import lines, once, state, with_request
from ts_common.archive.object_keys import LOG_SUFFIX, SegmentName
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.run import Found

SECONDS = 300.0  # a deadline for the other's turn


class Recording(WrappedStore):
    """Keeps the bytes of each segment that was put, by key and ETag.

    Attributes:
        deleting: is called with the key of each segment before its deletion.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.data: dict[tuple[str, str], bytes] = {}
        self.deleting: Callable[[str], None] = lambda _: None

    def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
        info = self._inner.put(*arguments, **named)
        if info.key.endswith(LOG_SUFFIX):
            self.data[info.key, info.etag] = self._inner.get(info.key)[0]
        return info

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        for key in etags:
            if key.endswith(LOG_SUFFIX):
                self.deleting(key)
        return self._inner.delete_matching(etags)


class Meanwhile(KilledAt):
    """Calls a function before the request of a number, from 1 on."""

    def __init__(self, inner: ObjectStore, at: int, act: Callable[[], object], *, only_writes: bool = False) -> None:
        super().__init__(inner, at, only_writes=only_writes)
        self._number, self._act = at, act

    def _do(self, request: Callable[[], Any], *, writes: bool = False) -> Any:
        if not self._only_writes or writes:
            self.count += 1
            if self.count == self._number:
                self._act()
        return request()


class Turns:
    """Lets one of several runs send its next request, by chance."""

    def __init__(self, chance: random.Random, count: int) -> None:
        self._chance, self._alive, self._turn = chance, [*range(count)], Condition()
        self._next = 0

    def do(self, me: int, request: Callable[[], Any]) -> Any:
        """Send a request of a run once it is its turn."""
        with self._turn:
            assert self._turn.wait_for(lambda: self._next == me, SECONDS)
            try:
                return request()
            finally:
                self._draw()

    def end(self, me: int) -> None:
        """Leave the turns to the others."""
        with self._turn:
            self._alive.remove(me)
            self._draw()

    def _draw(self) -> None:
        self._next = self._chance.choice(self._alive) if self._alive else -1
        self._turn.notify_all()


class InTurns(KilledAt):
    """A store for one of several runs with `Turns`."""

    def __init__(self, inner: ObjectStore, turns: Turns, me: int) -> None:
        super().__init__(inner)
        self._turns, self._me = turns, me

    def _do(self, request: Callable[[], Any], *, writes: bool = False) -> Any:
        del writes
        return self._turns.do(self._me, request)


class World:
    """An archive with a request, before any run."""

    def __init__(self, path: Path) -> None:
        self.person = with_request(path)
        archive = self.person.archive
        self.first_stem = self.person.keys.prefix + SegmentName(0).stem
        self.before = shown(archive)
        self.first = {self.person.keys.prefix + name: log for name, log in logs(archive).items()}
        self.store = Recording(archive.store)
        self.store.deleting = self.check_noted

    def run(self, store: ObjectStore | None = None) -> Found:
        """Rewrite, and remove without a grace."""
        return once(self.person, store or self.store)

    def check_noted(self, key: str) -> None:
        """Check that the evidence has the sums of a segment before it is deleted."""
        assert key in {each["key"] for each in lines(self.person) if "before" in each}

    def check(self) -> None:
        """Check what holds after each run, ended or killed."""
        assert shown(self.person.archive) == self.before
        stored = {self.person.keys.prefix + name: log for name, log in logs(self.person.archive).items()}
        known = {**self.first, **{key: data for (key, _), data in self.store.data.items()}}
        noted = dict[str, str]()
        for each in lines(self.person):
            if "before" in each:
                assert each["before"] == sha256(known[each["key"]]).hexdigest()
                assert each["after"] == sha256(known[each["made"]]).hexdigest()
                noted[each["key"]] = each["before"]
            if "etag" in each and each.get("did") == "rewritten":
                assert not self.has(self.store.data[each["made"], each["etag"]])
            if each.get("did") == "removed":
                assert each["key"] not in stored
        assert noted.keys() >= known.keys() - stored.keys()
        if state(self.person) == "erased":
            assert not any(self.has(log) for key, log in stored.items() if key.startswith(self.first_stem))

    def has(self, log: bytes) -> bool:
        """Return whether a rewritten segment, or the one that it replaces, has an erased record."""
        return b"value of " + self.person.person in values(log)

    def end(self) -> None:
        """A later run ends the request, and changes nothing else."""
        self.check()
        for _ in range(2):
            self.run()
            self.check()
        assert state(self.person) == "erased"


def one_in_another(path: Path, at: int, *, only_writes: bool, killed: int = 0) -> int:
    """Run one whole run, or one that is killed, before a request of another; return the number of its requests."""
    world = World(path)

    def act() -> None:
        with suppress(Killed):
            world.run(KilledAt(world.store, killed, after=True, only_writes=True) if killed else None)

    store = Meanwhile(world.store, at, act, only_writes=only_writes)
    world.run(store)
    world.end()
    return store.count


def in_turns(path: Path, seed: int, kills: bool) -> None:
    """Draw which of two runs sends its next request; with `kills` the first one ends after one of its writes."""
    world, chance = World(path), random.Random(seed)
    turns = Turns(chance, 2)
    dies = chance.randint(1, 12) if kills else 0
    ended = list[int]()

    def run(me: int) -> None:
        store = InTurns(world.store, turns, me)
        try:
            with suppress(Killed):
                world.run(KilledAt(store, dies, after=True, only_writes=True) if dies and not me else store)
            ended.append(me)
        finally:
            turns.end(me)

    threads = [Thread(target=run, args=(me,)) for me in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(ended) == [0, 1]
    world.end()


@pytest.mark.parametrize("at", cases([1, 3, 5], quick=[3]))
def test_a_run_between_two_writes_of_another_harms_nothing(tmp_path: Path, at: int) -> None:
    """Both have planned the same copies: the second finds them rewritten, noted or removed."""
    one_in_another(tmp_path / "bucket", at, only_writes=True)


@pytest.mark.parametrize("seed", cases(range(2), quick=[1]))
def test_two_runs_in_turns_lose_nothing_and_note_what_is_true(tmp_path: Path, seed: int) -> None:
    """One of them is killed after a write while the other continues."""
    in_turns(tmp_path / "bucket", seed, kills=bool(seed % 2))


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_a_run_before_each_request_of_another_harms_nothing(tmp_path: Path) -> None:
    """Whole, and killed after each of its writes."""
    for killed in range(13):
        at, count = 0, 1
        while at < count:
            at += 1
            count = one_in_another(tmp_path / f"{killed}-{at}", at, only_writes=killed > 0, killed=killed)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_two_runs_in_many_turns_lose_nothing(tmp_path: Path) -> None:
    """Each draws another order."""
    for seed in range(2, 300):
        in_turns(tmp_path / f"{seed}", seed, kills=bool(seed % 2))
