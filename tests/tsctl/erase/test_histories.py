"""Random histories of an archive with an eraser: erased records stay hidden after each step, and nothing else changes.

Agents ship, also again and with other bounds. Elections lose records. Repairs put the broker's bytes back. Erasers put
lists, rewrite and remove, and are killed at any request. At the end no stored record is one that the list hides.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import pytest

from tests.common.log_format.build import batch, record
from tests.erased.canary import put_erased
from tests.made_archive import BytesReader, MadeArchive
from tests.tsctl.erase.killing import Killed, KilledAt, logs, not_held, not_locked, shown, values
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.object_keys import LOG_SUFFIX, MAX_REPAIRS, SegmentName
from ts_common.archive.plan import replaced_by
from ts_common.archive.segment_inspection import metadata_of
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectStore
from ts_reader.decode.codecs import Codec
from ts_reader.decode.compression import compress
from tsctl.erase.erased_copies import Outcome
from tsctl.erase.removing import remove_replaced
from tsctl.erase.replacing import replace_copies

STEPS = 12


def value(offset: int, epoch: int) -> bytes:
    return b"record %d of epoch %d" % (offset, epoch)


@dataclass
class World:
    """An archive of one partition, and what its readers must see.

    Attributes:
        batches: base offset and bytes of each batch in the log of the present leader, up to the next offset.
        line: the leader epoch of each offset of that log.
        epoch: of the present leader.
        number: of the greatest list; 0 without one.
        base: line 1 of the commit.
        visible: the records of the view that no list hides, by offset.
        erased: what the greatest list has.
        brokers: the bytes that a broker has for each segment that was shipped, by base and end.
    """

    archive: MadeArchive
    chance: random.Random
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    epoch: int = 0
    number: int = 0
    base: int = 0
    visible: dict[int, bytes] = field(default_factory=dict)
    erased: ErasedOffsets = field(default_factory=ErasedOffsets)
    brokers: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def store(self) -> ObjectStore:
        """The store of the archive."""
        return self.archive.store

    def append(self, count: int) -> None:
        """The leader appends a batch."""
        start, codec = len(self.line), self.chance.choice([*Codec])
        body = b"".join(record(at, b"key", value(start + at, self.epoch), timestamp_delta=at) for at in range(count))
        packed = compress(codec, body) if codec else body
        written = batch(
            start, body=packed, count=count, last_offset_delta=count - 1, attributes=codec, epoch=self.epoch
        )
        self.batches.append((start, written))
        self.line += [self.epoch] * count
        for offset in range(start, start + count):
            if not self.erased.hides(offset, self.epoch):
                self.visible[offset] = value(offset, self.epoch)

    def commit(self) -> None:
        groups = groupby(enumerate(self.line), key=lambda each: each[1])
        pairs = [(epoch, next(group)[0]) for epoch, group in groups]
        log_start = None if self.has("log.start") else 0
        self.archive.commit(
            "t", len(self.line), epochs=pairs, epoch=self.epoch, highest_base=self.base, log_start=log_start
        )

    def has(self, name: str) -> bool:
        try:
            self.store.head(self.archive.partition("t").prefix + name)
        except ObjectNotFound:
            return False
        return True

    def copies(self) -> tuple[SegmentCopy, ...]:
        keys = self.archive.partition("t")
        return describe(self.store, keys, read_snapshot(self.store, keys).segments)

    # --- steps

    def ship(self, most: int = 6) -> None:
        """The leader ships a segment that begins at or below the next offset; the commit follows."""
        starts = [start for start, _ in self.batches[-2:]] + [len(self.line)] * 3
        for _ in range(self.chance.randint(1, 3)):
            self.append(self.chance.randint(1, most))
        base, end = self.chance.choice(starts), len(self.line)
        log = b"".join(data for start, data in self.batches if start >= base)
        self.put(base, log)
        self.brokers[base, end] = log
        self.base = max(self.base, base)
        self.commit()

    def put(self, base: int, log: bytes) -> None:
        """Put a segment under its plain name if that is free."""
        if self.has(SegmentName(base).stem + LOG_SUFFIX):
            self.put_variant(base, log)
        else:
            self.archive.put_segment("t", base, log)

    def put_variant(self, base: int, log: bytes, replaces: str | None = None) -> None:
        """Put bytes as the present leader does under the first free name of a variant."""
        scan = scan_segment(BytesReader(log), len(log), None)
        metadata = replace(metadata_of(scan, base, "x"), replaces=replaces)
        for number in (None, *range(1, MAX_REPAIRS)):
            name = SegmentName(base, self.epoch, scan.crc32c, number)
            if not self.has(name.stem + LOG_SUFFIX):
                self.store.put(self.archive.partition("t").segment(name), log, metadata=metadata.encode())
                return

    def elect(self) -> None:
        """An election loses the last records, and the commit goes back."""
        count = self.chance.randint(0, 3)
        if len(self.batches) <= count:
            return
        self.epoch += 1
        end = self.batches[-count][0] if count else len(self.line)
        del self.batches[len(self.batches) - count :], self.line[end:]
        self.visible = {offset: found for offset, found in self.visible.items() if offset < end}
        self.base = max(base for base, _ in self.brokers if base < end)
        self.commit()

    def ship_again(self) -> None:
        """An agent ships a segment that it shipped before, under its plain name if that is free."""
        (base, _), log = self.chance.choice([*self.brokers.items()])
        self.put(base, log)

    def repair(self) -> None:
        """An object that readers choose is damaged, and an agent puts the broker's bytes in its place."""
        copies = self.copies()
        replaced = replaced_by(copies)
        sound = [
            copy for copy in copies if copy.segment.name.stem not in replaced and (copy.base, copy.end) in self.brokers
        ]
        if not sound:
            return
        copy = self.chance.choice(sound)
        self.put_variant(copy.base, self.brokers[copy.base, copy.end], copy.segment.name.stem)
        body, info = self.store.get(copy.key)
        self.store.put(copy.key, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))

    def erase(self) -> None:
        """An eraser puts the next list; the epochs are those of batches, or higher."""
        offsets = self.chance.sample(range(len(self.line)), min(len(self.line), self.chance.randint(1, 6)))
        more = ErasedOffsets.of((each, each + 1, self.chance.randint(self.line[each], self.epoch)) for each in offsets)
        self.erased = self.erased.union(more)
        self.number += 1
        put_erased(self.store, self.archive.partition("t"), self.erased, self.number)
        self.visible = {
            offset: found for offset, found in self.visible.items() if not self.erased.hides(offset, self.line[offset])
        }

    def rewrite(self) -> None:
        self.run(self.store)

    def remove(self) -> None:
        self.run(self.store, removes=True)

    def kill(self) -> None:
        """A run is killed after one of its requests."""
        store = KilledAt(self.store, self.chance.randint(1, 60), after=True)
        with suppress(Killed):
            self.run(store, removes=self.chance.random() < 0.5)

    def run(self, store: ObjectStore, *, removes: bool = False) -> list[Outcome]:
        keys = self.archive.partition("t")
        if removes:
            return [*remove_replaced(store, keys, grace=-1, held=not_held, locked=not_locked)]
        return [*replace_copies(store, keys, held=not_held, locked=not_locked)]

    # --- checks

    def check(self, step: str) -> None:
        assert shown(self.archive) == sorted(self.visible.items()), step

    def end(self) -> None:
        """The commit passes all copies; runs end with nothing left to do, and with no record of the list."""
        past = max(copy.end for copy in self.copies())
        self.epoch += 1
        while len(self.line) <= past:
            self.ship()
        start = len(self.line)
        self.append(5)
        self.archive.put_segment("t", start, self.batches[-1][1])
        self.base = start
        self.commit()
        self.check("the commit passed all copies")
        outcomes = list[Outcome]()
        for _ in range(9):
            outcomes = [*self.run(self.store), *self.run(self.store, removes=True)]
            self.check("a run at the end")
            if not outcomes:
                break
        assert outcomes == []
        hidden = {value(offset, epoch) for offset in range(start) for epoch in self.hidden_epochs(offset)}
        replaced = replaced_by(self.copies())
        for name, log in logs(self.archive).items():
            with suppress(*[CorruptData] if name.removesuffix(LOG_SUFFIX) in replaced else []):
                assert not hidden.intersection(values(log)), name

    def hidden_epochs(self, offset: int) -> Iterator[int]:
        return (epoch for epoch in range(self.epoch + 1) if self.erased.hides(offset, epoch))

    def changes(self) -> list[Callable[[], object]]:
        """Return what agents, repairs and erasers do, as often as it is drawn."""
        rewrites = [*[self.erase] * 2, *[self.rewrite] * 3]
        return [*[self.ship] * 3, self.elect, self.ship_again, self.repair, *rewrites]

    def steps(self) -> list[Callable[[], object]]:
        """Return all steps that are drawn."""
        return [*self.changes(), *[self.remove] * 2, *[self.kill] * 2]

    def play(self, seed: int) -> None:
        """Play one history."""
        self.ship()
        self.ship()
        self.erase()
        steps = self.steps()
        for number in range(STEPS):
            step = self.chance.choice(steps)
            step()
            self.check(f"seed {seed}, step {number}: {step}")
        self.end()


@pytest.mark.parametrize("seed", range(2))
def test_erased_records_stay_hidden_and_leave_the_archive(tmp_path: Path, seed: int) -> None:
    """With overlapping copies, elections, repairs, second shipping and kills."""
    World(MadeArchive(tmp_path / "bucket"), random.Random(seed)).play(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 200))
def test_erased_records_stay_hidden_in_many_histories(tmp_path: Path, seed: int) -> None:
    """More of the same."""
    World(MadeArchive(tmp_path / "bucket"), random.Random(seed)).play(seed)
