"""The metadata of one stored segment, also if a Java uploader wrote it."""

import struct
from dataclasses import replace

import pytest

from tests.made_archive import CLUSTER, BytesReader, MadeArchive, batches
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_inspection import describe_segment, metadata_of, scan_object
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import CorruptData
from ts_common.log_format.scan import scan_segment
from ts_common.model import TopicPartition

KEYS = ClusterKeys(CLUSTER).partition(TopicPartition("t", 0))
NAME = SegmentName(0)
KEY = KEYS.segment(NAME)
FIRST, LAST = batches((0, 10)), batches((10, 15))


def described(archive: MadeArchive, log: bytes, index: bytes | None = None) -> SegmentMetadata:
    """Store a segment without metadata, with or without an index, and return what is read of it."""
    archive.store.put(KEY, log)
    if index is not None:
        archive.store.put(KEYS.segment(NAME, ".index"), index)
    return describe_segment(archive.store, KEYS, NAME, len(log), has_index=index is not None)


def index_to(position: int) -> bytes:
    """Return an offset index with one entry, for offset 10."""
    return struct.pack(">ii", 10, position)


def test_metadata_of_the_object_is_used_as_it_is(archive: MadeArchive) -> None:
    """The segment is not read, so that even a wrong end is returned."""
    archive.put_segment("t", 0, FIRST + LAST, end=99)
    found = describe_segment(archive.store, KEYS, NAME, len(FIRST + LAST), has_index=False)
    assert (found.end, found.rebuilt) == (99, False)


def test_missing_epochs_are_read_in_the_segment(archive: MadeArchive) -> None:
    """Metadata with more than 16 epochs has no list of them."""
    log = b"".join(batches((n, n + 1), epoch=n) for n in range(17))
    metadata = metadata_of(scan_segment(BytesReader(log), len(log)), 0, KEY)
    archive.store.put(KEY, log, metadata=replace(metadata, rebuilt=False).encode())
    found = describe_segment(archive.store, KEYS, NAME, len(log), has_index=False)
    assert found.epochs == tuple((n, n) for n in range(17))


@pytest.mark.parametrize(
    ("batches_of", "expected"),
    [
        ([(69, 572)], ((69, 572), (71, 584))),  # compaction removed the batches of epoch 71
        ([(69, 572), (71, 590)], ((69, 572), (71, 590))),
        ([], ((71, 584),)),
    ],
)
def test_the_last_of_many_epochs_counts_without_a_batch(
    archive: MadeArchive, batches_of: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]
) -> None:
    """Else the offsets from its start on would look like a dead tail, and be a hole for ever."""
    log = b"".join(batches((first, first + 2), epoch=epoch) for epoch, first in batches_of)
    history = EpochHistory((*((n, 10 * n) for n in range(20)), (69, 560), (71, 584)))
    metadata = metadata_of(scan_segment(BytesReader(log), len(log)), 0, KEY)
    stored = replace(metadata, rebuilt=False, end=938, epochs=history.pairs).encode()
    assert "ts-epochs" not in stored
    archive.store.put(KEY, log, metadata=stored)
    found = describe_segment(archive.store, KEYS, NAME, len(log), has_index=False)
    assert found.epochs == expected
    assert history.live_end(found.epochs or (), 0, 938) == 938
    assert EpochHistory(((70, 0), (72, 584))).live_end(found.epochs or (), 0, 938) < 938


def test_a_segment_of_one_epoch_is_read_at_both_ends_only(archive: MadeArchive) -> None:
    """Damage between the first header and the last index entry is then not seen, and the CRC-32C is unknown."""
    log = FIRST[:-1] + b"x" + LAST
    found = described(archive, log, index_to(len(FIRST)))
    assert (found.end, found.epochs, found.records, found.crc32c, found.rebuilt) == (15, ((0, 0),), None, 0, True)
    assert found.corruptions == 0


@pytest.mark.parametrize(
    ("log", "index"),
    [
        (FIRST + LAST, None),
        (FIRST + LAST, b""),
        (FIRST + LAST, index_to(len(FIRST) + 1)),
        (FIRST + LAST, index_to(10**6)),
        (FIRST + batches((10, 15), epoch=2), index_to(len(FIRST))),
    ],
    ids=["no index", "an empty index", "an entry inside a batch", "an entry after the end", "two epochs"],
)
def test_otherwise_the_whole_segment_is_read(archive: MadeArchive, log: bytes, index: bytes | None) -> None:
    """Without an index that leads to a batch of the first epoch, all headers are read."""
    found = described(archive, log, index)
    assert (found.end, found.records) == (15, 15)
    assert (
        found.crc32c
        == scan_segment(BytesReader(log), len(log)).crc32c
        == scan_object(archive.store, KEY, len(log)).crc32c
    )
    assert found.epochs == (((0, 0),) if log == FIRST + LAST else ((0, 0), (2, 10)))


def test_damage_after_the_last_index_entry_is_counted(archive: MadeArchive) -> None:
    """A damaged place in what is read causes a read of the whole segment, which counts all places."""
    log = FIRST[:-1] + b"x" + LAST + LAST[:-1] + b"x" + batches((15, 20))
    assert described(archive, log, index_to(len(FIRST))).corruptions == 2


def test_an_empty_segment_covers_nothing_and_garbage_is_an_error(archive: MadeArchive) -> None:
    """Compaction can leave a segment without batches; bytes without a batch are damage."""
    assert described(archive, b"").end == 0
    with pytest.raises(CorruptData, match=r"00000\.log: no batch in its 500 bytes"):
        described(archive, b"x" * 500)
