"""Real consumers of a partition whose commit is damaged: they report it, and do not wait in silence."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition
from kio.schema.errors import ErrorCode

from tests.endpoint.network.java_tools import run_tool
from tests.endpoint.running import Running, running
from tests.made_archive import MadeArchive, batches
from ts_local.jars import Line
from ts_local.waiting import wait_for


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An endpoint over an archive with one partition, whose commit is damaged."""
    directory = tmp_path_factory.mktemp("lost")
    archive = MadeArchive(directory / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.store.put(archive.partition("t").commit, b"what")
    with running(archive.location, directory) as (found,):
        yield found


@pytest.mark.parametrize("begins_at", [OFFSET_BEGINNING, OFFSET_END])
def test_librdkafka_reports_a_damaged_commit(endpoint: Running, begins_at: int) -> None:
    """From the start and from the end; the log has the code once for all clients."""
    consumer = Consumer({"bootstrap.servers": endpoint.address, "group.id": "g", "fetch.error.backoff.ms": 10})
    with closing(consumer):
        consumer.assign([TopicPartition("t", 0, begins_at)])
        errors: list[int] = []

        def has_reported() -> bool:
            message: Any = consumer.poll(0.1)
            errors.extend([message.error().code()] if message is not None else [])
            return len(errors) >= 1

        wait_for(has_reported, "the error", 60, every=0)
    assert set(errors) == {ErrorCode.corrupt_message}
    assert endpoint.log.count("partition_lost") == endpoint.log.count("code=commit-damaged") == 1


@pytest.mark.full
@pytest.mark.parametrize("line", ["3.9", "4"])
@pytest.mark.parametrize("how", [["--from-beginning"], []])
def test_javas_console_consumer_ends_with_a_damaged_commit(endpoint: Running, line: Line, how: list[str]) -> None:
    """It is a member of a group, and begins at the start or at the end."""
    arguments = ["--bootstrap-server", endpoint.address, "--topic", "t", "--timeout-ms", "60000", *how]
    _, printed = asyncio.run(run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, line=line))
    assert "Encountered corrupt message when fetching offset" in printed
