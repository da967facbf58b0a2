"""The search of an erasure: every copy, with the epochs of batches; what cannot be read is named."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from ts_common.archive.commit import LogStart
from ts_common.archive.object_keys import SegmentName
from ts_reader.decode.columns import Projection
from tsctl.erase.searching import Searched, search, with_keys

KEYS = Projection(value=False, headers=False)


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """A copy below the start, one in view, another leader's with a dead tail, and one above the next offset."""
    made = MadeArchive(tmp_path / "bucket")
    made.put_segment("t", 0, batches(*steps(0, 20), epoch=1))
    made.put_segment("t", 20, batches(*steps(20, 40), epoch=1))
    made.put_segment("t", 30, batches((30, 40), epoch=2) + batches((40, 50), epoch=3))
    made.put_segment("t", 50, batches((50, 60), epoch=3))
    made.commit("t", 50, epochs=((1, 0), (3, 40)), highest_base=30)
    made.store.put(made.partition("t").log_start, LogStart(20, floor=0, written_by="gc-1").encode())
    return made


def found(archive: MadeArchive, *keys: int, end: int = 100) -> Searched:
    wanted = frozenset(b"%d" % key for key in keys)
    return search(archive.store, archive.partition("t"), end, KEYS, with_keys(wanted))


def test_all_copies_are_searched_and_the_greatest_epoch_of_a_batch_counts(archive: MadeArchive) -> None:
    """Offset 5 is below the start, 35 has epoch 1 in view and 2 in a dead tail, 55 is above the next offset."""
    searched = found(archive, 5, 25, 35, 45, 55, 99)
    assert list(searched.offsets) == [(5, 6, 1), (25, 26, 1), (35, 36, 2), (45, 46, 3), (55, 56, 3)]
    assert (searched.copies, searched.unread) == (4, [])


def test_records_from_the_end_on_are_not_found(archive: MadeArchive) -> None:
    """The same key is visible if it is produced later."""
    assert list(found(archive, 5, 35, 45, end=45).offsets) == [(5, 6, 1), (35, 36, 2)]


def test_a_damaged_copy_is_named_and_searched_up_to_its_damage(archive: MadeArchive) -> None:
    """A person must not count as erased while a copy is unread."""
    key = archive.partition("t").segment(SegmentName(0))
    body, info = archive.store.get(key)
    changed = bytearray(body)
    changed[-1] ^= 1
    archive.store.put(key, bytes(changed), metadata=dict(info.metadata))
    searched = found(archive, 5, 15, 25)
    assert list(searched.offsets) == [(5, 6, 1), (25, 26, 1)]
    assert len(searched.unread) == 1
    assert key in searched.unread[0]
