"""One cluster for the folder: two brokers that roll their segments at different sizes, and an S3 server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES, Archive, archives
from tests.uploader.local_directory import LocalDirectory
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_local.cluster import LocalCluster

ArchiveOf = Callable[..., Archive]


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    """See `SMALL_FETCHES` and `ROLLS`."""
    with LocalCluster(
        brokers=2,
        s3=True,
        buckets=[BUCKET],
        properties={
            **SMALL_FETCHES,
            "zookeeper.session.timeout.ms": "2000",
            "log.cleaner.backoff.ms": "500",
        },
        broker_properties=ROLLS,
        name="agents",
    ) as cluster:
        yield cluster


@pytest.fixture
def archive_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    """Makes archives of topics; their agents end with the test."""
    with archives(cluster, tmp_path) as archive:
        yield archive


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
