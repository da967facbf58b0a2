"""Real consumers of partitions that cannot be opened: they report it, and do not wait in silence."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition
from kio.schema.errors import ErrorCode

from dev.local.go_programs import franz_go, go_clients
from dev.local.jars import Line
from dev.local.waiting import wait_for
from tests.endpoint.network.java_tools import run_tool
from tests.endpoint.running import Running, running
from tests.made_archive import MadeArchive, batches
from ts_common.archive.object_keys import SegmentName

DAMAGED, NEWER, METADATA, LIST = TOPICS = ("damaged-commit", "newer-commit", "damaged-metadata", "damaged-list")
CODES = {DAMAGED: "commit-damaged", NEWER: "newer-format", METADATA: "segment-damaged", LIST: "incarnations-damaged"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An endpoint over an archive whose topics cannot be opened, each for another reason."""
    directory = tmp_path_factory.mktemp("lost")
    archive = MadeArchive(directory / "archive")
    for topic in TOPICS:
        archive.put_segment(topic, 0, batches((0, 10)))
        archive.commit(topic, 10)
    archive.store.put(archive.partition(DAMAGED).commit, b"what")
    archive.store.put(archive.partition(NEWER).commit, b"0" * 20 + b'\n{"version":3}\n')
    key = archive.partition(METADATA).segment(SegmentName(0))
    archive.store.put(key, batches((0, 10)) * 2, metadata={"ts-end": "many"})
    archive.store.put(archive.keys.incarnations(LIST), b"what")
    with running(archive.location, directory) as (found,):
        yield found


@pytest.mark.parametrize(
    ("topic", "begins_at"), [(DAMAGED, OFFSET_END), *((topic, OFFSET_BEGINNING) for topic in TOPICS)]
)
def test_librdkafka_reports_a_partition_that_cannot_be_opened(endpoint: Running, topic: str, begins_at: int) -> None:
    """From the start and from the end; the log has the code once for all clients, and a metric counts it."""
    consumer = Consumer({"bootstrap.servers": endpoint.address, "group.id": "g", "fetch.error.backoff.ms": 10})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, begins_at)])
        errors: list[int] = []

        def has_reported() -> bool:
            message: Any = consumer.poll(0.1)
            errors.extend([message.error().code()] if message is not None else [])
            return len(errors) >= 1

        wait_for(has_reported, "the error", 60, every=0)
    assert set(errors) == {ErrorCode.corrupt_message}
    named = [line for line in endpoint.log.splitlines() if "_lost" in line and f"code={CODES[topic]}" in line]
    assert len(named) == 1
    wait_for(lambda: endpoint.facts("/readyz")["lost_partitions"], "the number of the page", 60)


def test_kgo_ends_with_the_error(endpoint: Running) -> None:
    """It would repeat CORRUPT_MESSAGE in silence, and the program would report the end of the partition."""
    command = [str(franz_go()), endpoint.address, "read_uncommitted", DAMAGED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "INVALID_RECORD" in ended.stderr


@pytest.mark.full
@pytest.mark.parametrize("topic", TOPICS)
def test_the_reader_of_segmentio_ends_with_the_error(endpoint: Running, topic: str) -> None:
    """A member of a group returns it from `FetchMessage`."""
    command = [str(go_clients()), "kafka-go", endpoint.address, f"kafka-go-{topic}", topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1
    assert "Invalid Message" in ended.stderr


@pytest.mark.full
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("line", ["3.9", "4"])
@pytest.mark.parametrize("how", [["--from-beginning"], []])
def test_javas_console_consumer_ends_with_the_error(endpoint: Running, topic: str, line: Line, how: list[str]) -> None:
    """It is a member of a group, and begins at the start or at the end."""
    arguments = ["--bootstrap-server", endpoint.address, "--topic", topic, "--timeout-ms", "60000", *how]
    _, printed = asyncio.run(run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, line=line))
    assert "Encountered corrupt message when fetching offset" in printed
