"""Single histories that once failed, with the model's brokers and the real agents."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from dev.simulation.memory_store import MemoryStore
from tests.histories.agents import CLUSTER, TP, Agent, Work
from tests.histories.cleaner import compact
from tests.histories.clock import Clock
from tests.histories.cluster import Cluster
from tests.histories.interrupts import installed
from tests.histories.world import directory_in_memory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import open_view
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.committing.gap_recording import record_gaps
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS

KEYS = CLUSTER.partition(TP)
_TASKS = 1_000


class Lab:
    """One cluster, an agent on each broker, and a store; only the test causes events."""

    def __init__(self, directory: Path, *rolls: int) -> None:
        self.store = MemoryStore()
        self.cluster = Cluster(directory, rolls, 2, transactional=False)
        self.clock = Clock()
        stack: list[Work] = []
        self.agents = [
            Agent(self.cluster, broker, self.store, self.clock, stack, OffsetReset.EARLIEST)
            for broker in range(len(rolls))
        ]
        self._others = ExitStack()
        self._others.enter_context(
            installed(lambda _: None, lambda _: None, self.clock, self.cluster.change_times),
        )

    def close(self) -> None:
        """Restore the host's time."""
        self._others.close()

    def produce(self, count: int) -> None:
        """Append records that all brokers have, one in each batch."""
        self.cluster.produce(Random(0), count, single=True)
        for _ in range(2):
            for broker in range(1, len(self.agents)):
                self.cluster.fetch(broker)

    def settle(self, times: int = 1) -> None:
        """Let the first agent observe everything and run all tasks; a gap needs two listings."""
        agent = self.agents[0]
        for _ in range(times):
            agent.see()
            agent.see_directory()
            for _ in range(3):  # the listing that it finds, and two others
                self.cluster.gather_high_watermark(0)
                self.cluster.write_high_watermark(0, self.clock.wall())
                agent.see_checkpoint()
            for _ in range(_TASKS):
                if not agent.tasks:
                    break
                agent.work(0)
            self.clock.tick(CHECKPOINT_SECONDS)

    def next_offset(self) -> int:
        """Return the commit's next offset."""
        commit, _ = read_commit(self.store, KEYS)
        assert isinstance(commit, Commit)
        return commit.next_offset

    def plan(self) -> list[ReadRange | Hole]:
        """Return the records of the whole view."""
        view = open_view(self.store, read_catalog(self.store, KEYS))
        return list(view.plan(view.start, view.end))


@pytest.fixture
def labs() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def lab_of(labs: ExitStack, *rolls: int) -> Lab:
    lab = Lab(Path(labs.enter_context(TemporaryDirectory(dir=directory_in_memory()))), *rolls)
    labs.callback(lab.close)
    return lab


@pytest.mark.parametrize("again", ["the agent", "the leadership"])
def test_u39_what_retention_renamed_before_is_shipped(labs: ExitStack, again: str) -> None:
    """The store was unavailable, retention renamed the backlog, then the agent restarted or the epoch rose."""
    lab = lab_of(labs, 3, 3)
    lab.produce(7)
    lab.settle()
    assert lab.next_offset() == 6
    lab.produce(30)
    leader = lab.cluster.brokers[0]
    leader.expire(6)
    leader.finish()
    if again == "the agent":
        lab.agents[0].restart()
    else:
        lab.cluster.elect(0)
        lab.cluster.begin_leading()
    lab.settle(2)
    assert lab.next_offset() == 36
    assert not any(isinstance(step, Hole) for step in lab.plan())
    assert read_catalog(lab.store, KEYS).gaps == ()


def test_a_damaged_object_far_below_stops_no_gap(labs: ExitStack) -> None:
    """A Java uploader's object without metadata and with invalid content affects nothing but itself."""
    lab = lab_of(labs, 3, 3)
    lab.produce(12)
    lab.settle()
    lab.store.put(KEYS.segment(SegmentName(1)), b"\xff" * 4096)
    lab.produce(30)
    leader = lab.cluster.brokers[0]
    leader.expire(8)
    leader.finish()
    leader.unlink(everything=True)
    lab.settle(3)
    assert lab.next_offset() == 39
    assert read_catalog(lab.store, KEYS).gaps == ((9, 24),)


def test_a_gap_that_was_filled_is_not_filled_again(labs: ExitStack) -> None:
    """The cleaner rewrites its segments between two processes of the agent, and live copies already cover it."""
    lab = lab_of(labs, 8, 8)
    lab.produce(41)
    lab.settle()
    record_gaps(lab.store, KEYS, [(0, 32)], "as a Java uploader's shorter segments left it", 1)

    def logs() -> int:
        return sum(info.key.endswith(".log") for info in lab.store.list(KEYS.prefix))

    before = logs()
    for seed in range(12):
        compact(lab.cluster.brokers[0], Random(seed))
        lab.cluster.brokers[0].finish()
        lab.agents[0].restart()
        lab.settle()
    assert logs() == before
