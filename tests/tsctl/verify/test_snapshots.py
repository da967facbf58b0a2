"""Metadata snapshots that `tsctl verify` reports."""

import time

import pytest

from tests.spark.archives import Archive
from tests.tsctl.verify.verified import put, verify
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, ClusterSnapshot, GroupsSnapshot
from tsctl.verify.segment_check import Depth

META = "ts-uploader~cluster~prod/meta/"
NOW = int(time.time() * 1000) // HOUR * HOUR


@pytest.fixture
def archive(hand_made: Archive) -> Archive:
    """A snapshot of each kind next to one segment, and the ends of a broker whose agent runs."""
    put(hand_made, 0, 10)
    hand_made.commit("t", 10)
    cluster(NOW).put(hand_made.store, hand_made.keys, NOW)
    GroupsSnapshot(NOW, {}).put(hand_made.store, hand_made.keys, NOW)
    hand_made.store.put(hand_made.keys.ends_of(1), Ends(1, NOW, {}).encode())
    return hand_made


def cluster(at: int) -> ClusterSnapshot:
    return ClusterSnapshot(at, 1, None, {}, {}, (), (), ())


def found(archive: Archive, depth: Depth = Depth.HEADERS) -> set[tuple[str, str]]:
    """Return code and key of each finding."""
    return {(each.kind.code, str(each.key)) for each in verify(archive, depth).all_findings}


def test_healthy_snapshots_are_no_finding(archive: Archive) -> None:
    """Neither is an archive of agents that write none."""
    assert found(archive, Depth.FULL) == set()
    archive.store.delete([ClusterSnapshot.key(archive.keys, NOW), GroupsSnapshot.key(archive.keys, NOW)])
    assert found(archive) == set()


def test_a_damaged_snapshot_is_found_and_with_full_depth_each(archive: Archive) -> None:
    """By default only the newest of each kind is read; a name that no agent writes is foreign."""
    earlier, copy = ClusterSnapshot.key(archive.keys, NOW - HOUR), GroupsSnapshot.key(archive.keys, NOW + FIVE_MINUTES)
    archive.store.put(earlier, b"damaged")
    archive.store.put(copy, archive.store.get(GroupsSnapshot.key(archive.keys, NOW))[0])
    archive.store.put(META + "cluster/notes.txt", b"x")
    newest = {("snapshot-damaged", copy), ("foreign-object", META + "cluster/notes.txt")}
    assert found(archive) == newest
    assert found(archive, Depth.FULL) == {*newest, ("snapshot-damaged", earlier)}


def test_an_old_snapshot_is_found_while_an_agent_writes(archive: Archive) -> None:
    """Those of a cluster without agents grow old, and nothing is wrong."""
    archive.store.delete([ClusterSnapshot.key(archive.keys, NOW)])
    old = NOW - 4 * HOUR
    cluster(old).put(archive.store, archive.keys, old)
    assert found(archive) == {("snapshot-old", ClusterSnapshot.key(archive.keys, old))}
    archive.age(3600, "1.json")
    assert found(archive) == set()


def test_a_name_in_the_future_does_not_hide_that_snapshots_are_old(archive: Archive) -> None:
    """An agent's clock was years ahead for one round."""
    archive.store.delete([ClusterSnapshot.key(archive.keys, NOW)])
    old, ahead = NOW - 4 * HOUR, NOW + 90_000 * HOUR
    for at in (old, ahead):
        cluster(at).put(archive.store, archive.keys, at)
    assert found(archive) == {("snapshot-old", ClusterSnapshot.key(archive.keys, old))}
