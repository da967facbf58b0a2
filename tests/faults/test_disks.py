"""U11: brokers with two log dirs. Partitions move between disks while they are shipped, and a disk fails."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.kafka.tools import REASSIGN, output_of
from dev.local.proxy.actions import Hold
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.leaders import PATIENCE, Load, assert_shown, bases, wait_leadership_shipped, wait_led
from tests.uploader.beside import Archive


@pytest.fixture(scope="module")
def cluster(two_disks: LocalCluster) -> LocalCluster:
    """Two brokers of two log dirs each."""
    return two_disks


def log_dir(cluster: LocalCluster, topic: str, broker: int = 1) -> Path:
    """Return the log dir of partition 0 on a broker; a directory that is still being filled does not count."""
    return cluster.brokers[broker].partition_directory(topic, 0).parent


def order_move(cluster: LocalCluster, directory: Path, topic: str, brokers: list[int], to: Path) -> None:
    """Let broker 1 move partition 0 to another of its log dirs; the leader and the other replica stay."""
    places = [str(to) if broker == 1 else "any" for broker in brokers]
    plan = directory / "move.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [{"topic": topic, "partition": 0, "replicas": brokers, "log_dirs": places}],
            }
        )
    )
    arguments = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan), "--execute"]
    output_of(REASSIGN, arguments, seconds=PATIENCE)


def move(cluster: LocalCluster, directory: Path, topic: str, brokers: list[int], to: Path) -> None:
    """Move the partition, and wait until the directory has moved."""

    def moved() -> bool:
        if log_dir(cluster, topic) == to:
            return True
        order_move(cluster, directory, topic, brokers, to)
        return False

    wait_for(moved, f"{topic}-0 to lie in {to}", PATIENCE, state=lambda: log_dir(cluster, topic))


def other(cluster: LocalCluster, topic: str) -> Path:
    """Return the log dir of broker 1 without the partition."""
    here = log_dir(cluster, topic)
    return next(path for path in cluster.brokers[1].log_dirs if path != here)


def fill(cluster: LocalCluster, topic: str, start: int) -> dict[int, bytes]:
    """Produce some more segments; return values by offset. Nothing is produced while a directory moves.

    Kafka flushes a segment some time after it was rolled. If the log has moved meanwhile, Kafka treats the disk as
    failed.
    """
    rows = [Record(b"%07d-" % number + Random(number).randbytes(200)) for number in range(start, start + 1500)]
    cluster.produce(topic, rows, partition=0)
    return {start + number: row.value or b"" for number, row in enumerate(rows)}


def assert_shipped_once(
    cluster: LocalCluster, archive: Archive, proxy: S3FaultProxy, acknowledged: dict[int, bytes]
) -> None:
    """Check that every closed record is shown, each segment was put once under one name, and no gap was recorded."""
    end = wait_leadership_shipped(archive, 1)
    assert_shown(archive, acknowledged, end)
    assert [key for key in archive.objects() if "/gaps/" in key] == []
    puts = [request for request in proxy.requests() if request.method == "PUT" and request.path.endswith(".log")]
    landed = [Path(request.path).name for request in puts if request.server_status == 200]
    assert len(landed) == len({name.split(".")[0] for name in landed}), landed
    assert [f"{base:020d}.log" for base in bases(cluster, 1, archive.topic)[:-1]] == sorted(landed)


@pytest.mark.full
@pytest.mark.parametrize("moves", [12])
def test_u11_a_partition_that_moves_between_disks_is_shipped_once(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, tmp_path: Path, moves: int
) -> None:
    """It moves back and forth while it is shipped: each segment is put once, without a gap or a duplicate."""
    topic = f"moved-{moves}"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1, 2]])
    archive.agent(1)
    acknowledged: dict[int, bytes] = {}
    for _ in range(moves):
        acknowledged |= fill(cluster, topic, len(acknowledged))
        move(cluster, tmp_path, topic, [1, 2], other(cluster, topic))
    acknowledged |= fill(cluster, topic, len(acknowledged))
    assert_shipped_once(cluster, archive, proxy, acknowledged)


def test_u11_a_partition_that_moves_during_an_upload_is_shipped_once(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """The proxy holds a PUT until the file is deleted: the agent ships the segment whole, and each segment once.

    The proxy lets the first segment pass, so that there is a commit. Without one, the epoch that the move begins
    starts a new lineage, and ships again what the old epoch shipped.
    """
    topic = "held"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1, 2]])
    held = Hold()
    proxy.script(Rule(held, methods={"PUT"}, target=r"(?<!/0{20})\.log$"))
    archive.agent(1)
    acknowledged = fill(cluster, topic, 0)
    wait_for(lambda: held.fired > 0, "a segment on its way up", PATIENCE)
    archive.wait_for_offset(1)
    here = log_dir(cluster, topic)
    move(cluster, tmp_path, topic, [1, 2], other(cluster, topic))
    wait_for(lambda: not list(here.glob(f"{topic}-0*")), "the old directory to be gone", 2 * PATIENCE)
    held.release()
    acknowledged |= fill(cluster, topic, len(acknowledged))
    assert_shipped_once(cluster, archive, proxy, acknowledged)


# `tests/uploader/tracking/test_live_directories.py` has the choice without a broker.
@pytest.mark.full
def test_u40_of_the_two_directories_that_a_move_cut_short_left_the_living_one_is_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """The broker renamed the new directory to the live name, and failed to rename the old one away.

    The agent starts with both, and ships the one that the broker writes to, while both exist and after an operator
    removed the old one.
    """
    topic = "cut-short"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    first, second = cluster.brokers[1].log_dirs
    acknowledged = fill(cluster, topic, 0)
    move(cluster, tmp_path, topic, [1, 2], first)
    left, kept = first / f"{topic}-0", first.parent / "kept"
    shutil.copytree(left, kept)
    for log in kept.glob("*.log"):
        log.write_bytes(bytes(log.stat().st_size))  # an agent that ships it would reveal that
    move(cluster, tmp_path, topic, [1, 2], second)
    acknowledged |= fill(cluster, topic, len(acknowledged))
    end = bases(cluster, 1, topic)[-1]
    assert left.parent == first
    kept.rename(left)
    try:
        agent = archive.agent(1)
        archive.wait_for_offset(end)
        assert_shown(archive, acknowledged, end)
        acknowledged |= fill(cluster, topic, len(acknowledged))
        archive.wait_for_offset(len(acknowledged) - 500)
        warnings = [line for line in agent.log.read_text().splitlines() if "partition_has_several_directories" in line]
    finally:
        shutil.rmtree(left)
    acknowledged |= fill(cluster, topic, len(acknowledged))
    end = wait_leadership_shipped(archive, 1)
    assert_shown(archive, acknowledged, end)
    assert len(warnings) == 1
    assert [key for key in archive.objects() if "/gaps/" in key or ".e" in key] == []


@pytest.fixture
def repaired(cluster: LocalCluster) -> Iterator[None]:
    """Restore the disks of broker 1 after the test."""
    yield
    broker = cluster.brokers[1]
    broker.kill()
    for gone in broker.directory.glob("*.gone"):
        gone.rename(gone.with_suffix(""))
    broker.start()


@pytest.mark.usefixtures("repaired")
@pytest.mark.full
def test_u11_a_disk_that_fails_affects_nothing_on_the_other(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """Broker 1 loses a log dir: partitions on the other are shipped on, the rest by the new leader's agent."""
    topic = "failing"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2], [1, 2]])
    agents = [archive.agent(broker) for broker in (1, 2)]
    broker = cluster.brokers[1]
    failing, healthy = 0, 1
    if log_dir(cluster, topic) == broker.partition_directory(topic, healthy).parent:
        move(cluster, tmp_path, topic, [1, 2], other(cluster, topic))
    disk = log_dir(cluster, topic)
    with Load(cluster, topic, 2) as load:
        wait_further(archive, failing, healthy)
        disk.rename(disk.with_name(f"{disk.name}.gone"))
        wait_led(cluster, topic, 2, failing)
        wait_led(cluster, topic, 1, healthy)
        wait_further(archive, failing, healthy)
    for partition, leader in ((failing, 2), (healthy, 1)):
        end = wait_leadership_shipped(archive, leader, partition)
        assert_shown(archive, load.acknowledged[partition], end, partition)
    assert [agent.health()["dead_threads"] for agent in agents] == [[], []]


def wait_further(archive: Archive, *partitions: int) -> None:
    """Wait until each partition has committed some more."""
    seen = {partition: archive.next_offset(partition) for partition in partitions}
    wait_for(
        lambda: all(archive.next_offset(partition) > before for partition, before in seen.items()),
        "more of each partition to be shipped",
        PATIENCE,
        state=lambda: seen,
    )
