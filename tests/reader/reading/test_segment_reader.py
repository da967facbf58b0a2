"""The segment reader: where it begins, what it checks, and what its errors name."""

from contextlib import AbstractContextManager

import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches, steps
from tests.made_indexes import index_of
from tests.made_views import only_copy
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ByteRange, ObjectStream
from ts_common.store.directory.driver import FileStore
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_reader.decode.columns import Projection
from ts_reader.reading.segment_reader import SegmentReader

OFFSETS_ONLY = Projection(key=False, value=False, headers=False)


def offsets(archive: MadeArchive, start: int, end: int) -> list[int]:
    reader = SegmentReader(archive.store, OFFSETS_ONLY, erased=NOTHING_ERASED, way_out="Pass mode")
    return [int(offset) for columns in reader.read(only_copy(archive), start, end) for offset in columns.offsets]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the positions where reads of segments began, except of single headers."""
    positions: list[int] = []
    opened = FileStore.open

    def noted(self: FileStore, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        if key.endswith(".log") and (byte_range is None or byte_range.end is None):
            positions.append(byte_range.start if byte_range else 0)
        return opened(self, key, byte_range)

    monkeypatch.setattr(FileStore, "open", noted)
    return positions


def test_reading_begins_at_a_batch_that_the_index_names(archive: MadeArchive, begun: list[int]) -> None:
    """The last entry at or before the start."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log, index=index_of(log))
    archive.commit("t", 100)
    assert offsets(archive, 65, 75) == list(range(65, 75))
    assert begun == [len(batches(*steps(0, 40)))]
    copy, counts = only_copy(archive), StoreCounts()
    for _ in SegmentReader(CountedStore(archive.store, counts), OFFSETS_ONLY, erased=NOTHING_ERASED).read(copy, 65, 75):
        pass
    assert counts.requests["get"] == 2  # the index, and the segment from there on


@pytest.mark.parametrize(
    "index", [b"\xff" * 16, (50).to_bytes(4) + (99).to_bytes(4), (0).to_bytes(4) + (7).to_bytes(4)]
)
def test_r08_a_wrong_index_costs_time_and_no_rows(archive: MadeArchive, begun: list[int], index: bytes) -> None:
    """The reader starts at the first byte if no valid batch is where an entry points to."""
    archive.put_segment("t", 0, batches(*steps(0, 100)), index=index)
    archive.commit("t", 100)
    assert offsets(archive, 65, 75) == list(range(65, 75))
    assert begun[-1] == 0


def test_a_changed_base_offset_is_found_by_the_objects_crc(archive: MadeArchive) -> None:
    """A batch's own CRC does not cover it."""
    log = batch(0, [record(0)]) + batch(5, [record(0)]) + batch(9, [record(0)])
    body = bytearray(log)
    body[len(log) // 3 + 7] = 6
    archive.put_segment("t", 0, log, body=bytes(body))
    archive.commit("t", 10)
    with pytest.raises(CorruptData, match=r"t-0: prod/t-0/.* CRC-32C [0-9a-f]{8}; its metadata has .*Pass mode"):
        offsets(archive, 0, 10)


def test_a_truncated_object_is_corrupt_and_a_compacted_tail_is_not(archive: MadeArchive) -> None:
    """Both end before their coverage; only the CRC of the object distinguishes them."""
    log = batches((0, 5), (5, 10))
    archive.put_segment("t", 0, log, end=20)
    archive.commit("t", 20)
    assert offsets(archive, 0, 20) == list(range(10))
    assert offsets(archive, 12, 18) == []
    archive.put_segment("t", 0, log, body=log[: len(log) // 2], end=20)
    for start, end in ((0, 20), (7, 20), (0, 8)):
        if end > 5:
            with pytest.raises(CorruptData):
                offsets(archive, start, end)


def test_an_object_that_retention_deleted_is_named(archive: MadeArchive) -> None:
    """The plan is older than the deletion."""
    archive.put_segment("t", 0, batches((0, 5)))
    archive.commit("t", 5)
    copy = only_copy(archive)
    archive.store.delete([copy.key])
    with pytest.raises(ObjectNotFound, match=r"prod/t-0/.*\.log"):
        list(SegmentReader(archive.store, OFFSETS_ONLY, erased=NOTHING_ERASED).read(copy, 0, 5))
