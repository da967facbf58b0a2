"""Holds between the phases: what readers see again, and when it is too late."""

from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from tests.tsctl.gc.archives import (
    GRACE,
    SETTINGS,
    FixedRetention,
    bases,
    go_back,
    keep_last,
    later,
    run,
    run_killed_after_its_move,
    ship,
    start_of,
)
from ts_common.archive.commit import encode_log_start
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import AccessDenied
from ts_common.store.contract import ObjectInfo
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.retention import Why
from tsctl.gc.run import RunResult, run_once, store_time


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


@pytest.fixture
def retention(archive: MadeArchive) -> FixedRetention:
    """Ten segments are shipped, and the last three stay."""
    return keep_last(3, ship(archive, "t", 0, 100))


def run_by(archive: MadeArchive, store: WrappedStore, retention: FixedRetention) -> RunResult:
    return run_once(store, archive.keys, lambda _: True, retention, SETTINGS, store_time(store, archive.keys))


def test_a_hold_shows_what_an_agent_hid_again_after_log_start_was_lost(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """The agent wrote the number of the plan, without the name of the run."""
    run(archive, retention)
    archive.store.put(archive.partition("t").log_start, encode_log_start(70))
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert start_of(archive) == 0


@pytest.mark.parametrize("first", ["killed", "void", "election"])
def test_a_hold_shows_again_what_an_earlier_run_hid_and_did_not_delete(
    archive: MadeArchive, retention: FixedRetention, first: str
) -> None:
    """The run was killed, its plan is void, or its deletion left the partition out."""
    if first == "killed":
        run_killed_after_its_move(archive, retention)
    else:
        run(archive, retention)
        if first == "void":
            archive.store.delete([list_runs(archive.store, archive.keys)[0].directory + "part-00000.jsonl"])
        else:
            go_back(archive, 80)
    run(archive, retention, after=GRACE)
    assert start_of(archive) == 70
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert start_of(archive) == 0


@pytest.mark.parametrize("failure", ["election", "metadata"])
def test_a_hold_that_cannot_show_records_again_tries_it_in_each_run(
    archive: MadeArchive, retention: FixedRetention, failure: str
) -> None:
    """Until then the run reports why; the plan is done, and stops no other topic."""
    run(archive, retention)
    keys = archive.partition("t")
    segment = keys.segment(SegmentName(30))
    data, info = archive.store.get(segment)[0], archive.store.head(segment)

    class Electing(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if key == keys.log_start and not gone_back:
                gone_back.append(key)
                go_back(archive, 80)
            return self._inner.put(key, *arguments, **named)

    gone_back = ["already"] if failure == "metadata" else []
    if failure == "metadata":
        archive.store.put(segment, data, metadata={**info.metadata, "ts-end": "x"})
    retention.held.add("t")
    later(archive, GRACE)
    found = run_by(archive, Electing(archive.store, threads=1), retention)
    assert {each.why for each in found.left_out} & {Why.CHANGED, Why.DOUBT}
    assert all(each.done for each in list_runs(archive.store, archive.keys))
    archive.store.put(segment, data, metadata=info.metadata)
    run(archive, retention)
    assert start_of(archive) == 0
    assert [each.half_shown() for each in list_runs(archive.store, archive.keys)] == [[]]


def test_a_hold_shows_nothing_again_once_another_process_began_the_deletion(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """That process can be suspended in the middle, and delete more when it continues."""
    run(archive, retention)

    class Denying(WrappedStore):
        def delete_matching(self, etags: Any) -> Any:
            raise AccessDenied("denied")

    later(archive, GRACE)
    with pytest.raises(AccessDenied):
        run_by(archive, Denying(archive.store, threads=1), retention)
    retention.held.add("t")
    run(archive, retention)
    assert (start_of(archive), bases(archive)) == (70, list(range(0, 100, 10)))


def test_records_are_not_shown_again_once_the_hold_is_removed(archive: MadeArchive, retention: FixedRetention) -> None:
    """A run that failed to show them leaves them to the policy."""
    run(archive, retention)

    class Failing(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if key.endswith("log.start"):
                raise AccessDenied("denied")
            return self._inner.put(key, *arguments, **named)

    retention.held.add("t")
    later(archive, GRACE)
    with pytest.raises(AccessDenied):
        run_by(archive, Failing(archive.store, threads=1), retention)
    retention.held.clear()
    run(archive, retention)
    assert start_of(archive) == 70
