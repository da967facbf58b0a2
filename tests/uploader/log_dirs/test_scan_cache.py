"""How much is remembered of segments that could not be shipped yet."""

import io

from tests.common.log_format import build
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_uploader.log_dirs.scan_cache import RememberedScans
from ts_uploader.messages.observations import FileState


def scan(markers: int = 0) -> SegmentScan:
    abort = [build.record(0, key=b"\0\0\0\0")]
    aborts = (build.batch(offset, abort, attributes=0x30, producer_id=9) for offset in range(1, markers + 1))
    data = b"".join([build.batch(0, [build.record(0)]), *aborts])
    return scan_segment(io.BytesIO(data), len(data))


def state(inode: int) -> FileState:
    return FileState(1, inode, 100, 0)


def test_the_scan_that_was_not_used_for_longest_gives_way() -> None:
    """A bound on memory: a scan of a segment without anything special weighs 9."""
    scans = RememberedScans(27)
    for inode in range(3):
        scans.remember(state(inode), scan())
    assert scans.get(state(0)) == scan()
    scans.remember(state(3), scan())
    assert [inode for inode in range(4) if scans.get(state(inode)) is None] == [1]


def test_a_scan_weighs_as_much_as_there_is_in_it() -> None:
    """A segment full of aborted transactions replaces many others, or is not cached at all."""
    scans = RememberedScans(40)
    for inode in range(4):
        scans.remember(state(inode), scan())
    scans.remember(state(9), scan(markers=20))
    assert [inode for inode in range(4) if scans.get(state(inode)) is not None] == [3]
    assert scans.get(state(9)) is not None
    scans.remember(state(8), scan(markers=40))
    assert scans.get(state(8)) is None


def test_what_is_forgotten_or_replaced_weighs_nothing() -> None:
    """Else the room would shrink with every segment that is shipped."""
    scans = RememberedScans(18)
    for _ in range(10):
        scans.remember(state(0), scan())
        scans.remember(state(0), scan())
        scans.remember(state(1), scan())
        assert scans.get(state(0)) is not None
        scans.forget(state(0))
        assert scans.get(state(0)) is None
    assert scans.get(state(1)) is not None
