"""Objects of a later release in an archive that is queried."""

from collections.abc import Callable
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.made_archive import batches
from tests.spark.archives import Archive
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.errors import NewerFormat

TOPIC = "t"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """One segment of ten records, committed."""
    made = Archive(tmp_path / "store")
    made.put_segment(TOPIC, 0, batches((0, 10)))
    made.commit(TOPIC, 10)
    return made


def later_commit(archive: Archive, keys: PartitionKeys) -> str:
    archive.store.put(keys.commit, b'00000000000000000000\n{"version":3}\n')
    return keys.commit


def later_incarnations(archive: Archive, _: PartitionKeys) -> str:
    key = archive.keys.incarnations(TOPIC)
    archive.store.put(key, b'{"version":2}')
    return key


def later_metadata(archive: Archive, keys: PartitionKeys) -> str:
    key = keys.segment(SegmentName(0))
    archive.store.put(key, archive.store.get(key)[0], metadata={"ts-version": "2"})
    return key


@pytest.mark.parametrize("make", [later_commit, later_incarnations, later_metadata])
def test_a_query_names_the_object_of_a_later_release(
    archive: Archive, make: Callable[[Archive, PartitionKeys], str]
) -> None:
    """The query fails and names what to upgrade: rows of an unknown format are not returned."""
    key = make(archive, archive.partition(TOPIC))
    with pytest.raises(NewerFormat, match=r"is written in version [23] .* upgrade this one") as refused:
        archive.offsets(subscribe=TOPIC)
    assert key in str(refused.value)


def test_a_cache_object_of_a_later_release_costs_time_and_no_rows(archive: Archive) -> None:
    """The segments' own metadata has the same content."""
    text = b'{"version":2}'
    archive.store.put(archive.partition(TOPIC).cache_object(0), b"%08x\n%b\n" % (crc32c(text), text))
    assert archive.offsets(subscribe=TOPIC) == list(range(10))
