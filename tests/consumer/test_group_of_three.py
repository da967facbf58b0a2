"""Three members of a group, and every fault at once: what the application stores is what producers got acknowledged.

Brokers are killed and elect, the store is cut off, retention passes positions, members leave and return, and the
topic is created again. Real agents ship.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.link import LinkProxy
from dev.local.waiting import wait_for
from tests.consumer.archives import PROTOCOLS
from tests.consumer.group import SECONDS, Member, Results, Writer
from tests.uploader.beside import Archive, archives
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.incarnations import read_incarnations
from ts_common.model import TopicPartition as Partition
from ts_consumer import TierMode

PARTITIONS = 4
SEGMENT = 60_000
VALUE = 1000
ROUNDS = 400  # before the group begins: a few segments of each partition
# `make test` has the faults one by one: members in `test_seams.py`, a new topic of the name in `test_topic_ids.py`.
pytestmark = pytest.mark.full


@dataclass
class Field:
    """A topic with agents of its brokers, a link to the store, and a group.

    Attributes:
        cluster: the brokers.
        archive: of the topic.
        link: between the consumers and the store.
        config: of the consumers.
        results: of the application.
        writer: of the topic.
    """

    cluster: LocalCluster
    archive: Archive
    link: LinkProxy
    config: dict[str, Any]
    results: Results
    writer: Writer

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.archive.topic

    def member(self, name: str) -> Member:
        """Add a member to the group."""
        return Member(name, {**self.config, "client.id": name}, self.topic, self.results)

    def wait_for_progress(self, more: int = 100) -> None:
        """Wait until some more records are stored."""
        wanted = self.results.count() + more
        wait_for(lambda: self.results.count() >= wanted, f"{wanted} records", SECONDS, state=self.state)

    def wait_for_owners(self, *members: Member) -> None:
        """Wait until these members own all partitions, each of them at least one."""
        wanted = {*members}

        def shared() -> bool:
            owners = self.results.owners()
            return len(owners) == PARTITIONS and {*owners.values()} == wanted

        wait_for(shared, "the partitions of these members", SECONDS, state=self.state)

    def ends(self) -> dict[int, int]:
        """The next offset of each partition in the archive's newest incarnation."""
        store, found = self.archive.store, {}
        incarnations, _ = read_incarnations(store, self.archive.keys, self.topic)
        for number in range(PARTITIONS):
            partition = Partition(self.topic, number)
            commit, _ = read_commit(store, self.archive.keys.partition(partition, incarnations.newest_directory))
            found[number] = commit.next_offset if isinstance(commit, Commit) else 0
        return found

    def wait_shipped(self, rounds: int) -> dict[int, int]:
        """Wait until the archive has some records of each partition; return its ends."""
        wait_for(lambda: min(self.ends().values()) >= rounds, f"{rounds} records shipped", SECONDS, state=self.ends)
        return self.ends()

    def wait_stored(self, life: str, ends: dict[int, int]) -> None:
        """Wait until everything below these offsets is stored."""

        def stored() -> bool:
            rows = self.results.rows
            return all(rows[life, number] and rows[life, number][-1][0] >= end - 1 for number, end in ends.items())

        wait_for(stored, f"everything below {ends}", SECONDS, state=self.state)

    def state(self) -> object:
        """What was stored, for a failed wait."""
        rows = self.results.rows
        return {place: (len(each), each[-1][0] if each else -1) for place, each in rows.items()}, self.results.problems

    def check(self, life: str, writer: Writer, ends: dict[int, int]) -> None:
        """Compare what was stored with what producers got acknowledged."""
        assert self.results.problems == []
        for number, end in ends.items():
            rows = self.results.rows[life, number]
            assert rows[-1][0] >= end - 1
            assert rows == sorted(writer.acknowledged[number])[: len(rows)]


@pytest.fixture
def field(
    request: pytest.FixtureRequest,
    mode: TierMode,
    protocol: str,
    pair: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Field]:
    """A topic with a part in the archive and a part in Kafka; no member yet."""
    topic, cluster = request.node.callspec.id.lower(), pair
    assert cluster.s3 is not None
    cluster.create_topic(topic, PARTITIONS, 2, {"segment.bytes": str(SEGMENT), "min.insync.replicas": "1"})
    with archives(cluster, tmp_path) as archive_of, LinkProxy("consumers:s3", cluster.s3.port) as link:
        archive = archive_of(topic)
        for broker in cluster.brokers:
            archive.agent(broker)
        for name, value in {**cluster.s3.environment(), "AWS_ENDPOINT_URL": f"http://{link.address}"}.items():
            monkeypatch.setenv(name, value)
        config = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "topic.metadata.refresh.interval.ms": 1000,
            # Else librdkafka keeps the leader epochs of the former topic, and refuses the lower ones of the new topic.
            "topic.metadata.propagation.max.ms": 0,
            "log_level": 0,
            "tiered.storage.mode": mode,
            **PROTOCOLS[protocol],
        }
        if protocol == "consumer":
            del config["session.timeout.ms"]  # the broker decides it
        if mode is not TierMode.KAFKA_ONLY:
            config |= {
                "kafka.cluster.id": archive.keys.cluster,
                "storage.service.endpoint.url": archive.location,
                "tiered.storage.refresh.ms": 500,
                "tiered.storage.max.buffered.bytes": 1 << 20,
            }
        writer = Writer(cluster, topic, PARTITIONS, VALUE, 0.05)
        writer.write(ROUNDS)
        yield Field(cluster, archive, link, config, Results(), writer)
        writer.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mode", TierMode)
def test_e04_every_record_is_stored_once_and_in_order(field: Field, mode: TierMode) -> None:
    """Whatever the group, brokers, store and retention do; then all of the topic that was created again."""
    cluster, results, writer, topic = field.cluster, field.results, field.writer, field.topic
    reads_archive = mode is not TierMode.KAFKA_ONLY
    shipped = field.wait_shipped(ROUNDS // 2)
    if reads_archive:  # the plain client would begin above the lost records
        cluster.delete_records(topic, {number: end // 2 for number, end in shipped.items()})
    writer.start()
    first, second, third = (field.member(name) for name in ("first", "second", "third"))
    try:
        field.wait_for_owners(first, second, third)
        field.wait_for_progress()

        field.link.cut()  # a member leaves while the archive is away: membership needs brokers alone
        third.close()
        field.wait_for_owners(first, second)
        field.link.heal()
        field.wait_for_progress()

        cluster.brokers[1].kill()
        wait_for(
            lambda: all(cluster.leader(topic, number) == 2 for number in range(PARTITIONS)), "the election", SECONDS
        )
        third = field.member("third")
        field.wait_for_owners(first, second, third)
        field.wait_for_progress()
        cluster.brokers[1].start()
        wait_for(
            lambda: all(cluster.in_sync(topic, number) == {1, 2} for number in range(PARTITIONS)), "replicas", SECONDS
        )

        if reads_archive:
            field.wait_stored("first", field.ends())
            first.hold()
            shipped = field.wait_shipped(max(field.ends().values()) + SEGMENT // VALUE)
            cluster.delete_records(topic, shipped)
            first.resume()
        writer.stop()
        ends = {number: rows[-1][0] + 1 for number, rows in writer.acknowledged.items()}
        if mode is TierMode.TIERED_STORAGE_ONLY:
            ends = field.ends()
        field.wait_stored("first", ends)
        field.check("first", writer, ends)
        check_second_life(field, mode, first, second, third)
    finally:
        field.link.heal()
        for member in (first, second, third):
            member.close()
    assert results.problems == []


def check_second_life(field: Field, mode: TierMode, *members: Member) -> None:
    """Create the topic again: the group stores all of it."""
    cluster, topic, results = field.cluster, field.topic, field.results
    cluster.delete_topic(topic)
    wait_for(lambda: not results.owners(), "the topic's end to be noticed", SECONDS, state=field.state)
    results.begin_life("second")
    cluster.create_topic(topic, PARTITIONS, 2, {"segment.bytes": str(SEGMENT), "min.insync.replicas": "1"})
    again = Writer(cluster, topic, PARTITIONS, VALUE, 0.05)
    again.write(ROUNDS // 2)
    again.stop()
    field.wait_for_owners(*members)
    ends = {number: rows[-1][0] + 1 for number, rows in again.acknowledged.items()}
    if mode is TierMode.TIERED_STORAGE_ONLY:
        ends = field.wait_shipped(ROUNDS // 4)
    field.wait_stored("second", ends)
    field.check("second", again, ends)
