"""Every object that an identity of deploy/iam may write, forged: a deletion trusts none of them.

A store enforces the policy files here: what an identity may not write is rejected. The rest it writes with drawn
values, before and between runs. Nothing is deleted that the policy does not name by the segments' own metadata, or
that the collector itself has not hidden for a grace. What no collector can defend: agents decide the metadata and the
bytes of what they ship, so a rule by size counts what they put. `docs/security.md` has that.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.deploy.identities import BUCKET, POLICIES, document
from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.matrix import examples
from tests.tsctl.gc.archives import GRACE, FixedRetention, bases, later, names, run, run_in
from ts_common.archive.catalog import read_log_start, read_snapshot
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.copies import describe
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.holds import Hold
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.metadata_cache import CacheEntry, encode_cache_object
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.table_claims import TableClaims, claims_key
from ts_common.errors import AccessDenied, TieredStorageError
from ts_common.store.contract import Condition, DeleteOutcome, IfAbsent, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.policy import parse_policy
from tsctl.gc.policy_retention import PolicyRetention
from tsctl.gc.report import read_report

DAY: Final = 86_400_000
NOW: Final = int(time.time() * 1000)
ALL: Final = tuple(range(0, 100, 10))
OLD, NEW = "A" * 22, "B" * 22
MOST: Final = (1 << 63) - 1
VALUE: Final = b"v" * 500  # three segments have more than a rule's least size
COLLECTORS: Final = ("collector", "collector-ended-incarnations")
# It puts versions back, so it may write every key.
RESTORER: Final = "restorer"


class As(WrappedStore):
    """A store as an identity of deploy/iam sees it: what its policy does not allow is rejected."""

    def __init__(self, inner: ObjectStore, identity: str) -> None:
        super().__init__(inner, threads=1)
        self._statements = json.loads(document(f"iam/{identity}.json"))["Statement"]

    def put(self, key: str, *arguments: Any, condition: Condition = None, **named: Any) -> ObjectInfo:
        """As the inner store."""
        self._check("s3:PutObject", key, is_new=isinstance(condition, IfAbsent))
        return self._inner.put(key, *arguments, condition=condition, **named)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """As the inner store."""
        for key in etags:
            self._check("s3:DeleteObject", key)
        return self._inner.delete_matching(etags)

    def _check(self, action: str, key: str, *, is_new: bool = False) -> None:
        found = {
            each["Effect"]
            for each in self._statements
            if action in _listed(each["Action"])
            and any(fnmatchcase(f"arn:aws:s3:::{BUCKET}/base/prefix/{key}", name) for name in _listed(each["Resource"]))
            and (is_new or each.get("Condition") is None)
        }
        if found != {"Allow"}:
            raise AccessDenied(f"{action} {key}")


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def copy_key(archive: MadeArchive) -> str:
    return archive.keys.log_start_copy(archive.partition("t"))


@pytest.mark.parametrize("identity", [each for each in POLICIES if each not in {*COLLECTORS, RESTORER}])
def test_what_a_deletion_trusts_is_written_by_its_owner_alone(tmp_path: Path, identity: str) -> None:
    """By the policy files: copies, reports, absent topics, holds, claims, groups; segments by the eraser too."""
    archive = MadeArchive(tmp_path / "bucket")
    keys, store = archive.partition("t"), As(archive.store, identity)
    owners = {
        copy_key(archive): None,
        f"{archive.keys.gc}gc-1.jsonl": None,
        f"{archive.keys.gc}absent.json": None,
        f"{archive.keys.gc}20261101T000000000Z-1/plan.json": None,
        archive.keys.removed_hold("case", 1): "hold-remover",
        archive.keys.hold("case"): "holder",
        claims_key(archive.keys, "db.t"): "tables",
        archive.keys.offsets_of("g"): "endpoint",
    }
    for key, owner in owners.items():
        with contextlib.nullcontext() if identity == owner else pytest.raises(AccessDenied):
            store.put(key, b"x", condition=IfAbsent())
    for key in (keys.segment(SegmentName(0)), keys.log_start, keys.commit, copy_key(archive)):
        is_its = identity == "eraser" and key.endswith(".log")
        with contextlib.nullcontext() if is_its else pytest.raises(AccessDenied):
            store.delete_matching({key: "e"})


# name: the rule, the days of the first seven segments and of the others, and the segments that it names
RULES: Final[Mapping[str, tuple[Mapping[str, Any], tuple[int, int], int]]] = {
    "size": ({"max_size": 3 * len(batches((0, 10), value=VALUE))}, (500, 500), 7),
    "age": ({"max_age": "400d"}, (500, 100), 7),
    "nothing": ({"max_age": "4000d"}, (500, 100), 0),
    "compacted": ({"max_size": 3 * len(batches((0, 10), value=VALUE))}, (500, 500), 0),
}


@pytest.fixture(scope="module", autouse=True)
def _without_fsync() -> Iterator[None]:
    """Thousands of small objects are put, and no machine fails meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@dataclass
class World:
    """An archive of one partition under a rule, and what the collector's own reports have.

    Attributes:
        hidden: offsets that a run has hidden up to, each with the time.
        may_go: the segments that the last run could delete: named by the policy, and hidden for a grace.
        released: up to where a run has deleted, or released for it what was hidden for a grace.
        elapsed: milliseconds since the begin.
        is_kept: whether the operator keeps everything, whatever the rule is.
    """

    archive: MadeArchive
    rule: str
    hidden: list[tuple[int, int]] = field(default_factory=list)
    may_go: set[int] = field(default_factory=set)
    released: int = 0
    elapsed: int = 0
    is_kept: bool = False

    @classmethod
    def of(cls, directory: str, rule: str) -> "World":
        made = MadeArchive(Path(directory) / "bucket")
        for base in ALL:
            days = RULES[rule][1][base >= 70]
            ranges = [(base, base + 3), (base + 7, base + 10)] if rule == "compacted" else [(base, base + 10)]
            log = batches(*ranges, time=NOW - days * DAY, value=VALUE)
            made.put_segment("t", base, log, index=b"i", timeindex=b"t")
        made.commit("t", 100, highest_base=90)
        made.put_incarnations("t", OLD)
        return cls(made, rule)

    def retention(self) -> PolicyRetention:
        rule = {"keep": True} if self.is_kept else {**RULES[self.rule][0], "confirm_small": True}
        content = {"cluster": CLUSTER, "least_time": "0s", "grace": "1h", "rules": [{"topics": "t", **rule}]}
        return PolicyRetention(parse_policy(content, "policy"), [self.archive.store], self.archive.keys, NOW)

    def run(self) -> None:
        """Run, and read in the report what is hidden now."""
        over = max((to for to, at in self.hidden if self.elapsed - at >= GRACE), default=0)
        named = 0 if self.is_kept else RULES[self.rule][2]
        self.may_go = {base for base in ALL[:named] if base + 10 <= over}
        found = run_in(self.archive.store, self.archive, self.retention())  # type: ignore[arg-type]
        for line in read_report(self.archive.store, self.archive.keys, found.report.run):
            if line.get("did") == "hidden":
                self.hidden.append((line["to"], self.elapsed))
            if line.get("did") == "shown":  # what stays hidden can be what another identity hid
                self.hidden = [*((min(to, line["start"]), at) for to, at in self.hidden), (line["start"], self.elapsed)]
            if line.get("did") == "deleted":
                self.released = max(self.released, self.start)
        # A run releases before it deletes. A forged chain can make it delete nothing of what it released.
        copy = read_log_start(self.archive.store, copy_key(self.archive))
        floor = 0 if copy is None else copy.content.floor or 0
        self.released = max(self.released, min(floor, over))

    @property
    def start(self) -> int:
        found = read_log_start(self.archive.store, self.archive.partition("t").log_start)
        assert found is not None
        return found.content.offset

    @property
    def stored(self) -> set[int]:
        """The segments that were there in the beginning."""
        return {base for base in ALL if f"{base:020d}.log" in set(names(self.archive))}


Step = Callable[[World], object]


@dataclass(frozen=True)
class Run:
    """A run of the collector; then time passes. The ETags of this store have the times, so cache objects end there."""

    after: int = GRACE

    def __call__(self, world: World) -> None:
        world.run()
        later(world.archive, self.after)
        world.elapsed += self.after


@dataclass(frozen=True)
class Keep:
    """The operator keeps everything, or no longer."""

    is_kept: bool

    def __call__(self, world: World) -> None:
        world.is_kept = self.is_kept


@dataclass(frozen=True)
class Put:
    """An identity puts an object; `content` returns its key, its bytes and its metadata."""

    identity: str
    content: "Content"

    def __call__(self, world: World) -> None:
        for key, body, metadata in self.content(world.archive):
            condition = IfAbsent() if self.identity == "holder" else None
            As(world.archive.store, self.identity).put(key, body, metadata=metadata, condition=condition)


Objects = Sequence[tuple[str, bytes, Mapping[str, str]]]
Content = Callable[[MadeArchive], Objects]


@dataclass(frozen=True)
class ForgedLogStart:
    """A `log.start`; with `copied` its `since` is that of the copy, which agents may read."""

    start: int
    floor: int | None
    lineage: Lineage | None
    erased: int | None
    copied: bool

    def __call__(self, archive: MadeArchive) -> Objects:
        copy = read_log_start(archive.store, copy_key(archive)) if self.copied else None
        since = "gc-x" if copy is None else copy.content.since
        floor = None if self.floor is None else min(self.floor, self.start)
        found = LogStart(
            self.start, self.lineage, floor=floor, since=since, erased=self.erased, written_by=f"gc-{time.time_ns()}"
        )
        return [(archive.partition("t").log_start, found.encode(), {})]


@dataclass(frozen=True)
class ForgedCommit:
    """A commit: another end, other epochs, so that segments are dead, another lineage; or the true one again."""

    next_offset: int = 100
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    epoch: int = 0
    lineage: Lineage | None = None
    base: int = 90

    def __call__(self, archive: MadeArchive) -> Objects:
        line = EpochHistory(self.epochs)
        found = Commit(
            self.base, self.next_offset, self.epoch, line, None, None, 1, 0, f"{time.time_ns()}", lineage=self.lineage
        )
        return [(archive.partition("t").commit, found.encode(), {})]


@dataclass(frozen=True)
class ForgedCache:
    """A cache object whose entries, of the stored names, sizes and ETags, have other metadata."""

    end: int | None
    records: tuple[int | None] | None
    time: int | None
    below: int
    replaces: str | None = None

    def __call__(self, archive: MadeArchive) -> Objects:
        keys = archive.partition("t")
        snapshot = read_snapshot(archive.store, keys)
        entries = []
        for copy in describe(archive.store, keys, snapshot.segments, damaged=[]):
            found = copy.metadata
            if copy.base < self.below:
                found = replace(found, end=found.end if self.end is None else max(self.end, copy.base + 1))
                found = replace(found, replaces=self.replaces)
            if self.time is not None:
                found = replace(found, time_max=self.time, time_min=self.time, shipped=self.time)
            if self.records is not None:
                (records,) = self.records
                found = replace(found, records=found.end - copy.base if records == MOST else records)
            entries.append(CacheEntry(copy.segment.name, copy.segment.size, copy.segment.etag or "", found))
        return [(keys.cache_object(0), encode_cache_object(keys, entries), {})]


@dataclass(frozen=True)
class ForgedSegment:
    """A new `.log` of one byte, whose metadata covers and replaces others."""

    base: int
    end: int
    replaces: int | None
    epoch: int

    def __call__(self, archive: MadeArchive) -> Objects:
        keys = archive.partition("t")
        (copy, *_) = describe(archive.store, keys, read_snapshot(archive.store, keys).segments, damaged=[])
        stem = None if self.replaces is None else SegmentName(self.replaces).stem
        forged = replace(
            copy.metadata, end=max(self.end, self.base + 1), time_max=1, shipped=1, records=None, replaces=stem
        )
        name = SegmentName(self.base, self.epoch, 7)
        return [(keys.segment(name), b"x", forged.encode())]


@dataclass(frozen=True)
class ForgedIncarnations:
    """A list of incarnations with old times: another one after the partition's, before it, or instead."""

    entries: tuple[tuple[str, str], ...]

    def __call__(self, archive: MadeArchive) -> Objects:
        lives = Incarnations("t")
        for topic_id, directory in self.entries:
            lives = lives.opened(topic_id, 1, archive.keys)
            lives = Incarnations("t", (*lives.entries[:-1], replace(lives.entries[-1], directory=directory)))
        return [(archive.keys.incarnations("t"), lives.encode(), {})]


@dataclass(frozen=True)
class ForgedObject:
    """Any other object: a gap record, ends, the layout, requests to repair, an index, a copy of another cluster."""

    name: str
    content: bytes

    def __call__(self, archive: MadeArchive) -> Objects:
        return [(archive.partition("t").prefix + self.name, self.content, {})]


@dataclass(frozen=True)
class ForgedOfCluster:
    """Any other object of the cluster."""

    name: str
    content: bytes

    def __call__(self, archive: MadeArchive) -> Objects:
        return [(archive.keys.cluster_prefix + self.name, self.content, {})]


@dataclass(frozen=True)
class ForgedReader:
    """Claims of a table, or offsets of a group, that have read everything."""

    def __call__(self, archive: MadeArchive) -> Objects:
        claims = TableClaims("db.t", "1", NOW, {"t-0": MOST})
        return [(claims_key(archive.keys, "db.t"), claims.encode(), {})]


@dataclass(frozen=True)
class AHold:
    """A hold of the topic, or one that no release can read."""

    content: bytes = Hold(name="case", topics=("t",), reason="audit").encode()

    def __call__(self, archive: MadeArchive) -> Objects:
        return [(archive.keys.hold("case"), self.content, {})]


def remove_hold(world: World) -> None:
    """Remove the hold, as the identity that may."""
    key = world.archive.keys.hold("case")
    for info in list(world.archive.store.list(key)):
        As(world.archive.store, "hold-remover").delete_matching({key: info.etag})


CASES = st.sampled_from(sorted(RULES))
LINEAGES = st.sampled_from([None, None, None, Lineage(1, 40, 100), Lineage(MOST >> 32, 0, MOST)])
LOG_STARTS = st.builds(
    ForgedLogStart,
    st.sampled_from([0, 40, 70, 90, 100, MOST]),
    st.sampled_from([None, 0, 40, 70, 90, 100, MOST]),
    LINEAGES,
    st.sampled_from([None, None, 1]),
    st.booleans(),
)
COMMITS = st.just(ForgedCommit()) | st.builds(
    ForgedCommit,
    st.sampled_from([0, 50, 90, 100, MOST]),
    st.sampled_from([((0, 0),), ((5, 0), (6, 90)), ((0, 0), (5, 65)), ((0, 0), (1, 40))]),
    st.sampled_from([0, 6, MOST >> 32]),
    LINEAGES,
    st.sampled_from([0, 90, MOST]),
)
CACHES = st.builds(
    ForgedCache,
    st.sampled_from([None, 5, 65, 99, 100, MOST]),
    st.sampled_from([None, (None,), (5,), (MOST,)]),
    st.sampled_from([None, 1, MOST]),
    st.sampled_from([0, 10, 70, 100]),
    st.sampled_from([None, SegmentName(80).stem]),
)
SEGMENTS = st.builds(
    ForgedSegment,
    st.sampled_from([0, 40, 65, 90]),
    st.sampled_from([1, 66, 100, MOST]),
    st.sampled_from([None, 0, 80]),
    st.sampled_from([0, 5]),
)
LISTS = st.builds(
    ForgedIncarnations,
    st.sampled_from(
        [
            ((OLD, "t"),),
            ((OLD, "t"), (NEW, f"t~{NEW}")),
            ((NEW, f"t~{NEW}"), (OLD, "t")),
            ((NEW, f"t~{NEW}"),),
            (),
        ]
    ),
)
OF_PARTITION = st.builds(
    ForgedObject,
    st.sampled_from(
        ["gaps/0-100.json", "gaps/50-90.json", f"gaps/100-{MOST}.json", f"{MOST:020d}.index", "chapters/x.json"]
    ),
    st.just(b"{}"),
)
OF_CLUSTER = st.builds(
    ForgedOfCluster,
    st.sampled_from(["layout.json", "ends/1.json", "repairs/1.json", "repairs/1.done.json"]),
    st.sampled_from([b"{", b'{"version":1,"entropyBits":3,"cluster":"prod","time":1}']),
)
REPAIRS = st.builds(ForgedOfCluster, st.just("repairs/2.json"), st.just(b"{}"))
STEPS = st.one_of(
    st.builds(Run, st.sampled_from([GRACE, GRACE // 2])),
    st.builds(Run),
    st.builds(Put, st.just("uploader"), LOG_STARTS | LOG_STARTS | COMMITS | COMMITS | CACHES | CACHES),
    st.builds(Put, st.just("uploader"), SEGMENTS | LISTS | OF_PARTITION | OF_CLUSTER),
    st.builds(Put, st.just("repairer"), CACHES | SEGMENTS | REPAIRS),
    st.builds(Put, st.just("tables"), st.just(ForgedReader())),
    st.builds(Put, st.just("holder"), st.builds(AHold) | st.just(AHold(b"{"))),
    st.just(remove_hold),
    st.builds(Keep, st.booleans()),
)


def _agent(*contents: Content) -> list[Step]:
    return [Put("uploader", content) for content in contents]


LATER = ForgedIncarnations(((OLD, "t"), (NEW, f"t~{NEW}")))
DEAD, TRUE = ForgedCommit(epochs=((5, 0), (6, 90)), epoch=6), ForgedCommit()
UP = ForgedLogStart(90, 90, None, None, copied=False)
HOLE, AT_HOLE = ForgedCache(65, (None,), None, 70), ForgedLogStart(70, 70, None, None, copied=False)
DENSE = ForgedCache(None, (MOST,), None, 0)
TWICE = ForgedCache(99, (None,), None, 70)  # old segments cover the newest offsets too


@given(CASES, st.lists(STEPS, min_size=3, max_size=9))
@example("size", [*_agent(TWICE), Run(), *_agent(TWICE), Run()])
@example("compacted", [*_agent(DENSE), Run(), *_agent(DENSE), Run()])
@example("nothing", [*_agent(DEAD, UP), Run(), *_agent(TRUE), Keep(True), Run(), Run()])
@example("nothing", [*_agent(DEAD, UP), Run(), *_agent(TRUE, LATER), Run()])
@example("age", [*_agent(DEAD, UP), Run(), *_agent(TRUE), Run(), Run()])
@example("age", [Run(GRACE // 2), *_agent(ForgedLogStart(70, 0, None, None, copied=True)), Run(GRACE // 2), Run()])
@example("age", [*_agent(ForgedLogStart(70, 0, None, None, copied=False)), Run(), Run()])
@example("age", [*_agent(HOLE, AT_HOLE), Run(), *_agent(HOLE), Run()])
@settings(max_examples=examples(1500, quick=12))
def test_nothing_that_an_identity_may_write_deletes_what_the_policy_keeps(rule: str, steps: list[Step]) -> None:
    """What is deleted is named by the policy, and was hidden by the collector itself for a grace."""
    with tempfile.TemporaryDirectory() as directory:
        world = World.of(directory, rule)
        for step in steps:
            before = world.stored
            with contextlib.suppress(TieredStorageError):
                step(world)
            assert before - world.stored <= world.may_go


HONEST: Final = ForgedCache(None, None, None, 0)  # what the agent itself writes
PLAIN = st.builds(
    ForgedLogStart,
    st.sampled_from([0, 40, 70, 90, 100]),
    st.sampled_from([None, 0, 40, 70, 90, 100]),
    st.none(),
    st.none(),
    st.booleans(),
)
LINES = st.builds(
    ForgedCommit, st.just(100), st.sampled_from([((0, 0),), ((5, 0), (6, 90)), ((0, 0), (5, 65)), ((0, 0), (1, 40))])
)


@given(
    CASES,
    st.lists(st.builds(Run) | st.builds(Put, st.just("uploader"), PLAIN | LINES | CACHES), min_size=2, max_size=8),
)
@example("nothing", [*_agent(DEAD, UP), Run()])
@example("age", [*_agent(ForgedCommit(epochs=((0, 0), (5, 35))), UP), Run(0)])
@example("age", [Run(), *_agent(ForgedCache(None, None, None, 70, f"{80:020d}")), Run()])
@settings(max_examples=examples(500, quick=8))
def test_a_hold_shows_what_no_run_has_released_whatever_was_forged(rule: str, steps: list[Step]) -> None:
    """Once the leader's agent has written its own commit and cache objects again; nothing stays hidden permanently."""
    with tempfile.TemporaryDirectory() as directory:
        world = World.of(directory, rule)
        honest: list[Step] = [*_agent(TRUE, HONEST), Put("holder", AHold()), Run(0)]
        for step in (*steps, *honest):
            with contextlib.suppress(TieredStorageError):
                step(world)
        assert world.start <= world.released


@pytest.mark.parametrize("start", [LogStart(100, floor=100, written_by="x"), LogStart(0, Lineage(9, 0, 0))])
def test_a_hold_shows_an_incarnation_that_is_over_whatever_its_log_start_was(tmp_path: Path, start: LogStart) -> None:
    """An agent wrote that everything is released, or another lineage. Nothing is deleted under the hold."""
    world = World.of(str(tmp_path), "nothing")
    archive, keys = world.archive, world.archive.partition("t")
    archive.put_incarnations("t", OLD, NEW)
    retention = FixedRetention(None, deletes_former=True)
    As(archive.store, "uploader").put(keys.log_start, start.encode())
    run(archive, retention)
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    found = read_log_start(archive.store, keys.log_start)
    assert (found is not None and found.content.offset, bases(archive)) == (0, [*ALL])


def test_a_list_of_incarnations_ends_none_before_its_own_age(tmp_path: Path) -> None:
    """With `deleted_topics`: an agent writes a later incarnation with an old time. The time of the policy stays."""
    world = World.of(str(tmp_path), "nothing")
    archive = world.archive
    content = {"cluster": CLUSTER, "rules": [{"topics": "t", "max_age": "4000d"}], "deleted_topics": {"after": "30d"}}
    later(archive, 100 * DAY)
    _agent(LATER)[0](world)
    for days in (0, 15, 14):
        later(archive, days * DAY)
        now = int(time.time() * 1000)
        retention = PolicyRetention(parse_policy(content, "policy"), [archive.store], archive.keys, now)
        run_in(archive.store, archive, retention)  # type: ignore[arg-type]
        assert (world.start, bases(archive)) == (0, [*ALL])
