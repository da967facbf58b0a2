"""Several processes as one cluster: real clients follow partitions and groups from one to another."""

import re
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from dev.local.jars import Line
from dev.local.jvm import java_command
from dev.local.waiting import wait_for
from tests.endpoint.running import PARTITIONS, RECORDS, TOPIC, Running, made_archive, running

# Small fetches and no queue: when a process ends, most records are not fetched yet.
_SLOWLY = {
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 1000,
    "enable.partition.eof": True,
}


# The end of a partition, and the connection to the process that was killed.
_EXPECTED = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Running]]:
    """Run four processes over one archive; a test ends one of them."""
    directory = tmp_path_factory.mktemp("cluster")
    with running(made_archive(directory / "archive").location, directory, 4) as found:
        yield found


@pytest.fixture
def cluster(started: list[Running]) -> list[Running]:
    """Return the processes that still run."""
    return [each for each in started if each.process.poll() is None]


def consumer_of(cluster: list[Running], group: str = "unused", **options: object) -> Consumer:
    servers = ",".join(each.address for each in cluster)
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **_SLOWLY,
            **options,
        }
    )


def leaders_of(consumer: Consumer) -> dict[int, int]:
    """Return the node id of each partition's leader, as the client sees it."""
    found = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    return {number: partition.leader for number, partition in found.items()}


def records_of(consumer: Consumer, wanted: int) -> dict[int, list[int]]:
    """Return the offsets of the next records by partition, in the order of their arrival."""
    found: dict[int, list[int]] = {}

    def one() -> bool:
        message: Any = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.setdefault(message.partition(), []).append(message.offset())
        elif message is not None:
            assert message.error().code() in _EXPECTED, message.error()
        return sum(map(len, found.values())) >= wanted

    wait_for(one, f"{wanted} records", 90, state=lambda: {number: len(each) for number, each in found.items()}, every=0)
    return found


def test_a_reader_continues_after_the_process_that_it_reads_from_was_killed(
    started: list[Running], cluster: list[Running]
) -> None:
    """Each record once and in order, without an error; the partitions move although their leader epoch is the same."""
    with closing(consumer_of(cluster)) as consumer:
        leaders = leaders_of(consumer)
        assert len({*leaders.values()}) > 1
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        before = records_of(consumer, 400)
        killed = leaders[0]
        victim = started[killed]
        victim.stop(signal.SIGKILL)
        after = records_of(consumer, PARTITIONS * RECORDS - 400)
        for number in range(PARTITIONS):
            assert before.get(number, []) + after[number] == list(range(RECORDS))
        now = leaders_of(consumer)
        assert killed not in now.values()
        assert {number: leader for number, leader in leaders.items() if leader != killed}.items() <= now.items()
    others = [each for each in cluster if each is not victim]
    assert all(each.facts("/readyz")["peers"][victim.address].startswith("down: ") for each in others)
    assert {each.metric(f'ts_endpoint_peer_up{{peer="{victim.address}"}}') for each in others} == {0}


@pytest.mark.full
@pytest.mark.parametrize("line", ["3.9", "4"])
def test_javas_consumer_continues_after_a_process_was_killed(tmp_path: Path, line: Line) -> None:
    """It can repeat records, as after any lost coordinator, but passes over none; the leader epoch does not change."""
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    slowly = {"max.partition.fetch.bytes": 200, "fetch.max.bytes": 400, "max.poll.records": 10}
    with running(made_archive(tmp_path / "archive").location, tmp_path, 3) as cluster:
        servers = ",".join(each.address for each in cluster)
        options = ["--bootstrap-server", servers, "--topic", TOPIC, "--from-beginning", "--group", "java"]
        options += ["--timeout-ms", "60000"]
        options += [word for name, value in slowly.items() for word in ("--consumer-property", f"{name}={value}")]
        options += ["--property", "print.partition=true", "--property", "print.offset=true"]
        command = java_command(line, main, options, heap_mb=128)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as consumer:
            following = dict.fromkeys(range(PARTITIONS), 0)
            assert consumer.stdout is not None
            for number, (partition, offset) in enumerate(_places(consumer.stdout)):
                if number == 500:
                    cluster[0].stop(signal.SIGKILL)
                assert offset <= following[partition], "passed over records"
                following[partition] = max(following[partition], offset + 1)
                if all(each == RECORDS for each in following.values()):
                    break
            consumer.kill()
    assert following == dict.fromkeys(range(PARTITIONS), RECORDS)


def _places(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield partition and offset of each record that the console consumer prints, between lines of its log."""
    for line in lines:
        if place := re.match(r"Partition:(\d+)\tOffset:(\d+)\t", line):
            yield int(place[1]), int(place[2])


def coordinator_of(cluster: list[Running], group: str) -> int:
    """Return the node id of a group's coordinator; two processes can have members for a while after the group moved."""
    admin = AdminClient({"bootstrap.servers": cluster[0].address})
    return int(admin.describe_consumer_groups([group])[group].result(30).coordinator.id)


def test_a_group_continues_at_its_offsets_after_its_coordinator_stopped(
    started: list[Running], cluster: list[Running]
) -> None:
    """The process hands over when it gets SIGTERM, and another one reads what it wrote to the store."""
    with closing(consumer_of(cluster, "readers")) as consumer:
        consumer.subscribe([TOPIC])
        before = records_of(consumer, 400)
        consumer.commit(asynchronous=False)
        coordinator = started[coordinator_of(cluster, "readers")]
        assert coordinator.stop() == 0
        assert "endpoint_stopped" in coordinator.log
        with closing(consumer_of(cluster, "readers")) as second:
            consumer.close()
            second.subscribe([TOPIC])
            after = records_of(second, PARTITIONS * RECORDS - 400)
    assert {number: before.get(number, []) + offsets for number, offsets in after.items()} == {
        number: list(range(RECORDS)) for number in range(PARTITIONS)
    }


@pytest.mark.full
def test_another_list_of_peers_is_shown_and_both_processes_serve(tmp_path: Path) -> None:
    """As during a change of the list, one process after another."""
    location = made_archive(tmp_path / "archive").location
    with running(location, tmp_path, 2) as (first, second):
        second.stop()
        port, http_port = (int(each.rpartition(":")[2]) for each in (second.address, second.http_address))
        peers = f"{first.address}={first.http_address},{second.address}={second.http_address},127.0.0.1:1=127.0.0.1:2"
        changed = Running(location, tmp_path / "changed.log", port, http_port, ["--peers", peers])
        try:
            changed.wait_until_ready()
            wait_for(lambda: "another --peers" in str(first.facts("/readyz")["peers"]), "the difference", 60)
            assert first.page("/readyz")[0] == 200
            assert first.metric("ts_endpoint_peers_differ") == 1
            assert "peers_differ" in first.log
        finally:
            changed.stop(signal.SIGKILL)
