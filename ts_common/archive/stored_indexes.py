"""The stored index files of a segment, as hints: without a usable index a reader needs more time, never other rows."""

import structlog

from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.small_objects import INDEX_BYTES, get_small
from ts_common.errors import CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectStore

log = structlog.get_logger()


def read_index(store: ObjectStore, keys: PartitionKeys, name: SegmentName, suffix: str) -> bytes | None:
    """Return the bytes of one index of a segment; None if it is missing, frozen, or larger than a broker writes.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        return get_small(store, keys.segment(name, suffix), INDEX_BYTES)[0]
    except ObjectNotFound:
        return None
    except (CorruptData, ObjectFrozen) as error:
        log.warning("index_unusable", reason=str(error))
        return None
