"""The contract of every leadership source, over ZooKeeper (nodes as Kafka writes them) and over real KRaft brokers."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.waiting import wait_for
from tests.uploader.leadership.listening import Listener
from tests.uploader.leadership.sides import OTHER, OURS, KRaftSide, Side, ZooKeeperSide
from ts_common.log_format.checkpoints import parse_partition_metadata
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Leadership, Led, NotLed
from ts_uploader.retention.topic_retention import TopicSettings

OFTEN = 0.5  # seconds between two polls, for tests that wait for several
MANY = 200


@pytest.fixture(scope="module")
def kraft() -> Iterator[KRaftSide]:
    properties = {"broker.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false"}
    properties["auto.create.topics.enable"] = "true"  # as in production, by default
    with LocalCluster(brokers=2, mode="kraft", properties=properties, name="contract") as cluster:
        yield KRaftSide(cluster)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperSide]:
    side = ZooKeeperSide(tmp_path_factory.mktemp("zookeeper"))
    yield side
    side.server.kill()


@pytest.fixture(params=["zookeeper", "kraft"])
def side(request: pytest.FixtureRequest) -> Side:
    found: Side = request.getfixturevalue(request.param)
    return found


Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Start sources that end with the test."""
    started: list[Listener] = []

    def start(side: Side, *partitions: TopicPartition, poll_seconds: float = OFTEN) -> Listener:
        started.append(Listener(lambda emit: side.source(emit, poll_seconds)))
        started[-1].watch(*partitions)
        started[-1].thread.start()
        return started[-1]

    yield start
    for listener in started:
        listener.close()


def all_of(topic: str, partitions: int = 1) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(partitions)]


def wait_led(listener: Listener, partition: TopicPartition, since: int = 0) -> Leadership:
    """Return the leadership that is reported for a partition after this many reports."""

    def said() -> Leadership | None:
        found = [each for each in listener.said[since:] if each.partition == partition]
        return found[-1].leadership if found and isinstance(found[-1], Led) else None

    return wait_for(said, f"{partition} to be led", 60, state=lambda: listener.said[-5:]) or Leadership(-1, None, 0)


def wait_not_led(listener: Listener, partition: TopicPartition) -> None:
    wait_for(lambda: listener.last(partition) == NotLed(partition), f"{partition} not to be led", 60)


def test_an_unchanged_leadership_is_reported_at_each_poll(side: Side, listen: Listen) -> None:
    """Level-triggered: each poll reports the same leadership, with the time when it was first seen."""
    side.create("again")
    (partition,) = all_of("again")
    listener = listen(side, partition)
    first = wait_led(listener, partition)
    said = len(listener.said)
    wait_for(lambda: len(listener.said) >= said + 3, "three more sayings", 60)
    assert set(listener.said[said:]) == {Led(partition, first)}


def test_a_change_of_leader_is_reported(side: Side, listen: Listen) -> None:
    """Away and back: not led in between, then a later epoch of the same topic, seen later."""
    side.create("changing")
    (partition,) = all_of("changing")
    listener = listen(side, partition)
    first = wait_led(listener, partition)
    side.lead("changing", OTHER)
    wait_not_led(listener, partition)
    said = len(listener.said)
    side.lead("changing", OURS)
    second = wait_led(listener, partition, said)
    assert second.topic_id == first.topic_id
    assert second.epoch >= first.epoch + 2
    assert second.seen_at > first.seen_at
    assert not any(each.leadership.epoch == first.epoch + 1 for each in listener.said if isinstance(each, Led))


def test_u09_a_re_created_topic_has_a_leadership_of_its_own(side: Side, listen: Listen) -> None:
    """Even if its epochs repeat, each id is reported during its own incarnation only, and none after its end."""
    (partition,) = all_of("reborn")
    side.create("reborn")
    listener = listen(side, partition)
    lives = [wait_led(listener, partition)]
    for _ in range(2):
        side.delete("reborn")
        wait_not_led(listener, partition)
        said = len(listener.said)
        side.create("reborn")
        lives.append(wait_led(listener, partition, said))
    assert len({leadership.topic_id for leadership in lives}) == 3
    ids = [each.leadership.topic_id for each in listener.said if isinstance(each, Led)]
    assert [topic_id for topic_id, _ in itertools.groupby(ids)] == [leadership.topic_id for leadership in lives]


def test_a_partition_that_is_no_longer_watched_is_not_reported(side: Side, listen: Listen) -> None:
    """Later changes of an unwatched partition are ignored; the others of its topic stay watched."""
    side.create("leaving", partitions=2)
    stays, leaves = all_of("leaving", 2)
    listener = listen(side, stays, leaves)
    before = wait_led(listener, leaves)
    wait_led(listener, stays)
    listener.watch(stays)
    side.lead("leaving", OTHER, partitions=2)
    wait_not_led(listener, stays)
    assert listener.leadership(leaves) == (before.epoch, before.topic_id)


def test_u16_a_server_that_does_not_answer_for_a_while(side: Side, listen: Listen) -> None:
    """While the server is silent, nothing is reported, and that is logged; then the same leaderships follow."""
    side.create("silent", partitions=3)
    listener = listen(side, *all_of("silent", 3))
    before = [wait_led(listener, partition) for partition in all_of("silent", 3)]
    with capture_logs() as logs:
        side.server.pause()
        try:
            wait_for(lambda: not listener.source.connected, "the silence to be noticed")
            said = len(listener.said)
            noticed_at = time.monotonic()
            wait_for(lambda: time.monotonic() > noticed_at + 3, "some time in silence")
            assert len(listener.said) == said
        finally:
            side.server.resume()
        after = [wait_led(listener, partition, said) for partition in all_of("silent", 3)]
    assert after == before
    wait_for(lambda: listener.source.connected, "the server to be found again")
    events = [entry["event"] for entry in logs]
    assert {"zookeeper_unavailable", "broker_unavailable"} & set(events)
    assert events.count("broker_unavailable") <= 1


def test_u16_stop_does_not_wait_for_the_server(side: Side, listen: Listen) -> None:
    """A source ends while its server is silent, without waiting for a handshake or a session."""
    side.create("stopping")
    (partition,) = all_of("stopping")
    listener = listen(side, partition)
    wait_led(listener, partition)
    side.server.pause()
    try:
        listener.source.stop()
        listener.thread.join(20)
        assert not listener.thread.is_alive()
    finally:
        side.server.resume()


def test_u18_flaps_end_in_what_is_so(side: Side, listen: Listen) -> None:
    """The last state of a leadership that changes quickly is reported, and epochs never decrease."""
    side.create("flapping", partitions=3)
    listener = listen(side, *all_of("flapping", 3))
    firsts = [wait_led(listener, partition) for partition in all_of("flapping", 3)]
    for _ in range(5):
        side.lead("flapping", OTHER, partitions=3)
        side.lead("flapping", OURS, partitions=3)
    for partition, first in zip(all_of("flapping", 3), firsts, strict=True):
        wait_for(
            lambda: isinstance(last := listener.last(partition), Led) and last.leadership.epoch >= first.epoch + 10,  # noqa: B023
            f"the last leader epoch of {partition}",
            60,
            state=lambda: listener.said[-5:],
        )
        epochs = [
            each.leadership.epoch for each in listener.said if isinstance(each, Led) and each.partition == partition
        ]
        assert epochs == sorted(epochs)


def test_a_change_of_settings_is_seen(side: Side, listen: Listen) -> None:
    """All settings that affect retention are reported, and no others."""
    side.create("settings")
    listener = listen(side, *all_of("settings"))
    wait_for(lambda: listener.overrides("settings") == {}, "no settings", 60)
    side.configure("settings", "retention.ms", "60000")
    wait_for(lambda: listener.overrides("settings") == {"retention.ms": "60000"}, "the retention", 60)
    side.configure("settings", "min.cleanable.dirty.ratio", "0.25")
    side.configure("settings", "retention.ms", "70000")
    wait_for(lambda: listener.overrides("settings") == {"retention.ms": "70000"}, "the other retention", 60)
    overrides = [dict(said.overrides) for said in listener.settings if isinstance(said, TopicSettings)]
    assert all(found.keys() <= {"retention.ms"} for found in overrides)
    assert listener.overrides(None) == {}


@pytest.mark.full
def test_u18_threads_do_not_grow(side: Side, listen: Listen) -> None:
    """Partitions need no thread of their own, neither at first nor after a silent server; C threads count too."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    side.create("few")
    side.create("many", partitions=MANY)
    (few,) = all_of("few")
    listener = listen(side, few)
    wait_led(listener, few)
    once = threads()
    listener.watch(few, *all_of("many", MANY))
    for partition in all_of("many", MANY):
        wait_led(listener, partition)
    assert threads() <= once
    for _ in range(2):
        side.server.pause()
        try:
            wait_for(lambda: not listener.source.connected, "the silence to be noticed")
        finally:
            side.server.resume()
        said = len(listener.said)
        wait_led(listener, few, said)
        wait_for(lambda: threads() <= once, "no more threads than before", state=threading.enumerate)


def test_topic_ids_have_the_form_of_kafkas_files(kraft: KRaftSide, listen: Listen) -> None:
    """URL-safe base64, as in ZooKeeper and `partition.metadata`; many ids contain every character."""
    topics = [f"named-{number}" for number in range(12)]
    for topic in topics:
        kraft.create(topic)
    listener = listen(kraft, *(TopicPartition(topic, 0) for topic in topics))
    for topic in topics:
        metadata = kraft.cluster.brokers[OURS].partition_directory(topic, 0) / "partition.metadata"
        assert wait_led(listener, TopicPartition(topic, 0)).topic_id == parse_partition_metadata(metadata.read_bytes())


def test_u09_a_request_for_a_topic_never_creates_it(kraft: KRaftSide, listen: Listen) -> None:
    """The brokers would create a requested topic, as they do by default; a partition of no topic is not led."""
    (partition,) = all_of("never-created")
    listener = listen(kraft, partition)
    wait_not_led(listener, partition)
    said = len(listener.said)
    wait_for(lambda: len(listener.said) >= said + 3, "some more questions", 60)
    assert "never-created" not in kraft.cluster.brokers[OTHER].metadata().topics


def test_an_epoch_that_rises_while_the_leader_stays_is_a_new_leadership(kraft: KRaftSide, listen: Listen) -> None:
    """Another election between two polls, or a reassignment: the metadata does not show it, the disk does."""
    kraft.create("rising")
    (partition,) = all_of("rising")
    listener = listen(kraft, partition, poll_seconds=3600.0)
    first = wait_led(listener, partition)
    kraft.lead("rising", OTHER)
    kraft.lead("rising", OURS)
    kraft.cluster.produce("rising", [Record(b"v")], partition=0)
    wait_for(
        lambda: isinstance(last := listener.last(partition), Led) and last.leadership.epoch >= first.epoch + 2,
        "the later epoch",
        60,
        state=lambda: listener.said[-5:],
    )
