"""A real archive for the folder, shipped by an agent from a broker to S3, and runs of `tsctl`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import OracleRecord, dump
from tests.every_field import every_field
from tests.spark.archives import Archive as HandMade
from tests.tsctl.running import Run, runner
from tests.uploader.beside import PREFIX, Archive, archives

CODECS = ("none", "gzip", "zstd")
TRANSACTIONS = "transactions"
FIELDS = "fields"
_SECONDS = 60
_SEGMENTS = {"segment.bytes": "20000", "index.interval.bytes": "1000"}


@dataclass(frozen=True)
class Shipped:
    """The archive.

    Attributes:
        cluster: its closed segments are in the archive.
        archive: of the topic `fields`.
        config: directory of the agent's `prod.properties`.
        next_offsets: by topic and partition.
        records: the records of Kafka's Java consumer below them.
        committed: the same of `transactions`, with `read_committed`.
    """

    cluster: LocalCluster
    archive: Archive
    config: Path
    next_offsets: dict[tuple[str, int], int]
    records: list[OracleRecord]
    committed: list[OracleRecord]

    def of(self, topic: str, partition: int) -> list[OracleRecord]:
        """Return the records of one partition."""
        return [r for r in self.records if (r.topic, r.partition) == (topic, partition)]


@pytest.fixture(scope="package")
def shipped(one_broker: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    """Ship every field in three codecs, and transactions, one of them open when the last segment closes."""
    directory, cluster = tmp_path_factory.mktemp("tsctl"), one_broker
    with archives(cluster, directory) as archive_of, pytest.MonkeyPatch.context() as patch:
        assert cluster.s3 is not None
        for name, value in cluster.s3.environment().items():
            patch.setenv(name, value)
        cluster.create_topic(FIELDS, partitions=len(CODECS), config=_SEGMENTS)
        cluster.create_topic(TRANSACTIONS, config=_SEGMENTS)
        for partition, codec in enumerate(CODECS):
            cluster.produce(FIELDS, every_field(300), partition=partition, config={"compression.type": codec})
        _transactions(cluster)
        fields = archive_of(FIELDS, properties={PREFIX + "kafka.topics.include": f"{FIELDS},{TRANSACTIONS}"})
        fields.agent()
        transactions = archive_of(TRANSACTIONS)
        ends = {(FIELDS, number): fields.wait_until_shipped(partition=number) for number in range(len(CODECS))}
        ends[TRANSACTIONS, 0] = transactions.wait_until_shipped()
        records = [r for r in dump(cluster.bootstrap, [FIELDS, TRANSACTIONS]) if r.offset < ends[r.topic, r.partition]]
        committed = [
            r for r in dump(cluster.bootstrap, TRANSACTIONS, "read_committed") if r.offset < ends[r.topic, r.partition]
        ]
        yield Shipped(cluster, fields, directory / "conf", ends, records, committed)


def _transactions(cluster: LocalCluster) -> None:
    producer = cluster.producer({"transactional.id": "one", "batch.size": 1000, "linger.ms": 0})
    late = cluster.producer({"transactional.id": "late", "batch.size": 1000, "linger.ms": 0})
    for each in (producer, late):
        each.init_transactions(_SECONDS)
    for number in range(40):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(TRANSACTIONS, b"%d" % number * 100, b"k%d" % number, partition=0)
        producer.flush(_SECONDS)  # an abort would drop unsent records
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(_SECONDS)
        if number == 25:
            late.begin_transaction()
            late.produce(TRANSACTIONS, b"open", partition=0)
            late.flush(_SECONDS)
    cluster.produce(TRANSACTIONS, [Record(bytes(4000)) for _ in range(6)], partition=0)
    late.abort_transaction(_SECONDS)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""
    return runner(capfd)


@pytest.fixture
def hand_made(tmp_path: Path) -> HandMade:
    """Return an empty archive in a directory, for a test to fill."""
    return HandMade(tmp_path / "store")


@pytest.fixture
def named(hand_made: HandMade) -> tuple[str, ...]:
    """Return the options that name it."""
    return ("--url", hand_made.location, "--cluster", "prod")
