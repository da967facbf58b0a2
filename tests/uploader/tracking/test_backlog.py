"""The backlog, by the sizes of its files."""

import os
import shutil

from tests.uploader.local_directory import LocalDirectory
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.tracking.backlog import retention_left

BASES = (0, 10, 20, 30)


def filled(local: LocalDirectory) -> None:
    """Segments of 1, 2, 3 and 4 bytes."""
    for count, base in enumerate(BASES, 1):
        local.write(base, bytes(count))


def aged(local: LocalDirectory) -> None:
    """Give the directory an old time, as if nothing in it had been renamed for a while."""
    os.utime(local.path, (1, 1))


def test_what_is_behind_a_segment_is_the_log_from_the_next_one_on(local: LocalDirectory) -> None:
    """The active segment counts. The segment itself does not, nor do segments that retention has renamed."""
    filled(local)
    local.rename(0)
    sizes = SegmentSizes()
    assert [sizes.behind(local.listing(), base) for base in BASES] == [9, 7, 4, 0]
    assert [sizes.closed_from(local.listing(), base) for base in BASES] == [5, 5, 3, 0]


def test_a_closed_segment_is_looked_at_once_while_nothing_is_renamed(local: LocalDirectory) -> None:
    """Each file is read once, except for the active one; after a change of the directory all are read again."""
    filled(local)
    aged(local)
    sizes = SegmentSizes()
    assert sizes.behind(local.listing(), 0) == 9
    for base, size in ((10, 7), (30, 40)):  # in place: the directory does not show it
        local.write(base, bytes(size))
    assert [sizes.behind(local.listing(), base) for base in BASES] == [45, 43, 40, 0]
    local.write(35, bytes(1))
    local.unlink(35)
    assert [sizes.behind(local.listing(), base) for base in BASES] == [50, 43, 40, 0]


def test_a_change_within_the_same_tick_is_not_missed(local: LocalDirectory) -> None:
    """The directory's time is coarse, so sizes that were read just after a change are read again."""
    filled(local)
    sizes = SegmentSizes()
    changed = local.path.stat().st_mtime_ns
    assert sizes.closed_from(local.listing(), 0) == 6
    local.write(10, bytes(7))
    os.utime(local.path, ns=(changed, changed))
    assert sizes.closed_from(local.listing(), 0) == 11


def test_a_missing_directory_has_no_bytes(local: LocalDirectory) -> None:
    """A partition whose sizes were forgotten is read again, and the result is the same."""
    filled(local)
    aged(local)
    listing, sizes = local.listing(), SegmentSizes()
    assert sizes.behind(listing, 0) == 9
    shutil.rmtree(local.path)
    assert (sizes.behind(listing, 0), sizes.closed_from(listing, 10)) == (0, 0)
    sizes.forget(listing.partition)


def test_retention_by_size_depends_on_the_bytes_behind_a_segment(local: LocalDirectory) -> None:
    """Half of the retention size is above the first segment."""
    filled(local)
    retention = TopicRetention(retention_ms=None, retention_bytes=18)
    assert retention_left(local.listing(), 0, retention, SegmentSizes().behind) == 0.5
