"""Compares a segment's metadata with what a scan of its bytes proves. Pure.

Readers rely on metadata: they skip segments by timestamps, and cut dead tails by epochs. Metadata that differs from the
bytes hides records in silence, so it is damage as much as other bytes are.
"""

from collections.abc import Iterator

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.log_format.scan import SegmentScan
from ts_common.wording import counted


def metadata_differences(scan: SegmentScan, metadata: SegmentMetadata) -> list[str]:
    """Return what the metadata has otherwise than the bytes, each as a part of a sentence; the CRC-32C is not compared.

    Coverage can end above the last batch, and epochs can have no batch any more: compaction removes batches.

    Args:
        scan: of the whole object.
        metadata: as stored with it. It has no epochs if they were too many; then they are not compared.
    """
    return [*_values(scan, metadata), *_ends(scan, metadata), *_epochs(scan, metadata), *_aborts(scan, metadata)]


def _values(scan: SegmentScan, metadata: SegmentMetadata) -> Iterator[str]:
    stated_and_found = (
        ("records", metadata.records, scan.record_count),
        ("control records", metadata.control, None if metadata.control is None else scan.control_count),
        ("the greatest timestamp", metadata.time_max, scan.max_timestamp),
        ("the least timestamp", metadata.time_min, scan.min_timestamp),
        ("corrupt places", metadata.corruptions, scan.corrupt_batches),
    )
    for name, stated, found in stated_and_found:
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


def _aborts(scan: SegmentScan, metadata: SegmentMetadata) -> Iterator[str]:
    if scan.abort_markers and metadata.txnindex is None:  # readers of committed records would return them
        yield f"it aborts {counted(len(scan.abort_markers), 'transaction')}; the metadata names no .txnindex"
