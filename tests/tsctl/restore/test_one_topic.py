"""One deleted topic is restored by a seed or by restarts, while the brokers serve the others."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka.admin import AdminClient

from dev.local.kafka.broker import Broker
from dev.local.kafka.cluster import LocalCluster, Mode, wait_for
from dev.local.oracle import OracleRecord, dump
from tests.archive import record_of
from tests.common.log_format.build import TRANSACTIONAL, batch
from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.restore.lost import LEVELS
from tests.tsctl.restore.serving import (
    GROUP,
    HOMES,
    ORDERS,
    OTHER,
    SEED,
    Applications,
    Key,
    agents_of,
    fence,
    put_snapshots,
    seed_of,
    serving_cluster,
    wait_for_watermarks,
)
from tests.tsctl.running import PROGRAM, Ended, Run, runner
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.restored import Restored
from ts_common.archive.snapshots import FIVE_MINUTES, MINUTE, ClusterSnapshot, GroupOffset, GroupsSnapshot, Topic
from ts_common.model import TopicPartition
from ts_reader import Archive as Reader
from tsctl.restore.new_cluster import NewCluster
from tsctl.restore.serving_cluster import RATE
from tsctl.verify.kafka_cluster import KafkaCluster, metadata_of

_SECONDS = 120
Way = Literal["seed", "restarts"]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""
    return runner(capfd)


@pytest.fixture(scope="module")
def alone() -> Iterator[LocalCluster]:
    """One broker; the seed is in its cluster only in the last test, because clients can draw it later."""
    with serving_cluster("kraft", brokers=1, s3=False) as cluster:
        yield cluster


def test_a_topic_of_one_replica_is_restored_by_a_restart_of_its_broker(
    alone: LocalCluster, run: Run, tmp_path: Path
) -> None:
    """Its home gets the files, so nothing moves: no step may skip the groups, or fence the topic again."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("u", 0, batches(*steps(0, 90)))
    archive.commit("u", 90, highest_base=0)
    archive.put_incarnations("u", "A" * 22)
    u0, now = TopicPartition("u", 0), int(time.time() * 1000)
    topics = {"u": Topic(None, ((1,),), {})}
    ClusterSnapshot(now, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, now // MINUTE * MINUTE)
    groups = GroupsSnapshot(now, {GROUP: {u0: GroupOffset(30, 0, "")}})
    groups.put(archive.store, archive.keys, now // FIVE_MINUTES * FIVE_MINUTES)
    tried = partial(tried_in, run, tmp_path / "restore")
    named = ("--url", archive.location, "--cluster", "prod", "--entropy-bits", "0")
    brokers, broker = ("--bootstrap-server", alone.bootstrap), alone.brokers[1]
    on = ("--server-properties", broker.server_properties)
    alone.create_topic("other")
    NewCluster(alone.bootstrap, {}).set_offsets(GROUP, {TopicPartition("other", 0): 0})
    plan = done(tried("plan", "u", "--brokers", "1", "--restart", "1,7", *brokers, *named))
    assert "note: while broker 1 is stopped, partitions there have no leader" in plan.out  # broker 7 gets no file
    for _ in range(2):
        done(tried("create", *brokers, *named))
    assert "one broker at a time, while it runs" in done(tried("fetch", *on, *named)).out
    place_when_stopped(broker, tmp_path / "restore", *on, *brokers)
    broker.start()
    kafka = KafkaCluster(alone.bootstrap, {})
    refused(tried("finish", *brokers, "--configurations"), "run `tsctl restore move` first")
    assert kafka.settings(["u"])["u"]["max.message.bytes"] == "78"
    done(tried("move", *brokers))
    done(tried("finish", *brokers, "--configurations"))
    refused(tried("create", *brokers, *named), "broker 1 has placed its files")
    assert kafka.group_offsets(GROUP)[u0] == 30
    assert kafka.settings(["u"])["u"]["max.message.bytes"] != "78"
    assert [each.offset for each in kafka.records(u0, 0, 90)] == [*range(90)]


def test_a_seed_restores_a_topic_while_another_broker_runs(alone: LocalCluster, run: Run, tmp_path: Path) -> None:
    """Each step can be repeated, losses are refused, and Kafka tracks a transaction that is left open."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 5, batches(*steps(5, 95)))
    opened = batch(95, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=3)
    archive.put_segment("t", 95, opened + batches(*steps(96, 156)))
    archive.commit("t", 156, log_start=5, highest_base=95, last_stable_offset=95)
    archive.put_incarnations("t", "A" * 22)
    directory, wanted = tmp_path / "restore", tmp_path / "configurations.json"
    wanted.write_text('{"t":{"retention.ms":"-1"}}')

    def tried(name: str, *arguments: object) -> Ended:
        return run("restore", name, directory, *arguments)

    def step(name: str, *arguments: object) -> Ended:
        found = tried(name, *arguments)
        assert found.code == 0, (name, found)
        return found

    def refused(text: str, name: str, *arguments: object) -> None:
        found = tried(name, *arguments)
        assert (found.code, text in found.err) == (2, True), (name, found)

    named = ("--url", archive.location, "--cluster", "prod", "--entropy-bits", "0")
    brokers = ("--bootstrap-server", alone.bootstrap)
    alone.create_topic("t")
    producer = alone.producer({"transactional.id": "app", "transaction.timeout.ms": 600_000})
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    producer.produce("t", b"open")
    producer.flush(_SECONDS)
    alone.delete_topic("t")
    with seed_of(alone, "kraft", is_fenced=False) as seed:
        chosen = (
            "--brokers",
            "1",
            "--replication-factor",
            "1",
            "--seed",
            f"{SEED}@{seed.bootstrap}",
            "--configurations",
            wanted,
        )
        refused("the transaction of app is Ongoing and names t", "plan", "t", *chosen, *brokers, *named)
        producer.abort_transaction(_SECONDS)
        step("plan", "t", *chosen, *brokers, *named)
        refused("broker 9 accepts clients", "create", *brokers, *named)
        fence(seed)
        seed.restart()
        on = ("--server-properties", seed.server_properties)
        for _ in range(2):
            step("create", *brokers, *named)
        for _ in range(2):
            assert "; stop broker 9 cleanly, and only this one" in step("fetch", *on, *named).out
        refused("broker 9 runs", "place", *on)
        seed.stop()
        for _ in range(2):
            step("place", *on)
        step("check", *on)
        seed.start()
        NewCluster(alone.bootstrap, {}, SEED).create("late", [[SEED]], {})
        refused("broker 9 has other replicas: late-0", "move", *brokers)
        delete_topic(alone, "late")
        serving = NewCluster(alone.bootstrap, {}, SEED)
        serving.configure_broker(1, RATE, "1000")
        refused(f"{RATE}=1000 is set", "move", *brokers, "--throttle", "50")
        serving.configure_broker(1, RATE, None)
        found = step("move", *brokers, "--throttle", "50")
        assert f"broker {SEED} has no replica: stop it" in found.out
        refused("broker 9 has placed its files", "create", *brokers, *named)
    step("finish", *brokers, "--configurations")
    kafka = KafkaCluster(alone.bootstrap, {}, SEED)
    topic_id = kafka.topics()["t"].topic_id
    t0 = TopicPartition("t", 0)
    assert kafka.bounds([t0]) == {t0: (5, 156)}
    offsets = {level: [each.offset for each in kafka.records(t0, 5, 156, level)] for level in LEVELS}
    assert offsets == {"read_uncommitted": [*range(5, 156)], "read_committed": [*range(5, 95)]}
    settings = kafka.settings(["t"])["t"]
    assert settings["follower.replication.throttled.replicas"] == ""
    record = Restored.read(archive.store, archive.keys.restored)
    assert record is not None
    assert record.topics.keys() == {f"t~{topic_id}"}


def delete_topic(cluster: LocalCluster, name: str) -> None:
    """Delete a topic by a broker that clients reach: `LocalCluster` can draw the seed."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    metadata_of(admin, SEED)
    admin.delete_topics([name])[name].result(_SECONDS)


@pytest.mark.full
@pytest.mark.parametrize("way", ["seed", "restarts"])
@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_topic_deleted_under_load_is_restored_while_its_applications_run(
    mode: Mode, way: Way, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records have their offsets on both replicas, nothing acknowledged is lost, and the archive has no hole."""
    with serving_cluster(mode) as cluster, agents_of(cluster, tmp_path) as archive:
        for name, value in archive.s3.environment().items():
            monkeypatch.setenv(name, value)
        tried = partial(tried_in, run, tmp_path / "restore")
        if way == "seed":
            check_came_back(cluster, archive, lambda each: restore_by_seed(mode, cluster, archive, each, tried))
        else:
            check_came_back(cluster, archive, lambda each: restore_by_restarts(cluster, archive, each, tried))


def check_came_back(cluster: LocalCluster, archive: Archive, restore: Callable[[Applications], None]) -> None:
    segments = {"segment.bytes": "20000"}
    for topic in (ORDERS, OTHER):
        cluster.create_topic(topic, assignment=HOMES, config=segments)
    applications = Applications(cluster)
    try:
        applications.consume()
        wait_for(
            lambda: len(applications.committed) > 20 and len(applications.consumed) > 300, "some records", _SECONDS
        )
        applications.stop_consuming()
        committed = offsets_of(cluster)
        applications.consume()
        applications.pause()
        wait_for_watermarks(cluster, ORDERS)
        before, ends = read(cluster), {number: cluster.latest(ORDERS, number) for number in range(len(HOMES))}
        put_snapshots(archive, committed, {"retention.ms": "-1"})
        cluster.delete_topic(ORDERS)
        applications.resume()
        for number, end in ends.items():
            archive.wait_for_offset(end, number, seconds=_SECONDS)
        restore(applications)
        cluster.alter_config(ORDERS, segments)  # earlier it can draw the seed
        done = len(applications.committed)
        wait_for(lambda: len(applications.committed) > done + 10, "new transactions", _SECONDS)
        wait_for(
            lambda: {number for number, offset in applications.consumed if offset >= ends[number]} == ends.keys(),
            "the group to get new records",
            _SECONDS,
        )
        for number in ends:
            first = min(offset for partition, offset in applications.consumed if partition == number)
            left = [at for topic, partition, at in before["read_committed"] if (topic, partition) == (ORDERS, number)]
            # The committed offset can be that of a marker, or of an aborted record.
            assert first == min((at for at in left if at >= committed[number]), default=first)
    finally:
        applications.close()
    after = read(cluster)
    for level in LEVELS:
        assert {key: each for key, each in after[level].items() if key in before[level]} == before[level]
        old = {key for key in after[level] if key[0] == ORDERS and key[2] < ends[key[1]]}
        assert old == {key for key in before[level] if key[0] == ORDERS}, level
    values = {key: each.value for key, each in after["read_uncommitted"].items()}
    assert {key: values.get(key) for key in applications.acknowledged} == applications.acknowledged
    shown = [each.value for key, each in after["read_committed"].items() if key[0] == ORDERS]
    assert {value: shown.count(value) for value in applications.committed} == dict.fromkeys(applications.committed, 2)
    for number in ends:
        one, other = (
            b"".join(path.read_bytes() for path in sorted(broker.partition_directory(ORDERS, number).glob("*.log")))
            for broker in cluster.brokers.values()
        )
        assert one == other
    check_archive(cluster, archive, ends, after)


def restore_by_seed(
    mode: Mode, cluster: LocalCluster, archive: Archive, applications: Applications, tried: Callable[..., Ended]
) -> None:
    """Run the steps with a seed; no serving broker restarts."""
    config, brokers = ("--config", archive.config), ("--bootstrap-server", cluster.bootstrap)
    processes = {number: broker.pid for number, broker in cluster.brokers.items()}
    with seed_of(cluster, mode) as seed:
        done(tried("plan", ORDERS, "--brokers", "1,2", "--seed", f"{SEED}@{seed.bootstrap}", *brokers, *config))
        refused(tried("create", *brokers, *config), f"group {GROUP} has members")
        applications.stop_consuming()
        done(tried("create", *brokers, *config))
        applications.consume()
        on = ("--server-properties", seed.server_properties)
        done(tried("fetch", *on, *config))
        seed.stop()
        done(tried("place", *on))
        done(tried("check", *on))
        seed.start()
        done(tried("move", *brokers, "--throttle", "100"))
        done(tried("finish", *brokers))
        done(tried("finish", *brokers, "--configurations"))
        assert not [path for each in seed.log_dirs for path in each.glob(f"{ORDERS}-*[0-9]")]
        seed.stop()
    assert {number: broker.pid for number, broker in cluster.brokers.items()} == processes


def restore_by_restarts(
    cluster: LocalCluster, archive: Archive, applications: Applications, tried: Callable[..., Ended]
) -> None:
    """Run the steps without a seed: each broker is restarted, while the other serves; the fence refuses records.

    The transactional application runs: its transactions that name the empty topic must end.
    """
    config, brokers = ("--config", archive.config), ("--bootstrap-server", cluster.bootstrap)
    for agent in archive.agents:
        agent.kill()
    plan = done(tried("plan", ORDERS, "--brokers", "1,2", "--restart", "1,2", *brokers, *config))
    assert "orders-0: offsets" in plan.out
    refused(tried("create", *brokers, *config), f"group {GROUP} has members")
    applications.stop_consuming()
    done(tried("create", *brokers, *config))
    for broker in cluster.brokers.values():
        done(tried("fetch", "--server-properties", broker.server_properties, *config))
    named = len(applications.aborted)
    wait_for(lambda: len(applications.aborted) > named + 3, "transactions that the fence refused to end", _SECONDS)
    for broker, other in zip(cluster.brokers.values(), reversed(cluster.brokers.values()), strict=True):
        on = ("--server-properties", broker.server_properties, *brokers)
        other.stop()
        refused(tried("place", *on), "a replica is out of sync")
        other.start()
        wait_for(lambda: not is_behind(cluster), "every replica to be in sync", _SECONDS)
        place_when_stopped(broker, archive.config.parent / "restore", *on)
        refused(tried("place", *on), "this host was checked before")
        broker.start()
        wait_for(lambda: not is_behind(cluster), "every replica to be in sync", _SECONDS)
    done(tried("move", *brokers, "--throttle", "100"))
    applications.consume()
    done(tried("finish", *brokers))
    done(tried("finish", *brokers, "--configurations"))
    for number in cluster.brokers:
        archive.agent(number)


def place_when_stopped(broker: Broker, *arguments: object) -> None:
    """Run `place` while a broker runs, and stop the broker once the command names it."""
    command = [PROGRAM, "restore", "place", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as placing:
        assert placing.stdout is not None
        line = placing.stdout.readline()
        assert "stop broker" in line, (line, placing.communicate())
        broker.stop()
        out, err = placing.communicate(timeout=_SECONDS)
    assert (placing.returncode, "start broker" in out) == (0, True), (out, err)


def tried_in(run: Run, directory: Path, name: str, *arguments: object) -> Ended:
    return run("restore", name, directory, *arguments)


def done(found: Ended) -> Ended:
    assert found.code == 0, found
    return found


def refused(found: Ended, text: str) -> None:
    assert (found.code, text in found.err) == (2, True), found


def is_behind(cluster: LocalCluster) -> bool:
    found = NewCluster(cluster.bootstrap, {}).replicas().values()
    return any(leader < 0 or len(in_sync) < len(replicas) for replicas, in_sync, leader in found)


def offsets_of(cluster: LocalCluster) -> dict[int, int]:
    found = KafkaCluster(cluster.bootstrap, {}).group_offsets(GROUP)
    return {each.partition: offset for each, offset in found.items() if each.topic == ORDERS}


def read(cluster: LocalCluster) -> dict[str, dict[Key, OracleRecord]]:
    return {
        level: {
            (each.topic, each.partition, each.offset): each for each in dump(cluster.bootstrap, [ORDERS, OTHER], level)
        }
        for level in LEVELS
    }


def check_archive(
    cluster: LocalCluster, archive: Archive, ends: dict[int, int], after: dict[str, dict[Key, OracleRecord]]
) -> None:
    """Check that readers return what Kafka returns, from the first record on, below the new place's next offset."""
    topic_id = KafkaCluster(cluster.bootstrap, {}).topics()[ORDERS].topic_id
    places = {number: archive.keys.partition(TopicPartition(ORDERS, number), f"{ORDERS}~{topic_id}") for number in ends}

    def shipped() -> dict[int, int]:
        commits = {number: read_commit(archive.store, keys)[0] for number, keys in places.items()}
        return {number: each.next_offset for number, each in commits.items() if isinstance(each, Commit)}

    wait_for(
        lambda: all(shipped().get(number, 0) > end for number, end in ends.items()),
        "the new history to be shipped",
        _SECONDS,
        state=lambda: "\n".join(agent.tail(20) for agent in archive.agents),
    )
    for agent in archive.agents:
        agent.kill()
    reached = shipped()
    for level in LEVELS:
        scan = Reader(archive.location, archive.keys.cluster).scan(ORDERS, include_headers=True, isolation_level=level)
        rows = {(each.topic, each.partition, each.offset): each for each in map(record_of, scan.to_table().to_pylist())}
        expected = {key: each for key, each in after[level].items() if key[0] == ORDERS and key[2] < reached[key[1]]}
        if level == "read_committed":  # readers end at the last stable offset of the commit
            expected = {key: each for key, each in expected.items() if key in rows or key[2] < _stable(rows, key[1])}
        assert rows == expected, level


def _stable(rows: Mapping[Key, OracleRecord], number: int) -> int:
    return max((key[2] for key in rows if key[1] == number), default=0)
