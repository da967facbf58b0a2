"""A Java uploader writes a shorter segment over a committed one (U29): the hole is known until it is filled."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.uploader.checkpoint_files import until_they_count, written
from tests.uploader.committing.stored_segments import put_segment, shipped
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, ForeignCommit, Lineage, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.config.cluster_config import OffsetReset
from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership, Led
from ts_uploader.messages.results import Failed
from ts_uploader.messages.tasks import AnyTask, FillGap, ReadPosition, Ship, WriteCommit
from ts_uploader.tracking.tracker import Tracker

LEADERSHIP = Leadership(5, ID, 0)
OURS = Commit(100, 200, 5, EpochHistory(((5, 0),)), 200, ID, 1, 0, "ours")


class Agent:
    """A tracker and its commits, over a store and the directory of a broker that leads; segments are not shipped.

    Args:
        store: the archive's.
        local: the broker's directory.
        leadership: of the broker.
    """

    def __init__(self, store: ObjectStore, local: LocalDirectory, leadership: Leadership = LEADERSHIP) -> None:
        self.commits = CommitLog(CLUSTER, 1, lambda _: store)
        self.tracker = Tracker(OffsetReset.EARLIEST)
        self._local = local
        self.tracker.observe(Led(TP, leadership))

    def begin(self) -> ReadPosition:
        """Run the agent until its next request to the store."""
        self.tracker.observe(self._local.listing())
        (ask,) = until_they_count(self.tracker, self._local.log_dir, {(TP.topic, TP.partition): 10**6})
        assert isinstance(ask, ReadPosition)
        return ask

    def answer(self, ask: AnyTask) -> list[AnyTask]:
        """What is to be done once the store has answered."""
        assert isinstance(ask, ReadPosition)
        return self.tracker.conclude(self.commits.read(ask))

    def fail(self, task: AnyTask) -> list[AnyTask]:
        """What is to be done once a segment could not be shipped."""
        assert isinstance(task, Ship)
        reason = "no answer"
        return self.tracker.conclude(Failed(TP, task.generation, task.leadership, task.base, "Ship", reason))


@pytest.fixture
def agent(store: ObjectStore, local: LocalDirectory) -> Agent:
    """Make an agent that has read that [0, 100) and [100, 200) are committed."""
    local.segments(0, 100, 200)
    local.epochs((5, 0))
    for base in (0, 100):
        put_segment(store, base, base + 100, (5, base))
    store.put(KEYS.log_start, encode_log_start(0))
    store.put(KEYS.commit, OURS.encode())
    agent = Agent(store, local)
    assert agent.answer(agent.begin()) == []
    return agent


def write_over(store: ObjectStore, *, named: int = 0) -> None:
    """A Java uploader's broker rolled at 60; it leads no more, and its queue is uploaded all the same."""
    put_segment(store, 0, 60, (5, 0))
    store.put(KEYS.commit, b"%020d" % named)


def look_again(agent: Agent, local: LocalDirectory) -> AnyTask:
    """Make the agent read the position again: by a high watermark below the next offset."""
    offsets = {(TP.topic, TP.partition): 150}
    (ask,) = agent.tracker.observe(written(local.log_dir, offsets))
    return ask


def bases(tasks: list[AnyTask]) -> list[int]:
    return [task.base for task in tasks if isinstance(task, Ship)]


def test_u29_what_was_written_over_is_recorded_before_our_commit_hides_it(
    agent: Agent, store: ObjectStore, local: LocalDirectory
) -> None:
    """The record has the reason, and that a broker may still have the offsets; it is written and counted once, even if
    the commit then fails.
    """
    write_over(store)
    told: list[tuple[tuple[int, int], ...]] = []
    dying = CommitLog(CLUSTER, 1, lambda _: NoCommits(store), told.append)
    ask = look_again(agent, local)
    assert isinstance(ask, ReadPosition)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            dying.read(ask)
    assert read_commit(store, KEYS)[0] == ForeignCommit(0)
    assert told == [((60, 100),), ()]
    record = json.loads(store.get(KEYS.gap(60, 100))[0])
    assert "a Java uploader overwrote them with a shorter segment" in record["reason"]
    assert "a broker that still has them ships them again" in record["reason"]
    assert bases(agent.answer(ask)) == [0]
    assert isinstance(read_commit(store, KEYS)[0], Commit)


def test_u29_what_was_written_over_is_shipped_after_a_failure(
    agent: Agent, store: ObjectStore, local: LocalDirectory
) -> None:
    """An upload that fails forgets the position; the agent's own commit exists by then, and its answer has the hole."""
    write_over(store)
    (ship,) = agent.answer(look_again(agent, local))
    for _ in range(3):
        (ask,) = agent.fail(ship)
        assert read_commit(store, KEYS)[0] != ForeignCommit(0)
        (ship,) = agent.answer(ask)
        assert bases([ship]) == [0]


@pytest.mark.parametrize("epoch", [5, 6], ids=["the same leadership", "the next one"])
def test_u29_what_was_written_over_is_shipped_by_the_next_agent(
    agent: Agent, store: ObjectStore, local: LocalDirectory, epoch: int
) -> None:
    """The agent was killed after its commit and before the hole was filled; another has only the store's objects."""
    write_over(store)
    assert bases(agent.answer(look_again(agent, local))) == [0]
    local.epochs((5, 0), *([(6, 200)] if epoch == 6 else []))
    after = Agent(store, local, Leadership(epoch, ID, 0))
    (ship,) = after.answer(after.begin())
    assert isinstance(ship, Ship)
    assert ship.base == 0
    put_segment(store, 0, 100, (5, 0))
    done = replace(shipped(0, 100, (5, 0)), leadership=ship.leadership)
    done = replace(done, generation=ship.generation, lineage=ship.lineage)
    (fill,) = after.tracker.conclude(done)
    assert isinstance(fill, FillGap)
    assert (fill.gap, fill.position.next_offset) == ((60, 100), 200)


def test_u29_a_hole_is_recorded_where_the_java_uploader_names_more_than_we_hold(
    agent: Agent, store: ObjectStore, local: LocalDirectory
) -> None:
    """Our commit goes back to where the run ends, and the commit along the run is not to hide the hole."""
    local.segments(300)
    write_over(store, named=300)
    put_segment(store, 300, 400, (5, 300))
    asked = agent.commits.read(ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, OURS, 0))
    assert asked.position.next_offset == 200
    assert asked.position.lineage == Lineage(5, 200, 400)
    assert read_catalog(store, KEYS).gaps == ((60, 100),)
    run = (shipped(200, 300, (5, 200)),)
    agent.commits.write(WriteCommit(TP, 0, LEADERSHIP, asked.position, run))
    after = Agent(store, local)
    assert 0 in bases(after.answer(after.begin()))


def test_u29_nothing_is_recorded_above_where_an_election_moved_the_run_back(
    agent: Agent, store: ObjectStore, local: LocalDirectory
) -> None:
    """What is shipped there next is another line's, and no gap."""
    write_over(store)
    local.unlink(100, 200)
    local.segments(80, 90)
    local.epochs((5, 0), (6, 80))
    asked = agent.commits.read(ReadPosition(TP, 0, Leadership(6, ID, 0), local.listing(), 0, OURS, 0))
    assert asked.lost == (80, 200)
    assert read_catalog(store, KEYS).gaps == ((60, 80),)


class NoCommits(WrappedStore):
    """A store that accepts no commit: the agent is killed at that moment."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """As ever, but for the commit."""
        if key == KEYS.commit:
            raise StoreUnavailable("nobody answers")
        return super().put(key, *arguments, **named)
