import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c

from tests.made_tail import entries_of
from tests.matrix import cases
from ts_common.archive import tail_logs, tail_pack
from ts_common.archive.commit import Commit, Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, pack_name
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_logs import read_indexes
from ts_common.archive.tail_pack import MOST_ABORTED, PackHead, encode_pack
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.contract import Body, IfAbsent, ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.metrics.counters import Metrics
from ts_uploader.tail import merging, pack_log, upkeep
from ts_uploader.tail.led_partitions import LedPartitions
from ts_uploader.tail.merging import DamagedEntries, Merged, Merger, plan_merge, plan_sweep
from ts_uploader.tail.needed import Needed
from ts_uploader.tail.pack_log import GRACE_SECONDS, IndexFull, LogMoved, PackLog
from ts_uploader.tail.upkeep import Upkeep

KEYS = ClusterKeys("prod")
EPOCH = 5


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with open_store(tmp_path.as_uri()) as opened:
        yield opened


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def entry(directory: str, start: int, data: bytes, position: int = 0, epoch: int = EPOCH) -> TailEntry:
    """Return an entry whose batches are one byte an offset; every tenth one ends an aborted transaction."""
    end = start + len(data)
    epochs, aborted = ((epoch, start),), aborted_in(start, end)
    return TailEntry(directory, epoch, start, end, "", position, len(data), crc32c(data), epochs, end, aborted, 1, 1)


def aborted_in(start: int, end: int) -> tuple[Aborted, ...]:
    return tuple(Aborted(7, offset, offset) for offset in range(start, end) if offset % 10 == 0)


def commit(next_offset: int, epoch: int = EPOCH, former: tuple[tuple[str, int], ...] = ()) -> Commit:
    live = Live("1", former, EpochHistory())
    return Commit(0, next_offset, epoch, EpochHistory(), None, None, 1, 0, "", live=live)


def rows_of(store: ObjectStore) -> list[TailEntry]:
    """Return the entries that a reader finds."""
    return [row for index in read_indexes(store, KEYS, "1") for row in index.entries()]


def content(store: ObjectStore, rows: list[TailEntry]) -> dict[str, dict[int, int]]:
    """Return the byte of each offset by directory, as a reader of these entries gets them."""
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        data = store.get(KEYS.tail("1") + row.object)[0][row.position : row.position + row.length]
        assert (crc32c(data), len(data)) == (row.crc32c, row.end - row.start)
        assert row.aborted == tuple(
            Aborted(7, offset, offset) for offset in range(row.start, row.end) if not offset % 10
        )
        found.setdefault(row.directory, {}).update(zip(range(row.start, row.end), data, strict=True))
    return found


@dataclass
class Agent:
    """One process, with partitions that only grow; commits move along."""

    store: ObjectStore
    clock: Clock
    ends: dict[str, int] = field(default_factory=dict)
    nexts: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self.log = PackLog(self.store, KEYS, "1", self.clock)
        self.needed = Needed("1", self.clock)
        self.log.read()

    def put(self, chance: random.Random, truth: dict[str, dict[int, int]]) -> None:
        entries, batches = list[TailEntry](), list[bytes]()
        for directory in chance.sample(["t-0", "t-1", "u~x-0"], chance.randint(0, 3)):
            start, data = self.ends.get(directory, 0), chance.randbytes(chance.randint(1, 40))
            entries.append(entry(directory, start, data, sum(map(len, batches))))
            batches.append(data)
            truth.setdefault(directory, {}).update(enumerate(data, start))
            self.ends[directory] = start + len(data)
        self.log.put(1, entries, batches)

    def merge(self, *, sweep: bool) -> None:
        plan = (plan_sweep if sweep else plan_merge)(self.log, self.needed.needs)
        if plan is not None:
            merged = Merged()
            Merger(self.store, KEYS, "1").run(plan, merged)
            self.log.take_merge(plan.packs, merged.indexes, merged.made)


@pytest.mark.parametrize("seed", cases(range(30), quick=[0]))
def test_readers_find_each_entry_that_they_need_whatever_is_merged_and_deleted(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also those that read an index up to a grace ago; nothing that the newest pack does not need stays for long."""
    for name, value in {"PACKS": 3, "_ALIKE": 2, "_FEWER": 2, "_ROWS": 12, "_INDEX_ROWS": 20, "_KEPT": 2}.items():
        monkeypatch.setattr(merging, name, value)
    for name, value in {"_OBJECT_BYTES": 150, "_JOINED_BYTES": 100, "_LARGE_BYTES": 60, "_PIECE": 16}.items():
        monkeypatch.setattr(merging, name, value)
    for name, value in {"_WIDE_ROWS": 20, "_NARROW_ROWS": 5}.items():
        monkeypatch.setattr(pack_log, name, value)
    chance, clock = random.Random(seed), Clock()
    truth: dict[str, dict[int, int]] = {}
    agent = Agent(store, clock)
    agent.start()
    readers: list[tuple[float, dict[str, int], list[TailEntry]]] = []
    for step in range(150):
        clock.now += chance.choice((1, 10, GRACE_SECONDS / 10))
        agent.put(chance, truth)
        if chance.random() < 0.2:
            agent.nexts |= {name: chance.randint(agent.nexts.get(name, 0), end) for name, end in agent.ends.items()}
        for name, next_offset in agent.nexts.items():
            agent.needed.note(name, commit(next_offset))
        if chance.random() < 0.7:
            agent.merge(sweep=chance.random() < 0.3)
        agent.log.delete()
        if chance.random() < 0.05:
            agent.start()
        readers.append((clock.now, dict(agent.nexts), rows_of(store)))
        readers = [each for each in readers if each[0] > clock.now - GRACE_SECONDS]
        _, nexts, rows = chance.choice(readers)
        found = content(store, rows) if step % 3 == 0 else {}
        for directory, bytes_of in found.items():
            end = max(bytes_of)
            needed = {at: byte for at, byte in truth[directory].items() if nexts.get(directory, 0) <= at <= end}
            assert {at: bytes_of.get(at) for at in needed} == needed
    for directory, end in agent.ends.items():
        agent.needed.note(directory, commit(end))
    for _ in range(8):
        clock.now += GRACE_SECONDS
        agent.merge(sweep=True)
        agent.log.put(1, (), ())
        agent.merge(sweep=False)
        agent.log.put(1, (), ())
        agent.log.delete()
        for directory, end in agent.ends.items():
            agent.needed.note(directory, commit(end))
    clock.now += 1
    agent.log.put(1, (), ())
    agent.log.delete()
    assert rows_of(store) == []
    assert len(list(store.list(KEYS.tail("1")))) < 8


def test_an_index_has_the_entries_of_few_packs_and_leads_to_all_in_three(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry of an index costs the agent time in each pack, and each further index costs a reader a request."""
    monkeypatch.setattr(pack_log, "_WIDE_ROWS", 0)
    monkeypatch.setattr(pack_log, "_NARROW_ROWS", 0)
    log, found = PackLog(store, KEYS, "1"), list[int]()
    log.read()
    for number in range(40):
        log.put(1, [entry("t-0", number, b"x")], [b"x"])
        indexes = [len(list(index.entries())) for index in read_indexes(store, KEYS, "1")]
        assert sum(indexes) == number + 1
        assert len(indexes) <= 3
        found.append(indexes[0])
    assert sum(found) <= 3.5 * len(found)


def test_a_second_process_of_the_agent_replaces_no_pack(store: ObjectStore) -> None:
    """The later one reads the log again, and continues after the other's entries."""
    first, second = PackLog(store, KEYS, "1"), PackLog(store, KEYS, "1")
    first.read()
    second.read()
    first.put(1, [entry("t-0", 0, b"abc")], [b"abc"])
    for _ in range(2):  # it stays unusable until it is read
        with pytest.raises(LogMoved):
            second.put(1, [entry("t-1", 0, b"xy")], [b"xy"])
    second.read()
    second.put(1, [entry("t-1", 0, b"xy")], [b"xy"])
    assert [(row.directory, row.object) for row in rows_of(store)] == [("t-0", pack_name(1)), ("t-1", pack_name(2))]


def test_a_pack_of_a_process_that_was_suspended_does_not_count(store: ObjectStore) -> None:
    """Its number may have been freed by a deletion, so it reads the log before it ships on."""
    clock = Clock()

    class Slow(PackLog):
        def _look(self) -> None:
            super()._look()
            clock.now += GRACE_SECONDS / 2 + 1

    log = Slow(store, KEYS, "1", clock)
    log.read()
    clock.now += GRACE_SECONDS
    with pytest.raises(LogMoved, match="601 s after the last look"):
        log.put(1, [entry("t-0", 0, b"abc")], [b"abc"])
    assert list(log.rows) == []
    log.read()
    assert [row.end for row in log.rows] == [3]


def test_a_pack_of_a_virtual_machine_that_was_paused_does_not_count(store: ObjectStore) -> None:
    """No clock of its host counts the pause, but the date of the store's answer does."""
    date = Clock()

    class Dated(WrappedStore):
        is_paused = False

        def current_time(self) -> float:
            return date.now

        def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
            date.now += GRACE_SECONDS if self.is_paused else 1
            return super().put(*arguments, **named)

    dated = Dated(store, threads=1)
    log = PackLog(dated, KEYS, "1", Clock())
    log.read()
    log.put(1, [entry("t-0", 0, b"abc")], [b"abc"])
    dated.is_paused = True
    with pytest.raises(LogMoved, match="1200 s after the last look"):
        log.put(1, [entry("t-0", 3, b"de")], [b"de"])
    dated.is_paused = False
    log.read()
    log.put(1, [entry("t-0", 5, b"f")], [b"f"])
    assert [row.end for row in log.rows] == [3, 5, 6]


def test_entries_below_the_commit_of_a_java_uploader_are_left_out(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit has no tail, so a grace after it was read no reader needs them. No agent leads the partition."""
    monkeypatch.setattr(merging, "PACKS", 1)
    monkeypatch.setattr(upkeep._Work, "begin", lambda _, run, take: take(run()))
    clock, keys = Clock(), KEYS.partition(TopicPartition("t", 0))
    log = PackLog(store, KEYS, "1", clock)
    log.read()
    log.put(1, [entry("t-0", 0, b"abc")], [b"abc"])
    store.put(keys.commit, b"%020d" % 0)
    tended, led = Upkeep(log, store, KEYS, Metrics(), clock), LedPartitions("1", lambda _: True)
    now = time.monotonic()
    tended.tend(led, now)  # copies it into a merged object
    log.put(1, (), ())
    tended.published(now)
    monkeypatch.setattr(merging, "PACKS", 64)
    for _ in range(3):  # the commit is read; a grace later a sweep leaves the entry out
        now += GRACE_SECONDS + 1
        clock.now += GRACE_SECONDS + 1
        tended.tend(led, now)
    log.put(1, (), ())
    assert list(log.rows) == []


def test_a_log_without_records_for_hours_is_looked_at_before_the_next_pack(store: ObjectStore) -> None:
    """A pack that another process put meanwhile is found; without one the pack counts."""
    clock = Clock()
    log, other = PackLog(store, KEYS, "1", clock), PackLog(store, KEYS, "1", clock)
    log.read()
    clock.now += 10 * GRACE_SECONDS
    log.put(1, [entry("t-0", 0, b"abc")], [b"abc"])
    assert [row.end for row in log.rows] == [3]
    other.read()
    other.put(1, (), ())
    clock.now += 10 * GRACE_SECONDS
    with pytest.raises(LogMoved, match="another process"):
        log.put(1, (), ())


def test_nothing_is_deleted_before_a_look_at_the_log_a_grace_later(store: ObjectStore) -> None:
    """A second process may have put a pack since, which leads to it."""
    clock = Clock()
    store.put(KEYS.tail("1") + "merged/1-aaaaaaaa", b"of a merge that was killed", condition=IfAbsent())
    log = PackLog(store, KEYS, "1", clock)
    log.read()
    clock.now += GRACE_SECONDS / 3
    assert log.delete() == 0
    log.put(1, (), ())
    for _ in range(2):
        assert log.delete() == 0
        clock.now += GRACE_SECONDS / 3
        log.put(1, (), ())
    clock.now += GRACE_SECONDS
    assert log.delete() == 1
    assert [info.key for info in store.list(KEYS.tail("1") + "merged/")] == []
    assert not log.has_unused


def test_a_few_packs_are_deleted_too_once_no_reader_needs_their_records(store: ObjectStore) -> None:
    """A quiet broker never has as many as become one object. What readers need of the others stays."""
    agent = Agent(store, Clock())
    agent.start()
    batches = {"t-0": b"abc", "t-1": b"defg"}
    for name, data in batches.items():
        agent.log.put(1, [entry(name, 0, data)], [data])
    agent.merge(sweep=True)
    assert len(agent.log.packs) == 2
    agent.needed.note("t-0", commit(3))
    agent.clock.now += GRACE_SECONDS
    agent.merge(sweep=True)
    for _ in range(2):
        agent.log.put(1, (), ())
        agent.clock.now += GRACE_SECONDS
    agent.log.put(1, (), ())
    agent.log.delete()
    stored = b"".join(store.get(info.key)[0] for info in store.list(KEYS.tails))
    assert (batches["t-0"] in stored, batches["t-1"] in stored) == (False, True)
    assert content(store, rows_of(store)) == {"t-1": dict(enumerate(batches["t-1"]))}


def test_a_merge_of_a_damaged_object_changes_nothing(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries keep their CRC-32C, so that each reader finds the damage; the error names all of them."""
    monkeypatch.setattr(merging, "PACKS", 1)
    log = PackLog(store, KEYS, "1")
    log.read()
    log.put(1, [entry("t-0", 0, b"abc")], [b"abc"])
    key = KEYS.tail("1") + pack_name(1)
    store.put(key, store.get(key)[0].replace(b"abc", b"abd"))
    plan, merged = plan_merge(log, lambda _: True), Merged()
    assert plan is not None
    with pytest.raises(DamagedEntries, match=r"the batches of t-0 \[0,3\) are not those of its index"):
        Merger(store, KEYS, "1").run(plan, merged)
    assert merged.made == []


class InPieces(WrappedStore):
    """Reads each body twice, as a client that computes a digest first: whole, and by a few bytes."""

    def put(self, key: str, body: bytes | Body, **named: Any) -> ObjectInfo:
        """Pass bytes on."""
        if not isinstance(body, bytes):
            whole = body.read()
            body.seek(0)
            pieces = [*iter(partial(body.read, 7), b"")]
            assert (b"".join(pieces), max(map(len, pieces))) == (whole, 7)
            body = whole
        return super().put(key, body, **named)


def test_a_merge_sends_its_batches_in_pieces_of_any_size(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry can be longer than what arrives or is sent at once; the bytes of others are left out."""
    monkeypatch.setattr(merging, "_PIECE", 16)
    log, chance, truth = PackLog(store, KEYS, "1"), random.Random(1), dict[str, dict[int, int]]()
    log.read()
    for start in range(0, 120, 40):
        names = ["t-0", "t-1", "left-0", "left-1", "t-2"]
        batches = [chance.randbytes(40) for _ in names]
        log.put(
            1,
            [entry(name, start, data, 40 * at) for at, (name, data) in enumerate(zip(names, batches, strict=True))],
            batches,
        )
        for name, data in zip(names, batches, strict=True):
            truth.setdefault(name, {}).update(enumerate(data, start))
    monkeypatch.setattr(merging, "PACKS", 1)
    plan, merged = plan_merge(log, lambda row: row.directory.startswith("t")), Merged()
    assert plan is not None
    Merger(InPieces(store, threads=1), KEYS, "1").run(plan, merged)
    (listed,) = merged.indexes
    assert [row.length for row in listed.rows] == [120] * 3
    assert content(store, [*listed.rows]) == {name: truth[name] for name in ("t-0", "t-1", "t-2")}


@pytest.mark.parametrize("most", [1, 0])
def test_each_object_of_a_merge_names_its_own_batches(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """An eraser looks at each object. One whose index has no room for them is put too, and has none."""
    for name, value in {"PACKS": 2, "_OBJECT_BYTES": 50}.items():
        monkeypatch.setattr(merging, name, value)
    log, directories = PackLog(store, KEYS, "1"), ["t-0", "t-1", "t-2"]
    log.read()
    for start in (0, 20):
        entries = [entry(each, start, bytes(20), 20 * at) for at, each in enumerate(directories)]
        log.put(1, entries, [bytes(20)] * 3)
    plan, merged = plan_merge(log, lambda _: True), Merged()
    assert plan is not None

    def encode(head: PackHead, rows: list[TailEntry], batches: tuple[bytes, ...]) -> bytes:
        if most < len(rows) < len(directories):
            raise CorruptData("larger than readers accept")
        return encode_pack(head, rows, batches)

    monkeypatch.setattr(merging, "encode_pack", encode)
    Merger(store, KEYS, "1").run(plan, merged)
    objects = [store.get(KEYS.tail("1") + name)[0] for name in merged.made]
    own = [
        [row.directory for row in entries_of(*each) if row.object == each[1]]
        for each in zip(objects, merged.made, strict=True)
    ]
    assert own == [["t-0"][:most], ["t-1"][:most], ["t-2"]]
    (listed,) = merged.indexes
    assert content(store, [*listed.rows]) == {each: dict.fromkeys(range(40), 0) for each in directories}


def test_an_entry_is_needed_until_a_commit_of_a_grace_ago_does_without_it() -> None:
    """Its end is covered, at no lower epoch; or a later leadership does not name it."""
    clock = Clock()
    shipped = entry("t-0", 0, b"abc")

    def needs(*commits: Commit, age: float = GRACE_SECONDS) -> bool:
        needed = Needed("1", clock)
        for each in commits:
            needed.note("t-0", each)
            clock.now += age
        return needed.needs(shipped)

    assert needs()
    assert needs(commit(3), age=GRACE_SECONDS - 1)
    assert not needs(commit(3))
    assert needs(commit(2))
    assert needs(commit(3, epoch=4))
    assert not needs(commit(0, epoch=6))
    assert needs(commit(0, epoch=6, former=(("1", 5),)))
    assert not needs(commit(0, epoch=6, former=(("2", 5),)))
    assert needs(commit(0), commit(3), age=GRACE_SECONDS / 2)  # the newest of a grace ago decides
    assert not needs(commit(3), commit(3), commit(3), age=GRACE_SECONDS / 2)


def test_an_entry_is_needed_while_the_newest_commit_needs_it() -> None:
    """A commit that went back, or replaces one that was lost, needs what an older one did without."""
    clock = Clock()
    needed, shipped = Needed("1", clock), entry("t-0", 0, b"abc")
    needed.note("t-0", commit(3))
    clock.now += GRACE_SECONDS
    assert needed.at_once(lambda: {"t-0": commit(0)})(shipped)
    assert not needed.at_once(lambda: {"t-0": commit(3)})(shipped)
    assert not needed.at_once(lambda: {"t-1": commit(0)})(shipped)


class Counting(WrappedStore):
    """Counts puts and the objects that stay, and stores nothing: a week has a million packs."""

    def __init__(self) -> None:
        super().__init__(open_store("file:///tmp"), threads=1)
        self.puts = 0
        self.objects: set[str] = set()

    def put(self, key: str, body: bytes | Body, **_: Any) -> ObjectInfo:
        """Count it."""
        self.puts += 1
        self.objects.add(key)
        return ObjectInfo(key, 0, "", 0.0)

    def delete(self, keys: Iterable[str]) -> None:
        """Forget them."""
        self.objects -= {*keys}

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """No object was there before; the log is never looked at."""
        return iter(())


@pytest.mark.parametrize("hours", [1.2, pytest.param(7 * 24, marks=pytest.mark.full)])
def test_a_week_needs_a_put_an_interval_and_few_objects(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """With an interval of 0.7 s; one partition closes a segment each hour, the other one each day."""
    store, clock = Counting(), Clock()
    log, needed = PackLog(store, KEYS, "1", clock), Needed("1", clock)
    monkeypatch.setattr(merging.Merger, "_copy_range", lambda *_: [])
    monkeypatch.setattr(pack_log, "encode_pack", lambda *_: b"")
    log.read()
    ends, rounds, most = {"hourly-0": 0, "daily-0": 0}, 0, 0
    closes = {"hourly-0": 3600.0, "daily-0": 86400.0}
    nexts = dict.fromkeys(ends, 0)
    closed_at = dict.fromkeys(ends, clock.now)
    while clock.now < 1000.0 + hours * 3600:
        clock.now += 0.7
        rounds += 1
        entries = [entry(name, end, b"x") for name, end in ends.items()]
        log.put(1, entries, ())
        for name in ends:
            ends[name] += 1
            if clock.now - closed_at[name] > closes[name]:
                nexts[name], closed_at[name] = ends[name], clock.now
            if rounds % 400 == 0:
                needed.note(name, commit(nexts[name]))
        plan = plan_merge(log, needed.needs)
        if plan is None and rounds % 1700 == 0:
            plan = plan_sweep(log, needed.needs)
        if plan is not None:
            merged = Merged()
            Merger(store, KEYS, "1").run(plan, merged)
            log.take_merge(plan.packs, merged.indexes, merged.made)
        log.delete()
        most = max(most, len(store.objects))
    assert store.puts <= 1.03 * rounds
    assert most < 3000


def full(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, count: int, clock: Clock) -> PackLog:
    """Return a log with so many directories in one pack, whose indexes have room for few entries."""
    log = PackLog(store, KEYS, "1", clock)
    log.read()
    entries = [entry(f"t{number}-0", 0, b"x", number) for number in range(count)]
    log.put(1, entries, [b"x"] * count)
    small = len(encode_pack(PackHead("1", 1, "n", 1), [each._replace(object="o") for each in entries], ())) * 5 // 8
    monkeypatch.setattr(tail_pack, "INDEX_BYTES", small)
    return log


def test_an_index_that_needs_several_objects_keeps_all_of_them(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grace later each entry is still found, in this process and in the next one."""
    monkeypatch.setattr(merging, "PACKS", 1)
    clock = Clock()
    log = full(store, monkeypatch, 200, clock)
    plan, merged = plan_merge(log, lambda _: True), Merged()
    assert plan is not None
    plan = replace(plan, moved=tuple(row._replace(length=merging._LARGE_BYTES) for row in plan.moved))
    Merger(store, KEYS, "1").run(plan, merged)
    assert len(merged.indexes) > 1
    log.take_merge(plan.packs, merged.indexes, merged.made)
    for _ in range(4):
        clock.now += GRACE_SECONDS
        log.put(1, (), ())
        log.take_merge((), log.merged, ())
        log.delete()
    assert len(rows_of(store)) == 200
    again = PackLog(store, KEYS, "1")
    again.read()
    assert len(list(again.rows)) == 200


def test_no_merge_is_repeated_that_joins_no_entries(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition of many has one small entry: copying them again and again leaves as many."""
    for name, value in {"PACKS": 1, "_PACK_ROWS": 3, "_ROWS": 3}.items():
        monkeypatch.setattr(merging, name, value)
    log = PackLog(store, KEYS, "1", Clock())
    log.read()
    log.put(1, [entry(f"t{number}-0", 0, b"x", number) for number in range(8)], [b"x"] * 8)
    for _ in range(2):
        merges = 0
        while (plan := plan_merge(log, lambda _: True)) is not None and merges < 10:
            merged, merges = Merged(), merges + 1
            Merger(store, KEYS, "1").run(plan, merged)
            log.take_merge(plan.packs, merged.indexes, merged.made)
        assert merges == 1
        assert len(list(log.rows)) == 8
        log.put(1, (), ())


def test_restarts_add_no_index_to_a_log_that_needs_several(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve processes, one after the other, each with merges: the entries alone decide what is merged again."""
    for name, value in {"PACKS": 4, "_ALIKE": 2, "_FEWER": 2, "_INDEX_ROWS": 60, "_ROWS": 60}.items():
        monkeypatch.setattr(merging, name, value)
    clock, found = Clock(), list[int]()
    log = full(store, monkeypatch, 130, clock)
    for end in range(1, 61):
        directories = [f"t{number}-0" for number in range(0, 130, 26)]
        log.put(1, [entry(name, end, b"y", at) for at, name in enumerate(directories)], [b"y" * len(directories)])
        if (plan := plan_merge(log, lambda _: True)) is not None:
            merged = Merged()
            Merger(store, KEYS, "1").run(plan, merged)
            log.take_merge(plan.packs, merged.indexes, merged.made)
        if end % 5 == 0:
            log = PackLog(store, KEYS, "1", clock)
            log.read()
            found.append(len(list(read_indexes(store, KEYS, "1"))))
    assert set(found[1:]) == {4}
    ends = {row.directory: row.end for row in sorted(log.rows, key=lambda row: row.end)}
    assert [ends[f"t{number}-0"] for number in (0, 1, 26)] == [61, 1, 61]


def test_a_merged_entry_does_not_name_many_aborted_transactions(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two entries names its own; together they are more than an index has room for."""
    monkeypatch.setattr(merging, "PACKS", 2)
    log = PackLog(store, KEYS, "1")
    log.read()
    data = b"x" * 10 * (MOST_ABORTED - 1)
    for start in (0, len(data)):
        log.put(1, [entry("t-0", start, data)], [data])
    plan, merged = plan_merge(log, lambda _: True), Merged()
    assert plan is not None
    Merger(store, KEYS, "1").run(plan, merged)
    ((row,),) = (listed.rows for listed in merged.indexes)
    assert (row.end, row.aborted) == (2 * len(data), None)


def test_a_log_gets_no_more_indexes_than_readers_accept(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would show nothing of it. Its packs fill up instead, and the status shows why."""
    monkeypatch.setattr(merging, "PACKS", 1)
    monkeypatch.setattr(merging, "_LARGE_BYTES", 1)
    monkeypatch.setattr(upkeep, "MAX_OBJECTS", 3)
    monkeypatch.setattr(upkeep._Work, "begin", lambda _, run, take: take(run()))
    clock = Clock()
    log = full(store, monkeypatch, 200, clock)
    tended = Upkeep(log, store, KEYS, Metrics(), clock)
    tended.tend(LedPartitions("1", lambda _: True), time.monotonic())
    assert "readers accept 3" in tended.unmerged
    assert (len(log.packs), log.merged) == (1, ())
    monkeypatch.setattr(upkeep, "MAX_OBJECTS", 16)
    tended.tend(LedPartitions("1", lambda _: True), time.monotonic() + upkeep._FULL_AGAIN_SECONDS + 1)
    assert tended.unmerged == ""
    log.put(1, (), ())
    assert len(rows_of(store)) == 200


def test_an_agent_reads_no_hostile_log_and_puts_none(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is bounded as a reader's is, and readers accept what it puts."""
    log = PackLog(store, KEYS, "1")
    log.read()
    log.put(1, [entry(f"t{number}-0", 0, b"x", number) for number in range(200)], [b"x"] * 200)
    rows = [pack_log.Listed(None, log.packs[0].rows)]
    assert upkeep._excess(rows) == ""
    monkeypatch.setattr(upkeep, "_CROWDED", 100)
    monkeypatch.setattr(upkeep, "_MOST_UNPACKED", 200 * 8 * 14)
    assert "the index of its entries has 28" in upkeep._excess(rows)
    monkeypatch.setattr(tail_logs, "MAX_UNPACKED", 100)
    with pytest.raises(CorruptData, match="its indexes have more than 100 bytes"):
        log.read()


def test_a_full_index_leaves_the_log_usable(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was put; a merge makes room."""
    log = full(store, monkeypatch, 200, Clock())
    log.take_merge((), (), ())  # the next index has all entries
    with pytest.raises(IndexFull):
        log.put(1, (), ())
    log.take_merge([pack.name for pack in log.packs], (), ())
    log.put(1, (), ())
    assert log.number == 2
