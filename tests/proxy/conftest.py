"""An S3 server and a cluster with links for the folder, and a new fault proxy for each test."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import REGION, S3Server
from tests.proxy.objects import BUCKET

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ClientOf = Callable[..., "S3Client"]


@pytest.fixture(scope="package")
def s3() -> Iterator[S3Server]:
    """Start an S3 server without brokers."""
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="proxied-s3") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3FaultProxy]:
    """Open a proxy in front of the server, without rules."""
    with S3FaultProxy(s3) as proxy:
        yield proxy


@pytest.fixture
def client_of(s3: S3Server) -> Iterator[ClientOf]:
    """Return a function that creates clients of an endpoint; they try once, and are closed after the test."""
    made: list[S3Client] = []

    def client(endpoint: str, read_timeout: float = 30) -> "S3Client":
        made.append(
            boto3.client(
                "s3",
                endpoint_url=endpoint,
                aws_access_key_id=s3.admin.access_key,
                aws_secret_access_key=s3.admin.secret_key,
                region_name=REGION,
                config=Config(retries={"total_max_attempts": 1}, read_timeout=read_timeout, proxies={}),
            )
        )
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def through(client_of: ClientOf, proxy: S3FaultProxy) -> "S3Client":
    """Return a client of the proxy."""
    return client_of(proxy.endpoint)


@pytest.fixture
def direct(client_of: ClientOf, s3: S3Server) -> "S3Client":
    """Return a client of the server."""
    return client_of(s3.endpoint)


@pytest.fixture(scope="package")
def linked() -> Iterator[LocalCluster]:
    """Start two brokers and ZooKeeper, with links between all of them."""
    properties = {
        "zookeeper.session.timeout.ms": "2000",
        "zookeeper.connection.timeout.ms": "20000",
        "replica.lag.time.max.ms": "1500",
    }
    with LocalCluster(brokers=2, proxied=True, properties=properties, name="linked") as cluster:
        yield cluster
