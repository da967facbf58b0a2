"""What a Fetch gets of one partition: views of the store's own bytes, or rewritten batches.

The bytes of an answer are of one range of the plan, as a broker's are of one segment. They end before the first batch
that reaches beyond the range, the next offset, or what `read_committed` may show. If the bytes of one copy do not
contain what the reader returns, batches are decoded and rewritten (`ts_endpoint.records`): for a range of several
copies, a batch across the end of a range, and damaged bytes that another copy has intact. A batch with erased records
is sent without them (`ts_endpoint.data.erased_batches`).

An attempt needs no request. If it needs something that is not in memory, it returns what to wait for.

An operator can put a damaged object back under its key, and a listing then shows nothing new. So damage is remembered
for a minute only, and the object is read again after that.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final, TypeVar

import structlog

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.plan import Hole, ReadRange
from ts_common.errors import CorruptData
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.store.contract import ObjectStore
from ts_endpoint.data.chunks import Chunk
from ts_endpoint.data.erased_batches import ErasedBatches, Replaced
from ts_endpoint.data.feeds import Feeds
from ts_endpoint.data.visibility import Visibility
from ts_endpoint.records.encoding import MOST_DELTA, empty_batch
from ts_endpoint.records.rewriting import Rewritten, rewrite
from ts_endpoint.topics.partitions import Partition
from ts_endpoint.topics.snapshots import Snapshot

_KEPT_REWRITTEN: Final = 64
_REWRITTEN_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 16 << 20  # one record can exceed what is wanted
# A view of less than this part of its chunk is copied. Most clients read 1 MiB, about half of a chunk.
_WORTH_KEEPING: Final = 3
_MOST_REMEMBERED: Final = 10_000  # segments that end early or are damaged
DAMAGE_SECONDS: Final = 60.0  # that damage is remembered

T = TypeVar("T")
log = structlog.get_logger()


class HoleReached(Exception):
    """The next offset is in a hole, and holes are not passed over.

    Attributes:
        hole: the lost offsets.
    """

    def __init__(self, hole: Hole) -> None:
        super().__init__(f"offsets {hole.start} to {hole.end - 1} are lost")
        self.hole = hole


@dataclass(frozen=True, slots=True)
class FetchRange:
    """What a client wants of a partition.

    Attributes:
        offset: in `[start, end)` of the snapshot.
        end: the offset after the last one that it may see.
        committed: whether aborted transactions are hidden.
        most_bytes: of the answer.
        at_least_one: whether a first batch that is larger is returned too (KIP-74).
    """

    partition: Partition
    snapshot: Snapshot
    offset: int
    end: int
    committed: bool
    most_bytes: int
    at_least_one: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a client.

    Attributes:
        next_offset: after the last batch.
        aborted: transactions that the client hides.
    """

    views: Sequence[memoryview]
    nbytes: int
    next_offset: int
    aborted: Sequence[AbortedTransaction] = ()


Load = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _Refused:
    """An error of a range, and when it was found."""

    error: CorruptData
    at: float


class Reads:
    """Answers reads of all partitions; on the event loop.

    Attributes:
        holes_passed_over: by option, counted for each reader.
        offsets_passed_over: the lost offsets in them, each time.
        rewritten: the number of ranges whose batches were rewritten.

    Args:
        executor: decodes batches and rewrites them; each thread can need several hundred megabytes.
        passes_holes: whether a reader continues after a hole; otherwise `HoleReached` is raised there.
    """

    def __init__(self, feeds: Feeds, executor: Executor, *, passes_holes: bool) -> None:
        self.holes_passed_over, self.offsets_passed_over = 0, 0
        self.rewritten = 0
        self._feeds = feeds
        self._executor = executor
        self._passes_holes = passes_holes
        self._erased = ErasedBatches(executor)
        self._kept: OrderedDict[tuple[object, ...], Rewritten | _Refused] = OrderedDict()
        self._damaged: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by key: the first such offset, and when
        self._ended: OrderedDict[str, int] = OrderedDict()  # by key, the first offset without a batch

    def attempt(self, wanted: FetchRange) -> Found | Load:
        """Return the answer, or what must be awaited before the next attempt.

        Raises:
            HoleReached: the next offset is lost.
            CorruptData: marker batches are damaged.
        """
        snapshot, offset = wanted.snapshot, wanted.offset
        number = snapshot.number_at(offset)
        while offset < wanted.end:
            step = snapshot.steps[number]
            if offset >= step.end:
                number += 1
                continue
            if isinstance(step, Hole):
                self._pass_over(wanted.partition, step)
                offset = step.end
                continue
            try:
                found = self._attempt_range(wanted, number, step, offset)
            except CorruptData:
                if not step.is_tail:
                    raise
                break  # the view ends before it (reading rule 11); the log has it
            if not isinstance(found, int):
                return found
            offset = found
        if wanted.offset < min(offset, wanted.end):  # compaction left no batch here: an empty one leads the client on
            return self._rewritten(wanted, None, wanted.offset, min(offset, wanted.end), ())
        return Found((), 0, wanted.offset)

    def _attempt_range(self, wanted: FetchRange, number: int, step: ReadRange, offset: int) -> Found | Load | int:
        """Return the answer from a range, what must be awaited, or the offset after the range if nothing is in it."""
        stop = min(step.end, wanted.end)
        hidden: Sequence[AbortedTransaction] = ()
        if wanted.committed:
            known = wanted.snapshot.hidden_at_once(number)
            if known is None:
                return partial(wanted.snapshot.hidden, wanted.partition.store, number, wanted.end)
            hidden = known
        copy = step.copies[0]
        # A restored log begins with the leader epoch 0: clients would never accept it after the epochs of a former one.
        is_former = copy.keys != wanted.partition.keys
        if len(step.copies) > 1 or is_former or self._is_damaged(copy.key, offset):
            return self._rewritten(wanted, step, offset, stop, hidden)
        chunk = self._feeds.find(copy, offset)
        if chunk is None:
            if self._ended.get(copy.key, stop) <= offset:
                return step.end
            return partial(self._load, wanted.partition.store, copy, offset)
        at = int(chunk.lasts.searchsorted(offset))
        if at == len(chunk.lasts):
            return min(max(chunk.covers_to, offset + 1), step.end)
        base, last = int(chunk.bases[at]), int(chunk.lasts[at])
        if base >= stop:
            return stop if stop == wanted.end else step.end
        if last >= stop or (wanted.offset < step.start and base < step.start):
            return self._rewritten(wanted, step, max(offset, step.start), stop, hidden)
        replaced = self._erased.find(wanted.snapshot, copy, chunk)
        if replaced is None:
            return partial(self._erased.load, wanted.snapshot, copy, chunk)
        if at in replaced and replaced[at] is None:
            return self._rewritten(wanted, step, max(offset, step.start), min(last + 1, stop), hidden)
        return self._cut(wanted, number, copy, chunk, replaced, at, stop, hidden)

    def _cut(
        self,
        wanted: FetchRange,
        number: int,
        copy: SegmentCopy,
        chunk: Chunk,
        replaced: Replaced,
        at: int,
        stop: int,
        hidden: Sequence[AbortedTransaction],
    ) -> Found:
        """Return consecutive batches from one on, as far as chunks are in memory and the client wants bytes."""
        views: list[memoryview] = []
        visibility = Visibility(hidden, int(chunk.bases[at]))
        left, size, next_offset = wanted.most_bytes, 0, wanted.offset
        while True:
            begin = int(chunk.starts[at])
            whole = int(chunk.lasts.searchsorted(stop))  # of batches that end below
            rewritten = replaced.get(at)
            if at in replaced:
                end, fit = at + 1, at + (rewritten is not None and len(rewritten) <= left)
            else:
                end = next((each for each in range(at + 1, whole) if each in replaced), whole) if replaced else whole
                fit = int(chunk.ends.searchsorted(begin + left, side="right"))
            if fit <= at and not views and wanted.at_least_one:
                fit = at + 1
            until = visibility.fitting(chunk, at, min(whole, end, fit))
            if until <= at:
                break
            if rewritten is not None:
                view = memoryview(rewritten)
            else:
                view = _apart(chunk, chunk.data[begin : int(chunk.ends[until - 1])])
            views.append(view)
            left, size, next_offset = left - view.nbytes, size + view.nbytes, int(chunk.lasts[until - 1]) + 1
            if left <= 0:
                break
            if until < len(chunk.lasts):
                if until == end < whole:
                    at = until
                    continue
                break
            if chunk.covers_to >= stop:
                break
            following = self._feeds.find(copy, chunk.covers_to)
            if following is None or following.covers_from != chunk.covers_to:
                break
            its_replaced = self._erased.find(wanted.snapshot, copy, following)
            if its_replaced is None or (0 in its_replaced and its_replaced[0] is None):
                break
            chunk, replaced, at = following, its_replaced, 0
        self._prepare_next(wanted, number, copy, chunk)
        return Found(views, size, next_offset, visibility.entries)

    def _prepare_next(self, wanted: FetchRange, number: int, copy: SegmentCopy, chunk: Chunk) -> None:
        steps = wanted.snapshot.steps
        if number + 1 >= len(steps) or not self._feeds.ends_at(copy, chunk):
            return
        following = steps[number + 1]
        if isinstance(following, ReadRange) and len(following.copies) == 1:
            self._feeds.prepare(wanted.partition.store, following.copies[0], following.start)

    def _is_damaged(self, key: str, offset: int) -> bool:
        """Return whether an offset of an object could not be read lately."""
        first, at = self._damaged.get(key, (offset + 1, 0.0))
        if first <= offset and monotonic() - at >= DAMAGE_SECONDS:
            del self._damaged[key]
            return False
        return first <= offset

    def _pass_over(self, partition: Partition, hole: Hole) -> None:
        if not self._passes_holes:
            raise HoleReached(hole)
        self.holes_passed_over += 1
        self.offsets_passed_over += hole.end - hole.start
        log.warning(
            "hole_passed_over", partition=str(partition.keys.partition), from_offset=hole.start, to_offset=hole.end
        )

    async def _load(self, store: ObjectStore, copy: SegmentCopy, offset: int) -> None:
        try:
            chunk = await self._feeds.load(store, copy, offset)
        except CorruptData as error:
            log.warning("segment_damaged", key=copy.key, offset=offset, reason=str(error))
            first, _ = self._damaged.get(copy.key, (offset, 0.0))
            _remember(self._damaged, copy.key, (min(first, offset), monotonic()))
            return
        if chunk is None:
            _remember(self._ended, copy.key, min(offset, self._ended.get(copy.key, offset)))

    def _rewritten(
        self, wanted: FetchRange, step: ReadRange | None, start: int, stop: int, hidden: Sequence[AbortedTransaction]
    ) -> Found | Load:
        """Return rewritten batches from memory; else what rewrites them."""
        snapshot = wanted.snapshot
        key = (snapshot.serial, start, stop, wanted.committed)
        known = self._kept.get(key)
        if isinstance(known, _Refused):
            if monotonic() - known.at < DAMAGE_SECONDS:
                raise known.error
        elif known is not None:
            view = memoryview(known.data)
            return Found([view], view.nbytes, known.end)
        if step is None:
            epoch = snapshot.epochs.at(start)
            stop = min(stop, start + MOST_DELTA + 1)
            data = empty_batch(start, stop, NO_EPOCH if epoch is None else epoch)
            return Found([memoryview(data)], len(data), stop)
        part = step

        def write(tolerant: bool) -> Rewritten:
            view = snapshot.view
            return rewrite(
                wanted.partition.store,
                next(view.with_spares([part])) if tolerant else part,
                start,
                stop,
                view.epochs,
                erased=view.erased,
                aborted=sorted(hidden, key=lambda each: (each.producer_id, each.first_offset)),
                max_bytes=_REWRITTEN_BYTES,
                tolerant=tolerant,
            )

        return partial(self._rewrite, key, write, tolerant=any(copy.key in self._damaged for copy in step.copies))

    async def _rewrite(self, key: tuple[object, ...], write: Callable[[bool], Rewritten], *, tolerant: bool) -> None:
        run = asyncio.get_running_loop().run_in_executor
        try:
            try:
                self._kept[key] = await run(self._executor, write, tolerant)
            except CorruptData:
                if tolerant:
                    raise
                self._kept[key] = await run(self._executor, write, True)  # another copy can be intact
            self.rewritten += 1
        except CorruptData as error:
            log.warning("offsets_damaged", offset=key[1], reason=str(error))
            self._kept[key] = _Refused(error, monotonic())
        while len(self._kept) > _KEPT_REWRITTEN or (len(self._kept) > 1 and self._kept_bytes() > _KEPT_BYTES):
            self._kept.popitem(last=False)

    def _kept_bytes(self) -> int:
        return sum(len(each.data) for each in self._kept.values() if isinstance(each, Rewritten))


def _apart(chunk: Chunk, view: memoryview) -> memoryview:
    """Return a small part of a chunk as a copy: a slow client would keep all of the chunk, which no limit counts."""
    return memoryview(bytes(view)) if view.nbytes * _WORTH_KEEPING < chunk.held else view


def _remember(known: OrderedDict[str, T], key: str, value: T) -> None:
    known[key] = value
    while len(known) > _MOST_REMEMBERED:
        known.popitem(last=False)
