"""Fetches the files of one partition: segments, indexes, and markers of transactions that the restore ends.

The files are written into `restore/` in the partition's directory, which a broker ignores, so that a rename places
them. `state.json` there names the complete ones: a repeated run continues after them. Each byte is checked: the CRC of
each batch, and of the whole object, because a batch's CRC does not cover its offset. Batches are placed
without their erased records.

The last segment begins at the end of what is restored. It has the markers of transactions that are open there, and is
empty without any: so the log ends there even if compaction removed its last batches. The entries of a live tail
are one segment before it. Where offsets are lost, the open
transactions get abort markers at the first lost offsets, in a segment of their own: readers hide their records too.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Final

from awscrt.checksums import crc32c

from ts_common.archive.catalog import read_log_start
from ts_common.archive.erased_list import greatest_listed, read_erased
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.fetch import ResumableReader, one_ahead
from ts_common.archive.former_places import read_with_former
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.read_log import ReadLog, kept_end
from ts_common.archive.restored import Ended, Outcome
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.log_format.checkpoints import encode_leader_epoch_checkpoint
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import IndexBuilder
from ts_common.log_format.markers import ABORT, COMMIT, encode_marker
from ts_common.store.contract import ObjectStore
from ts_common.store.wrappers.bandwidth import Allowance
from tsctl.durable_files import sync_directory, write_file, write_new
from tsctl.restore.chain import FIRST_EPOCH, Batch, clean, read_batches, united, without_erased
from tsctl.restore.documents import FileEntry, Staged
from tsctl.restore.partition_plan import PartitionPlan, Source, Step
from tsctl.restore.transactions import Transactions

STAGING: Final = "restore"
STATE: Final = "state.json"
EPOCHS_FILE: Final = "leader-epoch-checkpoint"
_CHUNK_BYTES: Final = 1 << 20  # larger ones leave the cache of a core before they are written
_WRITE_BYTES: Final = 1 << 20
_MOST_DAMAGED: Final = 100  # messages of one partition
_KINDS: Final = {Outcome.ABORT: ABORT, Outcome.COMMIT: COMMIT}
_INDEX, _TIMEINDEX, _TXNINDEX = INDEX_SUFFIXES


class PartitionFetch:
    """The files of one partition.

    Args:
        keys: of the partition in the archive.
        time: ms since the epoch, of markers.
        directory: of the partition on this host.
        allowance: of bytes per second.
        advance: is called with each number of bytes that were read.
    """

    def __init__(
        self,
        store: ObjectStore,
        keys: PartitionKeys,
        plan: PartitionPlan,
        plan_id: str,
        time: int,
        directory: Path,
        allowance: Allowance,
        advance: Callable[[int], None],
    ) -> None:
        self._store = store
        self._keys = keys
        self._plan = plan
        self._time = time
        self._staging = directory / STAGING
        self._allowance = allowance
        self._advance = advance
        self._state = Staged(plan_id)
        self._transactions = Transactions()
        self._present: dict[str, bool] = {}  # by key, whether an object of a live tail exists
        self._view: PartitionView | None = None  # of now, if one does not
        self._erased: dict[str, ErasedOffsets] = {}  # by the prefix of a directory

    def run(self) -> Staged:
        """Fetch what is missing; return the complete state.

        Raises:
            CorruptData: an object is damaged, or the plan is of another state of the archive.
            ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
            OSError: a file cannot be written.
        """
        self._staging.mkdir(exist_ok=True)
        found = Staged.load(self._staging / STATE)
        if found is not None and found.plan == self._state.plan:
            if not found.is_of(self._plan):
                raise CorruptData(
                    f"{self._staging / STATE}: {found.steps} steps up to offset {found.end}, which are not the plan's; "
                    f"remove {self._staging}, and run `tsctl restore fetch` on this host again"
                )
            self._state = found
        self._advance(sum(step.size for step in self._plan.steps[: self._state.steps]))
        self._transactions = Transactions(self._state.still_open)
        if self._state.complete:
            return self._state
        self._drop_incomplete()
        begin = self._plan.steps[0].start if self._plan.steps else self._plan.end
        if not self._state.files and begin > self._plan.start:  # the first offsets are lost
            self._save(self._state, self._write_segment(iter(()), self._plan.start))
        for steps in self._plan.segments(self._state.steps):
            if self._state.steps and steps[0].start > self._plan.steps[self._state.steps - 1].end:
                self._end_before_hole(steps[0].start)
            self._fetch(steps)
        self._finish()
        return self._state

    def _drop_incomplete(self) -> None:
        """Remove the files that no complete step has: of a killed run, or of another plan."""
        kept = {entry.name for entry in self._state.files} | {STATE}
        for path in self._staging.iterdir():
            if path.name not in kept:
                path.unlink()

    def _fetch(self, steps: Sequence[Step]) -> None:
        """Write one segment of some steps."""
        damaged: list[str] = []
        with ExitStack() as opened:
            batches = chain.from_iterable(self._of_step(step, opened, damaged.append) for step in steps)
            first = next(batches, None)  # None: compaction left no batch
            base = self._base_of(steps[0], None if first is None else first[0])
            written = self._write_segment(batches if first is None else chain([first], batches), base)
        state = replace(self._state, steps=self._state.steps + len(steps), end=steps[-1].end)
        notes = (*state.damaged, *damaged)[:_MOST_DAMAGED]
        self._save(replace(state, damaged=notes), written)

    def _of_step(self, step: Step, opened: ExitStack, damage: Callable[[str], None]) -> Iterator[Batch]:
        """Yield the batches of a step."""
        is_first = step is self._plan.steps[0]
        if step.is_tail and not self._is_present(step.sources[0].object[0]):
            for part in self._found_again(step):
                yield from self._of_parts(part, opened, damage, is_first=is_first and part.start == step.start)
            return
        yield from self._of_parts(step, opened, damage, is_first=is_first)

    def _of_parts(
        self, step: Step, opened: ExitStack, damage: Callable[[str], None], *, is_first: bool
    ) -> Iterator[Batch]:
        copies = [opened.enter_context(closing(self._batches(source, damage))) for source in step.sources]
        return clean(united(copies), step.start, step.end, is_first=is_first)

    def _is_present(self, key: str) -> bool:
        """Return whether an object of a live tail exists; each is looked for once."""
        if key not in self._present:
            try:
                self._store.head(key)
                self._present[key] = True
            except ObjectNotFound:
                self._present[key] = False
        return self._present[key]

    def _found_again(self, step: Step) -> Sequence[Step]:
        """Return where the archive has the offsets of an entry whose object a running agent deleted.

        A later object of the tail or a closed segment has them.

        Raises:
            CorruptData: the archive no longer has them.
            ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        if self._view is None:
            catalog = read_with_former(self._store, self._keys)
            self._view = open_view(self._store, catalog, tails=TailLogs(self._store, self._keys.cluster))
        view, read = self._view, ReadLog(self._plan.epochs, self._plan.lineage)
        found = view.plan(step.start, min(step.end, view.end)) if step.end <= view.end else ()
        ranges = [each for each in found if isinstance(each, ReadRange)]
        if not ranges or len(ranges) < len(found) or kept_end(step.end, read, view.log, view.end) < step.end:
            raise CorruptData(
                f"{self._keys.partition}: {step.sources[0].key} was deleted, and the archive no longer has offsets "
                f"{step.start} to {step.end - 1} as the plan; make the plan again"
            )
        return [Step.of(each) for each in ranges]

    def _batches(self, source: Source, damage: Callable[[str], None]) -> Generator[Batch, None, None]:
        """Yield the batches of an object, and check all of its bytes at the end."""
        key, crc, places = source.key, 0, list[str]()

        def chunks() -> Generator[bytes, None, None]:
            nonlocal crc
            name, first = source.object
            end = first + source.size if source.is_entry else None
            with ResumableReader(self._store, name, first, end) as reader:
                while chunk := reader.read(self._allowance.take(_CHUNK_BYTES)):
                    crc = crc32c(chunk, crc)
                    self._advance(len(chunk))
                    yield chunk

        try:
            with closing(one_ahead(chunks())) as ahead:
                yield from without_erased(
                    read_batches(ahead, source.size, places.append), self._erased_of(source), source.base
                )
        except CorruptData as error:
            raise self._corrupt(key, str(error)) from error
        if source.crc32c is not None and crc != source.crc32c:
            found = f"CRC-32C {crc:08x}; {source.crc32c:08x} is expected"
            raise self._corrupt(key, "; ".join([found, *places[:1]]))
        if places and source.crc32c is None:
            raise self._corrupt(key, places[0])
        for place in places:  # the broker's file had it already
            damage(f"{key}: {place}")

    def _erased_of(self, source: Source) -> ErasedOffsets:
        """Return the erased offsets of an object's directory, as they are now; raise as `read_erased`."""
        prefix = self._keys.prefix if source.is_entry else source.key.rpartition("/")[0] + "/"
        if prefix not in self._erased:
            keys = PartitionKeys(self._keys.partition, prefix)
            listed = greatest_listed(keys, self._store.list(keys.erased))
            start = read_log_start(self._store, keys.log_start)
            least = None if start is None else start.content.erased
            self._erased[prefix] = read_erased(self._store, keys, listed, least)
        return self._erased[prefix]

    def _corrupt(self, key: str, what: str) -> CorruptData:
        return CorruptData(
            f"{key} in {self._store.location}: {what}. Repair it with `tsctl repair --depth full`; or make a plan that "
            "ends before it with --end"
        )

    def _base_of(self, step: Step, first: BatchHeader | None) -> int:
        """Return the base of a step's segment: the object's, unless its first batches are left out."""
        base = min(source.base for source in step.sources)
        if self._state.steps:
            return base if base >= self._state.end else step.start
        if base >= step.start or first is None:
            return step.start
        # A wrapper of magic 0 or 1 does not have the offset of its first message.
        return min(first.base_offset, step.start) if first.magic >= 2 else base

    def _write_segment(self, batches: Iterator[Batch], base: int) -> list[FileEntry]:
        """Write the files of a segment, and return them, the `.log` last."""
        stem = SegmentName(base).stem
        index, aborted = IndexBuilder(base), bytearray()
        crc = size = 0
        path = self._staging / f"{stem}{LOG_SUFFIX}"
        with path.open("wb", buffering=_WRITE_BYTES) as file:
            for header, data in batches:
                for entry in self._transactions.add(header, bytes(data[HEADER_SIZE:]) if header.is_control else b""):
                    aborted += entry.encode()
                if self._state.epoch_start is None and header.magic >= 2:
                    self._state = replace(self._state, epoch_start=base if not size else header.base_offset)
                index.add(header.last_offset, header.max_timestamp, len(data))
                crc, size = crc32c(data, crc), size + len(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        offsets, times = index.finish()
        small = {_INDEX: offsets, _TIMEINDEX: times} | ({_TXNINDEX: bytes(aborted)} if aborted else {})
        entries = [self._write_small(f"{stem}{suffix}", data) for suffix, data in small.items()]
        return [*entries, FileEntry(path.name, size, crc)]

    def _write_small(self, name: str, data: bytes) -> FileEntry:
        write_new(self._staging / name, data)
        return FileEntry(name, len(data), crc32c(data))

    def _end_before_hole(self, end: int) -> None:
        """Abort the open transactions at the first lost offsets; `end` is the offset after the last lost one."""
        start = self._state.end
        left = self._transactions.by_offset
        if len(left) > end - start:
            raise CorruptData(
                f"{self._keys.partition}: {len(left)} transactions are open where offsets {start} to {end - 1} are "
                "lost, which leaves no place for their markers; make a plan that ends before with --end"
            )
        ended = [Ended(one.producer_id, one.producer_epoch, one.first_offset, Outcome.ABORT) for one in left]
        self._save(self._state, self._write_markers(start, ended) if ended else [])

    def _write_markers(self, start: int, ended: Sequence[Ended]) -> list[FileEntry]:
        """Write a segment of markers from an offset on."""
        made = [
            encode_marker(offset, one.producer_id, one.producer_epoch, _KINDS[one.outcome], self._time)
            for offset, one in zip(count(start), ended, strict=False)
        ]
        return self._write_segment(((_header(data), memoryview(data)) for data in made), start)

    def _finish(self) -> None:
        """Write the markers at the end and the leader epochs, and mark the files as complete."""
        plan = self._plan
        left = {
            (one.producer_id, one.first_offset)
            for one in self._transactions.open.values()
            if one.first_offset >= plan.stable  # below it compaction has removed a marker
        }
        planned = [(one.producer_id, one.first_offset) for one in plan.ended]
        planned += [(one.producer_id, one.first_offset) for one in plan.left_open]
        if left != set(planned):
            raise CorruptData(
                f"{self._keys.partition}: transactions of producers {sorted(left)} are open at {plan.end}, and the "
                f"plan has {planned}; make the plan again"
            )
        written = self._write_markers(plan.end, plan.ended)
        epoch_start = self._state.epoch_start
        epochs = [] if epoch_start is None else [(FIRST_EPOCH, epoch_start)]
        written.append(self._write_small(EPOCHS_FILE, encode_leader_epoch_checkpoint(epochs)))
        if plan.left_open:
            written = self._drop_indexes(min(one.first_offset for one in plan.left_open), written)
        self._save(replace(self._state, end=plan.log_end, complete=True), written)

    def _drop_indexes(self, first_open: int, written: Sequence[FileEntry]) -> list[FileEntry]:
        """Remove each `.index` from the segment of the first open offset on; return what is left of `written`.

        Kafka recovers a segment without it, and so tracks the open transactions: a later marker ends them rightly.
        """
        files = (*self._state.files, *written)
        bases = [found[0].base for each in files if (found := SegmentName.parse(each.name)) is not None]
        first = max(base for base in bases if base <= first_open)
        dropped = {f"{SegmentName(base).stem}{_INDEX}" for base in bases if base >= first}
        for name in dropped:
            (self._staging / name).unlink(missing_ok=True)
        self._state = replace(self._state, files=tuple(each for each in self._state.files if each.name not in dropped))
        return [each for each in written if each.name not in dropped]

    def _save(self, state: Staged, written: Sequence[FileEntry]) -> None:
        sync_directory(self._staging)
        still_open = tuple(self._transactions.by_offset)
        self._state = replace(
            state, files=(*state.files, *written), still_open=still_open, epoch_start=self._state.epoch_start
        )
        write_file(self._staging / STATE, self._state.encode())


def _header(data: bytes) -> BatchHeader:
    found = parse_header(data, 0, len(data))
    assert isinstance(found, BatchHeader)  # noqa: S101  (this module encoded it)
    return found
