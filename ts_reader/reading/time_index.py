"""The proof of a `.timeindex`: all records of a segment up to an offset are earlier than a timestamp.

It is used only if it has the CRC in the `.log`'s metadata. The agent writes that CRC if no batch header contradicts the
index.
"""

from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.small_objects import read_index
from ts_common.log_format.index_files import Claims, TimeIndex
from ts_common.store.contract import ObjectStore


def first_that_may_reach(store: ObjectStore, copy: SegmentCopy, milliseconds: int) -> int:
    """Return an offset such that all records of a copy below it are earlier; its base if no index proves more.

    Raises:
        StoreUnavailable, AccessDenied: from the store.
    """
    index = _proven(store, copy)
    return copy.base if index is None else index.first_offset_that_may_reach(milliseconds)


def claims_of(store: ObjectStore, copy: SegmentCopy) -> Claims:
    """Return the greatest timestamps up to some offsets of a copy, see `TimeIndex`; empty if no index proves any.

    Raises:
        StoreUnavailable, AccessDenied: from the store.
    """
    index = _proven(store, copy)
    return () if index is None else index.claims


def _proven(store: ObjectStore, copy: SegmentCopy) -> TimeIndex | None:
    """Return the `.timeindex` of a copy; None unless it is the one that the agent compared with the batches."""
    expected = copy.metadata.timeindex
    if expected is None or ".timeindex" not in copy.segment.suffixes:
        return None
    data = read_index(store, copy.keys, copy.segment.name, ".timeindex")
    return None if data is None or crc32c(data) != expected else TimeIndex(copy.base, data)
