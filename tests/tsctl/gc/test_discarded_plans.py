"""Plans that are damaged, and deletions that an error ends: what is deleted, listed, logged and undone."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from tests.tsctl.gc.archives import GRACE, SETTINGS, FixedRetention, bases, keep_last, later, run, ship, start_of
from ts_common.archive.gc_plans import planned_log_starts
from ts_common.archive.gc_runs import list_runs
from ts_common.errors import AccessDenied, QueryError
from ts_common.store.contract import DeleteOutcome
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.deletion import delete_planned
from tsctl.gc.deletion_log import Outcome, read_log
from tsctl.gc.listing import listed
from tsctl.gc.run import RunResult, run_once, store_time
from tsctl.gc.undo import choose_undone, undo

NOW = 4_000_000_000_000  # a whole second, later than any plan


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def states(archive: MadeArchive) -> list[str]:
    """Return the state of each run, as `tsctl gc ls` shows it."""
    return [listed(archive.store, archive.keys, each)["state"] for each in list_runs(archive.store, archive.keys)]


def delete_at_most(
    archive: MadeArchive,
    retention: FixedRetention,
    part: str,
    *,
    now: int | None = None,
    result: RunResult | None = None,
) -> RunResult:
    """Run after the grace with a store that denies deletes of keys without this part."""

    class Denying(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            if any(part not in key for key in etags):
                raise AccessDenied("denied")
            return self._inner.delete_matching(etags)

    later(archive, GRACE)
    store = Denying(archive.store, threads=1)
    now = store_time(store, archive.keys) if now is None else now
    return run_once(store, archive.keys, lambda _: True, retention, SETTINGS, now, result=result)


def test_g05_a_damaged_plan_deletes_nothing_and_is_replaced(archive: MadeArchive) -> None:
    """G05: a plan that cannot be read is void, and the next run makes another one."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    (planned,) = list_runs(archive.store, archive.keys)
    archive.store.put(f"{planned.directory}part-00000.jsonl", b'["00000000000000000000.log",1,"x"]\n')
    second = run(archive, keep_last(3, size), after=GRACE)
    (damage,) = second.damaged
    assert "part-00000.jsonl" in damage
    assert "nothing of it was deleted" in damage
    assert bases(archive) == list(range(0, 100, 10))
    assert states(archive) == ["void", "waits"]
    run(archive, keep_last(3, size), after=2 * GRACE)
    assert bases(archive) == [70, 80, 90]


def test_a_void_plan_hides_until_it_is_undone(archive: MadeArchive) -> None:
    """Its moves are whole. Until the undo a lost `log.start` gets what the plan moved it to."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    (planned,) = list_runs(archive.store, archive.keys)
    archive.store.delete([f"{planned.directory}part-00000.jsonl"])
    run(archive, keep_last(100, size), after=GRACE)
    assert states(archive) == ["void"]
    plans = planned_log_starts(archive.store, archive.partition("t"), archive.keys)
    assert [each.content.offset for each in plans] == [70]
    chosen = choose_undone(archive.store, archive.keys, list_runs(archive.store, archive.keys), None)
    assert undo(archive.store, archive.keys, chosen, 0).lowered == 1
    assert (start_of(archive), states(archive)) == (0, ["undone"])
    with pytest.raises(QueryError, match="no run to undo"):
        choose_undone(archive.store, archive.keys, list_runs(archive.store, archive.keys), None)


def test_a_plan_that_is_void_after_its_deletion_began_counts_what_was_deleted(archive: MadeArchive) -> None:
    """Its log has the objects; it is not listed as deleted, and cannot be undone."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "t", 0, 100, partition=1)
    run(archive, keep_last(3, size))
    with pytest.raises(AccessDenied):
        delete_at_most(archive, keep_last(3, size), "t-0/")
    (planned,) = list_runs(archive.store, archive.keys)
    archive.store.delete([f"{planned.directory}part-00000.jsonl"])
    (damage,) = run(archive, keep_last(3, size)).damaged
    assert "by its log 21 objects had been deleted" in damage
    assert states(archive) == ["void", "waits"]
    assert b'"objects":{"removed":21}' in archive.store.get(f"{planned.directory}done.json")[0]


def test_two_attempts_of_a_deletion_in_one_second_have_a_log_each(archive: MadeArchive) -> None:
    """The first attempt ends by an error after it deleted one of two partitions."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "t", 0, 100, partition=1)
    run(archive, keep_last(3, size))
    with pytest.raises(AccessDenied):
        delete_at_most(archive, keep_last(3, size), "t-0/", now=NOW)
    (planned,) = list_runs(archive.store, archive.keys)
    delete_planned(archive.store, archive.keys, planned, keep_last(3, size), NOW + 1)
    (planned,) = list_runs(archive.store, archive.keys)
    removed = [line["partition"] for line in read_log(archive.store, planned) if line["outcome"] == Outcome.REMOVED]
    assert sorted(removed) == ["t-0"] * 21 + ["t-1"] * 21


def test_a_run_that_an_error_ends_has_what_it_deleted(archive: MadeArchive) -> None:
    """The second request of the first partition fails, after its `.log` objects were deleted."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    result = RunResult()
    with pytest.raises(AccessDenied):
        delete_at_most(archive, keep_last(3, size), ".log", result=result)
    assert result.deleted is not None
    assert result.deleted.objects == {Outcome.REMOVED: 7}
    (planned,) = list_runs(archive.store, archive.keys)
    assert len([line for line in read_log(archive.store, planned) if line.get("outcome") == Outcome.REMOVED]) == 7
