"""The requests of a reader that has read nothing yet, for the records that an agent has just shipped."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest

from dev.local.proxy.s3 import S3FaultProxy
from tests.made_archive import CLUSTER, MadeArchive
from tests.made_tail import Recorded, plain, ship
from tests.uploader.beside import BUCKET
from tests.uploader.tail.test_pack_log import Clock
from ts_common.archive.tail_logs import read_indexes
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Offset, Query, Subscription
from ts_reader.query.read_split import read_split
from ts_uploader.tail import merging, pack_log
from ts_uploader.tail.merging import Merged, Merger, plan_merge
from ts_uploader.tail.pack_log import PackLog


@dataclass
class Shipped:
    """An archive of one partition with one closed segment, and the agent that ships its tail.

    Attributes:
        end: of the tail.
    """

    archive: MadeArchive
    end: int = 100

    def __post_init__(self) -> None:
        self.start()

    @property
    def store(self) -> ObjectStore:
        return self.archive.store

    @property
    def indexes(self) -> list[str]:
        """The objects whose indexes a reader reads, below the log."""
        return [index.name for index in read_indexes(self.store, self.archive.keys, "1")]

    def start(self) -> None:
        """Begin as a process does."""
        self.log = PackLog(self.store, self.archive.keys, "1", Clock())
        self.log.read()

    def put(self) -> None:
        """Ship five records, and merge if that is due."""
        made, body = plain(self.archive, (self.end, self.end + 5))
        self.log.put(1, [made], [body])
        self.end += 5
        if (plan := plan_merge(self.log, lambda _: True)) is not None:
            merged = Merged()
            Merger(self.store, self.archive.keys, "1").run(plan, merged)
            self.log.take_merge(plan.packs, merged.indexes, merged.made)

    def read(self, start: int) -> list[str]:
        """Read from an offset to the end; return the requests."""
        store = Recorded(self.store)
        query = Query(self.archive.location, CLUSTER, None, Subscription(("t",)), start=Offset(start), tail=True)
        rows = [each for split in plan_query(store, query).splits for each in read_split(store, split, ["offset"])]
        assert [offset for each in rows for offset in each["offset"].to_pylist()] == list(range(start, self.end))
        return store.requests


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[MadeArchive]:
    made = MadeArchive(tmp_path / "store")
    ship(made, log_start=10)
    yield made
    made.store.close()


OF_PARTITION = [
    "GET ts-uploader~cluster~prod/layout.json",
    "LIST prod/ by directory",
    "GET prod/t/incarnations.json",
    "GET prod/t-0/offset.wm",
    "LIST prod/t-0/",
    "GET prod/t-0/log.start",
]
LOG = "ts-uploader~cluster~prod/tail/1/"


def test_a_fresh_reader_of_a_small_log_sends_nine_requests(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newest pack names all entries: one index, and the batches."""
    monkeypatch.setattr(merging, "PACKS", 4)
    shipped = Shipped(archive)
    for _ in range(30):
        shipped.put()
    assert shipped.log.merged
    (newest,) = shipped.indexes
    assert shipped.read(shipped.end - 3) == [
        *OF_PARTITION,
        f"LIST {LOG}packs/",
        f"GET {LOG}{newest}",
        f"GET {LOG}{newest}",
    ]


def test_a_fresh_reader_of_a_large_log_reads_four_indexes(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the newest pack, a middle one, a wide one, and the merged objects; nothing of the closed segment."""
    monkeypatch.setattr(merging, "PACKS", 12)
    for name, value in {"_WIDE_ROWS": 2, "_NARROW_ROWS": 1}.items():
        monkeypatch.setattr(pack_log, name, value)
    shipped = Shipped(archive)
    for _ in range(12 * 5 + 8):
        shipped.put()
    newest, middle, wide, merged = shipped.indexes
    assert shipped.read(shipped.end - 3) == [
        *OF_PARTITION,
        f"LIST {LOG}packs/",
        *(f"GET {LOG}{name}" for name in (newest, middle, wide, merged)),
        f"GET {LOG}{newest}",
    ]


def test_a_query_that_begins_below_the_tail_reads_former_places_and_segments(archive: MadeArchive) -> None:
    """It needs two requests more to plan, and those for the records."""
    shipped = Shipped(archive)
    shipped.put()
    requests = shipped.read(50)
    assert "GET ts-uploader~cluster~prod/restored.json" not in requests  # its own directory has offset 50
    assert "HEAD prod/t-0/00000000000000000000.log" in requests


def test_restarts_add_no_index_that_readers_read(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of thirty, at any time, a reader reads three packs and one index of merged objects at most."""
    for name, value in {"PACKS": 4, "_ALIKE": 2, "_FEWER": 2}.items():
        monkeypatch.setattr(merging, name, value)
    for name, value in {"_WIDE_ROWS": 2, "_NARROW_ROWS": 1}.items():
        monkeypatch.setattr(pack_log, name, value)
    chance, shipped, most = random.Random(1), Shipped(archive), 0
    for _ in range(30):
        for _ in range(chance.randint(1, 12)):
            shipped.put()
            most = max(most, len(shipped.indexes))
        shipped.start()
    assert most == 4
    # Entries of one length are merged again, so there are few of each.
    assert len({row.object for row in shipped.log.rows}) < 20
    shipped.read(100)


def test_a_log_of_an_earlier_release_is_merged_into_one_index(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There each merge of a level had an index of its own, and after restarts there were many."""
    monkeypatch.setattr(merging, "PACKS", 2)
    monkeypatch.setattr(merging, "_INDEX_ROWS", 0)  # as if each index were full
    for name, value in {"_WIDE_ROWS": 2, "_NARROW_ROWS": 1}.items():
        monkeypatch.setattr(pack_log, name, value)
    for name in ("_KEPT", "_ALIKE"):
        monkeypatch.setattr(merging, name, 100)
    shipped = Shipped(archive)
    for _ in range(24):
        shipped.put()
    assert len(shipped.indexes) > 12
    monkeypatch.undo()
    monkeypatch.setattr(merging, "PACKS", 2)
    shipped.start()
    for _ in range(4):
        shipped.put()
    assert len(shipped.log.merged) == 1
    shipped.read(100)


@pytest.mark.parametrize(("size", "total", "of_tail"), [("small", 8, 3), ("large", 10, 5)])
def test_a_fresh_reader_of_one_partition_sends_at_most_ten_requests(
    proxy: S3FaultProxy, monkeypatch: pytest.MonkeyPatch, size: str, total: int, of_tail: int
) -> None:
    """On the wire, with all that its store sends; where retention has written `log.start`, one more."""
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(merging, "PACKS", 12)
    if size == "large":  # a pack of a log with more than 1,024 entries
        for setting, number in {"_WIDE_ROWS": 2, "_NARROW_ROWS": 1}.items():
            monkeypatch.setattr(pack_log, setting, number)
    archive = MadeArchive(f"s3://{BUCKET}/fresh-{size}")
    archive.put_incarnations("t", "AAAAAAAAAAAAAAAAAAAAAA")
    ship(archive)
    shipped = Shipped(archive)
    for _ in range(12 * 5 + 7):
        shipped.put()
    archive.store.close()
    before = len(proxy.requests())
    query = Query(archive.location, CLUSTER, None, Subscription(("t",)), start=Offset(shipped.end - 3), tail=True)
    with open_store(archive.location) as store:
        rows = [each for split in plan_query(store, query).splits for each in read_split(store, split, ["offset"])]
    assert sum(each.num_rows for each in rows) == 3
    sent = [unquote(each.target) for each in proxy.requests()[before:]]
    assert (len(sent), sum("/tail/" in each for each in sent)) == (total, of_tail), sent
