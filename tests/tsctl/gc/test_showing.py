"""Holds between the phases: what readers see again, and when it is too late."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
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
from ts_common.archive import plan
from ts_common.archive.commit import encode_log_start
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import AccessDenied
from ts_common.store.contract import DeleteOutcome, ObjectInfo
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


@pytest.mark.parametrize("first", ["killed", "void"])
def test_a_hold_shows_again_what_an_earlier_run_hid_and_did_not_delete(
    archive: MadeArchive, retention: FixedRetention, first: str
) -> None:
    """The run was killed, or its plan is void. In between, another topic was deleted."""
    ship(archive, "u", 0, 100)
    if first == "killed":
        run_killed_after_its_move(archive, retention)
    else:
        run(archive, retention)
        archive.store.delete([list_runs(archive.store, archive.keys)[0].directory + "part-00000.jsonl"])
    retention.held.add("t")
    for _ in range(2):
        run(archive, retention, after=GRACE)
    retention.held.clear()
    run(archive, retention, after=GRACE)
    assert (start_of(archive), bases(archive, "u")) == (70, [70, 80, 90])
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert start_of(archive) == 0


def test_a_plan_whose_deletion_began_is_no_longer_shown_by_the_next_one(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """The first attempt was killed, and the second left the partition out: no log has what was deleted."""

    class Killed(BaseException):
        pass

    class Killing(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            self._inner.delete_matching(dict(list(etags.items())[:3]))
            raise Killed

    run(archive, retention)
    later(archive, GRACE)
    with pytest.raises(Killed):
        run_by(archive, Killing(archive.store, threads=1), retention)
    retention.held.add("t")
    run(archive, retention)
    retention.held.clear()
    run(archive, retention)
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert (start_of(archive), bases(archive)[:2]) == (70, [30, 40])


def test_a_note_of_a_hold_has_no_effect_once_a_later_plan_deleted_something(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """The run was killed between note and `log.start`, and the hold was removed; then an object was locked."""
    keys = archive.partition("t")

    class Failing(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if key == keys.log_start:
                raise AccessDenied("denied")
            return self._inner.put(key, *arguments, **named)

    run(archive, retention)
    retention.held.add("t")
    later(archive, GRACE)
    with pytest.raises(AccessDenied):
        run_by(archive, Failing(archive.store, threads=1), retention)
    retention.held.clear()
    locked = {keys.segment(SegmentName(60)): "locked"}
    for _ in range(2):
        later(archive, GRACE)
        now = store_time(archive.store, archive.keys)
        run_once(archive.store, archive.keys, lambda _: True, retention, SETTINGS, now, locked=lambda _: locked)
    retention.held.add("t")
    run(archive, retention)
    assert (start_of(archive), bases(archive)) == (70, [60, 70, 80, 90])


def test_a_held_partition_that_cannot_be_read_stops_no_other_topic(
    archive: MadeArchive, retention: FixedRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its objects below `log.start` are too many copies of one offset; each run reports it."""
    monkeypatch.setattr(plan, "MAX_COPIES", 5)
    ship(archive, "u", 0, 100)
    run(archive, retention)
    for number in range(6):
        archive.put_segment("t", 0, batches((0, 10), value=b"%d" % number), variant=True)
    retention.held.add("t")
    found = run(archive, retention, after=GRACE)
    assert any("segments cover offset 0" in each.reason for each in found.left_out)
    assert bases(archive, "u") == [70, 80, 90]


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


def test_a_topic_with_a_long_name_is_shown_again(archive: MadeArchive) -> None:
    """A note has a short name: a file's name has 255 bytes at most."""
    topic = "t" * 240
    retention = keep_last(3, ship(archive, topic, 0, 100))
    run(archive, retention)
    retention.held.add(topic)
    run(archive, retention, after=GRACE)
    assert start_of(archive, topic) == 0


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
