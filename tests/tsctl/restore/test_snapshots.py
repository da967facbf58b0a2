"""Damaged snapshots of metadata: the plan names them, and uses the next older intact ones."""

import gzip
import json
import time
from pathlib import Path

import pytest

from dev.local.kafka.distribution import kafka_directory
from tests.made_archive import MadeArchive, batches
from tests.tsctl.running import Run, runner
from ts_common.archive.snapshots import (
    FIVE_MINUTES,
    HOUR,
    MINUTE,
    ClusterSnapshot,
    GroupOffset,
    GroupsSnapshot,
    Snapshot,
    Topic,
)
from ts_common.model import TopicPartition

NOW = int(time.time() * 1000) // HOUR * HOUR


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Return an archive with two intact snapshots of each kind."""
    made = MadeArchive(tmp_path / "archive")
    made.put_segment("t", 0, batches((0, 100)))
    made.commit("t", 100)
    for at, step in ((NOW - 5 * HOUR, HOUR), (NOW - 9 * HOUR, HOUR)):
        topics = {"t": Topic(None, ((1,),), {"retention.ms": str(at)})}
        ClusterSnapshot(at, 1, None, topics, {}, (), (), ()).put(made.store, made.keys, at // step * step)
    for at in (NOW - FIVE_MINUTES, NOW - 3 * FIVE_MINUTES):
        offsets = {"g": {TopicPartition("t", 0): GroupOffset(at % 97, -1, "")}}
        GroupsSnapshot(at, offsets).put(made.store, made.keys, at)
    return made


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def named(archive: MadeArchive) -> tuple[object, ...]:
    return "--url", archive.location, "--cluster", "prod", "--entropy-bits", 0


def put(archive: MadeArchive, kind: type[Snapshot], at: int, data: bytes) -> str:
    """Put an object with the name of a snapshot, in the place of any other; return its key."""
    key = kind.key(archive.keys, at)
    archive.store.put(key, data)
    return key


def test_a_damaged_newest_snapshot_is_a_note_and_the_next_older_intact_one_is_used(
    archive: MadeArchive, run: Run, tmp_path: Path
) -> None:
    """Two damaged ones of the cluster, far apart, and one of the groups."""
    keys = [put(archive, ClusterSnapshot, at, b"damaged") for at in (NOW - 5 * HOUR, NOW - MINUTE)]
    keys.append(put(archive, GroupsSnapshot, NOW - FIVE_MINUTES, gzip.compress(b"{}")))
    made = run("restore", "plan", tmp_path / "plan", "--brokers", 1, *named(archive))
    assert made.code == 0, made
    plan = json.loads((tmp_path / "plan" / "plan.json").read_bytes())
    assert plan["topics"]["t"]["configurations"] == {"retention.ms": str(NOW - 9 * HOUR)}
    assert plan["groups"]["offsets"] == {"g": {"t-0": (NOW - 3 * FIVE_MINUTES) % 97}}
    assert [note.split(": ")[1] for note in plan["notes"]] == keys
    assert [note.rpartition(", ")[2] for note in plan["notes"]] == [
        "240 minutes older",
        "539 minutes older",
        "10 minutes older",
    ]
    assert all(f"\nnote: {note}\n" in made.out for note in plan["notes"])


def test_no_intact_snapshot_is_as_none(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """The plan requires the replication factor then."""
    for at in (NOW - 5 * HOUR, NOW - 9 * HOUR):
        put(archive, ClusterSnapshot, at, b"damaged")
    refused = run("restore", "plan", tmp_path / "plan", "--brokers", 1, *named(archive))
    assert (refused.code != 0, "set --replication-factor" in refused.err) == (True, True)
    made = run("restore", "plan", tmp_path / "plan", "--brokers", 1, "--replication-factor", 1, *named(archive))
    assert (made.code, made.out.count("no older one is intact")) == (0, 2)


def test_what_no_snapshot_has_of_a_topic_is_a_note(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """With Kafka's defaults a compacted topic is not compacted, and with fewer partitions keys change theirs."""

    def notes(name: str, *options: object) -> list[str]:
        made = run("restore", "plan", tmp_path / name, "--brokers", 1, *options, *named(archive))
        assert made.code == 0, made
        found: list[str] = json.loads((tmp_path / name / "plan.json").read_bytes())["topics"]["t"]["partitions"]["0"][
            "notes"
        ]
        return found

    assert notes("known") == []
    topics = {"t": Topic(None, ((1,),), None)}  # denied
    ClusterSnapshot(NOW, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, NOW)
    (configurations,) = notes("denied")
    assert "no snapshot has the topic's configurations" in configurations
    chosen = tmp_path / "chosen.json"
    chosen.write_text('{"t":{}}')
    assert notes("chosen", "--configurations", chosen) == []
    ClusterSnapshot(NOW + MINUTE, 1, None, {}, {}, (), (), ()).put(archive.store, archive.keys, NOW + MINUTE)
    (partitions, _) = notes("none", "--replication-factor", 1)
    assert "no snapshot has the number of partitions: 1 " in partitions


def test_a_snapshot_of_a_later_release_refuses_the_plan(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """It is not damaged: this release would restore an older state without need."""
    key = put(archive, ClusterSnapshot, NOW, gzip.compress(b'{"version":2}'))
    refused = run("restore", "plan", tmp_path / "plan", "--brokers", 1, *named(archive))
    assert refused.code != 0
    assert refused.err.startswith(f"tsctl: {key} is written in version 2 of its format by a later release")
    assert "upgrade this one" in refused.err
    assert not (tmp_path / "plan").exists()


@pytest.mark.full
def test_a_drill_warns_of_a_damaged_snapshot(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """And succeeds."""
    key = put(archive, GroupsSnapshot, NOW - FIVE_MINUTES, b"damaged")
    ended = run("drill", "--kafka", kafka_directory("4"), "--whole", "--directory", tmp_path, *named(archive))
    assert (ended.code, f"tsctl: damaged snapshot: {key}: " in ended.err) == (0, True), ended
