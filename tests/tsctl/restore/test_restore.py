"""A lost cluster is put back as files, at its original offsets."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError as TheirError
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as TheirPartition

from dev.local.kafka.broker import Broker
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.tsctl.restore.continued import ship_on
from tests.tsctl.restore.killing import KILLED, Killer
from tests.tsctl.restore.lost import (
    ABORTED,
    COMMITTED,
    COMPACTED,
    GROUPS,
    PLAIN,
    TOPICS,
    TORN,
    TRANSACTIONS,
    Key,
    Lost,
    Restore,
    group_member,
    lost_cluster,
    read_all,
)
from tests.tsctl.running import Ended, Run, runner
from ts_common.archive.restored import Restored
from ts_common.log_format.checkpoints import parse_leader_epoch_checkpoint
from ts_common.model import TopicPartition
from tsctl.verify.kafka_cluster import KafkaCluster

_SECONDS = 60
NEWEST: Final[Mapping[str, Any]] = {"mode": "kraft", "own_controller": True}
OLDER: Final[Mapping[str, Any]] = {**NEWEST, "line": "3.9"}
ZOOKEEPER: Final[Mapping[str, Any]] = {"mode": "zookeeper"}


@pytest.fixture(scope="module")
def lost(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """Lose a cluster of two brokers, or of one, after its closed segments were shipped; 1 was its controller too."""
    brokers, directory = getattr(request, "param", 2), tmp_path_factory.mktemp("lost")
    with lost_cluster(directory, brokers, mode="kraft") as found, pytest.MonkeyPatch.context() as patched:
        for name, value in found.archive.s3.environment().items():
            patched.setenv(name, value)
        yield found


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""
    return runner(capfd)


@pytest.mark.parametrize(
    ("lost", "brokers"), [(1, 1), pytest.param(2, 2, marks=pytest.mark.full)], indirect=["lost"], ids=["one", "two"]
)
def test_a_lost_cluster_has_every_archived_record_at_its_offset(
    lost: Lost, brokers: int, run: Run, tmp_path: Path
) -> None:
    """In both isolation levels, on each replica; groups continue, and the first new records are there."""
    with LocalCluster(brokers, mode="kraft", own_controller=brokers > 1, log_dirs=2, name="restored") as cluster:
        check_restored(lost, cluster, Restore(run, lost, cluster, tmp_path / "restore"))
        ship_on(lost, cluster)


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "new"),
    [(NEWEST, OLDER), (NEWEST, ZOOKEEPER), (OLDER, NEWEST), (ZOOKEEPER, ZOOKEEPER), (ZOOKEEPER, NEWEST)],
    ids=["4-to-3.9", "4-to-zookeeper", "3.9-to-4", "zookeeper-to-itself", "zookeeper-to-4"],
)
def test_other_versions_and_modes_get_the_files_too(
    old: Mapping[str, Any], new: Mapping[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From and to Kafka 3.9, with and without ZooKeeper."""
    directory = tmp_path / "lost"
    directory.mkdir()
    with lost_cluster(directory, **old) as lost:
        for name, value in lost.archive.s3.environment().items():
            monkeypatch.setenv(name, value)
        with LocalCluster(2, **new, log_dirs=2, name="restored") as cluster:
            check_restored(lost, cluster, Restore(run, lost, cluster, tmp_path / "restore"))


@pytest.mark.full
def test_p02_a_cut_by_time_gives_divided_transactions_their_true_end(lost: Lost, run: Run, tmp_path: Path) -> None:
    """If a restored partition has the marker below the cut, else they are aborted; the plan lists each."""
    with LocalCluster(2, **NEWEST, log_dirs=2, name="cut") as cluster:
        steps = Restore(run, lost, cluster, tmp_path / "restore")
        steps.up_to_finish(TORN, "--at", f"@{lost.torn_at}", "--replication-factor", "2")
        notes = re.findall(r"open at \d+: (\w+ \(.+\))$", (steps.directory / "plan.txt").read_text(), re.MULTILINE)
        nowhere = "abort (no restored partition has its marker)"
        assert notes == [nowhere, "commit (as in torn-0)", nowhere, "abort (as in torn-0)"]
        found = {
            level: sorted((partition, record.value) for (_, partition, _), record in records.items())
            for level, records in read_all(cluster, [TORN]).items()
        }
        assert found == {
            "read_committed": [(0, COMMITTED), (1, COMMITTED)],
            "read_uncommitted": [
                (0, ABORTED),
                (0, ABORTED),
                (0, COMMITTED),
                (1, COMMITTED),
                (2, ABORTED),
                (3, ABORTED),
            ],
        }


@pytest.mark.full
def test_a_second_loss_gives_back_the_records_of_both_clusters(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restored cluster ships, is lost and is restored; the third one ships too, and readers show all three."""
    directory = tmp_path / "lost"
    directory.mkdir()
    with lost_cluster(directory, **NEWEST) as lost:
        for name, value in lost.archive.s3.environment().items():
            monkeypatch.setenv(name, value)
        with LocalCluster(2, **NEWEST, log_dirs=2, name="second") as cluster:
            Restore(run, lost, cluster, tmp_path / "first").up_to_finish()
            again = ship_on(lost, cluster)
        with LocalCluster(2, **NEWEST, log_dirs=2, name="third") as cluster:
            check_restored(again, cluster, Restore(run, again, cluster, tmp_path / "second"))
            ship_on(again, cluster)


@pytest.mark.full
def test_a_recovery_would_lose_the_first_records_of_new_producers(lost: Lost, run: Run, tmp_path: Path) -> None:
    """Without the mark of the clean stop the old producers' state is rebuilt: why the restore keeps it."""
    with LocalCluster(2, **NEWEST, log_dirs=2, name="recovered") as cluster:
        steps = Restore(run, lost, cluster, tmp_path / "restore")
        steps.up_to_check()
        for broker in cluster.brokers.values():
            for log_dir in broker.log_dirs:
                (log_dir / ".kafka_cleanshutdown").unlink()
                (log_dir / "recovery-point-offset-checkpoint").unlink()
        steps.start()
        # Each broker has ids of its own, and a producer gets one from any broker: not each new id is an old one.
        assert any(loses_first_writes(cluster) for _ in range(20))


@pytest.mark.full
@pytest.mark.parametrize("new", [NEWEST, ZOOKEEPER], ids=["kraft", "zookeeper"])
def test_p01_a_restore_whose_steps_are_killed_again_and_again_is_the_same(
    lost: Lost, tmp_path: Path, new: Mapping[str, Any]
) -> None:
    """Each step, on real disks and on a real cluster; a half placed broker ends at its start, and stays clean."""
    directory, refused = tmp_path / "restore", set[int]()
    with LocalCluster(2, **new, log_dirs=2, name="killed") as cluster:
        killer = Killer(tmp_path, cluster.directory, environment=lost.archive.s3.environment())

        def run(*arguments: object) -> Ended:
            for before, at in pairwise(fibonacci()):
                ended = killer.run(at, *arguments)
                if ended.code != KILLED:
                    is_planned = "exists; a plan is not changed" in ended.err and (directory / "plan.txt").exists()
                    return replace(ended, code=0) if is_planned else ended
                for broker in cluster.brokers.values() if arguments[1] == "place" and before > 20 else ():
                    meta = broker.log_dirs[0] / "meta.properties"
                    if broker.id in refused or "locked-by" not in meta.read_text():
                        continue
                    refused.add(broker.id)
                    check = ("restore", "check", directory, "--server-properties", broker.server_properties)
                    assert killer.run(0, *check).code == 2
                    broker.launch()
                    _wait_for_end(broker)
            raise AssertionError

        check_restored(lost, cluster, Restore(run, lost, cluster, directory))
    assert refused == {1, 2}
    assert killer.kills > 50


def _wait_for_end(broker: Broker) -> None:
    wait_for(lambda: not broker.alive, f"{broker.name} to end", _SECONDS, state=broker.tail)


def fibonacci() -> Iterator[int]:
    """Yield 1, 2, 3, 5, 8 and so on."""
    one, other = 1, 2
    while True:
        yield one
        one, other = other, one + other


def loses_first_writes(cluster: LocalCluster) -> bool:
    """Return whether new producers lose a record that was acknowledged, or are refused."""
    try:
        acknowledged = first_writes(cluster)
    except KafkaException:  # OUT_OF_ORDER_SEQUENCE_NUMBER, if the old producer of the id wrote more
        return True
    found = read_all(cluster)["read_uncommitted"]
    return any(key not in found or found[key].value != value for key, value in acknowledged)


def check_restored(lost: Lost, cluster: LocalCluster, steps: Restore) -> None:
    """Restore; compare records, starts, replicas and indexes, then with the configurations groups and new records."""
    steps.up_to_finish()
    assert read_all(cluster) == lost.records
    for partition, start in lost.starts.items():
        assert cluster.earliest(partition.topic, partition.partition) == start
        places = [broker.partition_directory(*_name(partition)) for broker in cluster.brokers.values()]
        logs = [[path.read_bytes() for path in sorted(place.glob("*.log"))] for place in places]
        assert all(each == logs[0] for each in logs)
        if partition.topic != COMPACTED:
            _check_indexes(lost, partition, places[0])
    steps.configure()
    reading = KafkaCluster(cluster.bootstrap, {})
    assert {group: reading.group_offsets(group) for group in GROUPS} == GROUPS
    for group, offsets in GROUPS.items():
        for partition, offset in offsets.items():
            assert _next_of(cluster, group, partition) == offset
    written = first_writes(cluster)
    assert len({key for key, _ in written}) == len(written)
    found = read_all(cluster)["read_committed"]
    assert {key: found[key].value for key, _ in written} == dict(written)
    record = Restored.read(lost.archive.store, lost.archive.keys.restored)
    assert record is not None
    ids = {name: topic.topic_id for name, topic in KafkaCluster(cluster.bootstrap, {}).topics().items()}
    topics = {each: record.topics.get(f"{each}~{ids[each]}") or record.topics[each] for each in TOPICS}
    assert lost.ends == {
        TopicPartition(topic, number): part.end
        for topic, found in topics.items()
        for number, part in found.partitions.items()
    }


def _next_of(cluster: LocalCluster, group: str, partition: TopicPartition) -> int | None:
    """Return the offset of the first record that a member of a group gets."""
    with group_member(cluster, group) as consumer:
        consumer.assign([TheirPartition(partition.topic, partition.partition)])
        found = consumer.poll(_SECONDS)
        assert found is not None
        assert found.error() is None
        return found.offset()


def _check_indexes(lost: Lost, partition: TopicPartition, place: Path) -> None:
    """Compare the indexes of closed segments with those that the old broker wrote, byte for byte.

    A leader that starts again amid a segment begins to count the bytes since its last entry, and a new one does not.
    """
    prefix = lost.archive.keys.partition(partition).prefix
    shipped = {info.key.removeprefix(prefix) for info in lost.archive.store.list(prefix)}
    indexes = sorted(name for name in shipped if name.endswith("index"))
    bases = sorted({int(name.partition(".")[0]) for name in indexes})
    epochs = parse_leader_epoch_checkpoint((place / "leader-epoch-checkpoint").read_bytes())
    begun = {bases[max(bisect_right(bases, start) - 1, 0)] for _, start in epochs if start not in bases}
    compared = [name for name in indexes if int(name.partition(".")[0]) not in begun]
    assert len(compared) >= 2
    for name in compared:
        assert (place / name).read_bytes() == lost.archive.store.get(prefix + name)[0], name


def _name(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def first_writes(cluster: LocalCluster) -> list[tuple[Key, bytes]]:
    """Write by new, idempotent and transactional producers; return what was acknowledged."""
    acknowledged: list[tuple[Key, bytes]] = []

    def delivered(error: TheirError | None, message: Message) -> None:
        if error is None:
            place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
            acknowledged.append((place, message.value() or b""))

    for settings in ({"enable.idempotence": False}, {"enable.idempotence": True}, {"transactional.id": "late"}):
        producer = cluster.producer(settings)
        if "transactional.id" in settings:
            producer.init_transactions(_SECONDS)
            producer.begin_transaction()
        for topic in (PLAIN, TRANSACTIONS):
            for number in range(TOPICS[topic]):
                for each in range(10):
                    value = f"new {settings} {each}".encode()
                    producer.produce(topic, value, partition=number, on_delivery=delivered)
        assert producer.flush(_SECONDS) == 0
        if "transactional.id" in settings:
            producer.commit_transaction(_SECONDS)
    return acknowledged
