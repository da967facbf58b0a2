"""Groups with librdkafka's consumers and with `kafka-consumer-groups` of both lines of Kafka."""

import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from dev.local.jars import LINES, Line
from dev.local.jvm import java_command
from dev.local.kafka.tools import GROUPS, run_tool
from dev.local.waiting import wait_for
from tests.endpoint.running import PARTITIONS, RECORDS, TOPIC, Running, made_archive, running
from tests.matrix import cases


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one process over an archive with one topic."""
    directory = tmp_path_factory.mktemp("groups")
    with running(made_archive(directory / "archive").location, directory) as (found,):
        yield found


def consumer_of(endpoint: Running, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": endpoint.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )


def tool(endpoint: Running, line: Line, *arguments: str, code: int | None = 0) -> str:
    """Return what `kafka-consumer-groups` prints; without a `code`, whatever its exit code is."""
    words = ["--bootstrap-server", endpoint.address, *arguments]
    if line == "4":
        status, printed = run_tool(GROUPS, words)
    else:
        command = java_command(line, GROUPS, words, heap_mb=128)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        status, printed = done.returncode, done.stdout.decode()
    assert code in {None, status}, printed
    return printed


def cells(printed: str, group: str) -> list[list[str]]:
    """Return the cells after the group's name of the lines that begin with it."""
    return [line.removeprefix(group).split() for line in printed.splitlines() if line.startswith(f"{group} ")]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_consumers_share_the_partitions_of_a_topic(endpoint: Running, strategy: str) -> None:
    """Each has half of them. When one leaves, the other continues where it committed."""
    group = f"shared-{strategy}"
    options = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
    with closing(consumer_of(endpoint, group, **options)) as first:
        second = consumer_of(endpoint, group, **options)

        def share() -> bool:
            for each in (first, second):
                each.poll(0.01)
            return [len(each.assignment()) for each in (first, second)] == [PARTITIONS // 2] * 2

        for each in (first, second):
            each.subscribe([TOPIC])
        wait_for(share, "two halves", 90, every=0)
        halves = [{each.partition for each in one.assignment()} for one in (first, second)]
        assert halves[0] | halves[1] == set(range(PARTITIONS))
        second.commit(offsets=[TopicPartition(TOPIC, number, 400) for number in halves[1]], asynchronous=False)
        second.close()
        received: dict[int, int] = {}

        def takes_over() -> bool:
            message = first.poll(0.05)
            if message is not None and message.error() is None:
                received.setdefault(message.partition() or 0, message.offset() or 0)
            return halves[1] <= received.keys()

        wait_for(takes_over, "records of the other half", 90, state=lambda: received, every=0)
        assert {number: received[number] for number in halves[1]} == dict.fromkeys(halves[1], 400)


@pytest.mark.parametrize("line", cases(LINES, quick=["4"]))
def test_the_tool_of_kafka_shows_resets_and_deletes_groups(endpoint: Running, line: Line) -> None:
    """Members, offsets and lag while a consumer runs; a reset to another offset and a deletion afterwards."""
    group = f"tool {line}/ü"
    with closing(consumer_of(endpoint, group, **{"client.id": "reader"})) as consumer:
        consumer.subscribe([TOPIC])
        wait_for(
            lambda: consumer.poll(0.05) is not None and len(consumer.assignment()) == PARTITIONS, "all", 90, every=0
        )
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 300)], asynchronous=False)
        assert group in tool(endpoint, line, "--list").splitlines()
        described = sorted(cells(tool(endpoint, line, "--describe", "--group", group), group))
        assert len(described) == PARTITIONS
        assert described[0][:5] == [TOPIC, "0", "300", str(RECORDS), str(RECORDS - 300)]
        assert described[0][5].startswith("reader-")
        assert described[0][6:] == ["/127.0.0.1", "reader"]
        assert {each[2] for each in described[1:]} == {"-"}
        members = cells(tool(endpoint, line, "--describe", "--group", group, "--members"), group)
        assert members[0][1:] == ["/127.0.0.1", "reader", str(PARTITIONS)]
        refused = tool(endpoint, line, "--delete", "--group", group, code=None)
        assert "not empty" in refused
    reset = ["--reset-offsets", "--group", group, "--topic", TOPIC, "--to-offset", "700", "--execute"]
    tool(endpoint, line, *reset)
    described = cells(tool(endpoint, line, "--describe", "--group", group), group)
    assert [each[2] for each in described] == ["700"] * PARTITIONS
    assert f"'{group}'" in tool(endpoint, line, "--delete", "--group", group)
    assert group not in tool(endpoint, line, "--list").splitlines()
