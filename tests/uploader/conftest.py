"""One cluster for the folder: two brokers that roll their segments at different sizes, and an S3 server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.uploader.beside import BUCKET, Archive
from tests.uploader.local_directory import LocalDirectory
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_local.cluster import LocalCluster

ArchiveOf = Callable[..., Archive]


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    """Small segments need a small fetch: a follower appends a whole fetch at once."""
    with LocalCluster(
        brokers=2,
        s3=True,
        buckets=[BUCKET],
        properties={
            "replica.fetch.max.bytes": "20000",
            "replica.fetch.response.max.bytes": "20000",
            "zookeeper.session.timeout.ms": "2000",
            "log.cleaner.backoff.ms": "500",
        },
        broker_properties={1: {"log.segment.bytes": "60000"}, 2: {"log.segment.bytes": "97000"}},
        name="agents",
    ) as cluster:
        yield cluster


@pytest.fixture
def archive_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    """Makes archives of topics; their agents end with the test."""
    made: list[Archive] = []

    def archive(topic: str, **arguments: object) -> Archive:
        made.append(Archive(cluster, tmp_path, topic, **arguments))  # type: ignore[arg-type]
        return made[-1]

    yield archive
    for archive_ in made:
        archive_.close()


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
