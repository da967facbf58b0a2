"""Every later release reads an archive of commit ff71d9d, and its agents continue it.

The tests compare records, not the bytes of commits: formats may grow. See `tests/data/archive-1/README.md`.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.local.oracle import Isolation, OracleRecord
from tests.compatibility.archive_1 import (
    ISOLATIONS,
    KEYS,
    Leader,
    Place,
    expected,
    load_bucket,
    read,
    unpack_brokers,
    view_of,
)
from tests.compatibility.going_on import GoingOn
from tests.histories.world import directory_in_memory
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.archive.plan import Hole
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verifier

PLACES = sorted(expected("archive", "read_uncommitted"))
GAP = Place("gap", 1, 0)
GAP_OFFSETS = (48, 138)
# Two leaders' copies of the same offsets, wherever a leader followed another; and what some topics were made for.
OVERLAPS = ("begun-late", "compacted", "elections", "java", "old-format", "transactions", "unclean")
FINDINGS = {
    *((f"{topic}-0", "overlap") for topic in OVERLAPS),
    ("elections-1", "overlap"),
    ("gap-0", "gap"),
    ("java-0", "java-segments"),
    ("taken-back-0", "orphan-segment"),
    ("unclean-0", "dead-tail"),
}
LOOKS = 12  # an agent may wait for several listings and checkpoints before it begins


@contextmanager
def loaded() -> Iterator[tuple[ObjectStore, Path]]:
    """A directory store that holds the archive, and a directory for the brokers' files."""
    directory = Path(tempfile.mkdtemp(prefix="archive-1-", dir=directory_in_memory()))
    try:
        (directory / "store").mkdir()
        with open_store((directory / "store").as_uri()) as store:
            load_bucket(store)
            yield store, directory / "brokers"
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def archive() -> Iterator[ObjectStore]:
    """As the old release left it."""
    with loaded() as (store, _):
        yield store


@dataclass(frozen=True)
class GoneOn:
    """The archive after agents shipped what the brokers hold further.

    Attributes:
        ends: the base of each leader's active segment.
        segments: etag by key of the `.log` objects that the old release had written.
    """

    store: ObjectStore
    ends: dict[TopicPartition, int]
    segments: dict[str, str]


@pytest.fixture(scope="module")
def gone_on() -> Iterator[GoneOn]:
    """Both agents look as often as they need."""
    with loaded() as (store, brokers):
        leaders = unpack_brokers(brokers)
        segments = logs(store)
        agents = [GoingOn(brokers / str(broker), broker, leaders, store) for broker in (1, 2)]
        ends = {leader.partition: active_base(brokers, leader) for leader in leaders}
        for _ in range(LOOKS):
            for agent in agents:
                agent.look()
        yield GoneOn(store, ends, segments)


def logs(store: ObjectStore) -> dict[str, str]:
    return {info.key: info.etag for info in store.list() if info.key.endswith(LOG_SUFFIX)}


def active_base(brokers: Path, leader: Leader) -> int:
    directory = brokers / str(leader.broker) / str(leader.partition)
    return max(int(path.stem) for path in directory.glob("*.log"))


def same(shown: list[OracleRecord], wanted: list[OracleRecord]) -> None:
    """Compared by offset first, so that a failure names what is missing or too much."""
    assert [record.offset for record in shown] == [record.offset for record in wanted]
    differing = [pair for pair in zip(shown, wanted, strict=True) if pair[0] != pair[1]]
    assert differing == []


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_readers_see_what_kafkas_consumer_showed(archive: ObjectStore, place: Place, isolation: Isolation) -> None:
    """Every record that was shipped, every field of it, and no other; the one hole is the recorded gap."""
    view = view_of(archive, place)
    shown, holes = read(archive, view, isolation)
    same(shown, expected("archive", isolation)[place])
    assert holes == ([Hole(*GAP_OFFSETS, recorded=True)] if place == GAP else [])


@pytest.mark.parametrize("depth", [Depth.HEADERS, Depth.FULL])
def test_verify_finds_nothing_that_the_archive_does_not_hold(archive: ObjectStore, depth: Depth) -> None:
    """Each finding is one that the fixture was made for; no other record is missing, nothing is damaged."""
    verifier = Verifier(archive, KEYS, Scope(depth, in_flight_seconds=0), clock=lambda: time.time() + 60)
    verifier.find()
    found = verifier.run().all_findings
    assert {(finding.where, finding.kind.code) for finding in found} == FINDINGS
    assert [(finding.start, finding.end) for finding in found if finding.kind.code == "gap"] == [GAP_OFFSETS]


@pytest.mark.parametrize("place", [place for place in PLACES if place != Place("reborn", 1, 0)], ids=str)
def test_agents_continue_where_the_old_ones_ended(gone_on: GoneOn, place: Place) -> None:
    """At a later leader epoch all closed segments are shipped; no old or new record is lost or returned twice."""
    view = view_of(gone_on.store, place)
    end = gone_on.ends[TopicPartition(place.topic, place.partition)]
    assert view.end == end
    before = expected("archive", "read_uncommitted")[place][-1].offset
    for isolation in ISOLATIONS:
        shown, holes = read(gone_on.store, view, isolation)
        wanted = [record for record in expected("later", isolation)[place] if record.offset < end]
        assert wanted[-1].offset > before
        same(shown, wanted)
        assert holes == ([Hole(*GAP_OFFSETS, recorded=True)] if place == GAP else [])


def test_agents_that_continue_an_archive_change_no_segment(gone_on: GoneOn) -> None:
    """The store only grows; the first incarnation of a topic has no new objects at all."""
    now = logs(gone_on.store)
    assert {key: now.get(key) for key in gone_on.segments} == gone_on.segments
    first_life = Place("reborn", 1, 0)
    view = view_of(gone_on.store, first_life)
    same(read(gone_on.store, view, "read_uncommitted")[0], expected("archive", "read_uncommitted")[first_life])
