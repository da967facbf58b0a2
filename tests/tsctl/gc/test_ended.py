"""An incarnation that is over is deleted as a whole, its marks last; and since when a topic is absent."""

import time
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import GRACE, FixedRetention, keep_last, later, run, run_in, ship, start_of
from ts_common.archive.catalog import read_log_start, read_snapshot
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_list import erased_key
from ts_common.archive.object_keys import COMMIT_NAME, PartitionKeys, SegmentName
from ts_common.archive.restored import Restored, RestoredPartition, RestoredTopic
from ts_common.errors import QueryError, StoreUnavailable
from ts_common.model import TopicPartition
from ts_common.store.contract import DeleteOutcome
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.archive_run import LocationResult
from tsctl.gc.incarnations import note_absent, read_topic_incarnations, write_absent
from tsctl.gc.retention import Why
from tsctl.verify.kafka_cluster import KafkaCluster, KafkaTopic

OLD, NEW = "A" * 22, "B" * 22


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


def collect(archive: MadeArchive, retention: FixedRetention) -> LocationResult:
    """Run a grace later."""
    return run(archive, retention, after=GRACE)


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
    assert list(archive.store.list(archive.keys.log_start_copies)) == []
    assert len(left(archive, archive.keys.partition(TopicPartition("t", 0), f"t~{NEW}"))) == 3
    archive.store.head(archive.keys.incarnations("t"))


def test_an_earlier_incarnation_that_is_not_over_stays(archive: MadeArchive) -> None:
    """Without a time for deleted topics in the policy, nothing of it is ever due."""
    before = left(archive, archive.partition("t"))
    collect(archive, keep_last(1, 1))
    collect(archive, keep_last(1, 1))
    assert left(archive, archive.partition("t")) == before


def test_the_former_place_of_a_restored_topic_is_not_over(archive: MadeArchive) -> None:
    """Readers return its records; the policy of the topic applies to them, as if nothing had been deleted."""
    before = left(archive, archive.partition("t"))
    restored(archive, archive.keys.cluster)
    for _ in range(2):
        collect(archive, over())
        assert (start_of(archive), left(archive, archive.partition("t"))) == (0, before)
    retention = keep_last(1, 1)
    retention.deletes_former = True
    collect(archive, retention)
    assert 0 < start_of(archive) <= 40


def test_an_incarnation_that_another_cluster_restored_is_over(archive: MadeArchive) -> None:
    """The same name in the archive of another cluster is another directory; that restore has set a hold here."""
    restored(archive, "other")
    collect(archive, over())
    assert start_of(archive) == 50


def test_an_unreadable_record_of_restored_topics_ends_no_incarnation(archive: MadeArchive) -> None:
    """Any of them can be a former place; the run names the object."""
    before = left(archive, archive.partition("t"))
    archive.store.put(archive.keys.restored, b"{")
    found = collect(archive, over())
    assert [each.where for each in found.report.skipped] == [archive.keys.restored]
    assert (start_of(archive), left(archive, archive.partition("t"))) == (0, before)


def restored(archive: MadeArchive, cluster: str) -> None:
    """Record that the newer incarnation continues the older one, of the archive of a cluster."""
    part = RestoredPartition(50, None, EpochHistory(((0, 0),)), ())
    topics = {f"t~{NEW}": RestoredTopic(None, cluster, 0, "t", {0: part})}
    archive.store.put(archive.keys.restored, Restored(1, "a@b", topics).encode())


@pytest.mark.parametrize("written", ["commit", "log.start"])
def test_an_agent_that_writes_during_the_deletion_ends_it(archive: MadeArchive, written: str) -> None:
    """The topic can exist again without a topic id; the next look at both objects shows it."""
    keys = archive.partition("t")
    collect(archive, over())

    class Writing(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            found = self._inner.delete_matching(etags)
            commit = Commit(40, 60, 0, EpochHistory(((0, 0),)), None, OLD, 1, 0, "late")
            late = commit.encode() if written == "commit" else LogStart(50).encode()
            archive.store.put(keys.commit if written == "commit" else keys.log_start, late)
            return found

    later(archive, GRACE)
    found = run_in(Writing(archive.store, threads=1), archive, over())
    assert {"offset.wm", "log.start"} <= set(left(archive, keys))
    assert [each.why for each in found.report.skipped] == [Why.CHANGED]


def test_a_hold_shows_an_incarnation_that_was_hidden(archive: MadeArchive) -> None:
    """Readers can name it; without the hold it is hidden again, and has another grace."""
    retention = over()
    collect(archive, retention)
    retention.held.add("t")
    collect(archive, retention)
    assert start_of(archive) == 0
    retention.held.clear()
    collect(archive, retention)
    assert (start_of(archive), len(left(archive, archive.partition("t")))) == (50, 5 * 3 + 4)


def test_a_hold_after_a_killed_deletion_shows_no_hole(archive: MadeArchive) -> None:
    """The floor rose first, so what is left shows no more; without the hold it is removed."""
    keys, retention = archive.partition("t"), over()
    collect(archive, retention)
    with pytest.raises(StoreUnavailable):
        later(archive, GRACE)
        run_in(Failing(archive.store, threads=1), archive, retention)
    assert len(left(archive, keys)) < 5 * 3 + 4
    retention.held.add("t")
    collect(archive, retention)
    assert start_of(archive) == 50
    retention.held.clear()
    for _ in range(2):
        collect(archive, retention)
    assert left(archive, keys) == ["foreign"]


class Failing(WrappedStore):
    """A store that fails after the first deletes."""

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        self._inner.delete_matching(etags)
        raise StoreUnavailable("503")


@pytest.mark.parametrize("lost", ["log.start", "offset.wm"])
def test_a_mark_that_is_lost_stops_no_deletion(archive: MadeArchive, lost: str) -> None:
    """No agent writes it again. A lost log.start is written at the end, so that the grace counts."""
    keys = archive.partition("t")
    archive.store.delete([keys.prefix + lost])
    collect(archive, over())
    assert len(left(archive, keys)) >= 5 * 3 + 3
    for _ in range(2):
        collect(archive, over())
    assert left(archive, keys) == ["foreign"]


class CommitStays(WrappedStore):
    """A store that fails to delete a commit."""

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """As the inner store, without commits."""
        commits = [key for key in etags if key.endswith(COMMIT_NAME)]
        outcome = super().delete_matching({key: etag for key, etag in etags.items() if key not in commits})
        return replace(outcome, failed={key: StoreUnavailable("503 SlowDown") for key in commits})


def test_log_start_stays_as_long_as_the_commit(archive: MadeArchive) -> None:
    """Its delete fails in two runs: readers would find the whole incarnation lost. A later run deletes both."""
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
    """Its last agent ended before it wrote log.start, or it was a late one; readers then see what they saw, or fail."""
    keys = archive.partition("t")
    archive.store.put(keys.commit, BACK.encode())
    archive.store.put(keys.log_start, start.encode())
    collect(archive, over())
    hidden = read_snapshot(archive.store, keys)
    assert hidden.log_start == max(30, start.shown_from(BACK.lineage)) or not hidden.settled
    for _ in range(2):
        assert collect(archive, over()).report.skipped == []
    assert left(archive, keys) == ["foreign"]


def test_an_incarnation_with_a_commit_of_the_java_uploader_stays(archive: MadeArchive) -> None:
    """It has no incarnations: its commit can be of a later topic of that name. The operator reads what to do."""
    keys = archive.partition("t")
    archive.store.put(keys.commit, b"00000000000000000040")
    (found,) = collect(archive, over()).report.skipped
    assert found.why is Why.DOUBT
    assert "by hand" in found.reason
    assert len(left(archive, keys)) == 5 * 3 + 4


def test_a_forged_time_of_an_incarnation_does_not_end_it(archive: MadeArchive) -> None:
    """Agents write the list: its time of the first look counts no further back than the object's own time."""
    forged = archive.store.get(archive.keys.incarnations("t"))[0]
    archive.store.put(archive.keys.incarnations("t"), forged)
    before = int(time.time() * 1000) - 60_000
    (first, _) = read_topic_incarnations(archive.store, archive.keys, lambda _: True, lambda _: None)
    assert first.over_since is not None
    assert first.over_since > before


def test_what_a_moved_topic_left_at_its_old_place_is_due_if_the_policy_collects_it(archive: MadeArchive) -> None:
    """Its age is that of its newest object. Without the key of the policy the report names it."""
    found = read_topic_incarnations(archive.store, archive.keys, lambda _: False, lambda _: None)
    places = [(each.directory, each.is_old_place, each.over_since is not None) for each in found]
    assert places == [("t", True, True), (f"t~{NEW}", True, True)]


def test_a_topic_is_absent_since_the_first_of_all_runs_without_it(tmp_path: Path) -> None:
    """A topic that exists again, or another incarnation of it, begins again."""
    made = MadeArchive(tmp_path)
    topics = {"a": frozenset({OLD}), "b": frozenset[str](), "c": frozenset[str]()}

    def note(cluster: dict[str, str | None], now: int) -> dict[str, int]:
        return write_absent(made.store, made.keys, topics, cluster, now)

    assert note({"b": None, "c": None}, 10) == {"a": 10}
    assert note({"b": None, "c": None, "a": NEW}, 20) == {"a": 10}
    assert note({"b": None, "c": None, "a": OLD}, 30) == {}
    assert note({"b": None, "c": None}, 40) == {"a": 40}
    with pytest.raises(QueryError, match="another cluster"):
        note({}, 50)
    assert note({"b": None, "c": None}, 60) == {"a": 40}


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

    found = note_absent(made.store, made.keys, cast(KafkaCluster, Cluster()), lambda _: True, 10)
    assert found == {"b": 10}


def test_a_lost_log_start_of_an_incarnation_that_is_over_names_its_list_of_erased_offsets(archive: MadeArchive) -> None:
    """The list is deleted last, so releases without lists refuse the incarnation as long as it has segments."""
    keys = archive.partition("t")
    archive.store.delete([keys.log_start])
    archive.store.put(erased_key(keys, 3), b"TSER")
    collect(archive, over())
    stored = read_log_start(archive.store, keys.log_start)
    assert stored is not None
    assert stored.content.erased == 3
    for _ in range(2):
        collect(archive, over())
    assert left(archive, keys) == ["foreign"]
