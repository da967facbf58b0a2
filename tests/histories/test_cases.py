"""Single histories that once went wrong, as the model's brokers and the real agents play them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.histories.beside import KEYS, Agent, Clock, FaultyStore, directory_in_memory, rows
from tests.histories.model import Cluster
from ts_common.catalog import read_catalog, read_commit
from ts_common.commit import Commit
from ts_common.object_keys import SegmentName
from ts_common.plan import Hole
from ts_common.store.factory import open_store
from ts_uploader.gaps import record_gaps
from ts_uploader.tracker import CHECKPOINT_SECONDS


class Lab:
    """One cluster, an agent beside each broker, and a store."""

    def __init__(self, directory: Path, *rolls: int) -> None:
        (directory / "store").mkdir()
        self.store = FaultyStore(open_store((directory / "store").as_uri()))
        self.cluster = Cluster(directory, rolls)
        self.clock = Clock()
        self.agents = [Agent(self.cluster, broker, self.store, self.clock) for broker in range(len(rolls))]

    def produce(self, count: int) -> None:
        self.cluster.produce(count)
        for broker in range(1, len(self.agents)):
            self.cluster.replicate(broker)

    def settle(self, times: int = 1) -> None:
        """The first agent sees and does all; a gap takes two looks."""
        for _ in range(times):
            self.agents[0].settle()
            self.clock.tick(CHECKPOINT_SECONDS)

    def next_offset(self) -> int:
        commit, _ = read_commit(self.store, KEYS)
        assert isinstance(commit, Commit)
        return commit.next_offset

    def seen(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The offsets and the holes that readers are shown."""
        found = list(rows(self.store))
        holes = [(row.start, row.end) for row in found if isinstance(row, Hole)]
        return [row[0] for row in found if not isinstance(row, Hole)], holes


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=directory_in_memory()) as found:
        yield Path(found)


@pytest.mark.parametrize("again", ["the agent", "the leadership"])
def test_u39_what_retention_renamed_before_is_shipped(directory: Path, again: str) -> None:
    """The store was away, retention renamed what waits, then the agent was restarted or the epoch rose."""
    lab = Lab(directory, 3, 3)
    lab.produce(7)
    lab.settle()
    assert lab.next_offset() == 6
    lab.produce(30)
    lab.cluster.brokers[0].expire(6)
    if again == "the agent":
        lab.agents[0].restart()
    else:
        lab.cluster.elect(0, unclean=False)
    lab.settle(2)
    assert lab.seen() == (list(range(36)), [])
    assert read_catalog(lab.store, KEYS).gaps == ()


def test_a_damaged_object_far_below_stops_no_gap(directory: Path) -> None:
    """A Java uploader's object without metadata, and its bytes are none of a log: it bears on nothing but itself."""
    lab = Lab(directory, 3, 3)
    lab.produce(12)
    lab.settle()
    lab.store.put(KEYS.segment(SegmentName(1)), b"\xff" * 4096)
    lab.produce(30)
    lab.cluster.brokers[0].expire(8)
    lab.cluster.brokers[0].unlink()
    lab.settle(3)
    assert lab.next_offset() == 39
    assert read_catalog(lab.store, KEYS).gaps == ((9, 24),)


def test_a_gap_that_was_filled_is_not_filled_again(directory: Path) -> None:
    """The cleaner rewrites what lies in it between two lives of the agent, and living copies cover it already."""
    lab = Lab(directory, 8, 8)
    lab.produce(41)
    lab.settle()
    record_gaps(lab.store, KEYS, [(0, 32)], "as a Java uploader's shorter segments left it", 1)

    def logs() -> int:
        return sum(info.key.endswith(".log") for info in lab.store.list(KEYS.prefix))

    before = logs()
    for keep in range(3):
        for segment in range(4):
            lab.cluster.brokers[0].compact(segment, keep, merge=False)
        lab.agents[0].restart()
        lab.settle()
    assert logs() == before
