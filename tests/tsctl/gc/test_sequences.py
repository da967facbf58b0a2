"""Retention, holds, elections, lost objects and kills in any order: readers find no hole, and no early deletion."""

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.made_archive import MadeArchive, batches
from tests.matrix import examples
from tests.tsctl.gc.archives import GRACE, FixedRetention, Killed, bases, keep_last, later, names, run_in, ship
from tests.tsctl.gc.test_kills import Killing
from ts_common.archive.catalog import read_catalog, read_snapshot
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.errors import LineageUnsettled, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.log_start import restore_log_start

SIZE = len(batches((0, 10)))
WHENS = ("before", "half", "after")


@dataclass
class World:
    """An archive of one partition, its policy, and whether its topic is held.

    Attributes:
        segments: that the policy keeps.
        seen: names of the segments that were hidden when the last run ended.
        waited: those of them that were hidden for a grace since.
    """

    archive: MadeArchive
    retention: FixedRetention = field(default_factory=lambda: keep_last(3, SIZE))
    segments: int = 3
    seen: frozenset[str] = frozenset()
    waited: frozenset[str] = frozenset()

    @property
    def logs(self) -> frozenset[str]:
        return frozenset(name for name in names(self.archive) if name.endswith(".log"))

    @property
    def hidden(self) -> frozenset[str]:
        start = read_snapshot(self.archive.store, self.archive.partition("t")).log_start or 0
        return frozenset(name for name in self.logs if int(name[:20]) + 10 <= start)

    @property
    def commit(self) -> Commit:
        found = read_snapshot(self.archive.store, self.archive.partition("t")).commit
        assert isinstance(found, Commit)
        return found

    @property
    def log_start(self) -> LogStart:
        found = read_snapshot(self.archive.store, self.archive.partition("t")).stored_log_start
        assert found is not None
        return found.content

    def write(self, commit: Commit) -> None:
        self.archive.store.put(self.archive.partition("t").commit, commit.encode())

    def settle(self) -> None:
        """Write `log.start` in the lineage of the commit, as the next leader's agent does."""
        commit, start = self.commit, self.log_start
        if commit.lineage is not None and start.lineage != commit.lineage:
            settled = start.in_lineage(commit.lineage, start.shown_from(commit.lineage))
            self.archive.store.put(self.archive.partition("t").log_start, settled.encode())


Step = Callable[[World], None]


@dataclass(frozen=True)
class Run:
    """A run, which is killed at a write of this number."""

    kill: int | None = None
    when: str = "after"

    def __call__(self, world: World) -> None:
        store: ObjectStore = world.archive.store
        if self.kill is not None:
            store = Killing(store, self.kill, self.when)
        try:
            run_in(store, world.archive, world.retention)
        finally:
            world.seen = world.hidden


@dataclass(frozen=True)
class Later:
    """A grace passes."""

    def __call__(self, world: World) -> None:
        later(world.archive, GRACE)
        world.waited = world.seen & world.hidden


@dataclass(frozen=True)
class Keep:
    """The policy keeps so many segments."""

    segments: int

    def __call__(self, world: World) -> None:
        world.retention = replace(keep_last(self.segments, SIZE), held=world.retention.held)
        world.segments = self.segments


@dataclass(frozen=True)
class Hold:
    """A hold is set, or removed."""

    is_set: bool

    def __call__(self, world: World) -> None:
        world.retention.held = {"t"} if self.is_set else set()


@dataclass(frozen=True)
class Elect:
    """The commit goes back by so many segments; the agent may be killed before it writes `log.start`."""

    segments: int
    is_settled: bool

    def __call__(self, world: World) -> None:
        world.settle()
        commit, start = world.commit, world.log_start
        begin, epoch = max(0, commit.next_offset - 10 * self.segments), commit.epoch + 1
        former = commit.lineage.highest if commit.lineage is not None else 0
        lineage = Lineage(epoch, begin, max(commit.next_offset, start.offset, former))
        pairs = (*(pair for pair in commit.epochs.pairs if pair[1] < begin), (epoch, begin))
        nonce = f"elected-{epoch}"
        world.write(
            Commit(max(0, begin - 10), begin, epoch, EpochHistory(pairs), None, None, 1, 0, nonce, lineage=lineage)
        )
        if self.is_settled:
            world.settle()


@dataclass(frozen=True)
class Ship:
    """The leader ships so many segments more."""

    segments: int

    def __call__(self, world: World) -> None:
        world.settle()
        commit = world.commit
        end = commit.next_offset + 10 * self.segments
        for base in range(commit.next_offset, end, 10):
            is_variant = commit.lineage is not None and base < commit.lineage.highest
            world.archive.put_segment("t", base, batches((base, base + 10), epoch=commit.epoch), variant=is_variant)
        world.write(replace(commit, next_offset=end, highest_base=end - 10, nonce=f"shipped-{end}"))


@dataclass(frozen=True)
class LoseLogStart:
    """`log.start` is deleted, and the agent writes it again."""

    def __call__(self, world: World) -> None:
        world.settle()
        keys, store = world.archive.partition("t"), world.archive.store
        store.delete([keys.log_start])
        world.seen = world.waited = frozenset()
        restore_log_start(store, world.archive.keys, keys, world.commit)


@dataclass(frozen=True)
class Forge:
    """An agent's identity writes a `log.start` without a floor, or with one that nothing proves."""

    start: int
    floor: int | None

    def __call__(self, world: World) -> None:
        world.settle()
        commit, former = world.commit, world.log_start
        start = min(self.start, commit.next_offset)
        if start < former.offset:  # it would show readers a hole, which no collector can help
            return
        if start > former.offset:
            world.seen = world.waited = frozenset()
        floor = None if self.floor is None else min(self.floor, start)
        forged = LogStart(start, commit.lineage, floor=floor, since=former.since, written_by=f"agent-{start}")
        world.archive.store.put(world.archive.partition("t").log_start, forged.encode())


KILLS = st.none() | st.integers(0, 13)
STEPS = st.one_of(
    st.builds(Run, KILLS, st.sampled_from(WHENS)),
    st.builds(Run),
    st.just(Later()),
    st.builds(Keep, st.sampled_from([1, 2, 3, 5, 100])),
    st.builds(Hold, st.booleans()),
    st.builds(Elect, st.integers(0, 6), st.booleans()),
    st.builds(Ship, st.integers(1, 4)),
    st.just(LoseLogStart()),
    st.builds(Forge, st.sampled_from([40, 70, 100]), st.none() | st.sampled_from([0, 70, 100])),
)


@given(st.lists(STEPS, min_size=4, max_size=14))
@example([Run(), Later(), Run(kill=4, when="half"), Hold(True), Run()])
@example([Run(), Elect(2, True), Hold(True), Run(), Hold(False), Run(), Later(), Run()])
@example([Forge(100, 100), Run(), Later(), Run(), Later(), Run()])
@example([Run(), LoseLogStart(), Hold(True), Later(), Run()])
@example([Run(), Later(), Run(kill=5, when="half"), Hold(True), Run(), LoseLogStart(), Hold(False), Run()])
@settings(max_examples=examples(1500, quick=12))
def test_g03_no_order_of_what_can_happen_shows_readers_a_hole(steps: list[Step]) -> None:
    """G03: the view is whole, or readers wait for the agent; what is removed was hidden for a grace."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(MadeArchive(Path(directory) / "bucket"))
        ship(world.archive, "t", 0, 100)
        for step in steps:
            before, may_go = world.logs, world.waited
            with contextlib.suppress(Killed, TieredStorageError):
                step(world)
            assert holes(world.archive) == []
            assert before - world.logs <= may_go
            assert before <= world.logs or len(bases(world.archive)) >= world.segments
            world.waited &= world.hidden


def holes(archive: MadeArchive) -> list[tuple[int, int]]:
    """Return the holes of the view; none while readers wait for the agent."""
    try:
        view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    except LineageUnsettled:
        return []
    return [(step.start, step.end) for step in view.plan(view.start, view.end) if isinstance(step, Hole)]
