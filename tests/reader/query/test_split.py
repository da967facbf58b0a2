"""The bytes of a range, estimated."""

from dataclasses import replace

from tests.made_archive import MadeArchive, batches, steps
from tests.made_views import ranges_of, view_of
from ts_reader.query.split import bytes_of


def test_a_range_has_its_share_of_the_bytes_of_each_copy(archive: MadeArchive) -> None:
    """By offsets; a range of several copies reads all of them."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log)
    archive.commit("t", 100)
    (whole,) = ranges_of(view_of(archive))
    assert bytes_of(whole) == len(log)
    assert bytes_of(replace(whole, start=25, end=50)) == len(log) // 4
    assert bytes_of(replace(whole, copies=whole.copies * 2)) == 2 * len(log)
