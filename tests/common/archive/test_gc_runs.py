"""Runs of retention: which objects are theirs, and what decides between a deletion and an undo."""

import json
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.gc_runs import PLAN_NAME, Use, claim, list_runs, mark_done, run_directory, run_name, time_of

RUN = "20261127T020000000Z-1f2e3d4c"


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path)


@pytest.mark.parametrize("at", [0, 1_700_000_000_001, 1_795_744_800_999])
def test_the_name_of_a_run_contains_its_time(at: int) -> None:
    """Milliseconds are kept."""
    assert time_of(run_name(at, "1f2e3d4c")) == at


@pytest.mark.parametrize("name", ["20261127T020000000Z", "20261332T020000000Z-1f2e3d4c", "x", ""])
def test_other_names_contain_no_time(name: str) -> None:
    """Neither a day that does not exist, nor a name that no run gives."""
    assert time_of(name) is None


def test_the_first_claim_of_a_plan_decides(archive: MadeArchive) -> None:
    """A deletion and an undo at the same time: one of them wins, and both see which."""
    archive.store.put(run_directory(archive.keys, RUN) + PLAN_NAME, b"{}")
    (run,) = list_runs(archive.store, archive.keys)
    assert [claim(archive.store, archive.keys, run.run, use) for use in (Use.UNDO, Use.DELETE, Use.UNDO)] == [
        Use.UNDO
    ] * 3


def test_names_of_other_objects_are_no_runs(archive: MadeArchive) -> None:
    """Only names that a run gives are listed."""
    for name in ("x/plan.json", "last-run.json", f"{RUN}x/plan.json"):
        archive.store.put(archive.keys.gc_runs + name, b"{}")
    assert list_runs(archive.store, archive.keys) == []
    with pytest.raises(ValueError, match="no name of a run"):
        run_directory(archive.keys, "../x")


def test_a_run_is_pending_from_its_plan_until_it_is_done(archive: MadeArchive) -> None:
    """The counts of the first end of a run stay."""
    archive.store.put(run_directory(archive.keys, RUN) + "part-00000.jsonl", b"")
    (run,) = list_runs(archive.store, archive.keys)
    assert not run.is_pending
    archive.store.put(run_directory(archive.keys, RUN) + PLAN_NAME, b"{}")
    (run,) = list_runs(archive.store, archive.keys)
    assert run.is_pending
    for count in (7, 8):
        mark_done(archive.store, run, 5, undone=False, objects={"removed": count}, size=9)
    (run,) = list_runs(archive.store, archive.keys)
    assert not run.is_pending
    fields = json.loads(archive.store.get(run.directory + "done.json")[0])
    assert fields == {"version": 1, "time": 5, "undone": False, "objects": {"removed": 7}, "bytes": 9}
