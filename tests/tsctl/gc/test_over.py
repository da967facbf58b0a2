"""An incarnation that is over is deleted as a whole, its commit and log.start last; and old objects of gc itself."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import GRACE, SETTINGS, FixedRetention, keep_last, later, ship, start_of
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.object_keys import COMMIT_NAME, PartitionKeys, SegmentName
from ts_common.errors import QueryError, StoreUnavailable
from ts_common.model import TopicPartition
from ts_common.store.contract import DeleteOutcome
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.absence import ArchivedTopic, note_absent
from tsctl.gc.deletion_log import Outcome
from tsctl.gc.over import hide, read_over
from tsctl.gc.own_objects import delete_old
from tsctl.gc.policy import OwnObjects
from tsctl.gc.policy_retention import read_absent
from tsctl.gc.retention import LeftOut, Why
from tsctl.gc.run import RunResult, run_once, store_time
from tsctl.gc.undo import choose_undone, undo
from tsctl.verify.kafka_cluster import KafkaCluster, KafkaTopic

OLD, NEW = "A" * 22, "B" * 22
DAY = 86_400_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Topic `t` with two incarnations: the first has the plain directory, with an open transaction at its end."""
    made = MadeArchive(tmp_path / "bucket")
    ship(made, "t", 0, 50)
    made.commit("t", 50, highest_base=40, last_stable_offset=20)
    made.store.put(made.partition("t").gap(5, 6), b"{}")
    made.store.put(made.partition("t").prefix + "foreign", b"x")
    made.put_incarnations("t", OLD, NEW)
    newer = made.keys.partition(TopicPartition("t", 0), f"t~{NEW}")
    made.store.put(newer.segment(SegmentName(0)), batches((0, 10)))
    made.store.put(newer.log_start, LogStart(0).encode())
    made.store.put(newer.commit, Commit(0, 10, 0, EpochHistory(((0, 0),)), None, NEW, 1, 0, "n").encode())
    return made


def left(archive: MadeArchive, keys: PartitionKeys) -> list[str]:
    return [info.key.removeprefix(keys.prefix) for info in archive.store.list(keys.prefix)]


def collect(archive: MadeArchive, retention: FixedRetention) -> RunResult:
    later(archive, GRACE)
    return run_once(
        archive.store, archive.keys, lambda _: True, retention, SETTINGS, store_time(archive.store, archive.keys)
    )


def over() -> FixedRetention:
    retention = keep_last(100, 1000)
    retention.deletes_former = True
    return retention


def test_an_incarnation_that_is_over_is_deleted_as_a_whole(archive: MadeArchive) -> None:
    """Readers of that incarnation see nothing first; the list of incarnations and foreign objects stay."""
    keys = archive.partition("t")
    collect(archive, over())
    assert start_of(archive) == 50
    assert len(left(archive, keys)) == 5 * 3 + 4
    collect(archive, over())
    assert left(archive, keys) == ["foreign"]
    assert len(left(archive, archive.keys.partition(TopicPartition("t", 0), f"t~{NEW}"))) == 3
    archive.store.head(archive.keys.incarnations("t"))


def test_an_earlier_incarnation_that_is_not_over_stays(archive: MadeArchive) -> None:
    """Without a time for deleted topics in the policy, nothing of it is ever due."""
    before = left(archive, archive.partition("t"))
    collect(archive, keep_last(1, 1))
    collect(archive, keep_last(1, 1))
    assert left(archive, archive.partition("t")) == before


@pytest.mark.parametrize("written", ["commit", "segment"])
def test_an_agent_that_still_writes_keeps_the_marks(archive: MadeArchive, written: str) -> None:
    """A commit since the plan keeps all, a segment since the plan keeps the commit and log.start."""
    keys = archive.partition("t")
    collect(archive, over())
    if written == "commit":
        archive.store.put(keys.commit, Commit(40, 60, 0, EpochHistory(((0, 0),)), None, OLD, 1, 0, "late").encode())
    else:
        archive.put_segment("t", 50, batches((50, 60)))
    found = collect(archive, over())
    assert found.deleted is not None
    assert {"offset.wm", "log.start"} <= set(left(archive, keys))
    assert found.deleted.objects[Outcome.REMOVED] == (0 if written == "commit" else 16)


class CommitStays(WrappedStore):
    """A store that fails to delete a commit."""

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """As the inner store, without commits."""
        commits = [key for key in etags if key.endswith(COMMIT_NAME)]
        outcome = super().delete_matching({key: etag for key, etag in etags.items() if key not in commits})
        return replace(outcome, failed={key: StoreUnavailable("503 SlowDown") for key in commits})


def test_log_start_stays_as_long_as_the_commit(archive: MadeArchive) -> None:
    """Its delete fails in two runs: readers would find the whole incarnation lost. A later plan includes both."""
    keys = archive.partition("t")
    store, archive.store = archive.store, CommitStays(archive.store, threads=1)
    for _ in range(3):
        collect(archive, over())
        assert {"offset.wm", "log.start"} <= set(left(archive, keys))
    archive.store = store
    collect(archive, over())
    assert left(archive, keys) == ["foreign"]


BACK = Commit(20, 30, 2, EpochHistory(((0, 0), (2, 30))), None, OLD, 1, 0, "back", lineage=Lineage(2, 30, 50))


@pytest.mark.parametrize(
    "start", [LogStart(0), LogStart(40), LogStart(0, Lineage(3, 0, 50))], ids=["lower", "above the end", "later"]
)
def test_an_incarnation_with_two_lineages_is_deleted_too(archive: MadeArchive, start: LogStart) -> None:
    """Its last agent ended before it wrote log.start, or it was a late one; an undo shows what readers saw."""
    keys = archive.partition("t")
    archive.store.put(keys.commit, BACK.encode())
    archive.store.put(keys.log_start, start.encode())
    collect(archive, over())
    hidden = read_snapshot(archive.store, keys)
    assert hidden.log_start == 30 or not hidden.settled
    runs = list_runs(archive.store, archive.keys)
    undo(archive.store, archive.keys, choose_undone(archive.store, archive.keys, runs, None), 0)
    assert read_snapshot(archive.store, keys).log_start == start.shown_from(BACK.lineage)
    for _ in range(2):
        assert collect(archive, over()).left_out == ()
    assert left(archive, keys) == ["foreign"]


def test_an_agent_that_is_not_over_writes_log_start_itself(archive: MadeArchive) -> None:
    """It writes log.start at the moment when the collector does: the partition is left out of this run."""
    keys = archive.partition("t")
    archive.store.put(keys.commit, BACK.encode())
    found = read_over(archive.store, keys)
    archive.store.put(keys.log_start, LogStart(0, BACK.lineage).encode())
    with pytest.raises(LeftOut, match="meanwhile"):
        hide(archive.store, keys, found, "run")
    assert archive.store.get(keys.log_start)[0] == LogStart(0, BACK.lineage).encode()


def test_an_incarnation_with_a_commit_of_the_java_uploader_stays(archive: MadeArchive) -> None:
    """It has no incarnations: its commit can be of a later topic of that name. The operator reads what to do."""
    keys = archive.partition("t")
    archive.store.put(keys.commit, b"00000000000000000040")
    (found,) = collect(archive, over()).left_out
    assert found.why is Why.DOUBT
    assert "by hand" in found.reason
    assert len(left(archive, keys)) == 5 * 3 + 4


def test_the_collection_of_an_incarnation_that_is_over_is_undone_too(archive: MadeArchive) -> None:
    """Its log.start goes back to where it was."""
    collect(archive, over())
    runs = list_runs(archive.store, archive.keys)
    assert undo(archive.store, archive.keys, choose_undone(archive.store, archive.keys, runs, None), 0).lowered == 1
    assert start_of(archive) == 0


def test_a_topic_is_absent_since_the_first_of_all_runs_without_it(tmp_path: Path) -> None:
    """A topic that exists again, or another incarnation of it, begins again."""
    made = MadeArchive(tmp_path)
    topics = [ArchivedTopic("a", frozenset({OLD})), ArchivedTopic("b", frozenset()), ArchivedTopic("c", frozenset())]

    def note(cluster: dict[str, str | None], now: int) -> dict[str, int]:
        return note_absent(made.store, made.keys, topics, cluster, now)

    assert note({"b": None, "c": None}, 10) == {"a": 10}
    assert note({"b": None, "c": None, "a": NEW}, 20) == {"a": 10}
    assert note({"b": None, "c": None, "a": OLD}, 30) == {}
    assert note({"b": None, "c": None}, 40) == {"a": 40}
    with pytest.raises(QueryError, match="another cluster"):
        note({}, 50)
    assert note({"b": None, "c": None}, 60) == {"a": 40}


def test_own_objects_are_deleted_by_their_ages(tmp_path: Path) -> None:
    """Plans after theirs, logs of deletions after a longer time; pending plans stay, and the newest not undone."""
    made = MadeArchive(tmp_path / "bucket")
    size = ship(made, "t", 0, 100)
    for keeps in (8, 6, 4):
        for _ in range(2):
            collect(made, keep_last(keeps, size))
    newest = max(run.run for run in list_runs(made.store, made.keys) if run.planned is not None)
    collect(made, keep_last(2, size))
    runs = list_runs(made.store, made.keys)
    undo(made.store, made.keys, choose_undone(made.store, made.keys, runs, None), 0)
    now = int(made.store.head(f"{made.keys.gc_runs}last-run.json").modified * 1000)
    for path in (tmp_path / "bucket" / made.keys.gc_runs).rglob("*"):
        os.utime(path, (now / 1000 - 100 * 86_400, now / 1000 - 100 * 86_400))
    own = OwnObjects.model_validate({"plans": "90d", "deletion_log": "400d"})
    before = list_runs(made.store, made.keys)
    locked: list[str] = []

    def keep_all(keys: Sequence[str]) -> dict[str, str]:
        locked.extend(keys)
        return dict.fromkeys(keys, "legal hold")

    assert delete_old(made.store, made.keys, own, now, locked=keep_all).removed == ()
    assert locked
    assert list_runs(made.store, made.keys) == before
    outcome = delete_old(made.store, made.keys, own, now)
    assert set(outcome.removed) == set(locked)
    assert not outcome.kept
    assert not outcome.failed
    after = list_runs(made.store, made.keys)
    assert [run.run for run in after if run.planned is not None] == [newest]
    logs = [info.key for run in before for info in run.objects if "/log-" in info.key]
    assert len(logs) == 3
    assert {info.key for run in after for info in run.objects if "/log-" in info.key} == set(logs)


def test_own_objects_of_an_undone_run_leave_no_plan_behind_that_is_pending(tmp_path: Path) -> None:
    """The deletion is killed in each of its requests, or the store keeps `plan.json` and nothing else."""
    made = MadeArchive(tmp_path / "bucket")
    size = ship(made, "t", 0, 100)
    collect(made, keep_last(3, size))
    undo(made.store, made.keys, list_runs(made.store, made.keys)[0], 0)
    bucket, now = tmp_path / "bucket", int(time.time() * 1000) + 100 * DAY
    own = OwnObjects.model_validate({})

    class Killed(BaseException):
        pass

    class Killing(WrappedStore):
        left = 0

        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            if self.left == 0:
                self._inner.delete_matching(dict(list(etags.items())[: (len(etags) + 1) // 2]))
                raise Killed
            self.left -= 1
            return self._inner.delete_matching(etags)

    def pending(copy: MadeArchive) -> list[str]:
        return [run.run for run in list_runs(copy.store, copy.keys) if run.is_pending]

    for requests in range(3):
        copy = MadeArchive(shutil.copytree(bucket, tmp_path / str(requests)))
        store = Killing(copy.store, threads=1)
        store.left = requests
        with pytest.raises(Killed):
            delete_old(store, copy.keys, own, now)
        assert not pending(copy), requests
    keep = {f"{list_runs(made.store, made.keys)[0].directory}plan.json": "legal hold"}
    delete_old(made.store, made.keys, own, now, locked=lambda _: keep)
    assert not pending(made)


def test_topics_that_were_deleted_wholly_do_not_make_the_cluster_another_one(tmp_path: Path) -> None:
    """Their lists of incarnations stay for ever; they, and a topic's name in that of another, are not counted."""
    made = MadeArchive(tmp_path / "bucket")
    for topic in ("a", "b", "gone", "gone-1", "gone-2"):
        made.put_incarnations(topic, OLD)
    for topic in ("a", "b"):
        ship(made, topic, 0, 10)

    class Cluster:
        def topics(self) -> dict[str, KafkaTopic]:
            return {"a": KafkaTopic(OLD, (0,))}

        def check_unknown(self, names: Set[str]) -> None:
            assert names == {"b"}

    found = read_absent(made.store, made.keys, cast(KafkaCluster, Cluster()), lambda _: True, 10, writes=True)
    assert found == {"b": 10}
