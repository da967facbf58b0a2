"""Both steps of `tsctl gc`: log.start first, objects after the grace, and nothing that is in doubt."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import GRACE, FixedRetention, bases, keep_last, later, names, run, run_in, ship, start_of
from ts_common.errors import AccessDenied, ObjectFrozen, QueryError, StaleStateError
from ts_common.store.contract import ByteRange, DeleteOutcome, ObjectStore, ObjectStream
from ts_common.store.protection import Lock
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.archive_run import begin, delete_old
from tsctl.gc.due import Rule
from tsctl.gc.objects import Outcome
from tsctl.gc.policy import Fuse, OwnObjects
from tsctl.gc.report import Report, list_reports
from tsctl.gc.retention import Why


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def test_g03_log_start_moves_first_and_objects_follow_after_the_grace(archive: MadeArchive) -> None:
    """G03: readers leave out what is due before the first object is removed."""
    size = ship(archive, "t", 0, 100)
    first = run(archive, keep_last(3, size))
    assert start_of(archive) == 70
    assert first.found.objects == 21
    for _ in range(2):  # the grace does not begin again with each run
        run(archive, keep_last(3, size), after=GRACE // 2 - 60_000)
        assert bases(archive) == list(range(0, 100, 10))
    second = run(archive, keep_last(3, size), after=120_000)
    assert second.report.outcomes == {Outcome.REMOVED: 21}
    assert [name for name in names(archive) if name[0] == "0"] == [
        f"{base:020d}{suffix}" for base in (70, 80, 90) for suffix in (".index", ".log", ".timeindex")
    ]
    assert start_of(archive) == 70


def test_g01_partition_10_is_not_touched_for_partition_1(archive: MadeArchive) -> None:
    """G01: only the exact directory is listed, also where a topic has the name of a partition."""
    size = ship(archive, "t", 0, 50, partition=1)
    for topic, partition in (("t", 10), ("t-1", 0)):
        archive.put_segment(topic, 0, batches((0, 10)), partition=partition)
    archive.put_incarnations("t-1", "A" * 22)
    run(archive, keep_last(1, size))
    run(archive, keep_last(1, size), after=GRACE)
    assert bases(archive, partition=1) == [40]
    assert bases(archive, partition=10) == [0]
    assert bases(archive, "t-1") == [0]
    archive.store.head(archive.keys.incarnations("t-1"))


def test_what_is_newly_due_is_hidden_by_the_run_that_deletes_what_was_hidden(archive: MadeArchive) -> None:
    """Each run does both, so that an interval of a day and a grace of 20 hours delete within two days."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    found = run(archive, keep_last(2, size), after=GRACE)
    assert (bases(archive), start_of(archive)) == ([70, 80, 90], 80)
    assert (found.found.objects, found.report.outcomes) == (3, {Outcome.REMOVED: 21})


def test_a_policy_that_keeps_more_meanwhile_shows_again_what_it_keeps(archive: MadeArchive) -> None:
    """What is due is worked out again after the grace; nothing is deleted before the rest had its grace."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    found = run(archive, keep_last(8, size), after=GRACE)
    assert (start_of(archive), found.report.did["shown"], bases(archive)[0]) == (20, 1, 0)
    run(archive, keep_last(8, size), after=GRACE)
    assert bases(archive) == list(range(20, 100, 10))


def test_a_run_by_a_topics_fuse_hides_nothing_of_it(archive: MadeArchive) -> None:
    """The store's fuse would not blow: a large topic hides that a small one loses nearly everything."""
    size = ship(archive, "t", 0, 100)
    for partition in range(10):
        ship(archive, "large", 0, 30, partition=partition)
    found = run(archive, keep_last(1, size), fuse=Fuse.model_validate({"share": "80%"}))
    assert [(each.where, each.why) for each in found.report.skipped] == [("t", Why.FUSE)]
    assert (start_of(archive), start_of(archive, "large"), found.is_finding) == (0, 20, True)


@pytest.mark.parametrize("fuse", [{"objects": 20}, {"bytes": 100}, {"share": "60%"}], ids=str)
def test_g05_more_than_the_fuse_hides_nothing(archive: MadeArchive, fuse: Mapping[str, object]) -> None:
    """G05: a policy that is wrong has no effect; what was hidden before is deleted whatever the fuse is."""
    size = ship(archive, "t", 0, 100)
    fused = Fuse.model_validate({"share": "100%", **fuse})
    found = run(archive, keep_last(3, size), fuse=fused)
    assert (found.found.fuse is not None, found.is_finding, start_of(archive)) == (True, True, 0)
    run(archive, keep_last(3, size))
    found = run(archive, keep_last(3, size), after=GRACE, fuse=fused)
    assert (found.found.fuse, bases(archive)) == (None, [70, 80, 90])


def test_a_report_has_each_object_and_no_run_reads_it(archive: MadeArchive) -> None:
    """A report that is damaged, or lost, changes nothing."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    (report,) = list_reports(archive.store, archive.keys)
    archive.store.put(report.key, b"\xff{")
    run(archive, keep_last(3, size), after=GRACE)
    assert bases(archive) == [70, 80, 90]


def test_a_report_that_cannot_be_written_fails_the_run(archive: MadeArchive) -> None:
    """It is the only record of what was deleted."""
    size = ship(archive, "t", 0, 100)

    class Denying(WrappedStore):
        puts = 0

        def put(self, key: str, *arguments: object, **named: object) -> object:  # type: ignore[override]
            if key.endswith(".jsonl"):
                self.puts += 1
                if self.puts > 1:
                    raise AccessDenied("denied")
            return self._inner.put(key, *arguments, **named)  # type: ignore[arg-type]

    with pytest.raises(AccessDenied):
        run_in(Denying(archive.store, threads=1), archive, keep_last(3, size))


def test_plans_of_an_earlier_release_are_discarded_and_what_they_hid_gets_a_grace(archive: MadeArchive) -> None:
    """Nothing that it hid is deleted without a grace, and a topic without a rule is shown again."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "u", 0, 100)
    for topic in ("t", "u"):
        archive.store.put(
            archive.partition(topic).log_start, f'{70:020d}\n{{"version":2,"writtenBy":"old"}}\n'.encode()
        )
    old = f"{archive.keys.gc}20261127T020000000Z-1f2e3d4c/"
    for name in ("plan.json", "part-00000.jsonl", "moves-00000.jsonl", "log-20261127T020000Z-1f2e3d4c-00000.jsonl"):
        archive.store.put(f"{old}{name}", b"{}\n")

    class OnlyT(FixedRetention):
        def rule(self, topic: str) -> Rule | None:
            return self.the_rule if topic == "t" else None

    retention = OnlyT(Rule(size=3 * size))
    run(archive, retention)
    assert [info.key for info in archive.store.list(old)] == [f"{old}log-20261127T020000Z-1f2e3d4c-00000.jsonl"]
    assert (start_of(archive), start_of(archive, "u"), bases(archive)[0]) == (70, 0, 0)
    run(archive, retention)
    assert bases(archive)[0] == 0
    run(archive, retention, after=GRACE)
    assert (bases(archive), bases(archive, "u")[0]) == ([70, 80, 90], 0)


def test_a_plan_younger_than_the_first_report_stops_the_run(archive: MadeArchive) -> None:
    """A collector of an earlier release still runs, and does not write the floor."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(100, size))
    plan = f"{archive.keys.gc}20261127T020000000Z-1f2e3d4c/plan.json"
    archive.store.put(plan, b"{}\n")
    with pytest.raises(StaleStateError, match="an older release of tsctl gc still runs"):
        run(archive, keep_last(3, size))
    assert start_of(archive) == 0
    archive.store.delete([plan])
    run(archive, keep_last(3, size))
    assert start_of(archive) == 70


def test_own_objects_are_deleted_by_their_ages(archive: MadeArchive) -> None:
    """Reports, answers of repairs and probes; copies of log.start and absent.json have no age."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    keys = archive.keys
    for key in (f"{keys.repairs}a.json", f"{keys.gc}absent.json", f"{keys.gc}old/log-1-00000.jsonl"):
        archive.store.put(key, b"{}")
    (report,) = list_reports(archive.store, keys)
    own, now = OwnObjects.model_validate({}), int(time.time() * 1000)
    assert delete_old(archive.store, keys, own, now).removed == ()
    late = now + 401 * 86_400_000
    kept = delete_old(archive.store, keys, own, late, lambda names: dict.fromkeys(names, Lock(None, True, "")))
    assert kept.removed == ()
    removed = delete_old(archive.store, keys, own, late).removed
    assert set(removed) == {report.key, f"{keys.repairs}a.json", f"{keys.gc}old/log-1-00000.jsonl"}


@pytest.mark.parametrize("name", ["offset.wm", "log.start"])
def test_g05_an_unreadable_mark_leaves_the_partition_out(archive: MadeArchive, name: str) -> None:
    """G05: other partitions are collected, and the run reports this one."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "t", 0, 100, partition=1)
    archive.store.put(archive.partition("t").prefix + name, b"x")
    found = run(archive, keep_last(3, size))
    assert [(skipped.where, skipped.why) for skipped in found.report.skipped] == [("t-0", Why.DOUBT)]
    run(archive, keep_last(3, size), after=GRACE)
    assert (bases(archive), bases(archive, partition=1)) == (list(range(0, 100, 10)), [70, 80, 90])


def test_an_object_that_is_replaced_during_the_deletion_stays(archive: MadeArchive) -> None:
    """Its ETag is another one than in the listing; a later run deletes it after a grace."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))

    class Replacing(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            archive.put_segment("t", 0, batches((0, 10), value=b"other"))
            return self._inner.delete_matching(etags)

    later(archive, GRACE)
    found = run_in(Replacing(archive.store, threads=1), archive, keep_last(3, size))
    assert found.report.outcomes == {Outcome.REMOVED: 18, Outcome.KEPT: 3}
    assert bases(archive) == [0, 70, 80, 90]
    run(archive, keep_last(3, size), after=GRACE)
    assert bases(archive) == [70, 80, 90]


def test_a_segment_of_a_leader_that_has_not_committed_stays(archive: MadeArchive) -> None:
    """Its epoch is above the commit's: that leader can move the commit back."""
    size = ship(archive, "t", 0, 100)
    archive.put_segment("t", 0, batches((0, 10), epoch=3), variant=True)
    run(archive, keep_last(3, size))
    run(archive, keep_last(3, size), after=GRACE)
    assert bases(archive) == [0, 70, 80, 90]
    assert [name for name in names(archive) if ".e3." in name]


def test_marks_and_caches_below_log_start_are_removed(archive: MadeArchive) -> None:
    """Gap records, cache objects and indexes that belong to no segment any more are deleted with the segments."""
    size = ship(archive, "t", 0, 100)
    keys = archive.partition("t")
    kept = [keys.gap(65, 75), keys.cache_object(60), keys.prefix + "00000000000000000015.index"]
    for key in (keys.gap(0, 10), keys.cache_object(0), keys.prefix + "chapters/x.json", *kept):
        archive.store.put(key, b"{}")
    run(archive, keep_last(3, size))
    run(archive, keep_last(3, size), after=GRACE)
    left = [keys.prefix + name for name in names(archive)]
    assert [key for key in left if "json" in key or "15.index" in key] == sorted(kept)


def test_a_run_by_age_needs_the_least_time_in_the_store(archive: MadeArchive) -> None:
    """Records of 1970 that were shipped today stay for the least time."""
    ship(archive, "t", 0, 100)
    day = 86_400_000
    found = run(archive, FixedRetention(Rule(age=30 * day, least=day)))
    assert not found.found.candidates
    found = run(archive, FixedRetention(Rule(age=30 * day)))
    assert start_of(archive) == 90


def test_g02_a_clock_that_differs_from_the_store_stops_the_run(archive: MadeArchive) -> None:
    """G02: nothing is deleted by the age that a wrong clock computes; of two clocks the earlier counts."""

    def begun(by: float) -> int:
        report = Report()
        with report.writing(archive.store, archive.keys):
            return begin(archive.store, archive.keys, report, lambda: time.time() + by)

    with pytest.raises(QueryError, match="clock"):
        begun(3600)
    assert begun(60) <= time.time() * 1000 + 1
    assert begun(-60) <= time.time() * 1000 - 59_000


class Refusing(WrappedStore):
    """A store that refuses to delete some objects for ever."""

    def __init__(self, inner: ObjectStore, *names: str) -> None:
        super().__init__(inner, threads=1)
        self._names = names

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        refused = {key for key in etags if key.endswith(self._names)}
        found = self._inner.delete_matching({key: etag for key, etag in etags.items() if key not in refused})
        return replace(found, failed=dict.fromkeys(refused, AccessDenied("locked")))


def test_an_object_that_cannot_be_deleted_stops_nothing_and_is_tried_again(archive: MadeArchive) -> None:
    """Each run that tries it reports a finding, and keeps its indexes; what is newly due is hidden all the same."""
    size = ship(archive, "t", 0, 100)
    refusing = Refusing(archive.store, "t-0/00000000000000000000.log")
    run(archive, keep_last(3, size))
    later(archive, GRACE)
    found = run_in(refusing, archive, keep_last(3, size))
    assert (found.report.outcomes[Outcome.FAILED], len(found.report.errors), found.is_finding) == (3, 1, True)
    assert names(archive)[:4] == [f"{0:020}.index", f"{0:020}.log", f"{0:020}.timeindex", f"{70:020}.index"]
    run(archive, keep_last(2, size))
    assert start_of(archive) == 80
    run(archive, keep_last(2, size), after=GRACE)
    assert bases(archive) == [80, 90]


def test_one_run_removes_what_failed_deletes_left_whatever_is_between(archive: MadeArchive) -> None:
    """What a deletion removed between two leftovers is no loss, so the target passes it."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    later(archive, GRACE)
    run_in(Refusing(archive.store, f"{0:020}.log", f"{60:020}.index"), archive, keep_last(3, size))
    assert [name for name in names(archive) if name < f"{70:020}"] == [
        *(f"{0:020}.{suffix}" for suffix in ("index", "log", "timeindex")),
        f"{60:020}.index",
    ]
    run(archive, keep_last(3, size), after=GRACE)
    assert names(archive)[0] == f"{70:020}.index"


@pytest.mark.parametrize("name", ["offset.wm", "log.start", "00000000000000000050.log"])
def test_a_frozen_object_leaves_only_its_partition_out(archive: MadeArchive, name: str) -> None:
    """A lifecycle rule that moved an object to an archive class stops no other partition."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "t", 0, 100, partition=1)
    key = archive.partition("t").prefix + name
    archive.store.put(key, archive.store.get(key)[0])  # a segment of the Java uploader, which has no metadata

    class Frozen(WrappedStore):
        def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
            if key.endswith(f"t-0/{name}"):
                raise ObjectFrozen("thaw it")
            return self._inner.open(key, byte_range)

    store = Frozen(archive.store, threads=1)
    found = run_in(store, archive, keep_last(3, size))
    assert [(each.where, each.why) for each in found.report.skipped] == [("t-0", Why.DOUBT)]
    assert start_of(archive, partition=1) == 70
