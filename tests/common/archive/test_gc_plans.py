"""Plans of retention: what is written is read back, and damage or a claim of another use is found."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.made_archive import MadeArchive
from ts_common.archive.commit import Lineage, LogStart
from ts_common.archive.gc_plans import (
    Plan,
    PlannedObject,
    PlannedPartition,
    planned_log_starts,
    read_moves,
    read_parts,
    read_plan,
)
from ts_common.archive.gc_runs import (
    DONE_NAME,
    MOVES,
    PART,
    PLAN_NAME,
    Use,
    claim,
    list_runs,
    numbered_key,
    run_directory,
)
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition

RUN = "20261127T020000000Z-1f2e3d4c"
PARTITION = PlannedPartition(TopicPartition("orders", 3), "orders~AbC_-1", 100, 250, "n", Lineage(4, 90, 120))
OBJECT = PlannedObject("00000000000000000100.log", 17, '"e"')


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path)


def write(archive: MadeArchive, run: str, *parts: list[PlannedPartition | PlannedObject], time: int = 0) -> None:
    for number, lines in enumerate(parts):
        body = "".join(f"{line.encode()}\n" for line in lines).encode()
        archive.store.put(numbered_key(archive.keys, run, PART, number), body)
    plan = Plan(run, time, time + 10, len(parts), 1, 1, 17, {"rules": []})
    archive.store.put(run_directory(archive.keys, run) + PLAN_NAME, plan.encode())


def test_a_plan_is_read_as_it_was_written(archive: MadeArchive) -> None:
    """A partition can be in several parts, each part begins with it."""
    other = PlannedPartition(TopicPartition("t", 0), "t", 0, 7, "n", None, over=True)
    write(archive, RUN, [PARTITION, OBJECT], [PARTITION, OBJECT, other])
    plan = read_plan(archive.store, archive.keys, RUN)
    assert list(read_parts(archive.store, archive.keys, plan)) == [(PARTITION, [OBJECT, OBJECT]), (other, [])]
    assert PARTITION.keys(archive.keys).prefix == "prod/orders~AbC_-1-3/"


def test_the_grace_begins_when_the_store_got_the_plan(archive: MadeArchive) -> None:
    """A plan with an earlier time than that of its object is due later by the difference."""
    write(archive, RUN, [PARTITION], time=5)
    plan = read_plan(archive.store, archive.keys, RUN)
    assert plan.due - plan.time == 10
    assert plan.time > 1_700_000_000_000


def test_a_lost_log_start_gets_what_a_pending_plan_has(archive: MadeArchive) -> None:
    """The newest plan that was not undone counts, also if it is done, and each pending one does."""
    keys = PARTITION.keys(archive.keys)

    def planned() -> list[LogStart]:
        return [each.content for each in planned_log_starts(archive.store, keys, archive.keys)]

    assert planned() == []
    write(archive, RUN, [PARTITION, OBJECT])
    assert planned() == [LogStart(250, PARTITION.lineage)]
    (run,) = list_runs(archive.store, archive.keys)
    claim(archive.store, archive.keys, run.run, Use.UNDO)
    assert planned() == []
    earlier = "20260101T000000000Z-00000000"
    write(archive, earlier, [replace(PARTITION, after=240), OBJECT])
    archive.store.put(run_directory(archive.keys, earlier) + DONE_NAME, b"{}")
    assert planned() == [LogStart(240, PARTITION.lineage)]


def test_a_lost_log_start_gets_what_the_newest_plan_of_its_partition_has(archive: MadeArchive) -> None:
    """Later runs left the partition out; an object that the deletion could not remove is still below `log.start`."""
    other = replace(PARTITION, partition=TopicPartition("orders", 4))
    runs = [(f"2026010{day}T000000000Z-00000000", day) for day in (1, 2, 3, 4)]
    for run, day in runs:
        line = replace(PARTITION if day < 3 else other, after=200 + day)
        archive.store.put(numbered_key(archive.keys, run, MOVES, 0), f"{line.encode()}\n".encode())
        write(archive, run, [line, OBJECT])
        archive.store.put(run_directory(archive.keys, run) + DONE_NAME, b"{}")

    def planned(of: PlannedPartition) -> list[int]:
        return [each.content.offset for each in planned_log_starts(archive.store, of.keys(archive.keys), archive.keys)]

    assert (planned(PARTITION), planned(other)) == ([202], [204])
    archive.store.delete([run_directory(archive.keys, runs[0][0]) + DONE_NAME])
    assert planned(PARTITION) == [202, 201]


@pytest.mark.parametrize("moves", [0, 1], ids=["damaged", "missing"])
def test_a_lost_log_start_gets_what_a_plan_without_its_moves_has(archive: MadeArchive, moves: int) -> None:
    """The parts of the plan have the partition. If the first of several moves is missing, the others do not count."""
    write(archive, RUN, [PARTITION, OBJECT])
    archive.store.put(numbered_key(archive.keys, RUN, MOVES, moves), b"garbage\n")
    found = planned_log_starts(archive.store, PARTITION.keys(archive.keys), archive.keys)
    assert [each.content.offset for each in found] == [250]
    archive.store.delete([numbered_key(archive.keys, RUN, PART, 0)])
    with pytest.raises(CorruptData, match="part-00000"):
        planned_log_starts(archive.store, PARTITION.keys(archive.keys), archive.keys)


@pytest.mark.parametrize(
    "line",
    [b"[]", b"{}", b'["a",1]', b'["a",-1,"e"]', b"x", b'{"topic":"../x","partition":0}', OBJECT.encode().encode()],
)
def test_a_damaged_part_is_refused(archive: MadeArchive, line: bytes) -> None:
    """An object without a partition is damage too."""
    write(archive, RUN, [])
    archive.store.put(numbered_key(archive.keys, RUN, PART, 0), line + b"\n")
    with pytest.raises(CorruptData, match="part-00000"):
        list(read_parts(archive.store, archive.keys, read_plan(archive.store, archive.keys, RUN)))


@pytest.mark.parametrize("change", [('"to":250', '"to":99'), ('"over":false', '"over":"false"')])
def test_moves_that_no_run_writes_are_damage(archive: MadeArchive, change: tuple[str, str]) -> None:
    """An undo would move `log.start` up by the first, and hide records."""
    key = numbered_key(archive.keys, RUN, MOVES, 0)
    archive.store.put(key, PARTITION.encode().replace(*change).encode())
    (run,) = list_runs(archive.store, archive.keys)
    with pytest.raises(CorruptData, match="moves-00000"):
        list(read_moves(archive.store, run))


def test_a_plan_of_a_later_release_is_refused(archive: MadeArchive) -> None:
    """Its objects can have another meaning."""
    archive.store.put(run_directory(archive.keys, RUN) + PLAN_NAME, b'{"version":2}')
    with pytest.raises(NewerFormat):
        read_plan(archive.store, archive.keys, RUN)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_plan_or_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Hostile bytes end in one kind of error."""
    archive = MadeArchive(tmp_path_factory.getbasetemp() / "hostile")
    archive.store.put(run_directory(archive.keys, RUN) + PLAN_NAME, data)
    with pytest.raises((CorruptData, NewerFormat)):
        read_plan(archive.store, archive.keys, RUN)
