"""The rounds of a shipper over made logs: what a pack has, and what each fault of the store leaves."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from awscrt.checksums import crc32c
from structlog.testing import capture_logs

from dev.local.waiting import wait_for
from tests.common.log_format.build import batch, record
from tests.uploader.tail.test_live_log import begin
from tests.uploader.tail.test_pack_log import Clock
from ts_common.archive import tail_logs
from ts_common.archive.commit import Commit, Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, pack_name
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_logs import TailLogs, read_indexes
from ts_common.archive.tail_pack import PackHead, encode_pack
from ts_common.broker_connection.connection import NoAnswer
from ts_common.errors import AccessDenied, ConfigurationError, OutcomeUnknown, StoreUnavailable, TieredStorageError
from ts_common.log_format.framing import batch_field_position
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.messages.observations import Answered, EarlyRequest, EpochFile, FormerCovered, LastEpoch, Listing
from ts_uploader.messages.tasks import Position
from ts_uploader.metrics.counters import Metrics
from ts_uploader.tail import adoption, merging, shipper, upkeep
from ts_uploader.tail.led_partitions import LedPartitions
from ts_uploader.tail.live_log import LiveLog
from ts_uploader.tail.needed import Needed
from ts_uploader.tail.pack_log import GRACE_SECONDS, PackLog
from ts_uploader.tail.shipper import Sources, TailShipper
from ts_uploader.tail.upkeep import Upkeep
from ts_uploader.tracking.backlog import Backlog

KEYS = ClusterKeys("prod")
EPOCH = 7


@dataclass
class Broker:
    """A broker that leads partitions: their logs, their high watermarks, and the commits of its agent."""

    log_dir: Path
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    backlog: dict[TopicPartition, Backlog] = field(default_factory=dict)
    unsupported: bool = False
    denied: set[str] = field(default_factory=set)
    answered: dict[TopicPartition, int] = field(default_factory=dict)

    def lead(self, topic: str, next_offset: int | None = 0, former: tuple[tuple[str, int], ...] = ()) -> TopicPartition:
        """Begin a partition; without a next offset its position is not read yet."""
        partition = TopicPartition(topic, 0)
        directory = self.log_dir / str(partition)
        if not directory.exists():
            directory.mkdir()
            begin(directory, (5, 0), (EPOCH, 3))
        last_epoch, status = LastEpoch(EpochFile.READ, EPOCH), directory.stat()
        listing = Listing(partition, (status.st_dev, status.st_ino), self.log_dir, (0,), (), False, None, 0, last_epoch)
        position = None
        if next_offset is not None:
            live = Live("1", former, EpochHistory(((5, 0), (EPOCH, 3))))
            commit = Commit(0, next_offset, EPOCH, EpochHistory(), None, None, 1, 0, "", live=live)
            keys = KEYS.partition(partition)
            position = Position(keys, 0, next_offset, None, EpochHistory(), "e", commit)
        known = Backlog(listing, None, 0, None, next_offset, hole=False, wait=None, position=position)
        self.backlog = {**self.backlog, partition: known}
        self.ends.setdefault(partition, 0)
        return partition

    def append(self, partition: TopicPartition, count: int, size: int = 1) -> None:
        """Append records, each in a batch of its own, below the high watermark."""
        with (self.log_dir / str(partition) / f"{0:020d}.log").open("ab") as file:
            for offset in range(self.ends[partition], self.ends[partition] + count):
                epoch = EPOCH if offset >= 3 else 5
                file.write(batch(offset, [record(0, value=b"%09d" % offset * size)], epoch=epoch))
        self.ends[partition] += count

    def request(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the high watermarks that differ from the last call's."""
        if self.unsupported:
            raise ConfigurationError("the agent", ["SASL GSSAPI is not supported"])
        found = {
            each: end
            for each, end in self.ends.items()
            if each in leader_epochs and each.topic not in self.denied and self.answered.get(each) != end
        }
        self.answered |= found
        return found

    def close(self) -> None:
        """Nothing runs."""


class Faulty(WrappedStore):
    """Fails one of its requests: before it, or with its response lost."""

    def __init__(self, inner: ObjectStore, at: int = -1, *, lands: bool = False) -> None:
        super().__init__(inner, threads=1)
        self.requests, self.at, self.lands = 0, at, lands

    def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
        """Fail if it is its turn."""
        if self._fails():
            if self.lands:
                super().put(*arguments, **named)
                raise OutcomeUnknown("no response")
            raise StoreUnavailable("no route to host")
        return super().put(*arguments, **named)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Fail if it is its turn."""
        if self._fails():
            raise StoreUnavailable("no route to host")
        return super().list(prefix, start_after=start_after)

    def delete(self, keys: Iterable[str]) -> None:
        """Deny it."""
        raise AccessDenied("DeleteObject is denied")

    def _fails(self) -> bool:
        self.requests += 1
        return self.requests - 1 == self.at


@dataclass
class Agent:
    """A shipper, and what it offers to the main loop."""

    broker: Broker
    store: ObjectStore
    rate: int | None = None
    offered: list[object] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        sources = Sources(lambda: self.broker.backlog, lambda _: True, self.offered.append, lambda: self.rate, 0.2)
        packs = PackLog(self.store, KEYS, "1")
        upkeep = Upkeep(packs, self.store, KEYS, self.metrics)
        self.shipper = TailShipper(packs, self.store, KEYS, self.broker, sources, self.metrics, upkeep)

    def ship(self) -> None:
        """Run rounds until nothing waits; errors are repeated, as in `run`."""
        for _ in range(40):
            try:
                size, more = self.shipper.ship()
            except TieredStorageError as error:
                self.shipper._fail(error)
            else:
                self.shipper._failing = ""
                if not size and not more:
                    return
        raise AssertionError(self.shipper.state)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with open_store((tmp_path / "store").as_uri()) as opened:
        yield opened


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    (tmp_path / "store").mkdir()
    (tmp_path / "log").mkdir()
    return Broker(tmp_path / "log")


def shown(store: ObjectStore, broker: Broker, partition: TopicPartition) -> bytes:
    """Return the bytes of the chain of a partition's commit."""
    position = broker.backlog[partition].position
    assert position is not None
    assert isinstance(position.commit, Commit)
    chain = TailLogs(store, KEYS).chain(position.keys, position.commit)
    data = b""
    for link in chain.links:
        content = store.get(KEYS.tail(link.log) + link.entry.object)[0]
        data += content[link.entry.position : link.entry.position + link.entry.length]
        assert (link.start, link.end) == (link.entry.start, link.entry.end)
    return data


def bounds_of(store: ObjectStore, partition: TopicPartition) -> list[tuple[int, int]]:
    """Return the offsets of the entries of a partition."""
    rows = [row for index in read_indexes(store, KEYS, "1") for row in index.entries()]
    return sorted((row.start, row.end) for row in rows if row.directory == str(partition))


def logged(broker: Broker, partition: TopicPartition) -> bytes:
    return (broker.log_dir / str(partition) / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("at", range(9))
def test_each_record_is_in_the_chain_once_whatever_request_fails(
    store: ObjectStore, broker: Broker, at: int, lands: bool, dies: bool
) -> None:
    """Also if the response to a put was lost, and its pack is there; the process continues, or is killed by it."""
    first, second = broker.lead("a"), broker.lead("b")
    faulty = Faulty(store, at, lands=lands)
    agent = Agent(broker, faulty)
    for count in (1, 5, 2):
        broker.append(first, count)
        broker.append(second, 3)
        try:
            agent.shipper.ship()
        except TieredStorageError as error:
            agent.shipper._fail(error)
            if dies:
                broker.answered.clear()
                agent = Agent(broker, faulty)
        agent.ship()
    for partition in (first, second):
        assert shown(store, broker, partition) == logged(broker, partition)
        bounds = bounds_of(store, partition)
        assert [start for start, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
    assert agent.shipper.state.lag_seconds == 0


@pytest.mark.parametrize("lands", [False, True])
def test_a_put_that_fails_makes_no_log_be_searched_again(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    """Each search reads the headers of up to a whole file: of many partitions that would last minutes."""
    searched: list[int] = []
    found = LiveLog._found

    def search(log: LiveLog, start: int) -> object:
        searched.append(start)
        return found(log, start)

    monkeypatch.setattr(LiveLog, "_found", search)
    partition = broker.lead("a")
    faulty = Faulty(store, lands=lands)
    agent = Agent(broker, faulty)
    broker.append(partition, 2)
    agent.ship()
    faulty.requests, faulty.at = 0, 0
    broker.append(partition, 2)
    agent.ship()
    assert faulty.requests > 1
    broker.append(partition, 1)
    agent.ship()
    assert shown(store, broker, partition) == logged(broker, partition)
    assert searched == [0]


@pytest.mark.parametrize("which", ["main thread", "broker"])
def test_an_answer_that_is_missing_costs_no_request_to_the_store(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """What the store has is known as before: the next round continues, and reads no log and no chain."""
    partition, reads = broker.lead("a"), list[str]()
    agent = Agent(broker, store)
    broker.append(partition, 2)
    agent.ship()
    monkeypatch.setattr(tail_logs, "_index", lambda *named: reads.append(named[-1]))

    def times_out(_: object = None) -> NoReturn:
        raise TimeoutError("no answer")

    broker.append(partition, 2)
    with monkeypatch.context() as patched:
        if which == "broker":
            patched.setattr(agent.broker, "request", times_out)
        else:
            patched.setattr(agent.shipper, "_sources", replace(agent.shipper._sources, backlog=times_out))
        for _ in range(3):
            with pytest.raises(TimeoutError) as raised:
                agent.shipper.ship()
            agent.shipper._fail(raised.value)
    assert agent.shipper.state.failing == "TimeoutError: no answer"
    agent.ship()
    assert reads == []
    monkeypatch.undo()
    assert shown(store, broker, partition) == logged(broker, partition)
    assert bounds_of(store, partition) == [(0, 2), (2, 4)]


def test_a_partition_that_would_fill_the_index_waits_and_no_other_does(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segments do not close. Once its commit moves on, and a grace later, it continues."""
    monkeypatch.setattr(upkeep._Work, "begin", lambda _, run, take: take(run()))
    for name, value in {"_CROWDED": 20, "_MOST_ENTRIES": 15}.items():
        monkeypatch.setattr(upkeep, name, value)
    for name, value in {"PACKS": 2, "_ALIKE": 2, "_FEWER": 2, "_LARGE_BYTES": 400}.items():
        monkeypatch.setattr(merging, name, value)
    stuck, other = broker.lead("stuck"), broker.lead("other")
    agent = Agent(broker, store)
    for _ in range(60):
        broker.append(stuck, 1, size=50)  # entries that no merge joins
        broker.append(other, 1)
        agent.ship()
    assert shown(store, broker, other) == logged(broker, other)
    held = len(bounds_of(store, stuck))
    assert 15 < held < 25
    state = agent.shipper.state
    assert state.unmerged.startswith(f"stuck-0 has {held} entries, and gets no more until its segments close: ")
    assert state.lag_seconds > 0
    broker.lead("stuck", next_offset=60)
    agent.ship()
    monkeypatch.setattr(
        agent.shipper._upkeep._needed, "at_once", lambda _: lambda row: row.end > 60 or row.directory != str(stuck)
    )
    for _ in range(8):
        broker.append(stuck, 1, size=50)
        broker.append(other, 1)
        agent.ship()
    assert agent.shipper.state.unmerged == ""
    assert bounds_of(store, stuck)[-1][1] == 68


def test_a_pack_waits_for_no_partition_whose_search_is_long(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second it has what was read, and the next round continues."""
    monkeypatch.setattr(shipper, "_READING_SECONDS", -1.0)
    partitions = [broker.lead(topic) for topic in "ab"]
    for partition in partitions:
        broker.append(partition, 2)
    agent = Agent(broker, store)
    assert agent.shipper.ship()[1]
    assert sorted(len(bounds_of(store, each)) for each in partitions) == [0, 1]
    agent.ship()
    for partition in partitions:
        assert shown(store, broker, partition) == logged(broker, partition)


def test_a_broker_that_does_not_answer_makes_the_tail_late(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it acknowledged since is unknown: without a lag no alert would show it."""
    partition = broker.lead("a")
    broker.append(partition, 2)
    agent = Agent(broker, store)
    agent.ship()
    assert agent.shipper.state.lag_seconds == 0

    def away(_: object) -> NoReturn:
        raise NoAnswer("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(agent.broker, "request", away)
        with pytest.raises(NoAnswer) as raised:
            agent.shipper.ship()
        agent.shipper._fail(raised.value)
        agent.shipper._failing_since -= 100.0
    assert agent.shipper.state.lag_seconds >= 100


def test_a_round_that_hangs_makes_the_tail_late(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk or a store never answers, and nothing is known to wait."""
    broker.lead("a")
    agent, lags = Agent(broker, store), list[float]()

    def hang(_: object) -> Mapping[TopicPartition, int]:
        with monkeypatch.context() as patched:
            patched.setattr(shipper, "time", SimpleNamespace(monotonic=Clock(time.monotonic() + 100.0)))
            lags.append(agent.shipper.state.lag_seconds)
        agent.shipper.close()
        return {}

    monkeypatch.setattr(agent.broker, "request", hang)
    agent.shipper.run()
    assert lags[0] >= 100
    assert agent.shipper.state.lag_seconds == 0


def test_an_agent_that_starts_again_continues_where_its_log_ends(store: ObjectStore, broker: Broker) -> None:
    """It ships nothing twice."""
    partition = broker.lead("a")
    broker.append(partition, 4)
    Agent(broker, store).ship()
    broker.answered.clear()
    again = Agent(broker, store)
    again.ship()
    broker.append(partition, 2)
    again.ship()
    assert shown(store, broker, partition) == logged(broker, partition)
    assert bounds_of(store, partition) == [(0, 4), (4, 6)]


@pytest.mark.parametrize("end", [8, 10, 12])
def test_u48_a_log_that_lost_its_end_within_the_epoch_is_not_joined_to_what_was_shipped(
    store: ObjectStore, broker: Broker, end: int
) -> None:
    """A lone broker lost power: it returns with other records at the same offsets, and no new leader epoch."""
    partition = broker.lead("a")
    broker.append(partition, 10)
    Agent(broker, store).ship()
    path = broker.log_dir / str(partition) / f"{0:020d}.log"
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    broker.ends[partition] = 5
    broker.append(partition, end - 5, size=2)
    broker.answered.clear()
    agent = Agent(broker, store)
    with capture_logs() as logs:
        agent.ship()
        broker.append(partition, 12 - end)
        agent.shipper._again.clear()
        agent.ship()
    assert shown(store, broker, partition) == before
    wait_for(lambda: agent.shipper.state.lag_seconds, "a lag of a millisecond")
    assert "tail_records_lost" in {line["event"] for line in logs if line["log_level"] == "error"}
    broker.lead("a", next_offset=10)
    agent.shipper._again.clear()
    agent.ship()
    assert bounds_of(store, partition)[-1] == (10, 12)
    assert agent.shipper.state.lag_seconds == 0


def test_a_commit_above_the_end_moves_the_tail_on(store: ObjectStore, broker: Broker) -> None:
    """Segments below the next offset are shipped by other threads; the tail begins above them."""
    partition = broker.lead("a")
    agent = Agent(broker, store)
    broker.append(partition, 1)
    agent.ship()
    broker.append(partition, 6)
    broker.lead("a", 4)
    agent.ship()
    assert bounds_of(store, partition) == [(0, 1), (4, 7)]


def test_a_rebuilt_commit_makes_the_agent_ship_what_former_leaderships_had(store: ObjectStore, broker: Broker) -> None:
    """It names none of them, so the chain ends at the next offset, and own entries begin further on."""
    partition = broker.lead("a", 0, (("2", 5),))
    broker.append(partition, 3)
    data = logged(broker, partition)
    former = PackLog(store, KEYS, "2")
    former.read()
    former.put(1, [TailEntry("a-0", 5, 0, 3, "", 0, len(data), crc32c(data), ((5, 0),), 3, (), 3, None)], [data])
    agent = Agent(broker, store)
    broker.append(partition, 3)
    agent.ship()
    assert bounds_of(store, partition) == [(3, 6)]
    assert shown(store, broker, partition) == logged(broker, partition)
    broker.lead("a", 0)
    broker.append(partition, 1)
    agent.ship()
    assert shown(store, broker, partition) == logged(broker, partition)


def test_a_merge_keeps_what_the_newest_commit_needs(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the partition had no commit a grace ago, while another broker led it."""
    monkeypatch.setattr(merging, "PACKS", 1)
    monkeypatch.setattr(upkeep._Work, "begin", lambda _, run, take: take(run()))
    clock = Clock()
    needed = Needed("1", clock)
    needed.note("a-0", None)
    clock.now += GRACE_SECONDS
    partition = broker.lead("a")
    agent = Agent(broker, store)
    monkeypatch.setattr(agent.shipper._upkeep, "_needed", needed)
    for _ in range(3):
        broker.append(partition, 1)
        agent.ship()
    assert any(info.key.startswith(KEYS.tail("1") + "merged/") for info in store.list(KEYS.tail("1")))
    assert shown(store, broker, partition) == logged(broker, partition)


def test_the_oldest_records_are_first_and_a_partition_at_its_beginning_delays_none(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack is full at its limit; a part of it is all that partitions at their beginning can have."""
    monkeypatch.setattr(shipper, "_PACK_BYTES", 1000)
    monkeypatch.setattr(shipper, "_BEGINNING_BYTES", 300)
    agent = Agent(broker, store)
    old, new = broker.lead("old"), broker.lead("new")
    broker.append(old, 1)
    agent.ship()
    begins = broker.lead("begins")
    broker.append(begins, 100)
    broker.append(old, 2)
    assert agent.shipper.ship()[1]
    assert shown(store, broker, old) == logged(broker, old)
    assert 0 < len(shown(store, broker, begins)) < 400
    broker.append(new, 1)
    assert agent.shipper.ship()[1]
    assert shown(store, broker, new) == logged(broker, new)
    broker.append(old, 1)
    with monkeypatch.context() as full:
        full.setattr(shipper, "_PACK_BYTES", 0)
        agent.shipper.ship()
        broker.append(new, 1)
        agent.shipper.ship()
        full.setattr(shipper, "_PACK_BYTES", 1)
        agent.shipper.ship()
    assert shown(store, broker, old) == logged(broker, old)
    assert shown(store, broker, new) != logged(broker, new)
    assert agent.shipper.state.beginning == 1
    agent.ship()
    assert shown(store, broker, begins) == logged(broker, begins)
    assert agent.shipper.state.beginning == 0


def test_a_rate_is_kept_by_waiting_after_a_pack(store: ObjectStore, broker: Broker) -> None:
    """Readers see an earlier end meanwhile."""
    agent = Agent(broker, store, rate=1000)
    assert agent.shipper._wait(500, more=False) == 0.5
    assert agent.shipper._wait(5, more=False) == 0.2
    assert agent.shipper._wait(5, more=True) == 0.005
    agent.rate = None
    assert agent.shipper._wait(1 << 20, more=True) == 0


def test_a_partition_without_an_own_commit_is_reported_and_not_shipped(store: ObjectStore, broker: Broker) -> None:
    """The broker's answer counts as its high watermark; one that is written to is read before its turn."""
    partition = broker.lead("a", None)
    broker.append(partition, 4)
    agent = Agent(broker, store)
    agent.ship()
    identity = broker.backlog[partition].listing.identity
    assert agent.offered == [Answered(partition, EPOCH, identity, 4)]
    broker.append(partition, 1)
    agent.ship()
    assert agent.offered[2:] == [EarlyRequest({partition})]
    assert list(store.list(KEYS.tail("1"))) == []
    broker.lead("a")
    agent.ship()
    assert shown(store, broker, partition) == logged(broker, partition)


def test_without_access_to_the_broker_its_checkpoints_count(store: ObjectStore, broker: Broker) -> None:
    """And the state has the reason."""
    partition = broker.lead("a")
    broker.append(partition, 4)
    broker.backlog = {partition: replace(broker.backlog[partition], high_watermark=3)}
    broker.unsupported = True
    agent = Agent(broker, store)
    agent.ship()
    assert shown(store, broker, partition) == logged(broker, partition)[: len(logged(broker, partition)) * 3 // 4]
    assert "GSSAPI" in agent.shipper.state.denied


def test_the_checkpoint_counts_for_a_topic_that_the_broker_denies(store: ObjectStore, broker: Broker) -> None:
    """The others are as current as before, and the state names the topic."""
    denied, other = broker.lead("denied"), broker.lead("other")
    for partition in (denied, other):
        broker.append(partition, 4)
        broker.backlog[partition] = replace(broker.backlog[partition], high_watermark=3)
    broker.denied = {"denied"}
    agent = Agent(broker, store)
    agent.ship()
    assert shown(store, broker, denied) == logged(broker, denied)[: len(logged(broker, denied)) * 3 // 4]
    assert shown(store, broker, other) == logged(broker, other)
    assert agent.offered == []
    assert agent.shipper.state.denied == "the broker denies this identity DESCRIBE of denied"


def test_a_topic_is_shipped_while_it_is_selected(broker: Broker) -> None:
    """Also if only its high watermark changes after another selection."""
    selected: set[str] = set()
    led = LedPartitions("1", selected.__contains__)
    partition = broker.lead("a")
    for number, is_selected in enumerate((False, True, False, True)):
        (selected.add if is_selected else selected.discard)("a")
        led.update({partition: replace(broker.backlog[partition], high_watermark=number)}, 0.0)
        assert [each.partition for each in led] == [partition] * is_selected


@pytest.mark.parametrize("position", [-1, batch_field_position("leader_epoch")])
def test_a_damaged_batch_stops_one_partition_only(store: ObjectStore, broker: Broker, position: int) -> None:
    """It is counted, and read again later; also if its CRC-32C does not cover the byte."""
    good, bad = broker.lead("good"), broker.lead("bad")
    broker.append(good, 2)
    broker.append(bad, 2)
    path = broker.log_dir / str(bad) / f"{0:020d}.log"
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 0xFF
    path.write_bytes(damaged)
    agent = Agent(broker, store)
    agent.ship()
    assert shown(store, broker, good) == logged(broker, good)
    assert shown(store, broker, bad) == b""
    assert agent.metrics.registry.get_sample_value(
        "ts_uploader_errors_total", {"operation": "ShipTail", "reason": "corrupt_data"}
    )


@pytest.mark.parametrize("fault", ["batch", "checkpoint"])
def test_a_partition_whose_log_cannot_be_read_from_the_beginning_is_late(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It does not get nearer to its end: without a lag the agent would look well."""
    partition = broker.lead("a")
    broker.append(partition, 5)
    if fault == "batch":
        path = broker.log_dir / str(partition) / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    else:
        monkeypatch.setattr(shipper, "_CHANGING_SECONDS", -1.0)
        (broker.log_dir / str(partition) / "leader-epoch-checkpoint").write_text("0\n1\n5 0\n")
    agent = Agent(broker, store)
    agent.ship()
    wait_for(lambda: agent.shipper.state.lag_seconds, "a lag of a millisecond")
    assert agent.shipper.state.beginning == 0


def test_a_log_that_stays_damaged_begins_again_at_the_next_offsets(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries cannot be read by any process; the records are still on the broker."""
    monkeypatch.setattr(shipper, "_ANEW_AFTER", 3)
    partition = broker.lead("a")
    broker.append(partition, 4)
    Agent(broker, store).ship()
    (pack,) = store.list(KEYS.tail("1"))
    store.put(pack.key, store.get(pack.key)[0][:-1000] + b"damaged" * 3)
    broker.answered.clear()
    Agent(broker, store).ship()
    assert shown(store, broker, partition) == logged(broker, partition)


@pytest.mark.parametrize(("is_cut", "starts_again"), [(False, True), (True, True), (True, False)])
def test_damaged_batches_are_left_out_of_a_merge_and_shipped_again(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch, is_cut: bool, starts_again: bool
) -> None:
    """Else each merge would fail, and then no pack has room. The agent that shipped them has them in its log still."""
    monkeypatch.setattr(merging, "PACKS", 2)
    monkeypatch.setattr(shipper, "_ROWS", 30)
    first, second = broker.lead("a"), broker.lead("b")
    broker.append(first, 4)
    broker.append(second, 4)
    agent = Agent(broker, store)
    agent.ship()
    (pack,) = store.list(KEYS.tail("1"))
    body = store.get(pack.key)[0]
    store.put(pack.key, body[:-20] if is_cut else body[:-1] + bytes([body[-1] ^ 1]))
    assert shown(store, broker, second) != logged(broker, second)
    if starts_again:
        broker.answered.clear()
        agent = Agent(broker, store)

    late = set[str | None]()

    def is_whole(partition: TopicPartition) -> bool:
        agent.ship()
        late.add(agent.shipper.state.late)
        return shown(store, broker, partition) == logged(broker, partition)

    for _ in range(40):  # more entries than a log without merges has room for
        broker.append(first, 1)
        wait_for(partial(is_whole, first), "the other partition to be shipped", state=lambda: agent.shipper.state)
    wait_for(partial(is_whole, second), "the damaged batches to be shipped again", state=lambda: agent.shipper.state)
    assert any(why and "are not merged" in why for why in late) == starts_again
    assert agent.shipper.state.late is None


@pytest.mark.parametrize("what", ["lacks an object", "is of a later release", "has a hostile name"])
def test_another_agents_log_that_cannot_be_read_holds_up_no_other_partition(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A partition that needs it is shipped from its next offset on, after some attempts."""
    first, second = broker.lead("a", 0, (("2", 5),)), broker.lead("b")
    broker.append(first, 4)
    broker.append(second, 4)
    before = "../1/packs/fffffffffffe" if what == "has a hostile name" else "merged/1-90e"
    data = encode_pack(PackHead("2", 1, "n", 1, before), (), ())
    store.put(KEYS.tail("2") + pack_name(1), data[:4] + b"\x02" + data[5:] if "release" in what else data)
    monkeypatch.setattr(shipper, "_ANEW_AFTER", 2)
    agent = Agent(broker, store)
    agent.shipper.ship()
    assert bounds_of(store, second) == [(0, 4)]
    if what != "has a hostile name":
        assert bounds_of(store, first) == []
    agent.ship()
    assert bounds_of(store, first) == [(0, 4)]


def test_a_topic_that_is_created_again_is_not_shipped_under_the_former_commit(
    store: ObjectStore, broker: Broker
) -> None:
    """Its log has another identity, and its records belong to another directory."""
    partition = broker.lead("a")
    agent = Agent(broker, store)
    agent.ship()
    known = broker.backlog[partition]
    broker.backlog = {partition: replace(known, listing=replace(known.listing, identity=(1, 2)), position=None)}
    broker.append(partition, 4)
    agent.ship()
    assert list(store.list(KEYS.tail("1"))) == []
    assert isinstance(agent.offered[-1], Answered)


def test_what_a_former_leadership_shipped_is_shipped_again_after_half_an_hour(
    store: ObjectStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to where this leadership begins, from the next offset on; then the tracker learns it."""
    monkeypatch.setattr(adoption, "_EVERY_SECONDS", 0.0)
    partition = broker.lead("a")
    broker.append(partition, 5)
    Agent(broker, store).ship()
    broker.lead("a", 0, (("2", 5),))
    broker.answered.clear()
    agent = Agent(broker, store)
    agent.ship()
    assert agent.offered == []
    monkeypatch.setattr(adoption, "_AFTER_SECONDS", 0.0)
    agent.shipper.ship()
    assert agent.offered == [FormerCovered(partition, EPOCH, 0)]
    assert bounds_of(store, partition) == [(0, 5), (0, 5)]
