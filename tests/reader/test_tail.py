"""Live tails: what a scan shows above the next offset, in both isolation levels, and what it costs."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.made_archive import batches
from tests.made_tail import MadeTail, Recorded, entry, live, plain, ship
from tests.reader.archives import ScannedArchive
from tests.transactions import ABORT, COMMIT, data, ended
from ts_common.archive import tail_logs
from ts_common.archive.catalog import read_catalog
from ts_common.archive.high_watermarks import End, Ends
from ts_common.archive.object_keys import pack_name
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.tail_pack import Block, PackHead, decode_block, encode_pack
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData, ObjectNotFound, QueryError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.query import splits
from ts_reader.query.plan_query import plan_query
from ts_reader.query.read_split import read_split


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_scan_shows_closed_segments_and_then_the_tail(archive: ScannedArchive, isolation: str) -> None:
    """Entries of several packs, each offset once; one begins below the next offset."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (90, 100), (100, 105)))
    tail.put(plain(archive, (105, 120), (120, 130)))
    rows = archive.rows(isolation_level=isolation)
    assert [row["offset"] for row in rows] == list(range(130))
    assert [row["key"] for row in rows] == [b"%d" % offset for offset in range(130)]
    assert [info.end for info in archive.opened.partitions("t")] == [130]


def test_a_scan_without_the_tail_ends_at_the_next_offset(archive: ScannedArchive) -> None:
    """So does each reader that does not read tails."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 130)))
    assert archive.offsets(tail=False) == list(range(100))
    assert archive.offsets() == list(range(130))


def test_a_partition_without_a_closed_segment_shows_its_tail(archive: ScannedArchive) -> None:
    """Its first commit has no run, and begins at `log.start`."""
    archive.commit("t", 40, log_start=40, epochs=[(3, 40)], highest_base=40, live=live((3, 40)))
    MadeTail(archive).put(entry(archive, "t", 40, batches((40, 50), epoch=3), epoch=3))
    assert archive.offsets() == list(range(40, 50))


def test_a_merged_object_has_the_entries_of_the_packs_that_it_replaces(archive: ScannedArchive) -> None:
    """Its index is in the newest pack, or in itself if `before` names it."""
    ship(archive)
    tail = MadeTail(archive)
    for start in range(100, 130, 10):
        tail.put(plain(archive, (start, start + 10)))
    tail.merge()
    assert archive.offsets() == list(range(130))
    tail.merge(moves_index=True)
    assert archive.offsets() == list(range(130))


def test_offsets_that_compaction_removed_are_no_hole_of_the_tail(archive: ScannedArchive) -> None:
    """A replica that caught up a compacted topic has them in its active segment; an entry covers them."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 105), (108, 110)), plain(archive, (110, 112)))
    assert archive.offsets() == [*range(105), *range(108, 112)]
    assert archive.offsets(starting_offsets={0: 106}, ending_offsets={0: 109}) == [108]
    assert archive.scan().dataset().count_rows() == 109


def test_indexes_that_continue_each_other_for_ever_are_damage(archive: ScannedArchive) -> None:
    """A pack that another identity wrote can name itself."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)), before=pack_name(1))
    (info,) = archive.opened.partitions("t")
    assert info.end == 100
    assert "continue each other" in (info.problem or "")


def test_the_view_ends_at_the_first_hole_of_the_tail(archive: ScannedArchive) -> None:
    """That end is no data loss, even for a scan that fails on loss."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)), plain(archive, (120, 130)))
    assert archive.offsets() == list(range(110))


def test_entries_of_leaderships_that_the_commit_does_not_name_are_ignored(archive: ScannedArchive) -> None:
    """A former leader's late entry counts only while the commit names it."""
    ship(archive, live=live((0, 100), (2, 110), former=[("2", 0)]), epoch=2)
    MadeTail(archive, "2").put(plain(archive, (100, 110)), plain(archive, (110, 115), epoch=1))
    MadeTail(archive).put(plain(archive, (110, 120), epoch=2), plain(archive, (120, 125), epoch=3))
    assert archive.offsets() == list(range(120))
    MadeTail(archive, "3").put(plain(archive, (100, 110)))
    archive.commit("t", 100, live=live((0, 100), (2, 110), former=[("3", 1)]), epoch=2)
    assert archive.offsets() == list(range(100))


def test_the_dead_tail_of_an_entry_is_not_shown(archive: ScannedArchive) -> None:
    """The new leader's epoch begins in it: an election lost the rest."""
    ship(archive, live=live((0, 100), (2, 105), former=[("2", 0)]), epoch=2)
    MadeTail(archive, "2").put(plain(archive, (100, 105), (105, 120)))
    own = plain(archive, (105, 107), epoch=2)
    MadeTail(archive).put(own)
    assert archive.offsets() == list(range(107))


@pytest.mark.parametrize("epoch", [-1, 2])
def test_an_entry_of_a_former_leadership_ends_where_a_later_epoch_begins(archive: ScannedArchive, epoch: int) -> None:
    """Its agent can name any epochs of its batches, and so could end the view anywhere, with records of its own."""
    ship(archive, live=live((0, 100), (2, 105), former=[("2", 0)]), epoch=2)
    forged, body = plain(archive, (100, 130), batch_epoch=epoch)
    MadeTail(archive, "2").put((forged._replace(end=1 << 40, stable=1 << 40, records=None), body))
    MadeTail(archive).put(plain(archive, (105, 107), epoch=2))
    assert [info.end for info in archive.opened.partitions("t")] == [107]
    archive.commit("t", 0, epochs=(), live=live((2, 0), former=[("2", 0)]), last_stable_offset=0, epoch=2)
    MadeTail(archive, "2").put(plain(archive, (0, 30), batch_epoch=epoch))
    assert [info.end for info in archive.opened.partitions("t")] == [0]


def test_below_the_first_epoch_of_the_commit_only_the_leaders_own_entries_count(archive: ScannedArchive) -> None:
    """Compaction removed what would show that the former leader's records are dead."""
    own = live((4, 46), (5, 60), former=[("2", 3)])
    archive.commit("t", 40, log_start=40, epochs=[], epoch=5, highest_base=40, live=own)
    MadeTail(archive, "2").put(entry(archive, "t", 40, batches((40, 50), epoch=3), epoch=3))
    assert archive.offsets() == []
    MadeTail(archive).put(entry(archive, "t", 40, batches((46, 50), epoch=4), epoch=5))
    assert archive.offsets() == [46, 47, 48, 49]


def test_a_segment_above_the_next_offset_is_not_shown(archive: ScannedArchive) -> None:
    """It was never committed; only entries are facts there."""
    ship(archive)
    archive.put_segment("t", 100, batches((100, 150)))
    MadeTail(archive).put(plain(archive, (100, 110)))
    assert archive.offsets() == list(range(110))


def test_what_log_start_hides_of_a_tail_is_not_shown(archive: ScannedArchive) -> None:
    """Retention read a later commit, and raised the start above the next offset of this one."""
    ship(archive, log_start=105)
    MadeTail(archive).put(plain(archive, (100, 110)))
    assert archive.offsets() == list(range(105, 110))


def transactional(archive: ScannedArchive, *, aborted: Any, stable: int = 8) -> None:
    """Ship two transactions that began in the closed segment: an aborted one, and one that is still open."""
    archive.put_segment("t", 0, data(0, 1000) + data(1, 1000, producer=8) + batches((2, 4)))
    archive.commit("t", 4, live=live((0, 4)), last_stable_offset=0)
    body = data(4, 1000) + ended(5, 1000, kind=ABORT) + batches((6, 8))
    MadeTail(archive).put(entry(archive, "t", 4, body, stable=stable, aborted=aborted))


def test_read_committed_ends_at_the_last_stable_offset_of_the_tail(archive: ScannedArchive) -> None:
    """The transaction of producer 8 is open."""
    transactional(archive, aborted=[(7, 0, 5)], stable=1)
    assert archive.offsets(isolation_level="read_committed") == []
    assert archive.offsets() == [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("aborted", [[(7, 0, 5)], None])
def test_an_aborted_transaction_is_hidden_in_segments_too(archive: ScannedArchive, aborted: Any) -> None:
    """An entry that does not name where it began has readers search the markers."""
    transactional(archive, aborted=aborted)
    body = ended(8, 1000, producer=8, kind=COMMIT)
    tail = MadeTail(archive)
    first = entry(
        archive, "t", 4, data(4, 1000) + ended(5, 1000, kind=ABORT) + batches((6, 8)), stable=1, aborted=aborted
    )
    tail.put(first, entry(archive, "t", 8, body, stable=9))
    assert archive.offsets(isolation_level="read_committed") == [1, 2, 3, 6, 7]
    assert archive.offsets() == [0, 1, 2, 3, 4, 6, 7]


def test_an_entry_with_a_dead_tail_gives_no_last_stable_offset(archive: ScannedArchive) -> None:
    """The marker that ends the transaction is in the dead tail, so the transaction is undecided."""
    ship(archive, live=live((0, 100), (2, 102), former=[("2", 0)]), epoch=2)
    dead = data(100, 1000) + batches((101, 102)) + ended(102, 1000, kind=COMMIT)
    MadeTail(archive, "2").put(entry(archive, "t", 100, dead, stable=103))
    assert archive.offsets() == list(range(102))
    assert archive.offsets(isolation_level="read_committed") == list(range(100))


def test_times_of_the_tail_bound_a_scan(archive: ScannedArchive) -> None:
    """The record at an offset has the timestamp 1000 + offset."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)), plain(archive, (110, 120)))
    assert archive.offsets(starting_timestamp=1095, ending_timestamp=1115) == list(range(95, 115))
    assert archive.offsets(starting_offsets={0: 112}) == list(range(112, 120))
    assert archive.scan().dataset().count_rows() == 120
    estimate = archive.scan(starting_offsets={0: 112}).estimate()
    assert (estimate.segments, estimate.all_segments) == (1, 3)
    assert estimate.bytes < estimate.all_bytes


def test_damage_in_a_pack_ends_the_view_with_a_warning(archive: ScannedArchive) -> None:
    """Closed segments stay readable, and the scan does not fail."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))
    body = bytearray(archive.store.get(tail.newest)[0])
    body[40] ^= 1
    archive.store.put(tail.newest, bytes(body))
    (info,) = archive.opened.partitions("t")
    assert info.end == 100
    assert "the view ends at the next offset" in (info.problem or "")
    assert archive.offsets() == list(range(100))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_damaged_log_of_a_former_leadership_hides_no_own_entry(archive: ScannedArchive, is_lost: bool) -> None:
    """The leader has shipped its entries again; one agent's log does not end the views of all that its broker led."""
    ship(archive, live=live((0, 100), (2, 105), former=[("2", 0)]), epoch=2)
    former = MadeTail(archive, "2")
    former.put(plain(archive, (100, 105)), before="merged/1-1a2b3c4d" if is_lost else None)
    if not is_lost:
        archive.store.put(former.newest, b"damaged")
    tail = MadeTail(archive)
    tail.put(plain(archive, (105, 110), epoch=2))
    (info,) = archive.opened.partitions("t")
    assert (info.end, "t-0: the view ends at " in (info.problem or "")) == (100, True)
    tail.put(plain(archive, (100, 105), epoch=2, batch_epoch=0))
    (info,) = archive.opened.partitions("t")
    assert (info.end, "t-0: the view ends at offset 110: " in (info.problem or "")) == (110, True)
    assert archive.offsets() == list(range(110))
    step = next(archive.scan(isolation_level="read_committed").follow())
    assert step.to_table().num_rows == 110


def damage(archive: ScannedArchive, tail: MadeTail, entry: int, part: int, parts: int) -> None:
    """Change a byte in the middle of one of the equal batches of an entry of the newest pack."""
    body, found = bytearray(archive.store.get(tail.newest)[0]), tail.entries[entry]
    body[found.position + found.length * (2 * part + 1) // (2 * parts)] ^= 1
    archive.store.put(tail.newest, bytes(body))


@pytest.mark.parametrize("view", ["log", "latest"])
def test_a_damaged_entry_ends_the_view_before_it_with_a_warning(archive: ScannedArchive, view: str) -> None:
    """No record of it or behind it is shown, as if the leader had not shipped it yet; the scan does not fail."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 105)), plain(archive, (105, 110), (110, 115)), plain(archive, (115, 120)))
    damage(archive, tail, 1, 1, 2)
    with capture_logs() as logs:
        assert archive.offsets(view=view) == list(range(105))
    (warning,) = [each for each in logs if each["event"] == "tail_damaged"]
    assert warning["message"].startswith("the view ends at offset 105: t-0: ")
    assert pack_name(1) in warning["message"]
    assert archive.scan(starting_offsets={0: 107}).count_rows() == 0


def test_a_damaged_entry_ends_large_and_counted_scans_too(
    archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail of a partition is in one split, however large: another one would show what follows the damage."""
    monkeypatch.setattr(splits, "SPLIT_BYTES", 100)
    ship(archive)
    tail = MadeTail(archive)
    tail.put(*(plain(archive, (start, start + 5)) for start in range(100, 150, 5)))
    plan = archive.scan().query
    found = plan_query(archive.store, plan).splits
    assert [[part.start for part in split.ranges if part.is_tail] for split in found][-1] == list(range(100, 150, 5))
    assert len(found) > 5
    damage(archive, tail, 3, 0, 1)
    assert archive.offsets() == list(range(115))


def test_a_lost_object_that_the_log_leads_to_ends_the_rows_before_its_entry(archive: ScannedArchive) -> None:
    """A bucket's rule removed it: on a quiet log no merge finds that, and each query of the partition would fail."""
    ship(archive)
    tail = MadeTail(archive)
    for start in (100, 105, 110):
        tail.put(plain(archive, (start, start + 5)))
    archive.store.delete([tail.key(pack_name(2))])
    assert archive.offsets() == list(range(105))
    assert archive.scan().count_rows() == 105
    with pytest.raises(ObjectNotFound):
        archive.offsets(ending_offsets={0: 115})


def test_an_object_that_a_merge_replaced_makes_a_query_be_planned_again(archive: ScannedArchive) -> None:
    """Nothing is lost: the next plan has its records, so no rows without them are returned."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 105)))
    (*_, last) = plan_query(archive.store, archive.scan().query).splits
    tail.merge()
    with pytest.raises(ObjectNotFound, match="plan it again"):
        list(read_split(archive.store, last, ["offset"]))
    assert archive.offsets() == list(range(105))


def test_damage_below_an_end_that_a_scan_names_is_an_error(archive: ScannedArchive) -> None:
    """The records would be lost in silence; a tolerant scan shows the others, as of a segment."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 105), (105, 110), (110, 115)))
    damage(archive, tail, 0, 1, 3)
    with pytest.raises(CorruptData, match=pack_name(1)):
        archive.offsets(ending_offsets={0: 115})
    assert archive.offsets(mode="DROPMALFORMED") == [*range(105), *range(110, 115)]
    raw = [row["_corrupt_record"] for row in archive.rows(mode="PERMISSIVE")]
    assert [len(each) for each in raw if each is not None] == [len(body_of := tail.batches(tail.entries[0])) // 3]
    assert raw[105] == body_of[len(body_of) // 3 : 2 * len(body_of) // 3]


def test_a_step_of_a_stream_with_a_damaged_entry_is_an_error(archive: ScannedArchive) -> None:
    """Its position is above the entry: rows without it would be lost."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 105)))
    damage(archive, tail, 0, 0, 1)
    step = next(archive.scan().follow())
    with pytest.raises(CorruptData, match=pack_name(1)):
        step.to_table()


def read(store: ObjectStore, archive: ScannedArchive, **arguments: Any) -> list[int]:
    """Return the offsets of a scan that uses this store."""
    plan = plan_query(store, archive.scan(**arguments).query)
    found = []
    for split in plan.splits:
        for rows in read_split(store, split, ["offset"]):
            found += rows.column("offset").to_pylist()
    return found


def test_an_archive_without_a_tail_costs_no_request_more(archive: ScannedArchive) -> None:
    """Packs exist, but no commit names them."""
    ship(archive, live=None)
    MadeTail(archive).put(plain(archive, (100, 110)))
    found = []
    for tail in (True, False):
        store = Recorded(archive.store)
        assert read(store, archive, tail=tail) == list(range(100))
        found.append(store.requests)
    assert found[0] == found[1]
    assert not any("/tail/" in request for request in found[0])


def test_a_reader_of_one_partition_sends_a_few_requests_after_the_commit(archive: ScannedArchive) -> None:
    """It lists one name of each log, reads the index there, and then the entry."""
    ship(archive, live=live((0, 100), former=[("2", 0)]))
    tail = MadeTail(archive)
    for start in range(100, 160, 10):
        tail.put(plain(archive, (start, start + 10)))
    tail.merge()
    tail.put(plain(archive, (160, 170)))
    store = Recorded(archive.store)
    assert read(store, archive, starting_offsets={0: 165}) == list(range(165, 170))
    of_tail = [request for request in store.requests if "/tail/" in request]
    assert [request.split("/")[-2:] for request in of_tail] == [
        ["packs", ""],
        ["packs", pack_name(8).removeprefix("packs/")],
        ["packs", ""],
        ["packs", pack_name(8).removeprefix("packs/")],
    ]
    assert len(store.requests) <= 10
    commit = f"GET {archive.partition('t').commit}"
    assert store.requests.index(commit) < store.requests.index(of_tail[0])


def test_a_query_reads_each_log_once_for_all_partitions(archive: ScannedArchive) -> None:
    """One pack has entries of both, and both are in its index."""
    tail = MadeTail(archive)
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 100)), partition=partition)
        archive.commit("t", 100, partition=partition, live=live((0, 100)))
    tail.put(*(entry(archive, "t", 100, batches((100, 105)), partition=partition) for partition in (0, 1)))
    store = Recorded(archive.store)
    plan = plan_query(store, archive.scan().query)
    assert {part.end for split in plan.splits for part in split.ranges} == {100, 105}
    assert sum("/tail/" in request for request in store.requests) == 2


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_query_reads_a_damaged_log_once_for_all_partitions(archive: ScannedArchive, partitions: int) -> None:
    """Ten thousand partitions would read all its indexes as often, one after the other."""
    for partition in range(partitions):
        archive.put_segment("t", 0, batches((0, 100)), partition=partition)
        archive.commit("t", 100, partition=partition, live=live((0, 100)))
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))
    tail.put(plain(archive, (110, 120)), before=pack_name(1))
    archive.store.put(tail.key(pack_name(1)), b"damaged")
    store = Recorded(archive.store)
    plan = plan_query(store, archive.scan().query)
    assert {part.end for split in plan.splits for part in split.ranges} == {100}
    assert [each.partition(":")[0] for each in sorted(plan.warnings)] == [f"t-{number}" for number in range(partitions)]
    assert sum("/tail/" in request for request in store.requests) == 3


def test_a_pack_that_was_deleted_meanwhile_makes_the_reader_begin_again(archive: ScannedArchive) -> None:
    """It reads the commit again, and then the log: a merge may have moved what the commit needs."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))
    store = Recorded(archive.store)
    store.lost[tail.newest] = b""
    assert read(store, archive) == list(range(110))
    commits = [request for request in store.requests if request.endswith("offset.wm")]
    assert len(commits) == 2


def test_an_index_that_lost_an_object_ends_the_view_at_the_next_offset(archive: ScannedArchive) -> None:
    """No agent may be left that ships again, after the loss of a cluster; closed segments are shown all the same."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))
    tail.merge(moves_index=True)
    assert archive.offsets() == list(range(110))
    archive.store.delete([tail.key(tail.entries[0].object)])
    with capture_logs() as logs:
        assert archive.offsets() == list(range(100))
    assert any("the view ends at the next offset" in f"{each}" for each in logs)
    assert [info.end for info in archive.opened.partitions("t")] == [100]


def test_a_lost_object_is_looked_for_again_for_one_partition_alone(archive: ScannedArchive) -> None:
    """No merge deletes an object in each of three attempts, so it is lost for the other partitions too."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 100)), partition=partition)
        archive.commit("t", 100, partition=partition, live=live((0, 100)))
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)), before="merged/1-1a2b3c4d")
    store, asked = Recorded(archive.store), list[int]()
    tails = TailLogs(store, archive.keys)
    for partition in (0, 1):
        catalog = read_catalog(archive.store, archive.partition("t", partition))
        view = open_view(store, catalog, tails=tails)
        assert (view.end, "the view ends at the next offset" in (view.warning or "")) == (100, True)
        asked.append(sum("/tail/" in request for request in store.requests))
    assert asked == [9, 9]


def test_a_hostile_log_needs_no_more_memory_than_an_honest_one(
    archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its indexes have as many epochs as they may. With 16 they would be 128 MiB, and 1 GiB as numbers."""
    ship(archive)
    epochs = [(7, at) for at in range(31_000)]
    starts = (100, 50_000)
    rows = [
        plain(archive, (start, start + 1))[0]._replace(
            end=start + len(epochs),
            object="packs/ffffffffffff",
            epochs=tuple((epoch, start + at) for epoch, at in epochs),
        )
        for start in starts
    ]
    names = [pack_name(1), *(f"merged/1-{number:08x}" for number in range(3))]
    for name, before in zip(names, [*names[1:], None], strict=True):
        data = encode_pack(PackHead("1", 1, "nonce", 1, before), rows, ())
        archive.store.put(archive.keys.tail("1") + name, data)
    sizes = [0]
    monkeypatch.setattr(tail_logs, "_MOST_BYTES", 2 << 20)

    def decoded(data: bytes, head: PackHead, block: Block, *named: str) -> tuple[TailEntry, ...]:
        sizes.append(block.size)
        return decode_block(data, head, block, *named)

    monkeypatch.setattr("ts_common.archive.tail_logs.decode_block", decoded)
    with capture_logs() as logs:
        assert archive.offsets() == list(range(100))
    assert any("the view ends at the next offset: " in f"{each}" for each in logs)
    assert (1 << 20) < sum(sizes) <= (2 << 20)
    monkeypatch.setattr(tail_logs, "MAX_UNPACKED", 1 << 20)
    sizes.clear()
    assert archive.offsets() == list(range(100))
    assert sizes == []


def test_no_log_is_read_after_one_that_needs_too_much_memory(
    archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit can name 32, and each can have 16 indexes."""
    ship(archive, live=live((0, 100), former=[(str(broker), 0) for broker in range(2, 10)]))
    for broker in range(1, 10):
        MadeTail(archive, str(broker)).put(plain(archive, (100, 110)))
    monkeypatch.setattr(tail_logs, "_MOST_BYTES", 3 * archive.store.head(MadeTail(archive, "1").key(pack_name(1))).size)
    store = Recorded(archive.store)
    assert read(store, archive) == list(range(110))
    assert 2 <= sum(request.startswith("LIST") and "/tail/" in request for request in store.requests) < 6


def test_a_commit_that_names_many_logs_makes_a_reader_list_none(archive: ScannedArchive) -> None:
    """Each would be a request, and no partition had so many leaders lately."""
    ship(archive, live=live((0, 100), former=[(str(broker), 0) for broker in range(2, 50)]))
    store = Recorded(archive.store)
    assert read(store, archive) == list(range(100))
    assert not any("/tail/" in request for request in store.requests)


NOON = 100_000_000
MARGIN = 300_000


def at_noon(archive: ScannedArchive, **arguments: Any) -> list[int]:
    """Return the offsets that the archive had at noon."""
    found = archive.opened.at(NOON).scan("t", columns=["offset"], **arguments).to_table()
    return list(found["offset"].to_pylist())


def report(archive: ScannedArchive, high_watermark: int) -> None:
    """Put an agent's report of a checkpoint that proves noon."""
    ends = Ends(1, NOON + MARGIN, {TopicPartition("t", 0): End(high_watermark, NOON + MARGIN)})
    archive.store.put(archive.keys.ends_of(1), ends.encode())


def test_a_cut_shows_the_tail_as_far_as_an_agents_report_proves_it(archive: ScannedArchive) -> None:
    """Records and transactions of the moment that no closed segment has, without the later ones."""
    ship(archive)
    report(archive, 112)
    body = batches((100, 103), time=NOON - 102) + data(103, NOON - 1) + ended(104, NOON + 1)
    tail = MadeTail(archive)
    tail.put(entry(archive, "t", 100, body))
    with pytest.raises(QueryError, match="records up to then can be missing in t-0"):
        at_noon(archive)
    tail.put(entry(archive, "t", 105, batches((105, 112), time=NOON + MARGIN)))
    assert at_noon(archive) == list(range(103))
    with pytest.raises(QueryError, match="records up to then can be missing in t-0"):
        at_noon(archive, tail=False)


def test_a_later_record_of_a_tail_proves_no_cut(archive: ScannedArchive) -> None:
    """The clock of its producer can be ahead: an entry has no time of shipping."""
    later = batches((100, 110), time=NOON + MARGIN)
    ship(archive)
    archive.put_segment("t", 0, batches((0, 100)) + later)  # above its commit's end, so it proves nothing either
    MadeTail(archive).put(entry(archive, "t", 100, later))
    with pytest.raises(QueryError, match="records up to then can be missing in t-0"):
        at_noon(archive)


def test_a_damaged_entry_is_an_error_of_a_cut(archive: ScannedArchive) -> None:
    """It is proven to be complete."""
    ship(archive)
    report(archive, 105)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 105)))
    damage(archive, tail, 0, 0, 1)
    with pytest.raises(CorruptData, match=pack_name(1)):
        at_noon(archive)
