"""A restore with a live tail: its entries are a last segment, and open transactions end behind it."""

from pathlib import Path
from typing import Any

import pytest

from tests.common.log_format.build import marker
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, entry
from tests.tsctl.restore.test_fetching import data, fetched, markers
from tests.tsctl.running import runner
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.former_places import read_with_former
from ts_common.archive.restored import Ended, Outcome
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData
from ts_common.log_format.index_files import AbortedTransaction, read_transaction_index
from tsctl.drill.sample import newest
from tsctl.restore import partition_plan
from tsctl.restore.chain import read_batches
from tsctl.restore.continuing import restored_part
from tsctl.restore.documents import GroupsPlan, RestorePlan, TopicPlan
from tsctl.restore.loss import due_by_retention
from tsctl.restore.markers import end_transactions
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.restore.planning import plan_partition


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def commit(archive: MadeArchive, next_offset: int = 100, *ahead: tuple[int, int], **fields: Any) -> None:
    """Commit with the log of broker 1."""
    live = Live("1", (), EpochHistory(ahead or ((0, next_offset),)))
    archive.commit("t", next_offset, **{"live": live, "last_stable_offset": next_offset, **fields})


def ship(archive: MadeArchive) -> MadeTail:
    """Ship one closed segment `[0, 100)`, and a tail `[100, 130)` of three packs."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    commit(archive)
    tail = MadeTail(archive)
    for start in (100, 110, 120):
        first = (95, 100) if start == 100 else (start - 5, start)
        tail.put(entry(archive, "t", first[0], batches(first, (start, start + 10))))
    return tail


def plan_of(archive: MadeArchive, at: int | None = None, end: int | None = None) -> PartitionPlan:
    """Return the plan with the tail."""
    catalog = read_catalog(archive.store, archive.partition("t"))
    found = plan_partition(archive.store, catalog, at, end, TailLogs(archive.store, archive.keys))
    return found.finished([1], end_transactions([found])[found.keys.partition])


def plan_with(archive: MadeArchive, part: PartitionPlan) -> RestorePlan:
    """Return the plan of a topic with one partition."""
    topic = TopicPlan("t", {0: part}, {})
    return RestorePlan("p", 1, "prod", (archive.location,), None, {"t": topic}, GroupsPlan("none", None, {}), ())


def logs_of(files: dict[str, bytes]) -> dict[int, list[int]]:
    """Return the base offsets of the batches of each segment, by its base."""
    return {
        int(name[:20]): [header.base_offset for header, _ in read_batches([log], len(log), lambda _: None)]
        for name, log in sorted(files.items())
        if name.endswith(".log")
    }


def test_the_entries_of_a_tail_are_one_segment_behind_the_closed_ones(archive: MadeArchive, tmp_path: Path) -> None:
    """It begins at the next offset, each batch once; a plan is read as it was written."""
    ship(archive)
    plan = plan_of(archive)
    assert (plan.end, plan.closed_end, plan.stored_end, len(plan.steps)) == (130, 100, 130, 4)
    whole = RestorePlan.decode(plan_with(archive, plan).encode(), "plan")
    assert whole.topics["t"].partitions == {0: plan}
    state, files = fetched(archive, plan, tmp_path / "t-0")
    assert logs_of(files) == {0: list(range(0, 100, 10)), 100: [100, 110, 120], 130: []}
    assert (state.end, files["leader-epoch-checkpoint"]) == (130, b"0\n1\n0 0\n")


def test_a_tail_of_more_than_a_segment_is_several(
    archive: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions and offsets of an index have 31 bits; a killed fetch continues with the next one."""
    ship(archive)
    plan = plan_of(archive)
    monkeypatch.setattr(partition_plan, "_SEGMENT_BYTES", plan.steps[1].size + plan.steps[2].size)
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert logs_of(files) == {0: list(range(0, 100, 10)), 100: [100, 110], 120: [120], 130: []}


def test_a_partition_without_a_closed_segment_is_restored(archive: MadeArchive, tmp_path: Path) -> None:
    """Its first commit has no run; the leader's log begins inside a batch."""
    commit(archive, 45, log_start=45, epochs=(), epoch=0, highest_base=45, last_stable_offset=None)
    MadeTail(archive).put(entry(archive, "t", 40, batches((40, 50), (50, 60))))
    plan = plan_of(archive)
    assert (plan.start, plan.end, plan.closed_end) == (45, 60, 45)
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert logs_of(files) == {40: [40, 50], 60: []}


def test_a_cut_inside_the_tail_is_at_an_edge_of_a_batch(archive: MadeArchive, tmp_path: Path) -> None:
    """By an offset, or by a time: the record at an offset has the timestamp 1000 + offset."""
    ship(archive)
    for cut in ({"end": 115}, {"at": 1118}):
        plan = plan_of(archive, **cut)
        assert (plan.end, plan.closed_end) == (110, 100)
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert logs_of(files) == {0: list(range(0, 100, 10)), 100: [100], 110: []}
    plan = plan_of(archive, end=50)
    assert (plan.end, plan.closed_end) == (50, 50)


def test_transactions_that_are_open_at_the_end_of_the_tail_are_aborted_there(
    archive: MadeArchive, tmp_path: Path
) -> None:
    """One begins in a closed segment and is aborted in the tail; one is open in both; one begins in the tail."""
    archive.put_segment("t", 0, data(0, 7) + data(1, 8) + batches((2, 10)))
    commit(archive, 10, last_stable_offset=0)
    body = marker(10, 7, 0, producer_epoch=3) + data(11, 9) + batches((12, 20))
    MadeTail(archive).put(entry(archive, "t", 10, body, stable=1, aborted=[(7, 0, 10)]))
    plan = plan_of(archive)
    assert plan.ended == (Ended(8, 3, 1, Outcome.ABORT), Ended(9, 3, 11, Outcome.ABORT))
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert markers(files[f"{20:020d}.log"]) == [(20, 8, 3, 0), (21, 9, 3, 0)]
    assert read_transaction_index(files[f"{10:020d}.txnindex"]) == (AbortedTransaction(7, 0, 10, 1),)
    assert [each.first_offset for each in restored_part(plan).ended] == [1]


def test_readers_find_the_closed_segments_in_the_former_archive(archive: MadeArchive, tmp_path: Path) -> None:
    """The tail is a segment of the new log, which its agent ships: the packs are deleted with the old cluster's."""
    ship(archive)
    part = restored_part(plan_of(archive))
    assert (part.end, part.epochs.pairs) == (100, ((0, 0),))
    again = MadeArchive(archive.location, cluster="again")
    again.put_restored(archive.keys, part.end, epochs=part.epochs.pairs)
    again.put_segment("t", 100, batches(*steps(100, 130)))
    again.commit("t", 130, log_start=100, highest_base=100, epochs=((0, 100),))
    view = open_view(again.store, read_with_former(again.store, again.partition("t")))
    assert (view.start, view.end, [each.start for each in view.plan(0, 130)]) == (0, 130, [0, 100])
    assert view.warning is None


@pytest.mark.parametrize("now", ["merged", "closed"])
def test_a_pack_that_was_deleted_since_the_plan_is_found_again(archive: MadeArchive, tmp_path: Path, now: str) -> None:
    """The cluster of a drill is running: a merge has the entries, or a closed segment has their offsets."""
    tail = ship(archive)
    plan = plan_of(archive)
    _, whole = fetched(archive, plan, tmp_path / "whole")
    tail.merge()
    if now == "closed":
        archive.put_segment("t", 100, batches(*steps(100, 150)))
        archive.commit("t", 150, highest_base=100, last_stable_offset=150)
    _, files = fetched(archive, plan, tmp_path / "t-0")
    assert files == whole


def test_a_deleted_pack_of_another_log_makes_the_plan_useless(archive: MadeArchive, tmp_path: Path) -> None:
    """An election lost offsets from 105 on since."""
    tail = ship(archive)
    plan = plan_of(archive)
    tail.merge()
    archive.put_segment("t", 100, batches((100, 105), epoch=0) + batches(*steps(105, 150), epoch=2))
    archive.commit("t", 150, highest_base=100, epochs=((0, 0), (2, 105)))
    with pytest.raises(CorruptData, match="make the plan again"):
        fetched(archive, plan, tmp_path / "t-0")


def test_retention_counts_the_tail_as_one_segment(archive: MadeArchive) -> None:
    """Kafka deletes whole segments, and the newest record of this one is not old."""
    ship(archive)
    plan = plan_of(archive)
    found = due_by_retention(plan, {"retention.ms": "10"}, now=1125)
    assert found is not None
    assert found.below == 100


def test_the_sample_of_a_drill_has_a_closed_segment_and_the_tail(archive: MadeArchive) -> None:
    """The tail alone would not show that segments can be restored."""
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.put_segment("t", 50, batches(*steps(50, 100)))
    commit(archive, highest_base=50)
    MadeTail(archive).put(entry(archive, "t", 100, batches((100, 110))), entry(archive, "t", 110, batches((110, 120))))
    (part,) = newest(plan_with(archive, plan_of(archive)), 1).partitions.values()
    assert (part.start, part.end) == (50, 120)


@pytest.mark.parametrize(("options", "end"), [((), 130), (("--no-tail",), 100)])
def test_the_command_plans_the_tail_unless_it_is_left_out(
    archive: MadeArchive, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], end: int
) -> None:
    """An operator can restore closed segments only, where packs are damaged for example."""
    ship(archive)
    place = ("--url", archive.location, "--cluster", archive.keys.cluster)
    chosen = ("--brokers", "1", "--replication-factor", "1", *options, "--json")
    ended = runner(capfd)("restore", "plan", tmp_path / "plan", *chosen, *place)
    assert ended.code == 0, ended
    assert ended.document["topics"]["t"]["partitions"]["0"]["end"] == end
