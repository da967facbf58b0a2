"""What a store has at this moment of what a seal can name, and what of a partition is committed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.object_keys import GAPS_DIRECTORY, LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.errors import CorruptData, NewerFormat
from ts_common.store.contract import ObjectInfo, ObjectStore, ObjectStream, ObjectVersion
from tsctl.seal.leaves import Leaf, LeafKind

_CHUNK: Final = 1 << 20
_UNVERSIONED: Final = "null"  # S3's id of a version in a bucket that never had versions


@dataclass(frozen=True, slots=True)
class Listed:
    """An object that readers find.

    Attributes:
        version: as a listing of versions shows it; None in a store without one.
    """

    info: ObjectInfo
    version: ObjectVersion | None = None

    @property
    def version_id(self) -> str | None:
        """The id for a leaf; None where the store keeps no versions."""
        return None if self.version is None or self.version.id == _UNVERSIONED else self.version.id


def list_latest(store: ObjectStore, prefix: str) -> dict[str, Listed]:
    """Return the objects below a prefix by their keys, with their versions if the store lists them.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    versions = store.versions(prefix)
    if versions is None:
        return {info.key: Listed(info) for info in store.list(prefix)}
    return {each.info.key: Listed(each.info, each) for each in versions if each.is_latest and not each.is_delete_marker}


@contextmanager
def opened(store: ObjectStore, listed: Listed) -> Iterator[ObjectStream]:
    """Open the version that was listed, or the object; it raises as `ObjectStore.open`."""
    has_version = listed.version is not None and listed.version_id is not None
    opening = store.open_version(listed.version) if has_version and listed.version else store.open(listed.info.key)
    with opening as stream:
        yield stream


def hash_of(stream: ObjectStream) -> tuple[int, str]:
    """Return the number of bytes of a stream, and their SHA-256; it raises as `ObjectStream.read`."""
    digest, size = sha256(), 0
    while piece := stream.read(_CHUNK):
        digest.update(piece)
        size += len(piece)
    return size, digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object of a partition that a seal can name."""

    kind: LeafKind
    listed: Listed
    base: int
    end: int | None


def candidates(keys: PartitionKeys, objects: Mapping[str, Listed], below: int) -> Iterator[Candidate]:
    """Yield the segments that begin below an offset, and all gap records, in the order of their keys."""
    for key, listed in objects.items():
        name = key.removeprefix(keys.prefix)
        parsed = SegmentName.parse(name)
        if parsed is not None and parsed[1] == LOG_SUFFIX and parsed[0].base < below:
            yield Candidate(LeafKind.LOG, listed, parsed[0].base, None)
        gap = parse_gap_name(name.removeprefix(GAPS_DIRECTORY)) if name.startswith(GAPS_DIRECTORY) else None
        if gap is not None:
            yield Candidate(LeafKind.GAP, listed, *gap)


def committed_below(store: ObjectStore, keys: PartitionKeys) -> int:
    """Return the offset that all committed segments begin below; 0 without a commit.

    Raises:
        CorruptData, NewerFormat: the commit is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    match read_commit(store, keys)[0]:
        case Commit(next_offset=end):
            return end
        case ForeignCommit(highest_base=highest):
            return highest + 1
    return 0


def leaf_of(store: ObjectStore, candidate: Candidate, below: int) -> Leaf | None:
    """Read an object once, and return its leaf; None for a segment that ends above the commit.

    Raises:
        ObjectNotFound: it was removed meanwhile.
        ObjectFrozen: it must be thawed first.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    listed, end = candidate.listed, candidate.end
    epochs: tuple[tuple[int, int], ...] = ()
    with opened(store, listed) as stream:
        if candidate.kind is LeafKind.LOG and (metadata := _metadata(stream.info)) is not None:
            if metadata.end > below:
                return None
            end, epochs = metadata.end, metadata.epochs or ()
        size, digest = hash_of(stream)
    return Leaf(
        kind=candidate.kind,
        key=listed.info.key,
        version=listed.version_id,
        size=size,
        sha256=digest,
        base=candidate.base,
        end=end,
        epochs=epochs,
    )


def _metadata(info: ObjectInfo) -> SegmentMetadata | None:
    try:
        return decode_metadata(info.metadata, info.key)
    except (CorruptData, NewerFormat):  # `tsctl verify` reports it; the bytes are evidence all the same
        return None
