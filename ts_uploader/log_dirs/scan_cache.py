"""Scans of segments that could not be shipped yet, so that another attempt reads nothing before the store takes bytes.

What is remembered is never taken on trust: the store refuses a body that has not the CRC of the scan, and whoever sees
that forgets the scan. Only memory is at stake in what is kept too long, so nobody tidies up but the bound.
"""

import os
import threading
from collections import OrderedDict
from typing import Final

from ts_common.log_format.scan import SegmentScan
from ts_uploader.events import FileState
from ts_uploader.log_dirs.segment_file import OpenLog

# A scan takes some 900 bytes, and 120 for each pair in it. So this is 4 MB, and fewer than 4096 segments.
_SCAN_WEIGHT: Final = 8
WEIGHT_LIMIT: Final = 4096 * _SCAN_WEIGHT


def file_state(log: OpenLog) -> FileState:
    """Of an open log; to be taken before its bytes are read, so that a change meanwhile makes it another."""
    status = os.fstat(log.descriptor)
    return FileState(status.st_dev, status.st_ino, log.size, status.st_ctime_ns)


class RememberedScans:
    """The scans that were used last; for several threads at once.

    Args:
        weight_limit: of all of them together; see `WEIGHT_LIMIT`.
    """

    def __init__(self, weight_limit: int = WEIGHT_LIMIT) -> None:
        self._weight_limit = weight_limit
        self._lock = threading.Lock()
        self._scans: OrderedDict[FileState, SegmentScan] = OrderedDict()
        self._weight = 0

    def get(self, state: FileState) -> SegmentScan | None:
        """The scan of the file in this state, if it is remembered."""
        with self._lock:
            if state in self._scans:
                self._scans.move_to_end(state)
            return self._scans.get(state)

    def remember(self, state: FileState, scan: SegmentScan) -> None:
        """Keep a scan; those that were not used for longest give way."""
        with self._lock:
            self._drop(state)
            self._scans[state] = scan
            self._weight += _weight(scan)
            while self._weight > self._weight_limit:
                self._drop(next(iter(self._scans)))

    def forget(self, state: FileState) -> None:
        """The segment is shipped, or its bytes turned out to be others."""
        with self._lock:
            self._drop(state)

    def _drop(self, state: FileState) -> None:
        scan = self._scans.pop(state, None)
        if scan is not None:
            self._weight -= _weight(scan)


def _weight(scan: SegmentScan) -> int:
    return _SCAN_WEIGHT + len(scan.epochs) + len(scan.abort_markers) + len(scan.corruption)
