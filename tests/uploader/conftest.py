"""A cluster of two brokers that roll their segments at different sizes, and archives of its topics.

Tests marked `ON_BOTH` also run on such a cluster in KRaft mode, in `make test-full`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.s3 import S3FaultProxy
from tests.uploader.beside import Archive, archives
from tests.uploader.leadership.kraft.secured_brokers import PASSWORD, make_certificates, secured
from tests.uploader.local_directory import LocalDirectory
from tests.uploader.tail.leader_moves import kraft_brokers
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

ArchiveOf = Callable[..., Archive]


@pytest.fixture(scope="package")
def zookeeper_cluster(two_brokers: LocalCluster) -> LocalCluster:
    """Return the cluster that other folders have too."""
    return two_brokers


@pytest.fixture(scope="module")
def kraft_cluster() -> Iterator[LocalCluster]:
    """The same of Kafka 4."""
    with kraft_brokers() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured_kraft(two_brokers: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker of Kafka 4 with every kind of listener, and an authorizer; the cluster itself uses the plain one.

    The S3 server is the one of `two_brokers`, because its start would need longer than the broker's.
    """
    assert two_brokers.s3 is not None
    certificates = tmp_path_factory.mktemp("certificates")
    make_certificates(certificates)
    rolls = {"log.segment.bytes": "1048576"}
    cluster = LocalCluster(mode="kraft", s3=two_brokers.s3, properties=rolls, name="kraft-secured")
    cluster.brokers[1].properties.update(secured(cluster, certificates))
    with cluster:
        admin = cluster.admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion("agent", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            (done,) = admin.alter_user_scram_credentials([user]).values()
            done.result(30)
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """With ZooKeeper, unless the test is marked `ON_BOTH`."""
    mode = getattr(request, "param", "zookeeper")
    found: LocalCluster = request.getfixturevalue(f"{mode}_cluster")
    return found


@pytest.fixture
def archive_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    """Makes archives of topics; their agents end with the test."""
    with archives(cluster, tmp_path) as archive:
        yield archive


@pytest.fixture
def proxy(cluster: LocalCluster) -> Iterator[S3FaultProxy]:
    """Before the cluster's S3 server."""
    assert cluster.s3 is not None
    with S3FaultProxy(cluster.s3) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A real store: a directory."""
    (tmp_path / "store").mkdir()
    with open_store((tmp_path / "store").as_uri()) as opened:
        yield opened


@pytest.fixture
def local(tmp_path: Path) -> LocalDirectory:
    """A partition's directory on the broker's disk, made by hand."""
    return LocalDirectory(tmp_path / "log")
