"""Caches scans of segments that could not be shipped yet, so that a retry reads no bytes before the upload itself.

A cached scan is always verified: the store rejects a body without the CRC of the scan, and the uploader then drops the
scan. A stale entry only costs memory, so the size limit is the only cleanup.
"""

import os
import threading
from collections import OrderedDict
from typing import Final

from ts_common.log_format.scan import SegmentScan
from ts_uploader.log_dirs.segment_file import OpenLog
from ts_uploader.messages.observations import FileState

# A scan uses about 900 bytes, and 120 for each pair in it. So the limit is 4 MB, and fewer than 4096 segments.
_SCAN_WEIGHT: Final = 8
WEIGHT_LIMIT: Final = 4096 * _SCAN_WEIGHT


def file_state(log: OpenLog) -> FileState:
    """Return the state of an open log; call it before reading, so that a change meanwhile gives another state."""
    status = os.fstat(log.descriptor)
    return FileState(status.st_dev, status.st_ino, log.size, status.st_ctime_ns)


class RememberedScans:
    """The scans that were used last; thread-safe.

    Args:
        weight_limit: of all of them together; see `WEIGHT_LIMIT`.
    """

    def __init__(self, weight_limit: int = WEIGHT_LIMIT) -> None:
        self._weight_limit = weight_limit
        self._lock = threading.Lock()
        self._scans: OrderedDict[FileState, SegmentScan] = OrderedDict()
        self._weight = 0

    def get(self, state: FileState) -> SegmentScan | None:
        """Return the scan of the file in this state, if it is cached."""
        with self._lock:
            if state in self._scans:
                self._scans.move_to_end(state)
            return self._scans.get(state)

    def remember(self, state: FileState, scan: SegmentScan) -> None:
        """Add a scan; drops the least recently used ones beyond the limit."""
        with self._lock:
            self._drop(state)
            self._scans[state] = scan
            self._weight += _weight(scan)
            while self._weight > self._weight_limit:
                self._drop(next(iter(self._scans)))

    def forget(self, state: FileState) -> None:
        """Drop a scan: the segment is shipped, or its bytes turned out to differ."""
        with self._lock:
            self._drop(state)

    def _drop(self, state: FileState) -> None:
        scan = self._scans.pop(state, None)
        if scan is not None:
            self._weight -= _weight(scan)


def _weight(scan: SegmentScan) -> int:
    return _SCAN_WEIGHT + len(scan.epochs) + len(scan.abort_markers) + len(scan.corruption)
