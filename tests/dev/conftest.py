"""Clusters that this folder's tests share."""

from collections.abc import Iterator

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.stores.s3 import S3Server

__all__ = ["kraft", "s3", "zookeeper_pair"]


@pytest.fixture(scope="package")
def zookeeper_pair(two_disks: LocalCluster) -> LocalCluster:
    """Two brokers of Kafka 3.9 with ZooKeeper, two log dirs each."""
    return two_disks


@pytest.fixture(scope="module")
def kraft() -> Iterator[LocalCluster]:
    """Two brokers of Kafka 4; the first is also the controller."""
    short_session = {"broker.session.timeout.ms": "2000"}
    with LocalCluster(brokers=2, mode="kraft", properties=short_session, name="kraft-pair") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """An S3 server alone, with the bucket `archive`."""
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=["archive"], name="s3") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3
