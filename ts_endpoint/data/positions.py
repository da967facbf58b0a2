"""Where a read of a segment begins: a position at or before an offset, by the segment's `.index`."""

from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.small_objects import read_index
from ts_common.log_format.index_files import OFFSET_ENTRY_SIZE
from ts_common.store.contract import ObjectStore

# A read of a smaller segment begins at its start: an index costs a request.
_WORTH_BYTES: Final = 2 << 20
_KEPT_BYTES: Final = 16 << 20  # of indexes; that of a segment of 1 GiB has 2 MiB

Entries = npt.NDArray[np.int32]


class Positions:
    """Finds positions, and keeps indexes that were read; used by several threads.

    `dict` operations are atomic, and the same index read twice does no harm.
    """

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, Entries] = OrderedDict()
        self._bytes = 0

    def find(self, store: ObjectStore, copy: SegmentCopy, offset: int) -> int:
        """Return the position of a batch at or before an offset, as the index has it; 0 without an entry.

        A wrong index can lead anywhere: `ChunkReader` checks the batch there.

        Raises:
            StoreUnavailable, AccessDenied: from the store.
        """
        if offset <= copy.base or copy.segment.size < _WORTH_BYTES or ".index" not in copy.segment.suffixes:
            return 0
        entries = self._indexes.get(copy.key)
        if entries is None:
            entries = self._read(store, copy)
        at = int(np.searchsorted(entries[:, 0], offset - copy.base, side="right"))
        position = int(entries[at - 1, 1]) if at else 0
        return position if 0 < position < copy.segment.size else 0

    def _read(self, store: ObjectStore, copy: SegmentCopy) -> Entries:
        data = read_index(store, copy.keys, copy.segment.name, ".index") or b""
        whole = len(data) - len(data) % OFFSET_ENTRY_SIZE
        entries = np.frombuffer(data[:whole], ">i4").reshape(-1, 2).astype(np.int32)
        # Zero bytes follow the last entry of a preallocated file.
        fallen = np.flatnonzero((entries[1:, 0] <= entries[:-1, 0]) | (entries[1:, 1] <= entries[:-1, 1]))
        entries = entries[: int(fallen[0]) + 1] if len(fallen) else entries
        self._indexes[copy.key] = entries
        self._bytes += entries.nbytes
        while self._bytes > _KEPT_BYTES and len(self._indexes) > 1:
            try:
                _, former = self._indexes.popitem(last=False)
            except KeyError:
                break
            self._bytes -= former.nbytes
        return entries
