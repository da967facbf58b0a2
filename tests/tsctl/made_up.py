"""Archives generated from a seed, with elections, overlaps, variants, compaction, transactions, gaps and codecs.

All copies are slices of one log, as replicas are. If a copy lacks records of the log, compaction removed them. If it
extends beyond the start of a later leader epoch, that part is dead. So for each offset it is known whether readers must
return it.
"""

import gzip
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

from awscrt.checksums import crc32c

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import BytesReader
from tests.spark.archives import Archive
from ts_common.archive.commit import LogStart
from ts_common.archive.gap_records import Gap
from ts_common.archive.metadata_cache import CacheEntry, encode_cache_object
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState, decode_metadata
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import scan_segment

TOPIC = "t"
GZIP = 1


@dataclass(frozen=True)
class Batch:
    """One batch of the log: offsets `[start, end)`; compaction left `offsets`."""

    start: int
    end: int
    epoch: int
    offsets: tuple[int, ...]
    kind: str
    producer: int = -1
    began: int = -1  # for a marker: where its transaction began

    def encode(self) -> bytes:
        if self.kind in {"abort", "commit"}:
            return marker(self.start, self.producer, int(self.kind == "commit"), self.epoch)
        times = [time_of(offset) for offset in self.offsets] or [time_of(self.start)]
        body = b"".join(
            record(o - self.start, b"%d" % o, b"v%d" % o, timestamp_delta=time_of(o) - times[0]) for o in self.offsets
        )
        return batch(
            self.start,
            body=gzip.compress(body, mtime=0) if self.kind == "gzip" else body,
            count=len(self.offsets),
            last_offset_delta=self.end - self.start - 1,
            epoch=self.epoch,
            attributes={"gzip": GZIP, "transactional": TRANSACTIONAL}.get(self.kind, 0),
            base_timestamp=times[0],
            max_timestamp=max(times),
            producer_id=self.producer,
        )

    @property
    def shown(self) -> tuple[int, ...]:
        """Offsets of the records that readers return."""
        return () if self.kind in {"abort", "commit"} else self.offsets


@dataclass
class Copy:
    """One segment in the store."""

    name: SegmentName
    end: int
    live_end: int
    batches: tuple[Batch, ...]
    log: bytes
    files: dict[str, bytes]
    metadata: SegmentMetadata

    def shown(self, start: int = 0) -> set[int]:
        """Return the offsets of the live records."""
        return {o for b in self.batches for o in b.shown if start <= o < self.live_end}


@dataclass
class MadeUp:
    """An archive of one partition.

    Attributes:
        copies: all segments.
        epochs: the commit's.
        log_start: of the partition.
        next_offset: of the commit.
        gaps: ranges with a gap record.
    """

    archive: Archive
    copies: list[Copy]
    epochs: list[tuple[int, int]]
    log_start: int
    next_offset: int
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def key(self, copy: Copy, suffix: str = ".log") -> str:
        return self.archive.partition(TOPIC).segment(copy.name, suffix)

    def uncovered(self, copies: Iterable[Copy], start: int, end: int) -> list[tuple[int, int]]:
        """Return ranges of `[start, end)` where no copy is live."""
        held = {offset for copy in copies for offset in range(copy.name.base, copy.live_end)}
        return ranges(offset for offset in range(start, end) if offset not in held)

    def holes(self, copies: Iterable[Copy], start: int | None = None, end: int | None = None) -> list[tuple[int, int]]:
        """Return the part of them that no gap record explains."""
        low, high = self.log_start if start is None else start, self.next_offset if end is None else end
        told = {offset for gap in self.gaps for offset in range(*gap)}
        lost = (offset for begin, stop in self.uncovered(copies, low, high) for offset in range(begin, stop))
        return ranges(offset for offset in lost if offset not in told)

    def shown(self) -> list[int]:
        """Return the offsets of the records that readers return."""
        found = set().union(*(copy.shown(self.log_start) for copy in self.copies))
        return sorted(offset for offset in found if offset < self.next_offset)

    def put(self, copy: Copy) -> None:
        """Put the copy's objects."""
        store = self.archive.store
        for suffix, data in copy.files.items():
            store.put(self.key(copy, suffix), data)
        store.put(self.key(copy), copy.log, metadata=copy.metadata.encode())

    def commit(self, *, next_offset: int | None = None) -> None:
        end = self.next_offset if next_offset is None else next_offset
        highest = max((copy.name.base for copy in self.copies if copy.name.base < self.next_offset), default=0)
        epochs = [pair for pair in self.epochs if pair[1] < end] or self.epochs[:1]
        self.archive.commit(TOPIC, end, epochs=epochs, highest_base=highest)
        start = LogStart(self.log_start, written_by="gc")  # retention moved it there
        self.archive.store.put(self.archive.partition(TOPIC).log_start, start.encode())

    def put_cache_object(self) -> None:
        """Put a cache object of all segments."""
        keys, store = self.archive.partition(TOPIC), self.archive.store
        entries = []
        for info in store.list(keys.prefix):
            name = SegmentName.parse(info.key.removeprefix(keys.prefix))
            if name is not None and name[1] == ".log":
                metadata = decode_metadata(store.head(info.key).metadata, info.key)
                entries.append(CacheEntry(name[0], info.size, info.etag, metadata))
        store.put(keys.cache_object(self.copies[0].name.base), encode_cache_object(keys, entries))


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return offsets as ranges `[from, to)`."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


def time_of(offset: int) -> int:
    """Return the record's timestamp; some are out of order."""
    return 1_000_000 + offset * 10 + (offset * 7919 % 13) * 15


def make(random: Random, directory: Path) -> MadeUp:
    """Return the archive of a seed."""
    archive = Archive(directory, entropy_bits=random.choice((0, 3)))
    first = random.choice((0, 0, 41))
    log, epochs = _log(random, first)
    made = MadeUp(archive, [], epochs, first, log[-1].end)
    at = 0
    while at < len(log):
        if at and random.random() < 0.15:  # no broker has these any more
            size = random.randint(1, 2)
            if at + size < len(log):
                made.gaps.append((log[at].start, log[at + size - 1].end))
                if random.random() < 0.3:  # but another broker still had them
                    _add(made, random, log[at : at + size], log)
                at += size
        stop = min(len(log), at + random.randint(2, 6))
        begin = at if random.random() < 0.7 else max(0, at - random.randint(1, 4))
        if any(log[begin].start < gap[1] and gap[0] < log[stop - 1].end for gap in made.gaps):
            begin = at
        _add(made, random, log[begin:stop], log)
        at = stop
    for copy in made.copies:
        made.put(copy)
    for start, end in made.gaps:
        key = archive.partition(TOPIC).gap(start, end)
        archive.store.put(key, Gap(start, end, "retention took it", 1, 1).encode())
    made.log_start = first if random.random() < 0.7 else random.randint(first, made.next_offset)
    made.commit()
    if random.random() < 0.3:
        made.put_cache_object()
    return made


def _log(random: Random, first: int) -> tuple[list[Batch], list[tuple[int, int]]]:
    """Return contiguous batches, and the first offset of each epoch."""
    log: list[Batch] = []
    epoch = random.randint(0, 3)
    epochs, at, open_since = [(epoch, first)], first, -1
    for number in range(random.randint(6, 24)):
        if number and random.random() < 0.15:
            epoch += random.randint(1, 3)
            epochs.append((epoch, at))
        if open_since >= 0 and random.random() < 0.5:
            kind = random.choice(("abort", "commit"))
            log.append(Batch(at, at + 1, epoch, (at,), kind, 9, open_since))
            at, open_since = at + 1, -1
            continue
        end = at + random.randint(1, 8)
        kind = random.choice(("plain", "plain", "gzip", "transactional"))
        if kind == "transactional" and open_since < 0:
            open_since = at
        log.append(Batch(at, end, epoch, tuple(range(at, end)), kind, 9 if kind == "transactional" else -1))
        at = end
    return log, epochs


def _add(made: MadeUp, random: Random, batches: Sequence[Batch], log: Sequence[Batch]) -> None:
    """Add a copy of these batches, as some leader had them."""
    base, end = batches[0].start, batches[-1].end
    live_end, kept = end, list(batches)
    leaderships = {start: epoch for epoch, start in made.epochs[1:]}
    if end in leaderships and random.random() < 0.6:  # it continued in a leadership that lost
        dead = batches[-1].epoch
        for _ in range(random.randint(1, 3)):
            size = random.randint(1, 5)
            kept.append(Batch(end, end + size, dead, tuple(range(end, end + size)), "plain"))
            end += size
    if random.random() < 0.3:
        kept = _compacted(random, kept)
    if not kept:
        kept = list(batches)
    name = SegmentName(base)
    data, files, positions = b"", {}, []
    for each in kept:
        positions.append(len(data))
        data += each.encode()
    if any(copy.name == name for copy in made.copies):
        name = SegmentName(base, kept[-1].epoch, crc32c(data))
        if any(copy.name == name for copy in made.copies):
            return
    files[".index"] = b"".join(
        struct.pack(">ii", each.end - 1 - base, position)
        for number, (each, position) in enumerate(zip(kept, positions, strict=True))
        if number and (number % 2 or number == 2)
    )
    files[".timeindex"] = _timeindex(kept, base)
    scan = scan_segment(BytesReader(data), len(data), TimeIndex(base, files[".timeindex"]))
    metadata = replace(metadata_of(scan, base, "made up"), end=end, rebuilt=False)
    aborts = [each for each in kept if each.kind == "abort"]
    if aborts or random.random() < 0.1:
        files[".txnindex"] = b"".join(
            struct.pack(">hqqqq", 0, each.producer, each.began, each.start, each.start) for each in aborts
        )
        metadata = replace(metadata, txnindex=(crc32c(files[".txnindex"]), TxnIndexState.COMPLETE))
    made.copies.append(Copy(name, end, live_end, tuple(kept), data, files, metadata))


def _compacted(random: Random, batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches after compaction: with fewer records, empty, or removed."""
    kept = []
    for each in batches:
        if each.kind in {"abort", "commit"}:
            kept.append(each)
            continue
        left = tuple(offset for offset in each.offsets if random.random() < 0.6)
        if left or random.random() < 0.3:
            kept.append(replace(each, offsets=left))
    return kept


def _timeindex(batches: Sequence[Batch], base: int) -> bytes:
    entries, newest = [], -1
    for each in batches:
        times = [time_of(offset) for offset in each.offsets] or [time_of(each.start)]
        time = max(times) if each.kind not in {"abort", "commit"} else 1500
        if time > newest:
            newest = time
            entries.append((newest, each.end - 1 - base))
    last = batches[-1].end - 1 - base
    entries[-1] = (newest, last)
    if any(later[0] <= earlier[0] for earlier, later in pairwise(entries)):
        raise AssertionError("times of a time index ascend")
    return b"".join(struct.pack(">qi", *entry) for entry in entries)
