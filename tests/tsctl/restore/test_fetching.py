"""The files of one partition, from archives that a test makes."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, message
from tests.made_archive import MadeArchive, batches, steps
from ts_common.archive.catalog import read_catalog
from ts_common.archive.former_places import read_with_former
from ts_common.archive.restored import Ended, Outcome
from ts_common.errors import CorruptData, QueryError
from ts_common.log_format.index_files import AbortedTransaction, read_transaction_index
from ts_common.log_format.markers import read_markers
from ts_common.model import TopicPartition
from ts_common.store.wrappers.bandwidth import Allowance
from tsctl.restore.chain import read_batches
from tsctl.restore.documents import Staged
from tsctl.restore.fetching import PartitionFetch
from tsctl.restore.markers import end_transactions
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.restore.planning import Planned, plan_partition
from tsctl.restore.transactions import Coordinated

TIME = 1_700_000_000_000


class Killed(Exception):
    """The process ends."""


def data(offset: int, producer: int, time: int = 1000) -> bytes:
    """Return a transactional batch of one record."""
    return batch(offset, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=3, max_timestamp=time)


def planned(archive: MadeArchive, partition: int = 0, at: int | None = None, end: int | None = None) -> Planned:
    keys = archive.partition("t", partition)
    return plan_partition(archive.store, read_catalog(archive.store, keys), at, end)


def plan_of(archive: MadeArchive, **cut: Any) -> PartitionPlan:
    found = planned(archive, **cut)
    return found.finished([1], end_transactions([found])[found.keys.partition])


def fetched(
    archive: MadeArchive, plan: PartitionPlan, directory: Path, advance: Callable[[int], None] = lambda _: None
) -> tuple[Staged, dict[str, bytes]]:
    """Return the state and all files but its own."""
    directory.mkdir(exist_ok=True)
    keys = archive.partition("t")
    state = PartitionFetch(archive.store, keys, plan, "p", TIME, directory, Allowance(), advance).run()
    files = {path.name: path.read_bytes() for path in (directory / "restore").iterdir() if path.name != "state.json"}
    assert {entry.name for entry in state.files} == files.keys()
    return state, files


def markers(log: bytes) -> list[tuple[int, int, int, int]]:
    """Return (offset, producer id, producer epoch, kind) of each marker in a log."""
    found = []
    for header, each in read_batches([log], len(log), lambda _: None):
        if header.is_control:
            found += [
                (offset, header.producer_id, header.producer_epoch, kind)
                for offset, kind in read_markers(header, bytes(each[61:]))
            ]
    return found


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def test_overlapping_copies_become_one_log(archive: MadeArchive, tmp_path: Path) -> None:
    """Two leaders rolled elsewhere, and the first one's tail is dead; the log ends with an empty segment."""
    archive.put_segment("t", 0, batches(*steps(0, 100), epoch=1))
    archive.put_segment("t", 50, batches(*steps(50, 80), epoch=1) + batches(*steps(80, 200), epoch=2))
    archive.commit("t", 200, epochs=((1, 0), (2, 80)), highest_base=50)
    state, files = fetched(archive, plan_of(archive), tmp_path / "t-0")
    logs = {name: log for name, log in files.items() if name.endswith(".log")}
    found = [
        (header.base_offset, header.leader_epoch)
        for name in sorted(logs)
        for header, _ in read_batches([logs[name]], len(logs[name]), lambda _: None)
    ]
    assert found == [(base, 0) for base in range(0, 200, 10)]
    assert [int(name[:20]) for name, log in sorted(logs.items()) if not log] == [200]
    assert (state.end, files["leader-epoch-checkpoint"]) == (200, b"0\n1\n0 0\n")
    assert all(f"{name[:20]}{suffix}" in files for name in logs for suffix in (".index", ".timeindex"))


def test_a_second_loss_brings_back_the_history_of_both_clusters(archive: MadeArchive, tmp_path: Path) -> None:
    """The lost cluster was a restored one: its older records are in the directory of the first."""
    archive.put_segment("t", 0, batches(*steps(0, 110), epoch=5))
    archive.commit("t", 110, epochs=((5, 0),))
    again = MadeArchive(archive.location, cluster="again")
    again.put_restored(archive.keys, 100, epochs=((5, 0),))
    again.put_segment("t", 80, batches(*steps(80, 150)))
    again.commit("t", 150, highest_base=80, log_start=100, epochs=((0, 80),))
    planned = plan_partition(again.store, read_with_former(again.store, again.partition("t")), None, None)
    plan = planned.finished([1], [])
    assert (plan.start, plan.end, plan.epochs.pairs) == (0, 150, ((0, 80),))
    _, files = fetched(again, plan, tmp_path / "t-0")
    found = [
        header.base_offset
        for name in sorted(files)
        if name.endswith(".log")
        for header, _ in read_batches([files[name]], len(files[name]), lambda _: None)
    ]
    assert found == list(range(0, 150, 10))


def test_p01_a_killed_fetch_continues_to_the_same_files(archive: MadeArchive, tmp_path: Path) -> None:
    """A complete segment is not read again, and the transactions that were open at its end are known."""
    for base in (0, 100, 200):
        log = data(base, 7) + batches(*steps(base + 1, base + 99))
        log += marker(base + 99, 7, 0, producer_epoch=3) if base == 200 else batches((base + 99, base + 100))
        archive.put_segment("t", base, log)
    archive.commit("t", 300, highest_base=200, last_stable_offset=300)
    plan = plan_of(archive)
    _, whole = fetched(archive, plan, tmp_path / "whole")
    calls: list[int] = []  # bytes that were complete at the start, then one object each

    def advance(count: int) -> None:
        calls.append(count)
        if len(calls) == 3:  # in the second object that is read
            raise Killed

    for read in (0, 1):
        with pytest.raises(Killed):
            fetched(archive, plan, tmp_path / "t-0", advance)
        assert calls[0] == read * plan.steps[0].sources[0].size
        calls.clear()
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert files == whole


def test_an_aborted_transaction_has_its_index_entry(archive: MadeArchive, tmp_path: Path) -> None:
    """Its last stable offset is the beginning of another transaction that is open then."""
    log = data(0, 7) + data(1, 8) + marker(2, 7, 0) + marker(3, 8, 1)
    archive.put_segment("t", 0, log)
    archive.commit("t", 4, last_stable_offset=4)
    _, files = fetched(archive, plan_of(archive), tmp_path / "t-0")
    assert read_transaction_index(files[f"{0:020d}.txnindex"]) == (AbortedTransaction(7, 0, 2, 1),)


def test_an_open_transaction_is_aborted_at_the_end(archive: MadeArchive, tmp_path: Path) -> None:
    """By a marker in the last segment, with its index entry."""
    archive.put_segment("t", 0, data(0, 7) + marker(1, 7, 1) + data(2, 7) + batches((3, 9)))
    archive.commit("t", 9, last_stable_offset=2)
    plan = plan_of(archive)
    state, files = fetched(archive, plan, tmp_path / "t-0")
    assert (plan.ended, state.end) == ((Ended(7, 3, 2, Outcome.ABORT),), 10)
    assert markers(files[f"{9:020d}.log"]) == [(9, 7, 3, 0)]
    assert read_transaction_index(files[f"{9:020d}.txnindex"]) == (AbortedTransaction(7, 2, 9, 10),)


def test_a_transaction_that_is_left_open_has_no_marker_and_kafka_recovers_its_segments(
    archive: MadeArchive, tmp_path: Path
) -> None:
    """Its coordinator may end it later: without `.index` from its first segment on, Kafka tracks it."""
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.put_segment("t", 50, data(50, 7) + batches(*steps(51, 100)))
    archive.put_segment("t", 100, batches(*steps(100, 150)))
    archive.commit("t", 150, highest_base=100, last_stable_offset=50)
    found = planned(archive)
    plan = found.finished([9], end_transactions([found], aborts=False)[found.keys.partition], [1, 2])
    state, files = fetched(archive, plan, tmp_path / "t-0")
    assert ([one.first_offset for one in plan.left_open], plan.ended, state.end) == ([50], (), 150)
    assert {int(name[:20]) for name in files if name.endswith(".index")} == {0}
    assert {int(name[:20]) for name in files if name.endswith(".log")} == {0, 50, 100, 150}
    assert not any(markers(log) for name, log in files.items() if name.endswith(".log"))
    assert "left open" in plan.notes[0]


@pytest.mark.parametrize(
    ("state", "epoch", "start", "outcome"),
    [
        ("CompleteCommit", 3, 900, Outcome.COMMIT),
        ("CompleteAbort", 4, 1000, Outcome.ABORT),
        ("CompleteCommit", 3, 1001, None),  # a later transaction of the same producer
        ("CompleteCommit", 5, 900, None),
        ("CompleteCommit", 2, 900, None),
        ("Ongoing", 3, 900, None),
        ("Empty", 4, 900, None),
    ],
)
def test_the_coordinator_gives_the_outcome_of_an_open_transaction(
    archive: MadeArchive, state: str, epoch: int, start: int, outcome: Outcome | None
) -> None:
    """Of this transaction: not of a later one of its producer, whose outcome can be another."""
    archive.put_segment("t", 0, data(0, 7, time=1000))
    archive.commit("t", 1, last_stable_offset=0)
    found = planned(archive)
    known = [Coordinated("app", 7, epoch, state, start, frozenset())]
    ended = end_transactions([found], known, aborts=False)[TopicPartition("t", 0)]
    assert ended == ([] if outcome is None else [Ended(7, 3, 0, outcome)])
    assert len(found.finished([9], ended).left_open) == (outcome is None)
    ended = end_transactions([found], known)[TopicPartition("t", 0)]
    assert ended == [Ended(7, 3, 0, outcome or Outcome.ABORT)]


def test_a_transaction_that_a_hole_cuts_is_aborted_there(archive: MadeArchive, tmp_path: Path) -> None:
    """Readers hide its records too: the next marker belongs to another transaction."""
    archive.put_segment("t", 0, batches((0, 5)) + data(5, 7))
    archive.put_segment("t", 20, data(20, 7) + marker(21, 7, 1))
    archive.commit("t", 22, highest_base=20, last_stable_offset=22)
    plan = plan_of(archive)
    assert plan.notes == (
        "1 transaction cut by a hole, and aborted there: producer 7 from offset 5 where offsets 6 to 19 are lost",
    )
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert ([(hole.start, hole.end) for hole in plan.lost], plan.ended) == ([(6, 20)], ())
    assert markers(files[f"{6:020d}.log"]) == [(6, 7, 3, 0)]
    assert read_transaction_index(files[f"{6:020d}.txnindex"]) == (AbortedTransaction(7, 5, 6, 7),)


def test_an_aborted_transaction_whose_marker_compaction_removed_is_noted(archive: MadeArchive) -> None:
    """One copy has its records, and the later one neither them nor the marker: readers hide what the restore shows."""
    kept = batches((0, 4))
    archive.put_segment("t", 0, kept + data(4, 7) + data(5, 7) + data(6, 8) + marker(7, 8, 0) + batches((8, 10)))
    archive.put_segment("t", 0, kept + batches((8, 9), (14, 15)), variant=True, late=True)
    archive.commit("t", 15, last_stable_offset=15)
    (note,) = [note for note in plan_of(archive).notes if "shown as committed" in note]
    assert note == (
        "2 aborted transactions shown as committed after the restore, because compaction or damage removed the marker: "
        "producer 7 from offset 4 to 4, producer 7 from offset 5 to 5"
    )
    assert not any("shown as committed" in note for note in plan_of(archive, end=4).notes)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_an_aborted_transaction_whose_marker_is_damaged_is_noted(archive: MadeArchive, is_damaged: bool) -> None:
    """The broker's `.txnindex` has it; so does the restored one, if only other batches are damaged."""
    end, rest = bytearray(marker(1, 7, 0)), bytearray(batches((2, 4)))
    (end if is_damaged else rest)[-1] ^= 1
    index = AbortedTransaction(7, 0, 1, 2).encode()
    archive.put_segment("t", 0, data(0, 7) + bytes(end) + bytes(rest) + batches((4, 9)), end=9, txnindex=index)
    archive.commit("t", 9, last_stable_offset=9)
    notes = [note for note in plan_of(archive).notes if "shown as committed" in note]
    assert [note.endswith(": producer 7 from offset 0 to 1") for note in notes] == [True] * is_damaged


def test_a_torn_transaction_gets_the_end_that_another_partition_has(archive: MadeArchive) -> None:
    """A marker of the same producer that is not older than its records; an older one is of the transaction before."""
    for number, kind, time in ((1, 1, 1500), (2, 0, 500)):
        archive.put_segment("t", 0, data(0, 7) + marker(1, 7, kind, time=time, producer_epoch=3), partition=number)
        archive.commit("t", 2, partition=number, last_stable_offset=2)
    for number, producer, time in ((0, 7, 1200), (3, 9, 400)):
        archive.put_segment("t", 0, data(0, producer, time=time), partition=number)
        archive.commit("t", 1, partition=number, last_stable_offset=0)
    parts = [planned(archive, number) for number in range(4)]
    ended = end_transactions(parts)
    assert ended[TopicPartition("t", 0)] == [Ended(7, 3, 0, Outcome.COMMIT)]
    assert end_transactions([parts[0], *parts[2:]])[TopicPartition("t", 0)] == [Ended(7, 3, 0, Outcome.ABORT)]
    assert "as in t-1" in parts[0].notes[0]


def test_a_marker_of_the_partition_itself_ends_no_transaction_after_it(archive: MadeArchive) -> None:
    """Producers choose the times of records: one can be older than the marker of the transaction before."""
    begun = data(0, 7, time=900) + marker(1, 7, 1, time=5000, producer_epoch=3) + data(2, 7, time=1000)
    archive.put_segment("t", 0, begun)
    archive.commit("t", 3, last_stable_offset=2)
    archive.put_segment("t", 0, begun + marker(3, 7, 0, time=6000, producer_epoch=3), partition=1)
    archive.commit("t", 4, partition=1, last_stable_offset=4)
    ended = end_transactions([planned(archive, number) for number in (0, 1)])
    assert ended[TopicPartition("t", 0)] == [Ended(7, 3, 2, Outcome.ABORT)]


def test_a_marker_of_batches_of_another_epoch_ends_no_transaction(archive: MadeArchive) -> None:
    """With transaction.version 2 each transaction has its own epoch, whatever the producer's clock."""
    archive.put_segment("t", 0, data(0, 7, time=1990))
    archive.commit("t", 1, last_stable_offset=0)
    former = batch(0, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=2, max_timestamp=1900)
    former += marker(1, 7, 1, time=2000, producer_epoch=3)
    archive.put_segment(
        "t", 0, former + data(2, 7, time=1990) + marker(3, 7, 0, time=2050, producer_epoch=4), partition=1
    )
    archive.commit("t", 4, partition=1, last_stable_offset=4)
    parts = [planned(archive, number) for number in (0, 1)]
    assert end_transactions(parts)[TopicPartition("t", 0)] == [Ended(7, 3, 0, Outcome.ABORT)]
    assert "as in t-1" in parts[0].notes[0]


def test_a_cut_is_at_the_edge_of_a_batch(archive: MadeArchive) -> None:
    """By time before the first batch with a later record, by offset before the batch that has it."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))  # record n has the time 1000 + n
    archive.commit("t", 100)
    assert [plan_of(archive, at=at).end for at in (1000 + 54, 1000 + 59, 999, 5000)] == [50, 60, 0, 100]
    assert [plan_of(archive, end=end).end for end in (54, 60, 100)] == [50, 60, 100]
    with pytest.raises(QueryError, match="--end t-0=101: the archive ends at 100"):
        plan_of(archive, end=101)


def test_a_cut_by_time_notes_records_without_a_timestamp(archive: MadeArchive) -> None:
    """Messages of magic 0 have none, so no time cuts them."""
    archive.put_segment("t", 0, b"".join(message(0, offset, b"v") for offset in range(10)))
    archive.commit("t", 10)
    plan = plan_of(archive, at=5)
    assert (plan.end, "magic 0" in plan.notes[0]) == (10, True)


def test_a_clock_that_was_ahead_does_not_cut_a_partition_to_nothing(archive: MadeArchive) -> None:
    """More than one record of a hundred is beyond the cut and not later: an offset is expected."""
    archive.put_segment("t", 0, batches((0, 10), time=9_000_000) + batches(*steps(10, 100)))
    archive.commit("t", 100)
    with pytest.raises(QueryError, match="--end t-0=OFFSET"):
        plan_of(archive, at=5000)
    assert plan_of(archive, at=5000, end=70).end == 70


def test_p02_a_cut_in_a_transaction_ends_it(archive: MadeArchive, tmp_path: Path) -> None:
    """Its marker is beyond the cut."""
    archive.put_segment("t", 0, data(0, 7, 1) + batches((1, 5)) + marker(5, 7, 1, time=99_000))
    archive.commit("t", 6, last_stable_offset=6)
    plan = plan_of(archive, at=50_000)
    state, files = fetched(archive, plan, tmp_path / "t-0")
    assert (plan.end, plan.ended, state.end) == (5, (Ended(7, 3, 0, Outcome.ABORT),), 6)
    assert markers(files[f"{5:020d}.log"]) == [(5, 7, 3, 0)]


@pytest.mark.parametrize("end", [5, 10, 15])
def test_p02_a_cut_far_before_the_marker_ends_the_transaction(archive: MadeArchive, tmp_path: Path, end: int) -> None:
    """The segments below the cut have no marker: Kafka would show the records as committed."""
    archive.put_segment("t", 0, data(0, 7) + batches(*steps(1, 10, 4)))
    archive.put_segment("t", 10, batches((10, 15), (15, 20)) + marker(20, 7, 0))
    archive.commit("t", 21, highest_base=10, last_stable_offset=21)
    plan = plan_of(archive, end=end)
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert plan.ended == (Ended(7, 3, 0, Outcome.ABORT),)
    assert markers(files[f"{plan.end:020d}.log"]) == [(plan.end, 7, 3, 0)]


def test_a_cut_of_records_without_a_transaction_reads_no_segment(archive: MadeArchive) -> None:
    """Every offset is a record, so the last stable offset counts below the cut too."""
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 200, highest_base=100, last_stable_offset=200)
    found = planned(archive, end=100)
    assert (found.end, found.stable) == (100, 100)


def test_a_cut_before_a_compressed_message_of_magic_1_ends_before_its_first_record(archive: MadeArchive) -> None:
    """Its own offset is the one of its last record; the records below are beyond the cut too."""
    wrappers = b"".join(_wrapper(base) for base in (0, 10))
    archive.put_segment("t", 0, wrappers)
    archive.commit("t", 20)
    assert [plan_of(archive, end=end).end for end in (5, 12, 20)] == [0, 10, 20]


def test_compacted_copies_of_magic_1_double_no_record(archive: MadeArchive, tmp_path: Path) -> None:
    """The offset of a compressed message is the one of its last record, which compaction removed from one copy."""
    archive.put_segment("t", 0, _wrapper(0, 8), end=12)
    archive.put_segment("t", 0, _wrapper(0), end=14, variant=True)
    archive.commit("t", 14)
    plan = plan_of(archive)
    _, files = fetched(archive, plan, tmp_path / "t-0")
    log = files[f"{0:020d}.log"]
    assert [header.last_offset for header, _ in read_batches([log], len(log), lambda _: None)] == [9]
    assert "only prod/t-0/" in plan.notes[0]


def _wrapper(base: int, count: int = 10) -> bytes:
    inner = b"".join(message(1, each, b"v") for each in range(count))
    return message(1, base + count - 1, gzip.compress(inner, mtime=0), attributes=1)


def test_p01_a_damaged_object_stops_the_fetch(archive: MadeArchive, tmp_path: Path) -> None:
    """Also if only a base offset changed, which no batch's CRC covers."""
    log = bytearray(batches(*steps(0, 100)))
    good = bytes(log)
    log[7] ^= 1
    archive.put_segment("t", 0, good, body=bytes(log))
    archive.commit("t", 100)
    with pytest.raises(CorruptData, match="tsctl repair"):
        fetched(archive, plan_of(archive), tmp_path / "t-0")


def test_records_that_the_broker_had_damaged_are_lost_by_the_plan(archive: MadeArchive, tmp_path: Path) -> None:
    """In front of a whole batch and at the end; damage beyond the cut is not named."""
    log = b""
    for start, end in steps(0, 40):
        log += batches((start, end))
        if start in {10, 30}:
            log = log[:-1] + bytes([log[-1] ^ 1])
    archive.put_segment("t", 0, log, end=40)
    archive.commit("t", 40)
    plan = plan_of(archive)
    assert [(hole.start, hole.end) for hole in plan.lost] == [(10, 20), (30, 40)]
    assert [(hole.start, hole.end) for hole in plan_of(archive, end=25).lost] == [(10, 20)]
    state, _ = fetched(archive, plan, tmp_path / "t-0")
    assert len(state.damaged) == 2


def test_compaction_at_both_ends_moves_neither_start_nor_end(archive: MadeArchive, tmp_path: Path) -> None:
    """The first segment has no batch, and the last one lacks its tail; each begins and ends as in the old cluster."""
    archive.put_segment("t", 0, b"", end=50)
    archive.put_segment("t", 50, batches((70, 80)), end=100)
    archive.commit("t", 100, highest_base=50)
    _, files = fetched(archive, plan_of(archive), tmp_path / "t-0")
    assert sorted(int(name[:20]) for name in files if name.endswith(".log")) == [0, 50, 100]


def test_a_plan_of_other_open_transactions_is_refused(archive: MadeArchive, tmp_path: Path) -> None:
    """The archive changed since, or the plan was edited."""
    archive.put_segment("t", 0, data(0, 7))
    archive.commit("t", 1, last_stable_offset=0)
    with pytest.raises(CorruptData, match="make the plan again"):
        fetched(archive, replace(plan_of(archive), ended=()), tmp_path / "t-0")


def test_a_partition_without_a_commit_yet_is_noted(archive: MadeArchive) -> None:
    """Its first upload was under way: readers return none of its records either. Later it is an error."""
    archive.put_segment("t", 0, batches((0, 5)))
    plan = plan_of(archive)
    assert (plan.start, plan.end, plan.steps) == (0, 0, ())
    assert "beginning" in plan.notes[0]
    archive.age(3600)
    with pytest.raises(QueryError, match="leave the topic out"):
        plan_of(archive)
