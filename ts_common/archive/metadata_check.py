"""Compares a segment's metadata with what a scan of its bytes proves. Pure.

Readers rely on metadata: they skip segments by timestamps, cut dead tails by epochs, and use the indexes that it names.
Metadata that differs from the bytes hides records in silence, or shows aborted ones: it is damage as other bytes are.
"""

from collections.abc import Iterator, Mapping

from awscrt.checksums import crc32c

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.log_format.index_files import read_transaction_index, txnindex_is_complete, txnindex_is_strange
from ts_common.log_format.scan import SegmentScan
from ts_common.wording import counted


def named_indexes(metadata: SegmentMetadata) -> dict[str, int]:
    """Return the CRC-32C of each index that readers use by a segment's metadata, by suffix; none that has no bytes."""
    named = {}
    if metadata.timeindex is not None:
        named[".timeindex"] = metadata.timeindex
    if metadata.txnindex is not None and metadata.txnindex[0] and metadata.txnindex[1] is not TxnIndexState.CORRUPT:
        named[".txnindex"] = metadata.txnindex[0]
    return named


def metadata_differences(scan: SegmentScan, metadata: SegmentMetadata, indexes: Mapping[str, bytes]) -> list[str]:
    """Return what the metadata has otherwise than the bytes, each as a part of a sentence; the CRC-32C is not compared.

    Coverage can end above the last batch, and epochs can have no batch any more: compaction removes batches.

    Args:
        scan: of the whole object, with the `.timeindex` among `indexes`.
        metadata: as stored with it. It has no epochs if they were too many; then they are not compared.
        indexes: bytes by suffix. An index with another CRC-32C than the metadata names is not compared: readers ignore
            it, as one that is missing.
    """
    named = named_indexes(metadata)
    used = {suffix: data for suffix, data in indexes.items() if named.get(suffix) == crc32c(data)}
    return [
        *_values(scan, metadata),
        *_ends(scan, metadata),
        *_epochs(scan, metadata),
        *_times(scan, used),
        *_aborts(scan, metadata, used),
    ]


def _values(scan: SegmentScan, metadata: SegmentMetadata) -> Iterator[str]:
    stated_and_found = (
        ("records", metadata.records, scan.record_count),
        ("control records", metadata.control, None if metadata.control is None else scan.control_count),
        ("the greatest timestamp", metadata.time_max, scan.max_timestamp),
        ("the least timestamp", metadata.time_min, scan.min_timestamp),
        ("corrupt places", metadata.corruptions, scan.corrupt_batches),
    )
    for name, stated, found in stated_and_found:
        if name == "records" and found is None:
            continue  # earlier releases did not see that a header counts records that no consumer shows
        if stated != found:
            yield f"{name}: {found}; the metadata has {stated}"


def _ends(scan: SegmentScan, metadata: SegmentMetadata) -> Iterator[str]:
    if scan.end_offset is not None and scan.end_offset > metadata.end:
        yield f"its last batch ends at offset {scan.end_offset}; the metadata covers offsets below {metadata.end}"


def _epochs(scan: SegmentScan, metadata: SegmentMetadata) -> Iterator[str]:
    pairs = metadata.epochs or ()
    if not pairs or any(epoch == NO_EPOCH for epoch, _ in (*pairs, *scan.epochs)):
        return
    try:
        line = EpochHistory(pairs)
    except ValueError as error:
        yield str(error)
        return
    stretches = zip(scan.epochs, scan.epoch_lasts, strict=True)
    if not all(line.at(first) == epoch == line.at(last) for (epoch, first), last in stretches):
        yield f"its batches have the epochs {scan.epochs}; the metadata has {metadata.epochs}"


def _times(scan: SegmentScan, used: Mapping[str, bytes]) -> Iterator[str]:
    if ".timeindex" in used and scan.timeindex_crc32c is None:  # readers would skip records by it
        yield "its batches do not confirm the .timeindex; the metadata has it as confirmed"


def _aborts(scan: SegmentScan, metadata: SegmentMetadata, used: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what makes readers of committed records return aborted ones, or omit committed ones."""
    crc, state = metadata.txnindex or (0, None)
    if scan.abort_markers and not crc and state is not TxnIndexState.CORRUPT:
        aborts = counted(len(scan.abort_markers), "transaction")
        yield f"it aborts {aborts}; the metadata names no .txnindex that has entries"
    if ".txnindex" in used:
        entries = read_transaction_index(used[".txnindex"])
        if not txnindex_is_complete(entries, scan.abort_markers):
            yield f"its .txnindex has no entry for an abort marker; the metadata has it as {state}"
        elif not scan.corrupt_batches and txnindex_is_strange(entries, scan.abort_markers):
            yield f"its .txnindex has an entry without an abort marker; the metadata has it as {state}"
