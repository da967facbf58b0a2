"""Holes with transactions open across them: every record that the archive shows in the end is in the table once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable
from ts_common.archive.object_keys import SegmentName
from ts_common.model import TopicPartition
from ts_reader import Archive
from ts_reader.query.query import OnHole
from ts_tables.claims.advance import OnRecreated, OnTakenBack, Policy

PASS = Policy(on_hole=OnHole.PASS)
MakeTable = Callable[..., MadeTable]


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


@pytest.fixture
def made(archive: MadeArchive, tmp_path: Path) -> MakeTable:
    """Return a table that was created and run once."""

    def make(policy: Policy = PASS, most_bytes: int | None = None) -> MadeTable:
        table = MadeTable(archive, tmp_path / "lake", policy=policy, most_bytes=most_bytes)
        table.create()
        table.run()
        return table

    return make


def open_at(start: int, end: int, producer: int = 7, epoch: int = 0) -> bytes:
    """Return a batch of a transaction."""
    records = [record(delta, b"%d" % (start + delta)) for delta in range(end - start)]
    return batch(
        start, records, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, sequence=start, epoch=epoch
    )


def committed(offset: int, producer: int = 7, epoch: int = 0) -> bytes:
    """Return the commit marker of a transaction."""
    return marker(offset, producer, 1, producer_epoch=0, epoch=epoch)


def is_whole(archive: MadeArchive, table: MadeTable) -> None:
    """The table has what a reader shows now, and has nothing more to do."""
    table.most_bytes = None
    table.run()
    shown = Archive(archive.location, CLUSTER).scan("t", columns=["offset"], isolation_level="read_committed")
    assert table.offsets() == sorted(shown.to_table()["offset"].to_pylist())
    assert table.run().commits == 0


@pytest.mark.parametrize("policy", [Policy(), PASS], ids=["wait", "pass"])
def test_a_transaction_that_is_open_at_a_hole_above_the_stable_end(
    archive: MadeArchive, made: MakeTable, policy: Policy
) -> None:
    """Another producer's transaction ends the claims below the hole; the first one begins below that."""
    archive.put_segment(
        "t",
        0,
        batches(*steps(0, 90)) + open_at(90, 95) + open_at(95, 97, 8) + open_at(97, 100) + batches(*steps(100, 120)),
    )
    archive.put_segment("t", 130, batches(*steps(130, 150)))
    archive.commit("t", 150, highest_base=130, last_stable_offset=95)
    table = made(policy)
    assert table.offsets() == list(range(90))
    archive.put_segment("t", 120, batches((120, 125)) + committed(125) + batches((126, 130)))
    archive.put_segment("t", 150, committed(150, 8) + batches((151, 160)))
    archive.commit("t", 160, highest_base=150, last_stable_offset=160)
    is_whole(archive, table)


@pytest.mark.parametrize("policy", [Policy(), PASS], ids=["wait", "pass"])
def test_a_commit_that_ends_inside_a_transaction_that_is_open_at_a_hole(
    archive: MadeArchive, made: MakeTable, policy: Policy
) -> None:
    """The bytes of a commit are limited; the rest follows in later commits."""
    first, second = batches(*steps(0, 80)), batches((80, 90)) + open_at(90, 100)
    archive.put_segment("t", 0, first)
    archive.put_segment("t", 80, second)
    archive.put_segment("t", 100, open_at(100, 105) + batches((105, 120)))
    archive.put_segment("t", 130, batches(*steps(130, 150)))
    archive.commit("t", 150, highest_base=130, last_stable_offset=150)
    table = made(policy, len(first) + len(second) + 50)
    archive.put_segment("t", 120, batches((120, 125)) + committed(125) + batches((126, 130)))
    is_whole(archive, table)


def test_holes_that_are_filled_in_parts(archive: MadeArchive, made: MakeTable) -> None:
    """A transaction is open across two; the first is filled without its marker, the second in part."""
    archive.put_segment("t", 0, batches(*steps(0, 90)) + open_at(90, 100))
    archive.put_segment("t", 120, batches((120, 140)))
    archive.put_segment("t", 150, batches((150, 160)))
    archive.commit("t", 160, highest_base=150, last_stable_offset=160)
    table = made()
    archive.put_segment("t", 100, open_at(100, 110) + batches((110, 120)))
    archive.put_segment("t", 140, batches((140, 145)))
    table.run()
    archive.put_segment("t", 145, batches((145, 147)) + committed(147) + batches((148, 150)))
    is_whole(archive, table)


@pytest.mark.parametrize("parted", [95, 100, 110], ids=["below", "at", "inside"])
def test_an_election_at_a_passed_hole(archive: MadeArchive, made: MakeTable, parted: int) -> None:
    """The new leader decides the transaction whose records were withheld for the hole."""
    archive.put_segment("t", 0, batches(*steps(0, 90)) + open_at(90, 95) + open_at(95, 100))
    archive.put_segment("t", 120, batches((120, 140)))
    archive.commit("t", 140, highest_base=120, last_stable_offset=140)
    table = made(Policy(on_hole=OnHole.PASS, on_taken_back=OnTakenBack.DELETE))
    if parted > 100:
        archive.put_segment("t", 100, batches((100, parted)))
    log = committed(parted, epoch=2) + batches((parted + 1, parted + 30), epoch=2)
    archive.put_segment("t", parted, log, variant=True)
    epochs = ((0, 0), (2, parted))
    archive.commit("t", parted + 30, epochs=epochs, highest_base=parted, last_stable_offset=parted + 30)
    is_whole(archive, table)


@pytest.mark.parametrize("on_hole", [OnHole.WAIT, OnHole.PASS])
def test_a_log_that_has_holes_after_an_election(archive: MadeArchive, made: MakeTable, on_hole: OnHole) -> None:
    """Below the end of the former claims, and above it, with an open transaction of the new log."""
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.put_segment("t", 50, batches(*steps(50, 100)))
    archive.commit("t", 100, highest_base=50, last_stable_offset=100)
    table = made(Policy(on_hole=on_hole, on_taken_back=OnTakenBack.DELETE))
    log = batches((60, 65), epoch=2)
    archive.put_segment("t", 60, log, variant=True)
    log = open_at(70, 80, epoch=2) + batches((80, 105), epoch=2) + open_at(105, 110, epoch=2)
    archive.put_segment("t", 70, log, variant=True)
    archive.put_segment("t", 120, batches((120, 130), epoch=2), variant=True)
    archive.commit("t", 130, epochs=((0, 0), (2, 60)), highest_base=120, last_stable_offset=130)
    table.run()
    archive.put_segment("t", 65, batches((65, 70), epoch=2), variant=True)
    log = batches((110, 115), epoch=2) + committed(115, epoch=2) + batches((116, 120), epoch=2)
    archive.put_segment("t", 110, log, variant=True)
    is_whole(archive, table)


@pytest.mark.parametrize("start", [95, 110], ids=["below the hole", "inside the hole"])
def test_retention_reaches_a_passed_hole_before_it_is_filled(archive: MadeArchive, made: MakeTable, start: int) -> None:
    """What is left of it is added."""
    archive.put_segment("t", 0, batches(*steps(0, 80)))
    archive.put_segment("t", 80, batches((80, 90)) + open_at(90, 95))
    archive.put_segment("t", 95, open_at(95, 100))
    archive.put_segment("t", 120, batches((120, 140)))
    archive.commit("t", 140, highest_base=120, last_stable_offset=140)
    table = made()
    keys = archive.partition("t")
    archive.store.delete(keys.segment(SegmentName(base)) for base in (0, 80, 95) if base + 15 <= start)
    archive.put_segment("t", 100, open_at(100, 105) + committed(105) + batches((106, 120)))
    archive.commit("t", 140, highest_base=120, log_start=start, last_stable_offset=140)
    table.run()
    shown = Archive(archive.location, CLUSTER).scan("t", columns=["offset"], isolation_level="read_committed")
    assert {*shown.to_table()["offset"].to_pylist()} <= {*table.offsets()}
    assert len({*table.offsets()}) == len(table.offsets())
    assert table.run().commits == 0


def test_topics_that_were_created_again_between_two_runs(archive: MadeArchive, made: MakeTable) -> None:
    """All of them are added, from their beginning, although the table began later in the first one."""
    ids = ("A" * 22, "B" * 22, "C" * 22)
    archive.put_segment("t", 0, batches((0, 50)))
    archive.commit("t", 50, last_stable_offset=50)
    archive.put_incarnations("t", ids[0])
    table = made(Policy(on_recreated=OnRecreated.FOLLOW))
    table.begins = {TopicPartition("t", 0): 30}
    for number, topic_id in enumerate(ids[1:], 2):
        archive.put_incarnations("t", *ids[:number])
        keys = archive.keys.partition(TopicPartition("t", 0), f"t~{topic_id}")
        archive.partition = lambda _topic, _partition=0, keys=keys: keys  # type: ignore[method-assign, misc]
        archive.put_segment("t", 0, batches((0, 20)))
        archive.commit("t", 20, last_stable_offset=20)
    assert table.run().records == 40
    assert sorted((row["_topic_id"], row["_offset"]) for row in table.rows()) == [
        *((ids[0], offset) for offset in range(50)),
        *((topic_id, offset) for topic_id in ids[1:] for offset in range(20)),
    ]


def test_a_restored_topic_is_added_once(archive: MadeArchive, made: MakeTable, tmp_path: Path) -> None:
    """A table that has the old incarnation adds the new directory's records; a new table adds those of both."""
    ids = ("A" * 22, "B" * 22)
    archive.put_segment("t", 0, batches((0, 50)))
    archive.commit("t", 50, last_stable_offset=50)
    archive.put_incarnations("t", ids[0])
    table = made(Policy(on_recreated=OnRecreated.FOLLOW))
    archive.put_incarnations("t", *ids)
    archive.directories["t"] = f"t~{ids[1]}"
    archive.put_restored(archive.keys, 50, directory=archive.directories["t"])
    archive.put_segment("t", 40, batches((40, 70)))
    archive.commit("t", 70, highest_base=40, log_start=50, epochs=[(0, 40)], last_stable_offset=70)
    assert table.run().records == 20
    assert table.offsets() == [*range(70)]
    fresh = MadeTable(archive, tmp_path / "fresh", policy=PASS)
    fresh.create()
    assert fresh.run().records == 70
    assert {row["_topic_id"] for row in fresh.rows()} == {ids[1]}


def test_an_election_after_the_commit_of_a_java_uploader(archive: MadeArchive, made: MakeTable) -> None:
    """That commit has no epochs; those of the claims find the election."""
    archive.put_segment("t", 0, batches((0, 100)))
    archive.commit("t", 100, last_stable_offset=100)
    table = made(Policy(on_taken_back=OnTakenBack.DELETE))
    archive.put_segment("t", 100, batches((100, 120)))
    archive.store.put(archive.partition("t").commit, b"%020d" % 100)
    table.run()
    archive.put_segment("t", 60, batches((60, 130), epoch=2, value=b"later"), variant=True)
    archive.commit("t", 130, epochs=((0, 0), (2, 60)), highest_base=60, last_stable_offset=130)
    is_whole(archive, table)
    assert {row["value"] for row in table.rows()[60:]} == {b"later"}


def test_a_table_that_begins_ahead_of_the_archive(archive: MadeArchive) -> None:
    """As after another sink; an election below its beginning has no effect."""
    archive.put_segment("t", 0, batches((0, 100)))
    archive.commit("t", 100, last_stable_offset=100)
    table = MadeTable(archive, Path(archive.location.removeprefix("file://")).parent / "ahead")
    table.begins = {TopicPartition("t", 0): 150}
    table.create()
    table.run()
    archive.put_segment("t", 100, batches((100, 120)))
    archive.put_segment("t", 120, batches((120, 200), epoch=2))
    archive.commit("t", 200, epochs=((0, 0), (2, 120)), highest_base=120, last_stable_offset=200)
    table.run()
    assert table.offsets() == list(range(150, 200))
