"""Stored batches with erased records, as clients get them: without those records.

The endpoint never sends the stored bytes of such a batch. The other batches of a chunk stay views of it. A batch keeps
its header and its offsets, so a client's position advances as before, also over a batch without any record left.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.batch_rewriting import OffsetDeltas, without_records
from ts_common.log_format.framing import MAGIC_POSITION, BatchHeader, parse_header
from ts_endpoint.data.chunks import Chunk
from ts_endpoint.records.rewriting import MOST_DECODED
from ts_endpoint.topics.snapshots import Snapshot
from ts_reader.decode.compression import ReusedCodecs

_KEPT_BYTES: Final = 16 << 20
_NOTHING: Final[Mapping[int, bytes | None]] = {}

Replaced = Mapping[int, bytes | None]  # by number in the chunk: None if the batch must be decoded with its rows


class ErasedBatches:
    """Rewrites batches of chunks, and keeps the latest; on the event loop.

    Args:
        executor: decompresses and compresses batches.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._kept: OrderedDict[tuple[object, ...], Replaced] = OrderedDict()
        self._bytes = 0

    def find(self, snapshot: Snapshot, copy: SegmentCopy, chunk: Chunk) -> Replaced | None:
        """Return the batches of a chunk that have erased records; None if `load` must run first."""
        is_old = chunk.data[int(chunk.starts[0]) + MAGIC_POSITION] < 2  # the base can be its last record's offset
        if not snapshot.view.erased.meets(0 if is_old else int(chunk.bases[0]), int(chunk.lasts[-1]) + 1):
            return _NOTHING
        return self._kept.get(_key(snapshot, copy, chunk))

    async def load(self, snapshot: Snapshot, copy: SegmentCopy, chunk: Chunk) -> None:
        """Rewrite the batches of a chunk."""
        run = asyncio.get_running_loop().run_in_executor
        key = _key(snapshot, copy, chunk)
        found = await run(self._executor, _rewritten, chunk, snapshot.view.erased)
        if key not in self._kept:
            self._kept[key] = found
            self._bytes += _size(found)
        while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])


def _key(snapshot: Snapshot, copy: SegmentCopy, chunk: Chunk) -> tuple[object, ...]:
    return snapshot.serial, copy.key, chunk.position, len(chunk.data)


def _size(replaced: Replaced) -> int:
    return sum(1 if data is None else len(data) for data in replaced.values()) + 1


def _rewritten(chunk: Chunk, erased: ErasedOffsets) -> Replaced:
    """Return the batches of a chunk that have erased records; on a thread."""
    codecs = ReusedCodecs(MOST_DECODED)
    found: dict[int, bytes | None] = {}
    for number, (start, end) in enumerate(zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True)):
        base, last = int(chunk.bases[number]), int(chunk.lasts[number])
        batch = chunk.data[start:end]
        header = parse_header(batch, 0, end - start)
        if not isinstance(header, BatchHeader) or header.is_control:
            continue
        if header.magic < 2 and header.codec:  # its offset is its last record's
            base = int(chunk.lasts[number - 1]) + 1 if number else 0
        hidden = [*erased.in_batch(base, last + 1, header.leader_epoch)]
        if not hidden:
            continue
        found[number] = None
        if header.magic >= 2:
            deltas = OffsetDeltas(hidden, header.base_offset)
            try:
                found[number] = without_records(batch, deltas, codecs)
            except (CorruptData, BatchTooLarge):
                continue  # reading its rows reports it
    return found
