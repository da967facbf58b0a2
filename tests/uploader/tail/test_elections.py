"""Elections that lose records of a live tail: readers show the later log, and positions learn of the loss.

`make test` has the same without brokers: `tests/tail` has every order, `tests/reader/test_tail.py` the dead tail of an
entry, `tests/reader/test_follow.py` a position.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import ts_reader
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord, dump
from tests.faults.leaders import PATIENCE, die, lines, produce, start_agents, suspend, wait_in_sync, wait_led
from tests.uploader.beside import PREFIX, Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.leader_moves import beside, cut_off, linked_brokers
from tests.uploader.tail.shown import LEVELS, TAIL, UNCLEAN, shown, wait_shown
from ts_common.archive.tail_logs import read_indexes
from ts_common.errors import DataLoss

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("credentials", "mended")]
SHARED = 100


Read = tuple[Any, list[tuple[int, bytes]]]


def follow(archive: Archive, position: Any = None, *, fails: bool = True) -> Read:
    """Return the position after the first step of a stream that has rows, and the step's offsets and values."""
    opened = ts_reader.Archive(archive.location, archive.keys.cluster, workers=1)
    steps = opened.scan(archive.topic, fail_on_data_loss=fails).follow(position=position, poll_seconds=0.2)
    for step in steps:  # one that only moves the position back has no row
        rows = [(row["offset"], row["value"]) for row in step.to_table().to_pylist()]
        if rows:
            break
    steps.close()
    return step.position, rows


def assert_reported(archive: Archive, position: Any, kafkas: list[OracleRecord]) -> None:
    """Check that a position above what both logs have learns of the loss; the later log's records are read then."""
    with pytest.raises(DataLoss, match=f"offsets {SHARED} to .* are lost: an election removed them"):
        follow(archive, position)
    _, rows = follow(archive, position, fails=False)
    assert rows == [(each.offset, each.value) for each in kafkas if each.offset >= SHARED]


@pytest.mark.parametrize("end", ["pause", "die"])
def test_records_of_a_tail_that_an_unclean_election_lost_are_replaced_and_reported(
    cluster: LocalCluster, archive_of: ArchiveOf, end: str
) -> None:
    """No segment has closed; at both isolation levels readers show what Kafka's consumer shows.

    A leader that is paused has an agent that runs on; one that dies is started again, which costs more time.
    """
    archive = archive_of(f"tail-unclean-{end}", properties=TAIL)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config=UNCLEAN)
    start_agents(archive, 1, 2)
    produce(cluster, archive.topic, "shared", SHARED)
    suspend(cluster, 2)
    wait_in_sync(cluster, archive.topic, 1)
    dead = produce(cluster, archive.topic, "dead", 50)
    assert lines(wait_shown(archive, max(dead) + 1)) == ["shared", "dead"]
    position, _ = follow(archive)
    if end == "die":
        die(cluster, 1)
    else:
        suspend(cluster, 1)
    cluster.brokers[2].resume()
    wait_led(cluster, archive.topic, 2)
    of_later = cluster.brokers[2].bootstrap
    living = produce(cluster, archive.topic, "living", 30, bootstrap_servers=of_later)
    assert living.keys() < dead.keys()
    wait_for(lambda: lines(shown(archive))[-1:] == ["living"], "the later leader's records", PATIENCE)
    wait_shown(archive, max(living) + 1)
    kafkas = dump(of_later, archive.topic)
    for level in LEVELS:
        assert shown(archive, level) == kafkas
    assert lines(kafkas) == ["shared", "living"]
    assert archive.next_offset() == 0
    assert_reported(archive, position, kafkas)


def test_records_above_the_high_watermark_are_not_shown(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The leader alone has them, as too few replicas are in sync; then an unclean election loses them."""
    witness = archive_of(
        "tail-witness", properties={PREFIX + "kafka.topics.include": "tail-above|tail-witness", **TAIL}
    )
    archive = archive_of("tail-above", properties=witness.properties)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config={**UNCLEAN, "min.insync.replicas": "2"})
    cluster.create_topic(witness.topic, assignment=[[1]])
    shared = produce(cluster, archive.topic, "shared", SHARED)
    suspend(cluster, 2)
    wait_in_sync(cluster, archive.topic, 1)
    assert min(produce(cluster, archive.topic, "above", 50, acks=1)) == SHARED
    archive.agent(1)
    wait_shown(archive, SHARED)
    wait_shown(witness, max(produce(cluster, witness.topic, "witness", 50)) + 1)  # in a later pack than these
    assert {each.offset: each.value for each in shown(archive)} == shared
    position, _ = follow(archive)
    cluster.brokers[1].kill()
    cluster.brokers[2].resume()
    wait_led(cluster, archive.topic, 2)
    archive.agent(2)
    cluster.brokers[1].start()
    wait_in_sync(cluster, archive.topic, 1, 2)
    later = produce(cluster, archive.topic, "later", 100)
    kafkas = dump(cluster.bootstrap, archive.topic)
    assert lines(wait_shown(archive, max(later) + 1)) == lines(kafkas) == ["shared", "later"]
    _, rows = follow(archive, position)  # nothing is reported: no reader saw what was lost
    assert rows == [(each.offset, each.value) for each in kafkas if each.offset >= SHARED]


@pytest.fixture(scope="module")
def linked_cluster() -> Iterator[LocalCluster]:
    """Two brokers whose links can be cut."""
    with linked_brokers() as cluster:
        yield cluster


def shipped_end(archive: Archive, log: str) -> int:
    """Return the end of what the packs of a broker's agent have, whether readers see it or not."""
    indexes = read_indexes(archive.store, archive.keys, log)
    return max((row.end for index in indexes for row in index.entries()), default=0)


@pytest.mark.parametrize("cluster", ["linked"], indirect=True)
def test_a_leader_that_is_cut_off_loses_nothing_of_the_tail(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Another broker leads; the former leader appends what producers send it, below no high watermark."""
    archive = archive_of("tail-cut", properties=TAIL)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config={"min.insync.replicas": "1"})
    archive.agent(1, surroundings=beside(cluster, 1))
    archive.agent(2)
    acknowledged = produce(cluster, archive.topic, "before", SHARED)
    wait_shown(archive, SHARED)
    position, _ = follow(archive)
    wait_in_sync(cluster, archive.topic, 1, 2)
    cut_off(cluster, 1)
    producer = cluster.producer({"bootstrap.servers": cluster.brokers[1].bootstrap, "message.timeout.ms": 3000})
    for number in range(50):
        producer.produce(archive.topic, b"never-%d" % number, partition=0)
    wait_led(cluster, archive.topic, 2, by=2)
    of_other = cluster.brokers[2].bootstrap
    acknowledged |= produce(cluster, archive.topic, "after", 400, bootstrap_servers=of_other)
    wait_shown(archive, max(acknowledged) + 1)
    for level in LEVELS:
        assert shown(archive, level) == dump(of_other, archive.topic, level)
    for link in cluster.links.values():
        link.heal()
    producer.purge()
    wait_in_sync(cluster, archive.topic, 1, 2)
    seen = wait_shown(archive, cluster.latest(archive.topic, 0))
    assert seen == dump(cluster.bootstrap, archive.topic)
    assert acknowledged.items() <= {each.offset: each.value for each in seen}.items()
    _, rows = follow(archive, position)
    assert [offset for offset, _ in rows] == [each.offset for each in seen if each.offset >= SHARED]


@pytest.mark.parametrize("cluster", ["linked"], indirect=True)
def test_what_a_leader_that_is_cut_off_acknowledges_alone_is_not_shown(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """Counterexample 1: it is the only replica in sync, ships on, and the other broker leads by an unclean election."""
    archive = archive_of("tail-alone", properties=TAIL)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config=UNCLEAN)
    archive.agent(1, surroundings=beside(cluster, 1))
    archive.agent(2)
    produce(cluster, archive.topic, "shared", SHARED)
    die(cluster, 2)
    wait_in_sync(cluster, archive.topic, 1)
    dead = produce(cluster, archive.topic, "dead", 50)
    wait_shown(archive, max(dead) + 1)
    position, _ = follow(archive)
    cut_off(cluster, 1)
    cluster.brokers[2].start()
    wait_led(cluster, archive.topic, 2, by=2)
    of_each = {number: broker.bootstrap for number, broker in cluster.brokers.items()}
    alone = produce(cluster, archive.topic, "alone", 30, bootstrap_servers=of_each[1])
    living = produce(cluster, archive.topic, "living", 300, bootstrap_servers=of_each[2])
    assert alone.keys() < living.keys()
    wait_for(lambda: shipped_end(archive, "1") > max(alone), "the former leader's agent to ship on", PATIENCE)
    wait_shown(archive, max(living) + 1)
    kafkas = dump(of_each[2], archive.topic)
    for level in LEVELS:
        assert shown(archive, level) == kafkas
    assert lines(kafkas) == ["shared", "living"]
    assert_reported(archive, position, kafkas)
    for link in cluster.links.values():
        link.heal()
    wait_in_sync(cluster, archive.topic, 1, 2)
    more = produce(cluster, archive.topic, "more", 300)
    assert wait_shown(archive, max(more) + 1) == dump(cluster.bootstrap, archive.topic)
