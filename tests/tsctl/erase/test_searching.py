"""The search of an erasure: every copy, with the epochs of batches; what cannot be read is named."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, plain, ship
from tests.made_views import view_of
from ts_common.archive.commit import LogStart
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import ObjectStore
from ts_reader.find.building import build, lacking
from tsctl.erase.criteria import AtOffsets, Criterion, WithKeys
from tsctl.erase.searching import Searched, search


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
    return searched_for(archive, WithKeys(frozenset(b"%d" % key for key in keys)), end)


def searched_for(archive: MadeArchive, criterion: Criterion, end: int = 0) -> Searched:
    return search(archive.store, archive.partition("t"), criterion, end=end)


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


def test_given_offsets_read_the_copies_that_cover_them(archive: MadeArchive) -> None:
    """An epoch that is given counts as it is; an offset without a record is hidden up to the commit's epoch."""
    prefix = archive.partition("t").prefix
    searched = searched_for(archive, AtOffsets({prefix: {35: None, 45: 2, 49: None}}), 60)
    assert list(searched.offsets) == [(35, 36, 2), (45, 46, 2), (49, 50, 3)]
    assert (searched.copies, searched.left_out, searched.assumed) == (2, 2, 0)
    lost = searched_for(archive, AtOffsets({prefix: {70: None}}), 80)
    assert list(lost.offsets) == [(70, 71, 3)]
    assert (lost.copies, lost.assumed) == (0, 1)


def test_an_index_of_keys_leaves_out_copies_and_dead_tails_are_read(archive: MadeArchive) -> None:
    """What no index has, as a dead copy, is read; the offsets are those of a search without one."""
    expected = list(found(archive, 5, 25).offsets)
    view = view_of(archive, "t", 0)
    prefix = archive.keys.find(view.keys.incarnation)
    built = build(archive.store, prefix, lacking(view, ()), most_share=100)
    assert built.objects > 0
    searched = found(archive, 5, 25)
    assert list(searched.offsets) == expected
    assert (searched.copies, searched.left_out) == (3, 1)


def test_entries_of_a_live_tail_are_searched_up_to_its_end(tmp_path: Path) -> None:
    """E is the end of the tail; the record is hidden there, and in the segment that ships it later."""
    made = MadeArchive(tmp_path / "bucket")
    ship(made)
    MadeTail(made).put(plain(made, (100, 130)))
    searched = searched_for(made, WithKeys(frozenset({b"7", b"120"})))
    assert (searched.end, searched.following) == (130, 100)
    assert list(searched.offsets) == [(7, 8, 0), (120, 121, 0)]


def test_a_pack_that_a_merge_deletes_during_the_search_is_named_with_the_way_out(tmp_path: Path) -> None:
    """The records have another place by then, which the same command finds."""
    made = MadeArchive(tmp_path / "bucket")
    ship(made)
    (tail := MadeTail(made)).put(plain(made, (100, 130)))

    class Late(WithKeys):
        def that_can_have(self, store: ObjectStore, copies: Sequence[SegmentCopy]) -> Sequence[SegmentCopy]:
            store.delete([tail.newest])
            return super().that_can_have(store, copies)

    (why,) = searched_for(made, Late(frozenset({b"120"}))).unread
    assert "pack of the live tail meanwhile; repeat the command" in why
    assert "Spark" not in why
