"""Random histories of a partition: in the end the table has what the archive shows, once.

Segments appear in any order, so that holes are passed and filled; leaders are elected with shorter logs; transactions
are open across holes and segments; commits are limited. Lists hide records of any leader, and the table obeys them now
and then.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.erased.canary import put_erased
from tests.made_archive import CLUSTER, MadeArchive
from tests.matrix import cases
from tests.tables.made_tables import MadeTable
from ts_reader import Archive
from ts_reader.query.query import OnHole
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.erasing import obey
from ts_tables.files.layout import FileFormat
from ts_tables.iceberg import head
from ts_tables.verify.run import verify

PRODUCERS = (7, 8)


@dataclass
class Log:
    """A leader's log, with what transactions are open in it.

    Attributes:
        entries: (offset, producer, whether it is a marker) of each batch of a transaction.
    """

    random: Random
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    end: int = 0
    highest_epoch: int = 0
    entries: list[tuple[int, int, bool]] = field(default_factory=list)

    def open(self) -> dict[int, int]:
        """Return the first offset of each open transaction."""
        found: dict[int, int] = {}
        for offset, producer, is_marker in self.entries:
            if is_marker:
                found.pop(producer, None)
            else:
                found.setdefault(producer, offset)
        return found

    @property
    def stable(self) -> int:
        return min([self.end, *self.open().values()])

    def decided(self) -> list[tuple[int, int]]:
        """Return the first offset and the marker of each decided transaction."""
        begun: dict[int, int] = {}
        found = []
        for offset, producer, is_marker in self.entries:
            if not is_marker:
                begun.setdefault(producer, offset)
            elif producer in begun:
                found.append((begun.pop(producer), offset))
        return found

    def elect(self) -> None:
        """Elect a leader with a shorter log; it keeps each decided transaction whole, or drops it whole."""
        places = [
            place
            for place in range(self.epochs[-1][1] + 1, self.end)
            if not any(first < place <= last for first, last in self.decided())
        ]
        if not places:
            return
        place = self.random.choice(places)
        self.highest_epoch += self.random.randint(1, 3)
        self.epochs.append((self.highest_epoch, place))
        self.end = place
        self.entries = [each for each in self.entries if each[0] < place]

    def segment(self) -> tuple[int, bytes]:
        """Append a segment; return its base offset and its bytes."""
        base, epoch, parts = self.end, self.epochs[-1][0], []
        for _ in range(self.random.randint(1, 5)):
            start, kind, producer = self.end, self.random.random(), self.random.choice(PRODUCERS)
            if kind < 0.2 and producer in self.open():
                parts.append(marker(start, producer, self.random.randint(0, 1), producer_epoch=0, epoch=epoch))
                self.entries.append((start, producer, True))
                self.end += 1
                continue
            count = self.random.randint(1, 6)
            records = [record(delta, b"%d" % (start + delta), b"e%d" % epoch) for delta in range(count)]
            if kind < 0.6:
                parts.append(
                    batch(
                        start,
                        records,
                        attributes=TRANSACTIONAL,
                        producer_id=producer,
                        producer_epoch=0,
                        sequence=start,
                        epoch=epoch,
                    )
                )
                self.entries.append((start, producer, False))
            else:
                parts.append(batch(start, records, epoch=epoch))
            self.end += count
        return base, b"".join(parts)


@dataclass
class Lists:
    """The lists of erased offsets of a history.

    Attributes:
        runs: all entries.
    """

    table: MadeTable
    random: Random
    number: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)

    def draw(self, log: Log) -> None:
        """Put a list with more entries now and then, of a leader up to the log's; obey all now and then."""
        if log.end and self.random.random() < 0.3:
            for _ in range(self.random.randint(1, 4)):
                start = self.random.randrange(log.end)
                epoch = self.random.choice([epoch for epoch, _ in log.epochs])
                self.runs.append((start, start + self.random.randint(1, 4), epoch))
            self.number += 1
            archive = self.table.archive
            put_erased(archive.store, archive.partition("t"), self.runs, self.number, names=False)
        if self.random.random() < 0.3:
            self.obey()

    def obey(self) -> None:
        """Delete the rows that the list hides."""
        obey(self.table.target(), self.table.planner(), lambda tasks: [task() for task in tasks], None)


@pytest.mark.parametrize("seed", cases(range(400), quick=range(6)))
def test_t03_a_table_has_what_the_archive_shows(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By key and value, without a row twice, and verify finds the same."""
    random = Random(seed)
    monkeypatch.setattr(head, "_INLINE_BYTES", Random(-seed).choice([0, 1 << 14]))  # a state in an object of its own
    archive = MadeArchive(tmp_path / "archive")
    table = MadeTable(
        archive,
        tmp_path / "lake",
        format=random.choice([None, None, *FileFormat]),
        max_age=random.choice([0, 10**9]),
        target_bytes=random.choice([1000, 1 << 20]),
        policy=Policy(random.choice([*[OnHole.PASS] * 3, OnHole.WAIT]), OnTakenBack.DELETE),
        most_bytes=random.choice([None, 2000, 5000]),
        partition_by=random.choice([(), ("bucket(3, key)",)]),
        read_committed=random.random() < 0.7,
    )
    table.create()
    lists = Lists(table, Random(seed + 1000))
    log, pending, base = Log(random), list[tuple[int, bytes]](), 0
    for _ in range(random.randint(3, 8)):
        if random.random() < 0.25:
            log.elect()
            pending = [each for each in pending if each[0] < log.end]
        for _ in range(random.randint(1, 3)):
            base, data = log.segment()
            if random.random() < 0.4:
                pending.append((base, data))
            else:
                archive.put_segment("t", base, data, variant=True)
        random.shuffle(pending)
        for _ in range(random.randint(0, 2)):
            if pending:
                archive.put_segment("t", *pending.pop(), variant=True)
        archive.commit("t", log.end, epochs=log.epochs, highest_base=base, last_stable_offset=log.stable)
        lists.draw(log)
        if random.random() < 0.85:
            table.run()
    for each in pending:
        archive.put_segment("t", *each, variant=True)
    table.most_bytes = None
    table.run()
    assert table.run().commits == 0
    lists.obey()
    assert table.run().commits == 0
    level = "read_committed" if table.read_committed else "read_uncommitted"
    shown = Archive(archive.location, CLUSTER).scan("t", isolation_level=level).to_table()
    expected = sorted(zip(shown["offset"].to_pylist(), shown["value"].to_pylist(), strict=True))
    assert [(row["_offset"], row["value"]) for row in table.rows()] == expected
    opened = table.target().open()
    found = verify(opened, table.planner().claimed(opened.state), lambda tasks: [task() for task in tasks])
    assert (found.differences, found.notes) == ((), ())
    files = {name for name in table.files() if not name.startswith(("_ts/state-", "_ts/erased/"))}
    assert files == table.committed_files()
