"""The name that a segment is stored under (protocol rule 6): the first that is free, or whose object covers it."""

from collections.abc import Iterator
from enum import Enum, auto

from awscrt.checksums import crc32c

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.fetch import fetch
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound, OutcomeUnknown
from ts_common.log_format.scan import SegmentScan
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_uploader.messages.tasks import Ship
from ts_uploader.process.progress import beat

# Chunk size for comparing a stored object: small, since the allocator of each upload thread keeps its largest block.
_COMPARED_BYTES = 256 << 10
_REPAIRS = 99  # of one segment in one leader epoch, each damaged again


class Existing(Enum):
    """What the store has under a segment's name."""

    ABSENT = auto()  # no object
    COVERS = auto()  # the segment's bytes, with a coverage at least as large, and live
    DIFFERS = auto()  # any other object


def choose_name(
    store: ObjectStore, task: Ship, scan: SegmentScan, end: int, epochs: tuple[tuple[int, int], ...]
) -> tuple[SegmentName, Existing]:
    """Return the name of a segment, and whether the object exists: `ABSENT` or `COVERS`.

    Args:
        end: the end of its coverage.
        epochs: the epochs of its coverage.

    Raises:
        OutcomeUnknown: other objects have all names. Nothing may be overwritten, so the segment is retried.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    for name in _names(task, scan, end, epochs):
        existing = _existing(store, task.keys.segment(name), scan, end, epochs)
        if existing is not Existing.DIFFERS:
            return name, existing
    raise OutcomeUnknown(
        f"{task.keys.segment(name)}: the object differs from the segment, and so do the objects under its other names; "
        "nothing is overwritten. Check the partition with tsctl verify"
    )


def _names(task: Ship, scan: SegmentScan, end: int, epochs: tuple[tuple[int, int], ...]) -> Iterator[SegmentName]:
    """Yield the names to try: the plain one, the variant of these bytes, the variant of these bytes and this metadata.

    The last is for bytes that are stored already with a smaller coverage: the cleaner emptied and merged the segments
    above since, or the first agent had fewer epochs. Metadata never changes, so a larger coverage needs another name.

    The epoch in a variant's name is that of the agent's own leadership, never of the batches: retention uses it to
    spare segments that a leader has shipped and not committed yet.
    """
    epoch = task.leadership.epoch
    crc = _named_crc(task, scan)
    if task.base >= task.variants_below:
        yield SegmentName(task.base)
    yield SegmentName(task.base, epoch, crc)
    yield SegmentName(task.base, epoch, crc32c(repr((end, epochs)).encode(), crc))


def _named_crc(task: Ship, scan: SegmentScan) -> int:
    """Return the CRC-32C for a variant's name: of the bytes, and below the `highest` of a lineage also of the lineage.

    If a commit is lost, a second lineage can begin in one leader epoch. A deletion of the first one can still be in
    progress, and equal bytes have an equal ETag in most stores: under the same name, it would remove the new object.
    """
    if task.lineage is None or task.base >= task.lineage.highest:
        return scan.crc32c
    return int(crc32c(repr(task.lineage.encode()).encode(), scan.crc32c))


def choose_good_name(
    store: ObjectStore,
    task: Ship,
    scan: SegmentScan,
    end: int,
    epochs: tuple[tuple[int, int], ...],
    replaces: str | None,
) -> tuple[SegmentName, Existing]:
    """Return the name for a repair of a segment, and whether the object exists: `ABSENT` or `COVERS`.

    An object covers the segment only if its bytes do, which are read. If a damaged object is replaced, the object's
    metadata has to name that one, too.

    Args:
        end: the end of its coverage.
        epochs: the epochs of its coverage.
        replaces: stem of the damaged object; None without one.

    Raises:
        OutcomeUnknown: other objects have all names.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    for name in _good_names(task, scan, variants_only=replaces is not None):
        key = task.keys.segment(name)
        try:
            existing = _existing(store, key, scan, end, epochs, trusted=False)
            if existing is Existing.COVERS and replaces not in {None, _replaced(store, key)}:
                existing = Existing.DIFFERS
        except (CorruptData, NewerFormat):
            existing = Existing.DIFFERS
        if existing is not Existing.DIFFERS:
            return name, existing
    raise OutcomeUnknown(f"{task.keys.segment(name)}: objects with other bytes have all names of this segment")


def _good_names(task: Ship, scan: SegmentScan, *, variants_only: bool) -> Iterator[SegmentName]:
    """Yield the names of a repair: the plain one, the variant of these bytes, then those that only a repair has."""
    epoch = task.leadership.epoch
    crc = _named_crc(task, scan)
    if task.base >= task.variants_below and not variants_only:
        yield SegmentName(task.base)
    yield from (SegmentName(task.base, epoch, crc, number) for number in (None, *range(1, _REPAIRS + 1)))


def _replaced(store: ObjectStore, key: str) -> str | None:
    metadata = decode_metadata(store.head(key).metadata, key)
    return None if metadata is None else metadata.replaces


def _existing(
    store: ObjectStore,
    key: str,
    scan: SegmentScan,
    end: int,
    epochs: tuple[tuple[int, int], ...],
    *,
    trusted: bool = True,
) -> Existing:
    """Compare the object under `key` with a segment.

    The object may be longer if it begins with the segment's bytes. Without metadata (a Java uploader's object) its
    coverage is that of its batches. If the CRC-32C in the metadata is not trusted, the object is read, and is not
    longer.
    """
    try:
        info = store.head(key)
    except ObjectNotFound:
        return Existing.ABSENT
    theirs = decode_metadata(info.metadata, key)
    if info.size < scan.size or (scan.end_offset or 0 if theirs is None else theirs.end) < end:
        return Existing.DIFFERS
    if theirs is not None and not _is_live(theirs, end, epochs):
        return Existing.DIFFERS
    if not trusted and info.size != scan.size:
        return Existing.DIFFERS
    whole = trusted and theirs is not None and info.size == scan.size
    crc = theirs.crc32c if theirs is not None and whole else _prefix_crc(store, info, scan.size)
    return Existing.COVERS if crc == scan.crc32c else Existing.DIFFERS


def _is_live(theirs: SegmentMetadata, end: int, epochs: tuple[tuple[int, int], ...]) -> bool:
    """Return whether readers with these epochs use a copy up to `end`."""
    known = [pair for pair in epochs if pair[0] != NO_EPOCH]
    if theirs.epochs is None or not known or len(known) != len(epochs):
        return True  # readers use its batch headers, which are the segment's own
    return EpochHistory(tuple(known)).agrees_with(theirs.epochs, known[0][1], end)


def _prefix_crc(store: ObjectStore, info: ObjectInfo, size: int) -> int:
    crc, left = 0, size
    for chunk in fetch(store, info.key, chunk_bytes=_COMPARED_BYTES):
        beat()
        crc = crc32c(chunk[:left], crc)
        left -= min(left, len(chunk))
        if not left:
            break
    return int(crc)
