"""The view of a partition, from a snapshot of its objects."""

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.archive.catalog import StoredSegment, read_catalog
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.gap_records import Gap
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.view import living_line, open_view
from ts_common.errors import ObjectNotFound
from ts_common.model import TopicPartition

KEYS = ClusterKeys(CLUSTER).partition(TopicPartition("t", 0))


def view_of(archive: MadeArchive) -> PartitionView:
    return open_view(archive.store, read_catalog(archive.store, KEYS))


def put(archive: MadeArchive, *bases: int) -> None:
    """Store segments of ten offsets each."""
    for base in bases:
        archive.put_segment("t", base, batches((base, base + 10)))


def test_a_view_reaches_from_log_start_to_the_next_offset(archive: MadeArchive) -> None:
    """Copies below it are retired, and later segments are not part of it."""
    put(archive, 0, 10, 20, 30)
    archive.commit("t", 30, log_start=15, last_stable_offset=27)
    view = view_of(archive)
    assert (view.partition, view.start, view.end) == (TopicPartition("t", 0), 15, 30)
    assert [copy.base for copy in view.copies] == [10, 20]
    assert [copy.base for copy in view.retired] == [0]
    assert (view.last_stable_offset, view.warning) == (27, None)


@pytest.mark.parametrize(
    ("bases", "gap", "end", "expected"),
    [
        ((0, 10, 20, 30), None, 40, 0),
        ((0, 20, 30), None, 40, 20),
        ((0, 20, 30), (10, 20), 40, 0),
        ((0, 20, 30), None, 10, 0),
        ((0, 20, 30), None, 15, 15),
        ((20, 30), None, 10, 10),
        ((), None, 30, 30),
    ],
    ids=["whole", "a hole", "a recorded gap", "below the hole", "to the hole", "below all", "nothing"],
)
def test_the_lowest_offset_without_a_hole_counts_hidden_segments(
    archive: MadeArchive, bases: tuple[int, ...], gap: tuple[int, int] | None, end: int, expected: int
) -> None:
    """It is where an archive begins whose `log.start` is lost, and the most that an unknown floor can be."""
    put(archive, *bases)
    if gap is not None:
        archive.store.put(KEYS.gap(*gap), Gap(*gap, "lost", 0, 1).encode())
    archive.commit("t", 40, log_start=20, highest_base=30)
    assert view_of(archive).lowest_whole(end) == expected


@pytest.mark.parametrize("start", [0, 15, 20, 40])
def test_what_is_below_log_start_can_be_part_of_a_view(archive: MadeArchive, start: int) -> None:
    """It is the view that a lower `log.start` has; it never begins higher."""
    put(archive, 0, 10, 20, 30)
    archive.commit("t", 40, log_start=20, highest_base=30)
    found = view_of(archive).with_hidden(start)
    archive.commit("t", 40, log_start=min(start, 20), highest_base=30)
    assert found == view_of(archive)


def test_a_damaged_object_stays_replaced_by_a_good_copy_below_log_start(archive: MadeArchive) -> None:
    """The leader's segments end elsewhere than the damaged `[0, 30)`, so the copy that names it is retired first."""
    archive.put_segment("t", 0, batches((0, 30)))
    archive.put_segment("t", 0, batches((0, 10)), variant=True)
    archive.put_segment("t", 10, batches((10, 20)))
    (good,) = [info.key for info in archive.store.list(KEYS.prefix) if ".e0." in info.key]
    metadata = {**archive.store.head(good).metadata, "ts-replaces": SegmentName(0).stem}
    archive.store.put(good, archive.store.get(good)[0], metadata=metadata)
    for log_start in (0, 10):
        archive.commit("t", 30, log_start=log_start)
        view = view_of(archive)
        assert view.own.replaced == {SegmentName(0).stem}
        steps = [step for step in view.plan(log_start, 30) if isinstance(step, ReadRange)]
        assert [(step.start, step.copies[0].base) for step in steps[-2:]] == [(10, 10), (20, 0)]
    archive.put_segment("t", 10, batches((10, 20)), variant=True)
    view = view_of(archive)
    (first, _) = view.with_spares(step for step in view.plan(10, 30) if isinstance(step, ReadRange))
    assert [spare.copies[0].base for spare in first.spares] == [10, 0]  # the damaged one last


def test_without_a_commit_the_view_is_empty_with_its_state(archive: MadeArchive) -> None:
    """The end of the run is unknown; a partition without segments has no warning."""
    assert (view_of(archive).warning, view_of(archive).state) == (None, CommitState.EMPTY)
    put(archive, 10)
    view = view_of(archive)
    assert (view.start, view.end, view.stored_end, view.state) == (10, 10, 11, CommitState.BEGINNING)
    assert view.warning == (
        f"t-0: beginning: 1 segment from offset 10 on and no {KEYS.commit} yet; its first upload may be under way; "
        "readers return none of its records"
    )
    archive.age(16 * 60)
    assert view_of(archive).state is CommitState.MISSING
    archive.commit("t", 20)
    archive.store.put(KEYS.log_start, b"what")
    assert (view_of(archive).state, view_of(archive).end) == (CommitState.DAMAGED, 10)


def test_a_missing_log_start_is_a_warning(archive: MadeArchive) -> None:
    """The view then begins at the first stored segment."""
    put(archive, 10, 20)
    archive.commit("t", 30, log_start=None)
    view = view_of(archive)
    assert view.start == 10
    assert view.warning is not None
    assert f"{KEYS.log_start} is missing" in view.warning


def test_a_commit_without_segments_is_a_hole(archive: MadeArchive) -> None:
    """The commit's first epoch has the beginning of the archive, so that the loss is visible."""
    archive.commit("t", 30, epochs=((2, 5),), log_start=None)
    view = view_of(archive)
    assert view.plan(view.start, view.end) == (Hole(5, 30, recorded=False),)


def test_a_foreign_commit_ends_with_the_last_copy(archive: MadeArchive) -> None:
    """The Java uploader's commit names a segment but no end; the copies give the epochs."""
    put(archive, 0, 10)
    archive.store.put(KEYS.commit, b"%020d" % 10)
    view = view_of(archive)
    assert (view.start, view.end, view.epochs.pairs) == (0, 20, ((0, 0),))
    archive.store.delete([KEYS.segment(SegmentName(10))])
    assert view_of(archive).plan(0, 11)[-1] == Hole(10, 11, recorded=False)


def test_a_segment_removed_below_the_start_is_accepted(archive: MadeArchive) -> None:
    """Retention removes only segments that end at or below the start."""
    put(archive, 0, 10, 20)
    archive.commit("t", 30, log_start=10)
    catalog = read_catalog(archive.store, KEYS)
    archive.store.delete([KEYS.segment(SegmentName(0))])
    assert [copy.base for copy in open_view(archive.store, catalog).copies] == [10, 20]


@pytest.mark.parametrize(("base", "log_start"), [(10, 10), (0, 5)])
def test_r11_a_removed_segment_of_the_view_is_an_error(archive: MadeArchive, base: int, log_start: int) -> None:
    """A base inside the view, or a hole without a record, shows that the segment belongs to the view."""
    put(archive, 0, 10, 20)
    archive.commit("t", 30, log_start=log_start)
    catalog = read_catalog(archive.store, KEYS)
    archive.store.delete([KEYS.segment(SegmentName(base))])
    with pytest.raises(ObjectNotFound, match=rf"removed after it was listed .* begins at {log_start}; run the query"):
        open_view(archive.store, catalog)


def test_a_removed_segment_of_the_view_is_an_error_even_if_another_copy_covers_it(archive: MadeArchive) -> None:
    """The removed copy can have had records that compaction removed from the other copy."""
    put(archive, 0, 10, 20)
    archive.put_segment("t", 10, batches((10, 20)), variant=True)
    archive.commit("t", 30)
    catalog = read_catalog(archive.store, KEYS)
    archive.store.delete([KEYS.segment(SegmentName(10))])
    with pytest.raises(ObjectNotFound, match="removed after it was listed"):
        open_view(archive.store, catalog)


def copy(*epochs: tuple[int, int]) -> SegmentCopy:
    """Return a copy with these epochs."""
    metadata = SegmentMetadata(100, epochs, 100, 1, 1, 0)
    return SegmentCopy(KEYS, StoredSegment(SegmentName(epochs[0][1]), 1, frozenset()), metadata)


def test_copies_without_a_list_give_the_highest_epoch_at_each_offset() -> None:
    """An epoch that begins at or after a higher one has no live batch; magic 0 and 1 have no epoch."""
    copies = [copy((0, 0), (2, 50)), copy((1, 20), (2, 40)), copy((1, 60)), copy((NO_EPOCH, 0), (3, 90))]
    assert living_line(copies).pairs == ((0, 0), (1, 20), (2, 40), (3, 90))
    assert living_line(copies, most=1).pairs == ((0, 0), (1, 20))
    assert living_line([copy((NO_EPOCH, 0), (3, 90))]).pairs == ((3, 90),)
    assert living_line([copy((0, 30)), copy((4, 10))]).pairs == ((4, 10),)
