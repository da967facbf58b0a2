"""Read an object that is small where it is what its name says: one that is larger is refused before its first byte.

Anybody who may write to a bucket may put two gigabytes under any key. The sizes here are far above what a healthy
archive has; an agent writes nothing larger.
"""

from typing import Final

from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectInfo, ObjectStore

# A pair of the commit's epochs takes some twenty bytes: an election an hour with records in between, for forty years.
COMMIT_BYTES: Final = 8 << 20
LOG_START_BYTES: Final = 4 << 10  # a number of 20 digits, and a lineage of three numbers
GAP_BYTES: Final = 64 << 10  # five fields, of which the reason is one line
INCARNATIONS_BYTES: Final = 4 << 20  # some 30,000 lives of one topic
# A broker closes a segment whose `.index` or `.timeindex` has `segment.index.bytes`, 10 MiB by default. A `.txnindex`
# so large has 490,000 aborted transactions. Readers do without one that is larger.
INDEX_BYTES: Final = 16 << 20


def get_small(store: ObjectStore, key: str, most: int) -> tuple[bytes, ObjectInfo]:
    """The bytes of an object of at most `most` bytes, with its info.

    Raises:
        ObjectNotFound: there is none.
        CorruptData: it is larger.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    with store.open(key) as stream:
        if stream.info.size > most:
            raise CorruptData(f"{key}: {stream.info.size} bytes; at most {most} are expected")
        pieces, missing = [], most + 1
        while missing and (piece := stream.read(min(missing, 1 << 20))):
            pieces.append(piece)
            missing -= len(piece)
        if not missing:
            raise CorruptData(f"{key}: more than {most} bytes come, and the store says {stream.info.size}")
        return b"".join(pieces), stream.info


def checked(data: bytes, key: str, most: int) -> bytes:
    """The bytes of an object that is about to be written, if every reader will accept them.

    Raises:
        CorruptData: they are more than `most`.
    """
    if len(data) > most:
        raise CorruptData(f"{key}: it would have {len(data)} bytes, and readers accept at most {most}")
    return data
