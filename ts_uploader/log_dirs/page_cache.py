"""Reads the broker's files without changing the page cache.

Kafka depends on the page cache. Reading old segments must neither leave their pages there nor evict the broker's. So
before a range is read, its pages are queried with `RWF_NOWAIT`, which reads only from the cache (preadv(2)). Pages that
are missing are marked as the agent's, and dropped with `POSIX_FADV_DONTNEED` when the file is closed: after the last
read, not between reads. (`mincore` reports the same, but only to a user who may write the file.)

The kernel's own read-ahead is switched off on these descriptors (`POSIX_FADV_RANDOM`), since its pages could not be
distinguished from the broker's. Instead the next block is requested with `POSIX_FADV_WILLNEED`, so that the disk works
in parallel. The kernel does not drop a page that is being read, so the last requests are waited for before pages are
dropped: after a cut upload or a short look, no read has waited for them.

A small range is read by one query of all its bytes. If they are not all cached, its pages count as the agent's.

A query of a missing page makes the kernel read it, and a fast disk may answer within the query. So a page also counts
as missing if the thread made a disk read meanwhile, which the kernel counts (getrusage(2), `ru_inblock`). A query costs
as much as a read. So only one page in `_SAMPLE_PAGES` is queried, and ever fewer while all are cached, as those of a
new segment are. If two sampled pages agree, those between count the same; if they differ, each is queried.

Consequences: ranges of 32 KiB or more that the broker cached stay to the page. Smaller ranges amid the agent's pages
may be dropped, and holes of less than `_MOST_SAMPLE_PAGES` amid cached pages may be filled. A page that was cached at
its first query is not queried again; if it is evicted meanwhile, reading restores it.
"""

import errno
import os
import re
import resource
import threading
from contextlib import suppress
from typing import Final

import structlog

from ts_uploader.process.progress import beat

log = structlog.get_logger()

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
SMALL_BYTES: Final = 32 << 10
_SAMPLE_PAGES: Final = 8
_MOST_SAMPLE_PAGES: Final = 64
_UNDER_WAY: Final = 2  # the most requests that the disk may still work on: a block of the reader's may begin in another
# State of a page.
_UNKNOWN: Final = 0
_OURS: Final = 1
_CACHED: Final = 2  # before the agent read it
_RUN_OF_OURS: Final = re.compile(b"\1+")
_UNTOLD: Final = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}

_BYTE: Final = bytearray(1)  # that queries read into; none uses it
_told = threading.Event()  # set once the process has logged that a file system cannot report cached pages


class PulledPages:
    """The pages of one open file that the agent added to the page cache; for one thread at a time.

    Keeps a byte for each page once more than small cached ranges are read: 256 KiB for a segment of 1 GiB. If the file
    system cannot report cached pages (some network file systems), no page counts as the agent's, and all stay cached.

    Args:
        descriptor: open for reading, and used by no other reader.
        size: of the file, in bytes.
    """

    __slots__ = ("_blocks", "_descriptor", "_known", "_pages", "_requests", "_tells")

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._pages = -(-size // PAGE_BYTES)
        self._known = bytearray()  # empty while nothing is known
        self._tells = True
        self._blocks = 0  # that the thread has read from disks
        self._requests: tuple[tuple[int, int], ...] = ()  # the last ones: pages, both ends included
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def expect(self, start: int, end: int) -> None:
        """Record which pages of the bytes `[start, end)` are not cached, and make the kernel begin to read them."""
        beat()
        first, last = start // PAGE_BYTES, min(-(-end // PAGE_BYTES), self._pages) - 1
        page = first // _SAMPLE_PAGES * _SAMPLE_PAGES
        self._begin()
        if last < page or self._known.find(_UNKNOWN, page, last + 1) < 0:
            return
        wanted: list[list[int]] = []
        self._blocks = _blocks_read()
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
        self._requests = (*self._requests, (first, last))[-_UNDER_WAY:]

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes, at most `SMALL_BYTES`; fewer only at the end of the file."""
        beat()
        buffer, before = bytearray(size), _blocks_read()
        try:
            count = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT if self._tells else 0)
        except BlockingIOError:
            count = -1
        except OSError as error:
            if error.errno in _UNTOLD:
                self._do_without(error)
            return os.pread(self._descriptor, size, position)
        if count == size and _blocks_read() == before:
            return bytes(buffer)
        if self._tells:
            self._begin()
            first, behind = position // PAGE_BYTES, min(-(-(position + size) // PAGE_BYTES), self._pages)
            self._know(first, behind - 1, _OURS)
        return os.pread(self._descriptor, size, position)

    def hand_back(self) -> None:
        """Drop the agent's pages; the kernel keeps pages that another process maps or writes."""
        if not self._known:
            return
        for begin, last in self._requests:
            for run in _RUN_OF_OURS.finditer(self._known, begin, last + 1):
                with suppress(OSError):  # a disk that cannot read the pages adds none
                    os.pread(self._descriptor, (run.end() - run.start()) * PAGE_BYTES, run.start() * PAGE_BYTES)
        self._requests = ()
        for run in _RUN_OF_OURS.finditer(self._known):
            self._advise(run.start(), run.end(), os.POSIX_FADV_DONTNEED)
        self._known = bytearray()

    def _begin(self) -> None:
        if not self._known:
            self._known = bytearray(self._pages)

    def _know(self, page: int, last: int, state: int) -> None:
        """Set the state of a range of pages, except where it is known."""
        self._known[page : last + 1] = self._known[page : last + 1].replace(b"\0", bytes((state,)))

    def _is_missing(self, page: int) -> bool:
        """Return whether a page was missing at its first query; then it is the agent's from now on."""
        if not self._known[page] and self._tells:
            try:
                os.preadv(self._descriptor, [_BYTE], page * PAGE_BYTES, os.RWF_NOWAIT)
                missing = False
            except BlockingIOError:
                missing = True
            except OSError as error:
                if error.errno in _UNTOLD:
                    self._do_without(error)
                return False  # for other errors, the read itself fails with the reason
            before, self._blocks = self._blocks, _blocks_read()
            self._known[page] = _OURS if missing or self._blocks > before else _CACHED
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


def _blocks_read() -> int:
    """Return how many blocks of 512 bytes this thread has made disks read."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
