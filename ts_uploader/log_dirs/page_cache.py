"""Reading the broker's files as a guest: the page cache is left as it was found.

Kafka lives by the page cache, so whoever reads old segments beside it must neither leave them there nor throw out what
the broker had. So before a range is read, its pages are asked for with `RWF_NOWAIT`, which answers only from the cache
(preadv(2)); those that are not there are ours, and go back with `POSIX_FADV_DONTNEED` when the file is closed, after
the last read and not between. (`mincore` would tell the same, but not to a user who may not write the file.)

The kernel reads nothing ahead on these descriptors (`POSIX_FADV_RANDOM`), or its pages could not be told from the
broker's. What is about to be read is asked for a block ahead instead (`POSIX_FADV_WILLNEED`), so that the disk works
while we do. A refused question makes the kernel read that page, and a question costs as much as a read, so not every
page is asked for, but one in `_SAMPLE_PAGES`, and fewer and fewer where all are cached, as a segment is that was just
written; between two that agree all are taken to be alike, and where they differ each is asked for. What the broker
cached in one piece of 32 KiB or more stays to the page; of smaller pieces amid pages that are ours some may go, and
holes of less than `_MOST_SAMPLE_PAGES` amid cached ones may be filled. What was cached when it was first asked for is
not asked for again: should it go meanwhile, reading it puts back what was there.
"""

import errno
import os
import re
import threading
from typing import Final

import structlog

from ts_uploader.progress import beat

log = structlog.get_logger()

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_PAGES: Final = 8
_MOST_SAMPLE_PAGES: Final = 64
# What is known of a page.
_UNKNOWN: Final = 0
_OURS: Final = 1
_CACHED: Final = 2  # before us
_RUN_OF_OURS: Final = re.compile(b"\1+")
_UNTOLD: Final = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}

_told = threading.Event()  # that a file system cannot say what is cached: once for the process


class PulledPages:
    """The pages of one open file that we pulled into the page cache; for one thread at a time.

    A byte for each page is kept: 256 KiB for a segment of 1 GiB. Where the file system cannot say what is cached (some
    network file systems), nothing is known to be ours and nothing is handed back.

    Args:
        descriptor: open for reading, and read by nobody else.
        size: of the file, in bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._pages = -(-size // PAGE_BYTES)
        self._known = bytearray(self._pages)
        self._byte = bytearray(1)
        self._tells = True
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def expect(self, start: int, end: int) -> None:
        """Note which pages of the bytes `[start, end)` are not cached, and have the kernel begin to read them."""
        beat()
        first, last = start // PAGE_BYTES, min(-(-end // PAGE_BYTES), self._pages) - 1
        page = first // _SAMPLE_PAGES * _SAMPLE_PAGES
        if last < page or self._known.find(_UNKNOWN, page, last + 1) < 0:
            return
        wanted: list[list[int]] = []
        stride = _SAMPLE_PAGES
        missing = self._is_missing(page)
        while page <= last and self._tells:
            following = min(page + stride, self._pages - 1)
            missing_next = self._is_missing(following)
            if missing and missing_next:
                self._know(page, following, _OURS)
                if wanted and wanted[-1][1] == page:
                    wanted[-1][1] = following
                else:
                    wanted.append([page, following])
            elif missing or missing_next:
                for between in range(page + 1, following):
                    self._is_missing(between)
            else:
                self._know(page, following, _CACHED)
            if following == page:
                break
            stride = _SAMPLE_PAGES if missing or missing_next else min(2 * stride, _MOST_SAMPLE_PAGES)
            page, missing = following, missing_next
        for begin, behind in wanted:
            self._advise(begin, behind + 1, os.POSIX_FADV_WILLNEED)

    def hand_back(self) -> None:
        """Drop what is ours; pages that somebody maps or writes meanwhile the kernel keeps."""
        for run in _RUN_OF_OURS.finditer(self._known):
            self._advise(run.start(), run.end(), os.POSIX_FADV_DONTNEED)
        self._known = bytearray(self._pages)

    def _know(self, page: int, last: int, state: int) -> None:
        """Take the pages from one to another for alike, but for what is known of some."""
        self._known[page : last + 1] = self._known[page : last + 1].replace(b"\0", bytes((state,)))

    def _is_missing(self, page: int) -> bool:
        """Whether a page was not cached before us; if so it is ours from now on."""
        if not self._known[page] and self._tells:
            try:
                os.preadv(self._descriptor, [self._byte], page * PAGE_BYTES, os.RWF_NOWAIT)
                self._known[page] = _CACHED
            except BlockingIOError:
                self._known[page] = _OURS
            except OSError as error:
                if error.errno in _UNTOLD:
                    self._do_without(error)  # else the read itself will say what is wrong
        return self._known[page] == _OURS

    def _do_without(self, error: OSError) -> None:
        self._tells = False
        self._known = bytearray(self._pages)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_NORMAL)
        if not _told.is_set():
            _told.set()
            log.warning(
                "page_cache_not_released",
                message="the file system does not report which pages were cached",
                error=str(error),
            )

    def _advise(self, begin: int, behind: int, advice: int) -> None:
        os.posix_fadvise(self._descriptor, begin * PAGE_BYTES, (behind - begin) * PAGE_BYTES, advice)
