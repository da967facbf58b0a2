"""Thousands of histories of elections, truncation, compaction, retention, crashes and store faults.

The tracker, the uploader and the commit log are the real ones, the store is a real one (a directory), the segments are
real bytes; only brokers, time and threads are a model. While no election lost anything, readers see at every step
exactly a prefix of the line; after one, as soon as the agents have come to rest.
"""

import logging
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.histories.beside import KEYS, Agent, Clock, FaultyStore, body_of, directory_in_memory, rows
from tests.histories.model import Cluster
from ts_common.catalog import read_commit
from ts_common.commit import Commit
from ts_common.epochs import EpochLine
from ts_common.plan import Hole
from ts_common.store.factory import open_store

ROLLS = (3, 4, 7)
BROKER_IDS = range(len(ROLLS))
BROKERS = st.sampled_from(BROKER_IDS)
INDEX = st.integers(0, 7)


class Histories(RuleBasedStateMachine):
    """One partition on three brokers that roll at different sizes, with an agent beside each."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="histories-", dir=directory_in_memory()))
        (self.directory / "store").mkdir()
        self.store = FaultyStore(open_store((self.directory / "store").as_uri()))
        self.cluster = Cluster(self.directory, ROLLS)
        clock = Clock()
        self.agents = [Agent(self.cluster, broker, self.store, clock) for broker in BROKER_IDS]
        self.furthest = (-1, -1)
        self.checked: str | None = None
        self.lines: list[EpochLine] = []  # what commits said since the last election that lost something

    def teardown(self) -> None:
        """Everyone comes to rest: all that the last leader holds is there, and nothing else."""
        try:
            self.come_to_rest()
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    @rule(count=st.integers(1, 12), behind=st.none() | BROKERS)
    def produce(self, count: int, behind: int | None) -> None:
        self.cluster.produce(count)
        for broker in BROKER_IDS:
            if broker != behind:
                self.cluster.replicate(broker)

    @rule(broker=BROKERS)
    def elect(self, broker: int) -> None:
        self.cluster.elect(broker, unclean=False)

    @rule(broker=BROKERS, behind=BROKERS)
    def lose_records(self, broker: int, behind: int) -> None:
        self.cluster.lag(behind)
        self.cluster.produce(3)
        self.cluster.elect(broker, unclean=True)
        if self.cluster.lossy == self.cluster.epoch:
            self.lines.clear()

    @rule(broker=BROKERS, count=st.integers(1, 3), unlink=st.booleans())
    def retention(self, broker: int, count: int, unlink: bool) -> None:
        self.cluster.brokers[broker].expire(count)
        if unlink:
            self.cluster.brokers[broker].unlink()

    @rule(broker=BROKERS, index=INDEX, keep=st.integers(0, 3), merge=st.booleans())
    def compact(self, broker: int, index: int, keep: int, merge: bool) -> None:
        self.cluster.compacted |= set(self.cluster.brokers[broker].compact(index, keep, merge=merge))

    @rule(broker=BROKERS, what=st.sampled_from(["leadership", "directory", "checkpoint"]))
    def see(self, broker: int, what: str) -> None:
        getattr(self.agents[broker], f"see_{what}")()

    @rule(index=INDEX, count=st.integers(0, 12))
    def the_leader_sees_everything_and_works(self, index: int, count: int) -> None:
        agent = self.agents[self.cluster.leader]
        agent.see_leadership()
        agent.see_directory()
        agent.see_checkpoint()
        for _ in range(count):
            agent.work(index)

    @rule(broker=BROKERS, index=INDEX, count=st.integers(1, 12))
    def one_that_was_asleep_works(self, broker: int, index: int, count: int) -> None:
        """It sees its files, and nothing of who leads by now."""
        agent = self.agents[broker]
        agent.see_directory()
        agent.see_checkpoint()
        for _ in range(count):
            agent.work(index)

    @rule(broker=BROKERS, index=INDEX, count=st.integers(1, 6))
    def work(self, broker: int, index: int, count: int) -> None:
        for _ in range(count):
            self.agents[broker].work(index)

    @rule(
        broker=BROKERS, what=st.sampled_from(["lag", "wipe", "renames begin", "renames end", "crash", "die in a task"])
    )
    def disturb(self, broker: int, what: str) -> None:
        match what:
            case "lag":
                self.cluster.lag(broker)
            case "wipe":
                self.cluster.wipe(broker)
            case "renames begin":
                self.cluster.brokers[broker].renames_begin()
            case "renames end":
                self.cluster.brokers[broker].renames_end()
            case "crash":
                self.agents[broker].restart()
            case _:
                self.agents[broker].work(0, forget=True)

    @rule(faults=st.lists(st.sampled_from(["refused", "lost answer", "none"]), max_size=4))
    def the_store_fails(self, faults: list[str]) -> None:
        self.store.next_puts = faults

    @precondition(lambda self: self.cluster.lossy is None)
    @rule()
    def come_to_rest(self) -> None:
        self.store.next_puts = []
        for replica in self.cluster.brokers:
            replica.renames_end()
        for broker in BROKER_IDS:
            self.cluster.replicate(broker)
        for agent in self.agents:
            agent.settle()
        # A segment whose neighbour went into it waits until the cleaner's `.deleted` files are gone (protocol rule 2).
        for replica, agent in zip(self.cluster.brokers, self.agents, strict=True):
            replica.unlink()
            agent.settle()
            assert not agent.tasks, f"the agent never comes to rest: {agent.tasks}"
        leader = self.cluster.brokers[self.cluster.leader]
        commit, _ = read_commit(self.store, KEYS)
        # With one segment only, retention may have taken all others before the archive began.
        assert isinstance(commit, Commit) or len(leader.bases) == 1
        if isinstance(commit, Commit):
            # Another broker's closed segment may reach beyond where this one's active segment begins.
            assert leader.bases[-1] <= commit.next_offset <= leader.high_watermark
        self.check_view(closed=range(leader.start, leader.bases[-1]))

    @invariant()
    def the_commit_never_goes_back(self) -> None:
        commit, etag = read_commit(self.store, KEYS)
        if isinstance(commit, Commit) and etag != self.checked:
            assert (commit.epoch, commit.next_offset) >= self.furthest
            self.furthest = (commit.epoch, commit.next_offset)
            self.checked = etag
            lossy = self.cluster.lossy
            if lossy is not None and commit.epoch >= lossy:
                self.lines.append(commit.epochs)
            if lossy is None:
                self.check_view(closed=range(0))

    def nobody_knows(self, offset: int, epoch: int) -> bool:
        """Retention cuts a broker's epochs too, and a follower learns of an epoch with the first batch that compaction
        left: of what an election lost where the leader itself does not know, only commits tell.
        """
        leader = self.cluster.brokers[self.cluster.leader]
        ignorant = offset < leader.start or (EpochLine(tuple(leader.epochs)).at(offset) or 0) <= epoch
        known = any((line.at(offset) or 0) > epoch for line in self.lines)
        return self.cluster.lossy is not None and ignorant and not known

    def check_view(self, closed: range) -> None:
        """Every row is the line's; what is not shown was compacted, or is a recorded gap that no segment here fills."""
        line, compacted = self.cluster.line, self.cluster.compacted
        expected = None
        for row in rows(self.store):
            if isinstance(row, Hole):
                assert row.recorded, f"nothing answers for {row}"
                assert row.start not in closed, f"{row} is held by the leader"
                expected = row.end
                continue
            offset, epoch, body = row
            assert body == body_of(line[offset]) or self.nobody_knows(offset, epoch), f"{offset} is not the line's"
            missing = set(range(expected, offset)) - compacted if expected is not None else set()
            assert not missing, f"offsets {missing} are lost"
            expected = offset + 1


@pytest.mark.parametrize("histories", [100, pytest.param(5_000, marks=(pytest.mark.full, pytest.mark.timeout(3600)))])
def test_whatever_happens_readers_see_the_living_line(histories: int) -> None:
    """Elections, truncation, compaction, retention, crashes, store faults: no history loses or doubles a record."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        run_state_machine_as_test(
            Histories,
            settings=settings(
                max_examples=histories,
                stateful_step_count=100,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    finally:
        structlog.reset_defaults()
