"""What a `.timeindex` proves: up to which offset all records of a segment are earlier than a time.

It counts only if it is the one that the `.log`'s metadata names: the agent names it where no batch header contradicts
it.
"""

from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.stored_indexes import read_index
from ts_common.log_format.index_files import TimeIndex
from ts_common.store.contract import ObjectStore


def first_that_may_reach(store: ObjectStore, copy: SegmentCopy, milliseconds: int) -> int:
    """An offset below which all records of a copy are earlier; its base where nothing proves more.

    Raises:
        StoreUnavailable, AccessDenied: the store's.
    """
    expected = copy.metadata.timeindex
    if expected is None or ".timeindex" not in copy.segment.suffixes:
        return copy.base
    data = read_index(store, copy.keys, copy.segment.name, ".timeindex")
    if data is None or crc32c(data) != expected:
        return copy.base
    return TimeIndex(copy.base, data).first_offset_that_may_reach(milliseconds)
