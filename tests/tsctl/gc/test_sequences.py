"""Retention, undos, holds, elections, lost objects and kills in any order: readers never find a hole."""

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.made_archive import MadeArchive, batches
from tests.matrix import examples
from tests.tsctl.gc.archives import GRACE, SETTINGS, FixedRetention, keep_last, later, ship
from tests.tsctl.gc.test_kills import Killed, Killing
from ts_common.archive.catalog import read_catalog, read_snapshot
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.errors import LineageUnsettled, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.log_start import restore_log_start
from ts_uploader.messages.observations import Listing
from tsctl.gc.run import run_once, store_time
from tsctl.gc.undo import choose_undone, undo

SIZE = len(batches((0, 10)))
WHENS = ("before", "half", "after")


@dataclass
class World:
    """An archive of one partition, its policy, and whether its topic is held."""

    archive: MadeArchive
    retention: FixedRetention = field(default_factory=lambda: keep_last(3, SIZE))

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
            settled = LogStart(start.shown_from(commit.lineage), commit.lineage)
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
        keys = world.archive.keys
        run_once(store, keys, lambda _: True, world.retention, SETTINGS, store_time(store, keys))


@dataclass(frozen=True)
class Later:
    """The grace of each plan is over."""

    def __call__(self, world: World) -> None:
        later(world.archive, GRACE)


@dataclass(frozen=True)
class Keep:
    """The policy keeps so many segments."""

    segments: int

    def __call__(self, world: World) -> None:
        world.retention = replace(keep_last(self.segments, SIZE), held=world.retention.held)


@dataclass(frozen=True)
class Hold:
    """A hold is set, or removed."""

    is_set: bool

    def __call__(self, world: World) -> None:
        world.retention.held = {"t"} if self.is_set else set()


@dataclass(frozen=True)
class Undo:
    """An undo of the newest run, or of one by its place in the list, which is killed at a write of this number."""

    place: int | None = None
    kill: int | None = None

    def __call__(self, world: World) -> None:
        store: ObjectStore = world.archive.store
        keys, runs = world.archive.keys, list_runs(store, world.archive.keys)
        if runs:
            name = None if self.place is None else runs[self.place % len(runs)].run
            chosen = choose_undone(store, keys, runs, name)
            undo(store if self.kill is None else Killing(store, self.kill, "after"), keys, chosen, 0)


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
        listing = Listing(keys.partition, Path(), (0, 0), Path(), (0,), (), False, None, 0)
        restore_log_start(store, world.archive.keys, keys, world.commit, listing)


KILLS = st.none() | st.integers(0, 13)
STEPS = st.one_of(
    st.builds(Run, KILLS, st.sampled_from(WHENS)),
    st.builds(Run),
    st.just(Later()),
    st.builds(Keep, st.sampled_from([1, 2, 3, 5, 100])),
    st.builds(Hold, st.booleans()),
    st.builds(Undo, st.none() | st.integers(0, 3), st.none() | st.integers(0, 4)),
    st.builds(Elect, st.integers(0, 6), st.booleans()),
    st.builds(Ship, st.integers(1, 4)),
    st.just(LoseLogStart()),
)


@given(st.lists(STEPS, min_size=4, max_size=14))
@example([Run(), Later(), Run(kill=2, when="half"), Undo()])
@example([Run(), Elect(2, True), Undo(), Run(), Later(), Run()])
@example([Run(), LoseLogStart(), Hold(True), Later(), Run()])
@example([Run(), Later(), Run(kill=5, when="half"), Hold(True), Run(), LoseLogStart(), Hold(False), Run()])
@settings(max_examples=examples(1500, quick=25))
def test_g03_no_order_of_what_can_happen_shows_readers_a_hole(steps: list[Step]) -> None:
    """G03: after each step the view is whole, or its two objects are of different lineages and readers wait."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(MadeArchive(Path(directory) / "bucket"))
        ship(world.archive, "t", 0, 100)
        for step in steps:
            with contextlib.suppress(Killed, TieredStorageError):
                step(world)
            assert holes(world.archive) == []


def holes(archive: MadeArchive) -> list[tuple[int, int]]:
    """Return the holes of the view; none while readers wait for the agent."""
    try:
        view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    except LineageUnsettled:
        return []
    return [(step.start, step.end) for step in view.plan(view.start, view.end) if isinstance(step, Hole)]
