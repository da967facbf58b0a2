"""Archives on Azure, Google and HDFS are planned and read like those on S3."""

import pytest

from tests.conftest import OTHER_STORES, empty_place
from tests.made_archive import batches
from tests.spark.archives import Archive


@pytest.fixture(params=OTHER_STORES)
def archive(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An empty archive of each store."""
    return Archive(empty_place(request.param, request, monkeypatch), entropy_bits=3)


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
    """A query of a few offsets requests only the part of the object that has them."""
    archive.put_segment("t", 0, batches(*((start, start + 10) for start in range(0, 100, 10))))
    archive.commit("t", 100)
    with archive.store:
        found = archive.offsets(subscribe="t", startingOffsets='{"t": {"0": 42}}', endingOffsets='{"t": {"0": 57}}')
    assert found == list(range(42, 57))
