"""What waits, by the sizes of its files."""

from dataclasses import replace

from tests.uploader.local_directory import LocalDirectory
from ts_uploader.backlog import BytesBehind, bytes_behind, retention_left
from ts_uploader.retention import TopicRetention

BASES = (0, 10, 20, 30)


def filled(local: LocalDirectory) -> None:
    """Segments of 1, 2, 3 and 4 bytes."""
    for count, base in enumerate(BASES, 1):
        local.write(base, bytes(count))


def test_what_is_behind_a_segment_is_the_log_from_the_next_one_on(local: LocalDirectory) -> None:
    """The active segment counts; the segment itself does not, nor what retention has renamed."""
    filled(local)
    local.rename(0)
    behind = BytesBehind()
    for base, expected in ((0, 9), (10, 7), (20, 4), (30, 0)):
        assert behind(local.listing(), base) == bytes_behind(local.listing(), base) == expected


def test_the_files_of_a_listing_are_looked_at_once(local: LocalDirectory) -> None:
    """However many of its segments are asked of; another listing is looked at anew."""
    filled(local)
    listing, behind = local.listing(), BytesBehind()
    assert behind(listing, 0) == 9
    local.write(30, bytes(40))
    assert [behind(listing, base) for base in BASES] == [9, 7, 4, 0]
    assert behind(replace(listing, taken_at=listing.taken_at + 1), 0) == 45


def test_retention_by_size_goes_by_what_is_behind(local: LocalDirectory) -> None:
    """By whichever way it is looked up."""
    filled(local)
    retention = TopicRetention(retention_ms=None, retention_bytes=18)
    assert retention_left(local.listing(), 0, retention) == 0.5
    assert retention_left(local.listing(), 0, retention, BytesBehind()) == 0.5
