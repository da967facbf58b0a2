"""One broker's replica of one partition: the log, and its files.

An operation that renames several files is a generator of single steps, in Kafka's order. It stays in `ongoing` until
its last step, and any other operation on this log ends it first (Kafka holds the log's lock). Agents list the
directory in between.

Sources: Kafka's `LocalLog`, `UnifiedLog`, `LogSegment.changeFileSuffixes`, `LeaderEpochFileCache`.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from tests.histories.records import (
    NO_EPOCH,
    Batch,
    Codec,
    Held,
    History,
    Kind,
    producer_snapshot,
    transaction_index,
)

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
Steps = Iterator[None]
_RENAMES = itertools.count(1)


class Replica:
    """A replica, and its partition directory.

    Args:
        path: of the directory; its parent is the broker's log dir.
        roll: records per segment.
        codec: of the topic.
        topic_id: of the topic.
        made_at: nanoseconds since the epoch.
        change_times: when files were renamed, by inode; the kernel's stamps are too coarse for a history.

    Attributes:
        history: the batch of every offset from 0 on in this log, with those that retention or compaction removed.
        segments: the content of each live segment, by base offset; the last is the active one.
        epochs: as in `leader-epoch-checkpoint`.
        high_watermark: of this broker.
        leads_in: the epoch of its leadership, also after an election that it has not read; None for a follower.
        begun_at: where that epoch begins.
        late: bases of segments whose markers the cleaner has removed by age, here or on the leader it fetched from.
        cleaned: for each offset the batches that this log lost to compaction, here or on the leader it fetched from.
        ongoing: the renames that have begun.
    """

    def __init__(
        self, path: Path, roll: int, codec: Codec, topic_id: str, made_at: int, change_times: dict[int, int]
    ) -> None:
        self.path = path
        self.roll_size = roll
        self.codec = codec
        self.history: History = []
        self.segments: dict[int, list[Held]] = {}
        self.epochs: list[tuple[int, int]] = []
        self.high_watermark = 0
        self.leads_in: int | None = None
        self.begun_at = 0
        self.cleaned: dict[int, list[Batch]] = {}
        self.late: set[int] = set()
        self.ongoing: Steps | None = None
        self._end = 0
        self._trash: list[list[Path]] = []
        self._times = itertools.count(1)
        self._change_times = change_times
        self.path.mkdir(parents=True)
        metadata = self.path / "partition.metadata"
        metadata.write_text(f"version: 0\ntopic_id: {topic_id}")
        os.utime(metadata, ns=(made_at, made_at))
        self._begin_segment(0)
        self._write_epochs()

    @property
    def end(self) -> int:
        """Log end offset."""
        return self._end

    @property
    def bases(self) -> list[int]:
        """Base offsets of live segments, ascending, as in the broker's memory."""
        return list(self.segments)

    @property
    def start(self) -> int:
        """Log start offset."""
        return next(iter(self.segments))

    @property
    def active(self) -> int:
        """Base of the active segment."""
        return next(reversed(self.segments))

    def offsets(self, *, closed: bool = False) -> set[int]:
        """Return the offsets whose records (or markers) this log has, optionally of closed segments only."""
        bases = self.bases[:-1] if closed else self.bases
        return {offset for base in bases for held in self.segments[base] for offset in held.kept}

    # --- changes of the log

    def append(self, held: Held, history: History) -> None:
        """Append a batch as a leader's log has it; skip offsets below that compaction removed there.

        Args:
            held: with a batch at or above this log's end.
            history: of the leader's log, at least up to the batch's end.
        """
        self.finish()
        batch = held.batch
        if batch.epoch != NO_EPOCH and (not self.epochs or self.epochs[-1][0] < batch.epoch):
            self._assign(batch.epoch, batch.base)
        is_late = False
        for offset in range(self._end, batch.end):
            if offset not in held.kept:
                self.cleaned.setdefault(offset, []).append(history[offset])
                is_late = is_late or history[offset].kind is not Kind.DATA
        self.history += history[len(self.history) : batch.end]
        active = self.segments[self.active]
        if sum(len(one.kept) for one in active) >= self.roll_size:
            self._roll(max(batch.base, self._end))
            active = self.segments[self.active]
        active.append(held)
        with self._file(self.active, ".log").open("ab") as file:
            file.write(self.codec.encode(held))
        if is_late or self.active in self.late:
            self.late.add(self.active)
            os.utime(self._file(self.active, ".log"), (0, 0))
        if batch.kind is Kind.ABORT:
            self._file(self.active, ".txnindex").write_bytes(transaction_index(active, self.history))
        self._end = batch.end

    def roll(self) -> None:
        """Begin a new segment at the log's end."""
        self.finish()
        if self.segments[self.active]:
            self._roll(self._end)

    def lead(self, epoch: int) -> None:
        """Become the leader: write the epoch to the checkpoint before any append."""
        self.finish()
        self.leads_in, self.begun_at = epoch, self._end
        if self.codec.magic >= 2:
            self._assign(epoch, self._end)

    def forget_empty_epochs(self) -> None:
        """Drop epochs that begin at the log's end: a follower does before it fetches (`UnifiedLog.truncateTo`)."""
        self.finish()
        self.epochs = [pair for pair in self.epochs if pair[1] < self._end]
        self._write_epochs()

    def truncate(self, end: int) -> None:
        """Begin to truncate the log at the boundary of a batch."""
        self.finish()
        del self.history[end:]
        self.high_watermark = min(self.high_watermark, end)
        if end < self.start:
            self._begin_fully(end)
            return
        gone = [base for base in self.segments if base > end]
        for base in gone:
            del self.segments[base]
        active = self.segments[self.active]
        kept = [held for held in active if held.batch.base < end]
        self.segments[self.active] = kept
        self._end = end
        self.ongoing = self._cutting(self.active, kept, gone)

    def begin_at(self, offset: int, history: History, epochs: list[tuple[int, int]]) -> None:
        """Begin to restart at the start of the leader's log, as a follower that is too far behind."""
        self.finish()
        self.history = history[:offset]
        self.high_watermark = min(self.high_watermark, offset)
        self._begin_fully(offset)
        self.epochs = list(epochs) if self.codec.magic >= 2 else []
        self._write_epochs()

    def expire(self, count: int, *, active: bool = False) -> None:
        """Begin to rename the lowest closed segments below the high watermark: retention.

        Args:
            count: of segments at most.
            active: if no other segment is left, the active one is rolled and renamed too.
        """
        self.finish()
        if active and count >= len(self.segments) and self._end <= self.high_watermark:
            self.roll()
        gone: list[int] = []
        while len(gone) < count and len(self.segments) > 1 and self.bases[1] <= self.high_watermark:
            gone.append(self.start)
            del self.segments[self.start]
        if gone:
            self.ongoing = self._expiring(gone)

    def replace(self, old: list[int], new: list[Held], *, late: bool) -> None:
        """Begin to replace adjacent segments by one cleaned segment: `LocalLog.replaceSegments`."""
        self.finish()
        if late or self.late & set(old):
            self.late.add(old[0])
        self.codec.closed.add(tuple(new))
        self.segments = {
            base: new if base == old[0] else held for base, held in self.segments.items() if base not in old[1:]
        }
        self.ongoing = self._replacing(old, new)

    def step(self) -> None:
        """Run one more rename."""
        if self.ongoing is not None:
            try:
                next(self.ongoing)
            except StopIteration:
                self.ongoing = None
            self._changed()

    def finish(self) -> None:
        """Run all renames that have begun."""
        while self.ongoing is not None:
            self.step()

    def unlink(self, *, everything: bool = False) -> None:
        """Delete the files that were renamed first, a minute after their rename; or all."""
        while self._trash:
            for path in self._trash.pop(0):
                path.unlink(missing_ok=True)
                self._changed()
            if not everything:
                break

    def delete(self) -> None:
        """Rename the directory, as the broker does with that of a deleted topic; from now on nothing changes in it."""
        self.finish()
        self.path = self.path.rename(self.path.with_name(f"{self.path.name}.{next(_RENAMES):032x}-delete"))

    def parts_from(self, history: History) -> int:
        """Return the first offset where this log differs from a history."""
        mine = self.history
        low, high = 0, min(len(mine), len(history))
        # Logs that part never join again.
        while low < high:
            middle = (low + high) // 2
            if mine[middle] is history[middle]:
                low = middle + 1
            else:
                high = middle
        return min(low, self._end)

    # --- files

    def _assign(self, epoch: int, start: int) -> None:
        self.epochs = [pair for pair in self.epochs if pair[1] < start]
        self.epochs.append((epoch, start))
        self._write_epochs()

    def _begin_fully(self, offset: int) -> None:
        gone = self.bases
        self.codec.closed.add(tuple(self.segments[self.active]))  # no more records are appended to it
        self.segments = {}
        self._end = offset
        self.epochs = [pair for pair in self.epochs if pair[1] < offset]
        self._write_epochs()
        self.ongoing = self._beginning(offset, gone)

    def _beginning(self, offset: int, gone: list[int]) -> Steps:
        # `truncateFullyAndStartAt`: removes all but the last, creates the new one, then removes the last.
        self.segments = {offset: []}
        for base in gone[:-1]:
            yield from self._discard(base)
        if offset in gone:
            yield from self._discard(offset)
        self._make_files(offset)
        yield
        if gone[-1] != offset:
            yield from self._discard(gone[-1])

    def _cutting(self, active: int, kept: list[Held], gone: list[int]) -> Steps:
        for base in gone:
            yield from self._discard(base)
        with self._file(active, ".log").open("r+b") as file:
            file.truncate(sum(len(self.codec.encode(held)) for held in kept))
        index = self._file(active, ".txnindex")
        if index.exists():
            index.write_bytes(transaction_index(kept, self.history))
        self.forget_after_truncation()
        yield

    def forget_after_truncation(self) -> None:
        """Remove epochs from the log's end on."""
        self.epochs = [pair for pair in self.epochs if pair[1] < self._end]
        self._write_epochs()

    def _expiring(self, gone: list[int]) -> Steps:
        for base in gone:
            yield from self._discard(base)
        below = [pair for pair in self.epochs if pair[1] <= self.start]
        floor = [(below[-1][0], self.start)] if below else []
        self.epochs = floor + [pair for pair in self.epochs if pair[1] > self.start]
        self._write_epochs()
        yield

    def _replacing(self, old: list[int], new: list[Held]) -> Steps:
        base = old[0]
        contents = {".log": b"".join(map(self.codec.encode, new)), ".index": b"", ".timeindex": b""}
        if any(self._file(one, ".txnindex").exists() for one in old):
            contents[".txnindex"] = transaction_index(new, self.history)
        for suffix, data in contents.items():
            self._file(base, suffix + ".cleaned").write_bytes(data)
            if base in self.late:
                os.utime(self._file(base, suffix + ".cleaned"), (0, 0))
            yield
        yield from self._rename(base, ".cleaned", ".swap")
        for one in old:
            yield from self._discard(one, replaced=one == base)
        yield from self._rename(base, ".swap", "")

    def _discard(self, base: int, *, replaced: bool = False) -> Steps:
        self._trash.append([self._file(base, suffix + ".deleted") for suffix in SUFFIXES])
        if not replaced:
            (self.path / f"{base:020d}.snapshot").unlink(missing_ok=True)
        yield from self._rename(base, "", ".deleted")

    def _rename(self, base: int, before: str, after: str) -> Steps:
        for suffix in SUFFIXES:
            path = self._file(base, suffix + before)
            if path.exists():
                self._change_times[path.stat().st_ino] = 10**18 + next(_RENAMES)
                path.replace(self._file(base, suffix + after))
                yield

    def _roll(self, base: int) -> None:
        self.codec.closed.add(tuple(self.segments[self.active]))
        self._begin_segment(base)
        (self.path / f"{base:020d}.snapshot").write_bytes(producer_snapshot(self.history, self._end))

    def _begin_segment(self, base: int) -> None:
        self.segments[base] = []
        self.late.discard(base)
        self._make_files(base)

    def _make_files(self, base: int) -> None:
        self._file(base, ".txnindex").unlink(missing_ok=True)
        for suffix in SUFFIXES[:3]:
            path = self._file(base, suffix)
            path.unlink(missing_ok=True)
            path.touch()
        self._changed()

    def _file(self, base: int, suffix: str) -> Path:
        return self.path / f"{base:020d}{suffix}"

    def _write_epochs(self) -> None:
        if self.codec.magic < 2:
            return
        lines = ["0", str(len(self.epochs)), *(f"{epoch} {start}" for epoch, start in self.epochs)]
        checkpoint = self.path / "leader-epoch-checkpoint"
        new = checkpoint.with_name("leader-epoch-checkpoint.tmp")
        new.write_text("\n".join(lines) + "\n")
        new.replace(checkpoint)
        self._changed()

    def _changed(self) -> None:
        """Give the directory another stamp: the kernel's clock tick is coarser than a history."""
        now = next(self._times)
        os.utime(self.path, ns=(now, now))
