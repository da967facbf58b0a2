"""A stored segment without its erased records (erase rule 6).

The new segment has the old one's end, epochs and `.txnindex`, and each of its batches with base offset, last offset,
producer and sequence, as Kafka's log cleaner leaves them. Its `.index` and `.timeindex` are built again. Before anyone
puts it, both are decoded: the new one has each row of the old one that the list does not hide, and no other.

What cannot be rewritten stays as it is, hidden by the list: damaged segments, and erased messages of magic 0 and 1.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from typing import Final

import pyarrow as pa
from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.fetch import fetch
from ts_common.archive.metadata_check import metadata_differences, named_indexes
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.archive.small_objects import read_index
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, OperatorError
from ts_common.log_format.batch_rewriting import OffsetDeltas, without_records
from ts_common.log_format.framing import BatchHeader, Trailing, parse_header
from ts_common.log_format.index_files import IndexBuilder, TimeIndex
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.arrow_schema import MILLISECONDS, arrow_schema
from ts_reader.decode.columns import Projection
from ts_reader.decode.compression import ReusedCodecs
from ts_reader.decode.segment_decoder import MAX_OFFSET, SegmentDecoder
from tsctl.restore.chain import read_batches

_CHUNK: Final = 1 << 20
_ROW: Final = ("offset", MILLISECONDS, "timestampType", "key", "value", "headers")
_SAME: Final = ("base_offset", "last_offset", "epochs", "epoch_lasts", "abort_markers", "control_count")
_NO_FIELDS: Final = Projection(key=False, value=False, headers=False)
_TXNINDEX: Final = ".txnindex"


class HiddenOnly(Exception):
    """The segment cannot be rewritten, so the list alone hides its records; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A segment without its erased records, not yet put.

    Attributes:
        file: the bytes of the `.log`, at any position.
        size: their number.
        metadata: of the new `.log`; `replaces` has the stem of the old one.
        indexes: the bytes of each index, by suffix.
        records: the number of records that it lacks.
        batches: the number of batches that had them.
        before: SHA-256 of the old `.log`, hexadecimal.
        after: SHA-256 of the new one.
        etag: of the old `.log`.
    """

    file: FileIO
    size: int
    metadata: SegmentMetadata
    indexes: Mapping[str, bytes]
    records: int
    batches: int
    before: str
    after: str
    etag: str


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment in a temporary file.

    Attributes:
        key: of its `.log`.
        file: the bytes of the `.log`, at any position.
        size: their number.
        metadata: of the `.log`.
        txnindex: the bytes of its `.txnindex`; None without one.
        etag: of the `.log`; empty if it is no object now.
    """

    key: str
    name: SegmentName
    file: FileIO
    size: int
    metadata: SegmentMetadata
    txnindex: bytes | None
    etag: str = ""


@contextmanager
def rewritten(
    store: ObjectStore, copy: SegmentCopy, erased: ErasedOffsets, *, limit: BatchLimit = DEFAULT_LIMIT
) -> Iterator[Rewritten | None]:
    """Yield a copy without its erased records, in a temporary file; None if it has none of them.

    Args:
        erased: the list of the copy's directory.

    Raises:
        HiddenOnly: it is damaged, frozen, was not shipped by an agent, or has erased messages of magic 0 or 1.
        ObjectNotFound: it was removed meanwhile.
        BatchTooLarge: a batch exceeds the limit.
        OperatorError: a temporary file cannot be written.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    with ExitStack() as opened:
        with _translated(copy.key, copy.segment.size):
            old, new = (opened.enter_context(_temporary_file()) for _ in range(2))
            found = _rewritten(_downloaded(store, copy, old), erased, limit, new)
        yield found


@contextmanager
def rewritten_file(
    old: SegmentFile, erased: ErasedOffsets, *, limit: BatchLimit = DEFAULT_LIMIT
) -> Iterator[Rewritten | None]:
    """Yield a segment that is in a file, as `rewritten`.

    Raises:
        HiddenOnly, BatchTooLarge, OperatorError: as `rewritten`.
    """
    with ExitStack() as opened:
        with _translated(old.key, old.size):
            found = _rewritten(old, erased, limit, opened.enter_context(_temporary_file()))
        yield found


def _temporary_file() -> FileIO:
    # Without a buffer, all errors of a full disk are raised by `write`.
    return tempfile.TemporaryFile(buffering=0)


@contextmanager
def _translated(key: str, size: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"{key}: no temporary files for twice its {size} bytes: {error}; set TMPDIR to a directory with that much "
            "free space"
        ) from error
    except CorruptData as error:
        raise HiddenOnly(f"it is damaged ({error}): repair it, and repeat the command") from error
    except (ObjectFrozen, NewerFormat) as error:
        raise HiddenOnly(str(error)) from error


def _downloaded(store: ObjectStore, copy: SegmentCopy, file: FileIO) -> SegmentFile:
    info = store.head(copy.key)
    metadata = decode_metadata(info.metadata, copy.key)
    if metadata is None:
        raise HiddenOnly("it has no metadata: a Java uploader shipped it, or a copy of the bucket lost its metadata")
    _download(store, copy, file)
    txnindex = _kept_txnindex(store, copy, metadata)
    return SegmentFile(copy.key, copy.segment.name, file, copy.segment.size, metadata, txnindex, info.etag)


def _rewritten(old: SegmentFile, erased: ErasedOffsets, limit: BatchLimit, new: FileIO) -> Rewritten | None:
    metadata, base = old.metadata, old.name.base
    indexes = {} if old.txnindex is None else {_TXNINDEX: old.txnindex}
    scan = _scan(old.file, old.size)
    _check_stored(scan, metadata, indexes)
    made = _without_erased(old, new, erased, limit)
    if not made.batches:
        _check_none_is_hidden(old.file, erased, limit)
        return None
    offsets, times = made.index.finish()
    indexes |= {".index": offsets, ".timeindex": times}
    found = _scan(new, made.size, TimeIndex(base, times))
    _check_rewritten(scan, found)
    rows = _rows(_chunks(old.file), erased, limit), _rows(_chunks(new), NOTHING_ERASED, limit)
    if (offset := _first_difference(*rows)) is not None:
        raise CorruptData(f"rewritten its records from offset {offset} on are not those that readers show")
    proven = metadata_of(found, base, old.key)
    kept = replace(
        proven,
        end=metadata.end,
        epochs=metadata.epochs,
        last_epoch=metadata.last_epoch,
        records=None if metadata.records is None else proven.records,
        txnindex=metadata.txnindex,
        shipped=metadata.shipped,
        replaces=old.name.stem,
        rebuilt=False,
    )
    before, after = _sha256(old.file), _sha256(new)
    return Rewritten(new, made.size, kept, indexes, made.records, made.batches, before, after, old.etag)


def _download(store: ObjectStore, copy: SegmentCopy, file: FileIO) -> None:
    """Copy a `.log` to a file.

    Raises:
        CorruptData: it has not the listed size, or was replaced meanwhile.
    """
    size = 0
    for chunk in fetch(store, copy.key):
        _write(file, chunk)
        size += len(chunk)
    if size != copy.segment.size:
        raise CorruptData(f"the object ends at byte {size}; its listed size is {copy.segment.size}")


def sha256_of(store: ObjectStore, key: str) -> str:
    """Return the SHA-256 of a stored object, hexadecimal.

    Raises:
        ObjectNotFound, ObjectFrozen, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    digest = hashlib.sha256()
    for chunk in fetch(store, key):
        digest.update(chunk)
    return digest.hexdigest()


def _write(file: FileIO, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _scan(file: FileIO, size: int, timeindex: TimeIndex | None = None) -> SegmentScan:
    file.seek(0)
    return scan_segment(file, size, timeindex)


def _chunks(file: FileIO) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK):
        yield chunk


def _sha256(file: FileIO) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(file):
        digest.update(chunk)
    return digest.hexdigest()


def _kept_txnindex(store: ObjectStore, copy: SegmentCopy, metadata: SegmentMetadata) -> bytes | None:
    """Return the `.txnindex`, if there is one; offsets do not change, so it stays as it is.

    Raises:
        CorruptData: it is not the one that the metadata names.
    """
    data = read_index(store, copy.keys, copy.segment.name, _TXNINDEX)
    named = named_indexes(metadata).get(_TXNINDEX)
    if named is not None and (data is None or crc32c(data) != named):
        raise CorruptData(f"its {_TXNINDEX} is missing, or is not the one that its metadata names")
    return data


def _check_stored(scan: SegmentScan, metadata: SegmentMetadata, indexes: Mapping[str, bytes]) -> None:
    """Check that a stored segment is whole: a rewritten one looks whole, and would hide the damage.

    Raises:
        CorruptData: naming what is wrong with it.
    """
    if scan.crc32c != metadata.crc32c:
        raise CorruptData(f"CRC-32C {scan.crc32c:08x}; its metadata has {metadata.crc32c:08x}")
    if scan.corruption:
        raise CorruptData(scan.corruption[0][1])
    if scan.trailing is Trailing.TORN:
        raise CorruptData(f"torn batch at position {scan.valid_bytes}")
    if differences := metadata_differences(scan, metadata, indexes):
        raise CorruptData(differences[0])


@dataclass(slots=True)
class _Made:
    """What was written to the new file.

    Attributes:
        records: the number of erased records.
        batches: the number of batches that had them.
    """

    index: IndexBuilder
    size: int = 0
    records: int = 0
    batches: int = 0

    def add(self, header: BatchHeader, data: bytes | memoryview, file: FileIO) -> None:
        """Write one more batch."""
        _write(file, data)
        self.index.add(header.last_offset, header.max_timestamp, len(data))
        self.size += len(data)


def _without_erased(old: SegmentFile, new: FileIO, erased: ErasedOffsets, limit: BatchLimit) -> _Made:
    """Write the batches of a file without their erased records to another one.

    Raises:
        HiddenOnly: an erased message of magic 0 or 1.
        CorruptData: a batch cannot be decompressed or parsed.
        BatchTooLarge: it exceeds the limit.
    """
    base = old.name.base
    codecs, following, made = ReusedCodecs(limit), base, _Made(IndexBuilder(base))
    for header, data in read_batches(_chunks(old.file), old.size, _damaged):
        first = header.base_offset if header.magic >= 2 or not header.codec else following
        following = max(following, header.last_offset + 1)
        hidden = [] if header.is_control else [*erased.in_batch(first, header.last_offset + 1, header.leader_epoch)]
        if hidden and header.magic < 2:
            raise HiddenOnly(f"the erased offset {hidden[0][0]} is in a message of magic {header.magic}")
        if not hidden:
            made.add(header, data, new)
            continue
        deltas = OffsetDeltas(hidden, header.base_offset)
        changed = without_records(data, deltas, codecs)
        after = parse_header(changed, 0, len(changed))
        assert isinstance(after, BatchHeader)  # noqa: S101  (that function encoded it)
        removed = (header.record_count or 0) - (after.record_count or 0)
        made.records += removed
        made.batches += removed > 0
        made.add(after, changed, new)
    return made


def _check_none_is_hidden(file: FileIO, erased: ErasedOffsets, limit: BatchLimit) -> None:
    """Check that the list hides no record of a file where no header shows one: a producer can write other offsets.

    Raises:
        HiddenOnly: it hides some.
        CorruptData, BatchTooLarge: as `_without_erased`.
    """
    if hidden := count_hidden(file, erased, limit):
        raise HiddenOnly(f"erased records have other offsets than the headers of their batches: {hidden}")


def count_hidden(file: FileIO, erased: ErasedOffsets, limit: BatchLimit = DEFAULT_LIMIT) -> int:
    """Return the number of records of a segment in a file that a list hides.

    Raises:
        CorruptData: a batch cannot be decompressed or parsed.
        BatchTooLarge: a batch exceeds the limit.
    """
    shown, stored = (
        sum(columns.row_count for columns in SegmentDecoder(_NO_FIELDS, erased=each, limit=limit).decode(_chunks(file)))
        for each in (erased, NOTHING_ERASED)
    )
    return stored - shown


def _damaged(what: str) -> None:
    raise CorruptData(what)


def _check_rewritten(old: SegmentScan, new: SegmentScan) -> None:
    """Check that batches, epochs and markers are those of the old segment.

    Raises:
        CorruptData: something else changed.
    """
    for name in _SAME:
        if getattr(old, name) != getattr(new, name):
            raise CorruptData(f"rewritten it has {name} {getattr(new, name)}; {getattr(old, name)} is expected")
    if new.corruption:
        raise CorruptData(f"rewritten: {new.corruption[0][1]}")


def first_difference(
    store: ObjectStore,
    one: SegmentCopy,
    other: SegmentCopy,
    end: int,
    erased: ErasedOffsets,
    *,
    of_one: ObjectStore | None = None,
    limit: BatchLimit = DEFAULT_LIMIT,
) -> int | None:
    """Return the first offset that both copies cover, and where their rows differ; None without one.

    Rows that the list hides are not compared.

    Args:
        end: the offset after the last to compare.
        of_one: where the first copy is read, if that is an earlier version.

    Raises:
        CorruptData: one of them cannot be read.
        BatchTooLarge: a batch exceeds the limit.
        ObjectNotFound, ObjectFrozen, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    start, end = max(one.base, other.base), min(one.end, other.end, end)
    both = ((of_one or store, one), (store, other))
    return _first_difference(*(_rows(fetch(place, copy.key), erased, limit, start, end) for place, copy in both))


def _rows(
    chunks: Iterable[bytes], erased: ErasedOffsets, limit: BatchLimit, start: int = 0, end: int = MAX_OFFSET
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a segment that a list does not hide, of aborted transactions too."""
    decoder = SegmentDecoder(start_offset=start, end_offset=end, erased=erased, limit=limit)
    for columns in decoder.decode(chunks):
        if columns.row_count:
            yield to_arrow(columns, "", 0, _ROW)


def _first_difference(expected: Iterator[pa.RecordBatch], found: Iterator[pa.RecordBatch]) -> int | None:
    """Return the first offset of rows where two streams differ, however they are divided; None if they are equal."""
    nothing = pa.RecordBatch.from_pylist([], schema=arrow_schema(_ROW))
    one = other = nothing
    while True:
        one = one if one.num_rows else next(expected, nothing)
        other = other if other.num_rows else next(found, nothing)
        count = min(one.num_rows, other.num_rows)
        if not one.slice(0, count).equals(other.slice(0, count)) or (not count and one.num_rows != other.num_rows):
            return int((one if one.num_rows else other)["offset"][0].as_py())
        if not count:
            return None
        one, other = one.slice(count), other.slice(count)
