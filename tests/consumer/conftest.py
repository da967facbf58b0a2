"""Clusters for all tests of this folder that need them: one broker with an archive, and two brokers that elect."""

from collections.abc import Iterator

import pytest

from dev.local.kafka.cluster import LocalCluster
from tests.consumer.archives import Both, in_directory
from tests.uploader.beside import BUCKET, SMALL_FETCHES


@pytest.fixture(scope="session")
def both(live_broker: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The broker that tests share, and an archive."""
    return Both(live_broker, in_directory(tmp_path_factory.mktemp("consumer")))


@pytest.fixture(scope="session")
def pair() -> Iterator[LocalCluster]:
    """Two brokers: one at a time may be away."""
    properties = {
        **SMALL_FETCHES,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "1",
    }
    with LocalCluster(
        brokers=2, mode="kraft", own_controller=True, s3=True, buckets=[BUCKET], properties=properties, name="group"
    ) as cluster:
        yield cluster
