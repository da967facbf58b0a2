"""What stands at Azure or Google is planned and read as what stands at S3 is."""

import uuid

import pytest

from tests.conftest import AZURE_CONTAINER, GCS_BUCKET
from tests.spark.archives import Archive, batches
from ts_local.azurite import AzuriteServer
from ts_local.fake_gcs import GcsServer


@pytest.fixture(params=["gs", "az"])
def archive(
    request: pytest.FixtureRequest,
    gcs_server: GcsServer,
    azurite_server: AzuriteServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Archive:
    """An empty archive of each store."""
    for name, value in {**gcs_server.environment(), **azurite_server.environment()}.items():
        monkeypatch.setenv(name, value)
    bucket = {"gs": GCS_BUCKET, "az": AZURE_CONTAINER}[request.param]
    return Archive(f"{request.param}://{bucket}/{uuid.uuid4().hex}", entropy_bits=3)


def test_a_query_reads_each_record_once(archive: Archive) -> None:
    """Two partitions, two segments with a longer copy of one, by the metadata that the store gives back."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 10), (10, 100)), partition=partition)
        archive.put_segment("t", 90, batches((90, 100), (100, 250)), partition=partition)
        archive.commit("t", 250, partition=partition, highest_base=90)
    with archive.store:
        rows = archive.rows(subscribe="t")
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(p, o) for p in (0, 1) for o in range(250)]


def test_offsets_prune_by_ranges_of_objects(archive: Archive) -> None:
    """A query of a few offsets asks for the part of the object that holds them."""
    archive.put_segment("t", 0, batches(*((start, start + 10) for start in range(0, 100, 10))))
    archive.commit("t", 100)
    with archive.store:
        found = archive.offsets(subscribe="t", startingOffsets='{"t": {"0": 42}}', endingOffsets='{"t": {"0": 57}}')
    assert found == list(range(42, 57))
