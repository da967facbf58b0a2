"""One cluster whose topics the oracle compares, the archives of its closed segments, and one Spark session."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import OracleRecord, dump
from dev.local.spark import local_session
from tests.every_field import every_field
from tests.spark.archives import Archive
from tests.uploader.beside import BUCKET as OF_AGENTS

BUCKET = "history"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES = ("_under", "a-b", "a.b", "t", "t-1", "t-10")  # partition 0 of t-1 next to partition 1 of t, and so on
_SEGMENTS = {"segment.bytes": "20000", "index.interval.bytes": "1000"}


@dataclass(frozen=True)
class Shipped:
    """The cluster's closed segments in a store.

    Attributes:
        archive: where.
        next_offsets: by topic and partition.
        records: what Kafka's Java consumer shows of each topic below them, partition by partition.
    """

    archive: Archive
    next_offsets: dict[tuple[str, int], int]
    records: dict[str, list[OracleRecord]]


@pytest.fixture(scope="package")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, SparkSession]]:
    """Start a broker and an S3 server, and meanwhile the session: it needs the S3 server's address alone."""
    cluster = LocalCluster(s3=True, buckets=[BUCKET, OF_AGENTS], name="spark")
    assert cluster.s3 is not None
    with ExitStack() as ending, ThreadPoolExecutor(1) as pool:
        starting = pool.submit(ending.enter_context, cluster)
        directory = tmp_path_factory.mktemp("spark")
        session = ending.enter_context(local_session(directory, environment=cluster.s3.environment()))
        starting.result()
        yield cluster, session


@pytest.fixture(scope="package")
def cluster(_started: tuple[LocalCluster, SparkSession]) -> LocalCluster:
    """Return the broker of this folder, and its S3 server."""
    return _started[0]


@pytest.fixture(scope="package")
def filled(cluster: LocalCluster) -> LocalCluster:
    """Fill the topics that several files read."""
    cluster.create_topic("fields", partitions=len(CODECS), config=_SEGMENTS)
    cluster.create_topic(
        "appended", config={**_SEGMENTS, "message.timestamp.type": "LogAppendTime", "compression.type": "lz4"}
    )
    for partition, codec in enumerate(CODECS):
        cluster.produce("fields", every_field(1000), partition=partition, config={"compression.type": codec})
    cluster.produce("appended", every_field(1000), partition=0)
    for name in NAMES:
        count = 11 if name == "t" else 1
        cluster.create_topic(name, partitions=count, config={"segment.bytes": "2000"})
        for partition in range(count):
            few = [Record(f"{name}-{partition} {n}".encode(), key=bytes(200)) for n in range(20)]
            cluster.produce(name, few, partition=partition, config={"batch.size": 500})
    return cluster


@pytest.fixture(scope="package")
def oracle(filled: LocalCluster) -> list[OracleRecord]:
    """Everything that Kafka's Java consumer reads."""
    return dump(filled.bootstrap, ["fields", "appended", *NAMES])


@pytest.fixture(scope="package")
def on_disk(cluster: LocalCluster, oracle: list[OracleRecord], tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """Everything in a directory, without entropy bits."""
    return _ship(cluster, oracle, Archive(tmp_path_factory.mktemp("archive")))


@pytest.fixture(scope="package")
def on_s3(cluster: LocalCluster, oracle: list[OracleRecord], spark: SparkSession) -> Shipped:
    """Everything in a bucket, with five entropy bits."""
    return _ship(cluster, oracle, Archive(f"s3://{BUCKET}/base/prefix", entropy_bits=5))


@pytest.fixture(scope="package")
def spark(_started: tuple[LocalCluster, SparkSession]) -> SparkSession:
    """Return a session of two cores; Python workers get the S3 server's credentials from the environment."""
    return _started[1]


def _ship(cluster: LocalCluster, oracle: list[OracleRecord], archive: Archive) -> Shipped:
    broker = cluster.brokers[1]
    directories = [
        directory
        for name in ("fields", "appended", *NAMES)
        for directory in broker.log_dirs[0].glob(f"{name}-*")
        if directory.name.rpartition("-")[0] == name
    ]
    next_offsets = {}
    for directory in directories:
        topic, _, partition = directory.name.rpartition("-")
        next_offsets[topic, int(partition)] = archive.ship(directory)
    records: dict[str, list[OracleRecord]] = {}
    for record in oracle:
        if record.offset < next_offsets[record.topic, record.partition]:
            records.setdefault(record.topic, []).append(record)
    return Shipped(archive, next_offsets, records)
