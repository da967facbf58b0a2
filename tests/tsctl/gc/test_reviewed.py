"""What reviews of retention did with real policies and real damage, and what must follow."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.matrix import cases
from tests.tsctl.gc.archives import (
    GRACE,
    FixedRetention,
    Killed,
    bases,
    go_back,
    keep_last,
    later,
    run,
    run_in,
    run_killed_after_its_move,
    ship,
    start_of,
)
from tests.tsctl.running import Run
from ts_common.archive.cache_rewriting import cache_entry
from ts_common.archive.catalog import read_log_start
from ts_common.archive.commit import LogStart
from ts_common.archive.holds import Hold
from ts_common.archive.metadata_cache import encode_cache_object
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.table_claims import TableClaims, claims_key
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.archive_run import LocationResult, delete_old
from tsctl.gc.due import Rule
from tsctl.gc.policy import OwnObjects, parse_policy
from tsctl.gc.policy_retention import PolicyRetention
from tsctl.gc.retention import Why
from tsctl.holds import add_hold

DAY: Final = 86_400_000
ALL: Final = list(range(0, 100, 10))


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def put(archive: MadeArchive, topic: str, ages: Mapping[int, int]) -> None:
    """Put segments of ten offsets by their bases, with the age of their records in days, and commit them."""
    now = int(time.time() * 1000)
    for base, days in ages.items():
        archive.put_segment(topic, base, batches((base, base + 10), time=now - days * DAY), index=b"i", timeindex=b"t")
    archive.commit(topic, max(ages) + 10, highest_base=max(ages))
    archive.store.put(archive.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":1}')


def of_policy(
    archive: MadeArchive, rule: Mapping[str, Any], *, share: str = "50%", clock: Callable[[], float] = time.monotonic
) -> PolicyRetention:
    """Return the retention of a policy with one rule for all topics, and all defaults but the fuse."""
    content = {"cluster": CLUSTER, "fuse": {"share": share}, "rules": [{"topics": ".*", **rule}]}
    now = int(time.time() * 1000)
    return PolicyRetention(parse_policy(content, "policy"), [archive.store], archive.keys, now, clock=clock)


def run_by(archive: MadeArchive, retention: PolicyRetention, store: ObjectStore | None = None) -> LocationResult:
    """Run with the grace and the fuse of the policy."""
    policy = retention.policy
    store = archive.store if store is None else store
    return run_in(store, archive, retention, fuse=policy.fuse, grace=policy.grace)  # type: ignore[arg-type]


def test_with_an_agents_rights_no_run_deletes_what_a_cautious_policy_keeps(archive: MadeArchive) -> None:
    """Of three topics: cache objects with old times, and every log.start at the end as if a run had hidden all."""
    for topic in "abc":
        put(archive, topic, dict.fromkeys(ALL, 100))
    archive.age(100 * 86_400)
    rule = {"max_age": "400d"}
    run_by(archive, of_policy(archive, rule))
    for hours in (0, 21, 21):
        later(archive, hours * 3_600_000)
        for topic in "abc":
            keys = archive.partition(topic)
            names = [SegmentName(base) for base in ALL]
            entries = [cache_entry(archive.store, name, archive.store.head(keys.segment(name))) for name in names]
            old = [
                replace(each, metadata=replace(found, shipped=1, time_max=1))
                for each in entries
                if (found := each.metadata)
            ]
            archive.store.put(keys.cache_object(0), encode_cache_object(keys, old))
            copy = read_log_start(archive.store, archive.keys.log_start_copy(keys))
            since = "gc-x" if copy is None else copy.content.since
            forged = LogStart(90, floor=90, since=since, written_by=f"gc-{hours}-{time.time_ns()}")
            archive.store.put(keys.log_start, forged.encode())
        run_by(archive, of_policy(archive, rule))
        assert {topic: bases(archive, topic) for topic in "abc"} == dict.fromkeys("abc", ALL)


def test_a_loss_that_can_be_repaired_is_reported_after_a_run_too(
    archive: MadeArchive, run: Run, tmp_path: Path
) -> None:
    """[0, 50) is due, and [50, 90) is lost: the run hides the first part only, and an undo shows all that is stored."""
    put(archive, "t", {base: 500 if base < 50 else 100 for base in ALL})
    put(archive, "young", dict.fromkeys(range(0, 300, 10), 1))
    archive.age(100 * 86_400, ".log", ".index", ".timeindex")
    policy = tmp_path / "policy.yaml"
    policy.write_text("cluster: prod\nrules: [{topics: .*, max_age: 400d}]\n")
    named = ("--url", archive.location, "--cluster", CLUSTER)
    keys = archive.partition("t")
    archive.store.delete([keys.segment(SegmentName(base)) for base in (50, 60, 70, 80)])

    def holes() -> bool:
        return re.search(r"hole +t-0 +50 +90 ", run("verify", "t", *named).out) is not None

    assert holes()
    assert run("gc", "run", "--policy", policy, "--ignore-fuse", *named).code == 0
    start = read_log_start(archive.store, keys.log_start)
    assert start is not None
    assert (start.content.offset, holes()) == (50, True)
    assert "1 partition shown again" in run("gc", "undo", "t", "--reason", "repair", *named).out
    start = read_log_start(archive.store, keys.log_start)
    assert start is not None
    assert (start.content.offset, holes()) == (0, True)


def test_a_listing_that_lacks_segments_moves_nothing_beyond_them(archive: MadeArchive) -> None:
    """No store of the contract has such listings. The young segments are then a hole, which no run passes."""
    put(archive, "t", {base: 100 if base < 30 else 10 for base in ALL})

    class Late(WrappedStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            lacks = [f"{base:020d}" for base in (30, 40, 50, 60, 70, 80)]
            found = self._inner.list(prefix, start_after=start_after)
            return (info for info in found if not any(name in info.key for name in lacks))

    by_age = FixedRetention(Rule(age=30 * DAY))
    for _ in range(2):
        run_in(Late(archive.store, threads=1), archive, by_age)
        assert start_of(archive) == 30
        later(archive, GRACE)
    assert bases(archive) == ALL[3:]


class Steps(WrappedStore):
    """A store where something happens before the request of a number; it counts requests."""

    def __init__(self, inner: ObjectStore, at: int, what: Callable[[], object]) -> None:
        super().__init__(inner, threads=1)
        self._at, self._what, self.requests = at, what, 0

    def _request(self) -> None:
        self.requests += 1
        if self.requests == self._at:
            self._what()

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """As the inner store."""
        self._request()
        return self._inner.put(key, *arguments, **named)

    def open(self, *arguments: Any) -> Any:
        """As the inner store."""
        self._request()
        return self._inner.open(*arguments)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As the inner store."""
        self._request()
        return self._inner.list(prefix, start_after=start_after)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """As the inner store."""
        self._request()
        return self._inner.delete_matching(etags)


REQUESTS: Final = 16  # the longer of both runs has as many
READS_AND_WRITES: Final = (7, 8, 10, 11, 12, 13)  # of log.start, the commit and the copy


@pytest.mark.parametrize("at", cases(range(1, REQUESTS + 1), quick=READS_AND_WRITES))
@pytest.mark.parametrize("is_deleting", [False, True], ids=["hides", "deletes"])
def test_an_election_at_any_request_of_a_run_hides_nothing_permanently(
    archive: MadeArchive, at: int, is_deleting: bool
) -> None:
    """The commit goes back by two segments. Later runs keep the last three of what is left, and readers see them."""
    retention, key = keep_last(3, ship(archive, "t", 0, 100)), archive.keys.log_start_copy(archive.partition("t"))
    if is_deleting:
        run(archive, retention)
        later(archive, GRACE)
    store = Steps(archive.store, at, lambda: go_back(archive, 80))
    run_in(store, archive, retention)
    assert store.requests <= REQUESTS
    if store.requests < at:
        go_back(archive, 80)
    copy = read_log_start(archive.store, key)
    released = 0 if copy is None else copy.content.floor or 0
    for _ in range(3):
        run(archive, retention, after=GRACE)
    assert start_of(archive) == max(50, released)
    assert released in ({0, 70} if is_deleting else {0})


def test_a_hold_that_a_person_sets_stops_a_long_deletion(archive: MadeArchive) -> None:
    """32 deletes take a minute here. Holds are read again before each, so only the 32 in progress are deleted."""
    put(archive, "t", dict.fromkeys(range(0, 2000, 10), 100))
    archive.age(100 * 86_400)
    rule, minutes = {"max_age": "30d"}, [0]
    run_by(archive, of_policy(archive, rule, share="100%"))
    later(archive, DAY)
    gone: list[str] = []

    class Slow(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            found = self._inner.delete_matching(etags)
            gone.extend(found.removed)
            if not minutes[0]:
                hold = Hold(name="case", topics=("t",), reason="audit", time=int(time.time() * 1000))
                add_hold([archive.store], archive.keys, hold, print)
            minutes[0] += 1
            return found

    retention = of_policy(archive, rule, share="100%", clock=lambda: 60.0 * minutes[0])
    found = run_by(archive, retention, Slow(archive.store, threads=1))
    assert len(gone) <= 32
    assert [each.why for each in found.report.skipped] == [Why.HELD]


def test_a_rebuild_of_a_table_that_begins_during_a_run_keeps_later_partitions(archive: MadeArchive) -> None:
    """Its new generation has claimed nothing yet; the partition whose deletion began before is deleted."""
    for topic in "at":
        put(archive, topic, dict.fromkeys(ALL, 100))
    archive.age(100 * 86_400)

    def claim(name: str, offset: int) -> None:
        claims = TableClaims(name, "1", int(time.time() * 1000), {"t-0": offset, "a-0": offset})
        archive.store.put(claims_key(archive.keys, name), claims.encode())

    claim("db.t", 100)
    rule = {"max_age": "30d", "until_read_by": [{"table": "db.t"}]}
    run_by(archive, of_policy(archive, rule, share="100%"))
    assert (start_of(archive, "a"), start_of(archive, "t")) == (90, 90)
    later(archive, DAY)
    seconds = [0.0]

    class Rebuilding(WrappedStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            if prefix == archive.partition("t").prefix and not seconds[0]:
                claim("db.t_g2", 0)
                seconds[0] = 11.0
            return self._inner.list(prefix, start_after=start_after)

    retention = of_policy(archive, rule, share="100%", clock=lambda: seconds[0])
    retention.needed(archive.partition("a"))  # the claims were read once
    run_by(archive, retention, Rebuilding(archive.store, threads=1))
    assert (start_of(archive, "t"), bases(archive, "t")) == (0, ALL)


def test_an_undo_shows_what_a_killed_run_hid_without_a_copy(archive: MadeArchive, run: Run) -> None:
    """It was killed between the two writes; an undo has no rules, and looks at each partition all the same."""
    retention = keep_last(3, ship(archive, "t", 0, 100))
    archive.store.put(archive.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":1}')
    run_killed_after_its_move(archive, retention)
    assert start_of(archive) == 70
    undone = run("gc", "undo", "t", "--reason", "wrong policy", "--url", archive.location, "--cluster", CLUSTER)
    assert (undone.code, start_of(archive)) == (0, 0)


def test_a_first_run_that_is_killed_leaves_its_work_to_the_next(archive: MadeArchive) -> None:
    """What an earlier release hid of a topic without a rule is shown, also if the plans were read by a killed run."""
    ship(archive, "t", 0, 100)
    keys = archive.partition("t")
    archive.store.put(keys.log_start, LogStart(70, written_by="gc-old").encode())
    archive.store.put(f"{archive.keys.gc}20261101T000000000Z-1/plan.json", b"{}")

    class Killing(WrappedStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            if prefix == keys.prefix:
                raise Killed
            return self._inner.list(prefix, start_after=start_after)

    with pytest.raises(Killed):
        run_in(Killing(archive.store, threads=1), archive, FixedRetention(None))
    run(archive, FixedRetention(None))
    assert start_of(archive) == 0


def test_what_a_killed_deletion_left_stays_once_the_policy_keeps_the_topic(archive: MadeArchive) -> None:
    """No rule names it any more: the operator can still read these objects, though readers cannot."""
    retention = keep_last(3, ship(archive, "t", 0, 100))

    class Killing(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            self._inner.delete_matching(dict(list(etags.items())[:3]))
            raise Killed

    run(archive, retention)
    later(archive, GRACE)
    with pytest.raises(Killed):
        run_in(Killing(archive.store, threads=1), archive, retention)
    left = bases(archive)
    assert len(left) == 7
    for _ in range(3):
        run(archive, FixedRetention(None), after=GRACE)
    assert bases(archive) == left


def test_the_copy_of_a_topic_that_is_named_like_a_report_stays(archive: MadeArchive) -> None:
    """Reports of earlier releases are deleted by their age; the copy of `events.jsonl` is not one."""
    run(archive, keep_last(3, ship(archive, "events.jsonl", 0, 100)))
    delete_old(archive.store, archive.keys, OwnObjects.model_validate({}), int(time.time() * 1000) + 1000 * DAY)
    archive.store.head(archive.keys.log_start_copy(archive.partition("events.jsonl")))


def test_a_run_refuses_an_archive_with_keys_of_two_widths(tmp_path: Path, run: Run) -> None:
    """Agents write the layout. A run in made-up keys would write the copies of the true partitions."""
    true, made_up = MadeArchive(tmp_path / "bucket", 5), MadeArchive(tmp_path / "bucket", 0)
    for each in (true, made_up):
        ship(each, "t", 0, 100)
    true.store.put(true.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":1}')
    policy = tmp_path / "policy.yaml"
    policy.write_text("cluster: prod\nrules: [{topics: .*, max_size: 1KiB, confirm_small: true}]\n")
    ended = run("gc", "run", "--policy", policy, "--url", true.location, "--cluster", CLUSTER)
    assert (ended.code, list(true.store.list(true.keys.log_start_copies))) == (2, [])
    assert "5 entropy bits" in ended.err
