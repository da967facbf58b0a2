"""One clean chain of whole batches from the stored copies of a partition.

Base offsets ascend, and no offset is in two batches. Where copies overlap, or where another leader epoch replaced the
tail of one, whole batches are left out: replicas have the same batch bounds. Each batch of magic 2 gets leader epoch 0.
A new cluster begins with that epoch, and a follower with a higher one in its log never joins. In magic 0 and 1 that
place is a part of the CRC.
"""

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.errors import CorruptData
from ts_common.log_format.batch_rewriting import OffsetDeltas, without_records
from ts_common.log_format.framing import (
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    Trailing,
    batch_crc,
    crc_start,
    follows,
    frame_size,
    parse_header,
)
from ts_reader.decode.compression import ReusedCodecs
from tsctl.restore.merging import Copy, merged

FIRST_EPOCH: Final = 0
_EPOCH: Final = struct.Struct(">i")
_EPOCH_POSITION: Final = LENGTH_END

Batch = tuple[BatchHeader, memoryview]


def read_batches(chunks: Iterable[bytes], size: int, damage: Callable[[str], None]) -> Iterator[Batch]:
    """Yield the intact batches of a segment in order, and read its chunks to their end.

    The bytes of a batch may be changed.

    Args:
        chunks: the bytes of the segment.
        damage: is called for each place that is not a whole batch with a right CRC, which is left out.

    Raises:
        CorruptData: there are fewer bytes than `size`.
    """
    source, held, at, position, last = iter(chunks), bytearray(), 0, 0, -1

    def hold(count: int) -> None:
        nonlocal held, at
        if len(held) - at >= count:
            return
        held, at = held[at:], 0  # a new one: batches that were yielded have views of the former
        while len(held) < count and (chunk := next(source, b"")):
            held += chunk
        if len(held) < count:
            raise CorruptData(f"ends at byte {position + len(held)}; its size is {size}")

    while position < size:
        remaining = size - position
        hold(min(HEADER_SIZE, remaining))
        try:
            header = parse_header(held, at, remaining, position)
        except CorruptData as error:
            damage(str(error))
            skipped = frame_size(held, at, remaining)
            if skipped is None:
                break
            hold(skipped)
            at, position = at + skipped, position + skipped
            continue
        if isinstance(header, Trailing):
            if header is Trailing.TORN:
                damage(f"torn batch at position {position}")
            break
        hold(header.size_in_bytes)
        whole = header.size_in_bytes
        data = memoryview(held)[at : at + whole]
        at, position = at + whole, position + whole
        if batch_crc(header.magic, data[crc_start(header.magic) :]) != header.crc:
            damage(f"{_place(header, position - whole)}: wrong CRC")
        elif last >= 0 and not follows(header, last):
            damage(f"{_place(header, position - whole)}: the batches before it reach {last} already")
        else:
            last = max(last, header.last_offset)
            yield header, data
    for _ in source:
        pass


def _place(header: BatchHeader, position: int) -> str:
    return f"batch of base offset {header.base_offset} at position {position}"


def without_erased(batches: Iterable[Batch], erased: ErasedOffsets, base: int) -> Iterator[Batch]:
    """Yield batches without their erased records; a batch keeps its offsets, also without any record left.

    Args:
        batches: of a copy, with the leader epochs that it has in the store.
        base: the copy's base offset.

    Raises:
        CorruptData: a batch cannot be decompressed or parsed, or is a compressed set of magic 0 or 1.
    """
    codecs, following = ReusedCodecs(), base
    for header, data in batches:
        first = header.base_offset if header.magic >= 2 or not header.codec else following
        following = max(following, header.last_offset + 1)
        hidden = [*erased.in_batch(first, header.last_offset + 1, header.leader_epoch)]
        if not hidden or header.is_control:
            yield header, data
        elif header.magic >= 2:
            deltas = OffsetDeltas(hidden, header.base_offset)
            rewritten = bytearray(without_records(data, deltas, codecs))
            found = parse_header(rewritten, 0, len(rewritten))
            assert isinstance(found, BatchHeader)  # noqa: S101  (that function encoded it)
            yield found, memoryview(rewritten)
        elif header.codec:
            raise CorruptData(
                f"the compressed messages of magic {header.magic} up to offset {header.last_offset} contain the erased "
                f"offset {hidden[0][0]}, and cannot be written without it; leave the topic out of the plan"
            )


def united(copies: Sequence[Iterable[Batch]]) -> Iterator[Batch]:
    """Yield the batches of several compacted copies, each base offset once, with the records of all copies.

    Raises:
        CorruptData: as `merged`.
    """
    if len(copies) == 1:
        yield from copies[0]
        return
    ordered = heapq.merge(*map(_kept, copies), key=lambda copy: copy[0].base_offset)
    for _, same in groupby(ordered, key=lambda copy: copy[0].base_offset):
        header, data = merged(list(same))
        yield header, memoryview(data)


def _kept(batches: Iterable[Batch]) -> Iterator[Copy]:
    return ((header, bytearray(data)) for header, data in batches)


def clean(batches: Iterable[Batch], start: int, end: int, *, is_first: bool) -> Iterator[Batch]:
    """Yield the batches that a chain has in `[start, end)`, each of magic 2 with leader epoch 0.

    Args:
        batches: of a copy, which are read to their end.
        start: first offset.
        end: the offset after the last.
        is_first: whether the chain begins here. Its first batch may begin below `start`, where records were deleted.

    Raises:
        CorruptData: a batch reaches across a bound.
    """
    for header, data in batches:
        if header.last_offset < start or header.base_offset >= end:
            continue
        across = header.last_offset >= end or (header.base_offset < start and not is_first)
        if across and not header.contradicts_itself:
            raise CorruptData(
                f"batch of offsets {header.base_offset} to {header.last_offset}: batches are expected to end at "
                f"{start} and at {end}; copies of one log have the same batches"
            )
        if header.magic >= 2:
            _EPOCH.pack_into(data, _EPOCH_POSITION, FIRST_EPOCH)
        yield header, data
