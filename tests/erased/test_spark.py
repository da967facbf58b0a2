"""The person's records in Spark's data source: batches, counts, columns of corrupt records, and streams."""

from pathlib import Path

import pytest

from tests.erased.canary import GONE, STAY, Canary, canary, log_of
from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, Query
from ts_common.archive.object_keys import SegmentName


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Return an empty archive with queries by Spark's options."""
    return Archive(tmp_path / "archive")


@pytest.fixture
def person(archive: Archive) -> Canary:
    """Return it with the person's records, before anything is erased."""
    return canary(archive)


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"])
@pytest.mark.parametrize("splits", ["1", "7"])
def test_a_batch_has_no_row_of_the_person(archive: Archive, person: Canary, mode: str, splits: str) -> None:
    """In one task and in several, whose lists are cut to what they read."""
    options = {"subscribe": "t", "mode": mode, "minPartitions": splits, "includeHeaders": "true"}
    assert person.person in str(archive.rows(**options)).encode()
    person.erase()
    rows = archive.rows(**options)
    assert [row["offset"] for row in rows] == STAY
    assert person.person not in str(rows).encode()
    assert sorted(archive.offsets(subscribe="t", view="latest")) == STAY


def test_a_task_carries_the_erased_offsets_of_its_objects_only(archive: Archive, person: Canary) -> None:
    """A list of millions would be sent with each task."""
    person.erase()
    for split in archive.plan(subscribe="t", minPartitions="10").splits:
        copies = [copy for part in split.ranges for copy in part.copies]
        low, high = min(copy.base for copy in copies), max(copy.end for copy in copies)
        assert split.erased.count == len([offset for offset in GONE if low <= offset < high])


def test_a_corrupt_row_has_no_bytes_of_the_person(archive: Archive, person: Canary) -> None:
    """Though its segment is cut into tasks, and each task reads other offsets."""
    key = person.keys.segment(SegmentName(0))
    data, info = archive.store.get(key)
    broken = bytearray(data)
    broken[600] ^= 1
    archive.store.put(key, bytes(broken), metadata=dict(info.metadata))
    person.erase()
    rows = archive.rows(subscribe="t", mode="PERMISSIVE", minPartitions="5")
    (raw,) = {row["_corrupt_record"] for row in rows if row["_corrupt_record"] is not None}
    assert raw == b""
    assert person.person not in str(rows).encode()


def test_a_stream_has_no_row_of_the_person(archive: Archive, person: Canary) -> None:
    """In its first batch, and in one after a later list and commit."""
    person.erase()
    query = Query(archive, **EARLIEST)
    query.trigger()
    assert query.offsets_of() == STAY
    gone = {205, 219}
    archive.put_segment("t", 200, log_of(person.person, 200, 220, gone))
    person.erase(GONE | gone, number=2)
    archive.commit("t", 220, highest_base=200, log_start=None)
    query.trigger()
    assert query.offsets_of() == [*STAY, *(each for each in range(200, 220) if each not in gone)]
