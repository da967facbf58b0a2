"""An S3 server and a cluster behind links, shared by the folder; a fresh fault proxy for each test."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config

from tests.proxy.objects import BUCKET
from ts_local.cluster import LocalCluster
from ts_local.proxy.s3 import S3FaultProxy
from ts_local.s3 import REGION, S3Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ClientOf = Callable[..., "S3Client"]


@pytest.fixture(scope="package")
def s3() -> Iterator[S3Server]:
    """An S3 server alone."""
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="proxied-s3") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3FaultProxy]:
    """Before the server, without a rule."""
    with S3FaultProxy(s3) as proxy:
        yield proxy


@pytest.fixture
def client_of(s3: S3Server) -> Iterator[ClientOf]:
    """Makes clients of an endpoint that try once; they are closed with the test."""
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
    """A client of the proxy."""
    return client_of(proxy.endpoint)


@pytest.fixture
def direct(client_of: ClientOf, s3: S3Server) -> "S3Client":
    """A client of the server itself."""
    return client_of(s3.endpoint)


@pytest.fixture(scope="package")
def linked() -> Iterator[LocalCluster]:
    """Two brokers and ZooKeeper, with links between all of them."""
    properties = {
        "zookeeper.session.timeout.ms": "2000",
        "zookeeper.connection.timeout.ms": "20000",
        "replica.lag.time.max.ms": "1500",
    }
    with LocalCluster(brokers=2, proxied=True, properties=properties, name="linked") as cluster:
        yield cluster
