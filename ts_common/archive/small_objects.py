"""Read small objects with a largest size; a larger object is rejected before its first byte.

Any identity that can write to the bucket can store two gigabytes under any key. The sizes here are far above those of a
healthy archive, and an agent writes no larger object. Index files are hints: without a usable index a reader needs more
time, never other rows.
"""

from typing import Final

from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.errors import CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectInfo, ObjectStore

# A pair of the commit's epochs has about twenty bytes: an hourly election with records in between, for forty years.
COMMIT_BYTES: Final = 8 << 20
LOG_START_BYTES: Final = 4 << 10  # a number of 20 digits, and a line of seven fields
GAP_BYTES: Final = 64 << 10  # five fields; the reason is one line
INCARNATIONS_BYTES: Final = 4 << 20  # about 30,000 incarnations of one topic
# A broker closes a segment whose `.index` or `.timeindex` has `segment.index.bytes`, 10 MiB by default. A `.txnindex`
# of that size has 490,000 aborted transactions. Readers ignore a larger index.
INDEX_BYTES: Final = 16 << 20


def get_small(store: ObjectStore, key: str, most: int) -> tuple[bytes, ObjectInfo]:
    """Return the bytes and the info of an object of at most `most` bytes.

    Raises:
        ObjectNotFound: the object does not exist.
        CorruptData: it is larger.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    with store.open(key) as stream:
        if stream.info.size > most:
            raise CorruptData(f"{key}: {stream.info.size} bytes; at most {most} are expected")
        pieces, missing = [], most + 1
        while missing and (piece := stream.read(min(missing, 1 << 20))):
            pieces.append(piece)
            missing -= len(piece)
        if not missing:
            raise CorruptData(f"{key}: the store sent more than {most} bytes; {stream.info.size} are expected")
        return b"".join(pieces), stream.info


def checked(data: bytes, key: str, most: int) -> bytes:
    """Return the bytes of an object to write, if readers accept that many.

    Raises:
        CorruptData: there are more than `most` bytes.
    """
    if len(data) > most:
        raise CorruptData(f"{key}: it would have {len(data)} bytes, and readers accept at most {most}")
    return data


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
        import structlog  # noqa: PLC0415  (a worker of Spark loads this module for any source)

        structlog.get_logger().warning("index_unusable", reason=str(error))
        return None
