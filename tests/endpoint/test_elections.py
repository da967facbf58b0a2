"""E03: an unclean election removes records while an unchanged client reads; the client learns it by leader epochs."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dev.local.jars import Line
from dev.local.jvm import java_command
from dev.local.waiting import wait_for
from tests.endpoint.running import Running, running
from tests.made_archive import MadeArchive, batches, steps
from tests.matrix import cases

BEFORE, PARTED, AFTER = 30, 22, 40


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """A topic of one partition, written by the leader of epoch 4."""
    made = MadeArchive(tmp_path / "archive")
    made.put_segment("t", 0, batches(*steps(0, BEFORE, 2), epoch=4, value=b"before"))
    made.commit("t", BEFORE, epochs=((4, 0),))
    return made


@pytest.fixture
def endpoint(archive: MadeArchive, tmp_path: Path) -> Iterator[Running]:
    """A process that reads commits again each second."""
    with running(archive.location, tmp_path, options=["--refresh", "1"]) as (process,):
        yield process


def elect(archive: MadeArchive) -> None:
    """Let another leader, which lacks the records from `PARTED` on, write its own."""
    log = batches(*steps(0, PARTED, 2), epoch=4, value=b"before") + batches(
        *steps(PARTED, AFTER, 2), epoch=6, value=b"after"
    )
    archive.put_segment("t", 0, log, variant=True)
    archive.commit("t", AFTER, epochs=((4, 0), (6, PARTED)))


@pytest.mark.parametrize("how", ["assign", "pattern"])
def test_e03_a_client_reads_again_from_where_an_election_parted_the_log(
    archive: MadeArchive, endpoint: Running, how: str
) -> None:
    """By itself: the new records from there on, each once, and no record that does not count.

    A client that subscribes to a pattern sends Metadata of all topics only.
    """
    consumer = Consumer(
        {"bootstrap.servers": endpoint.address, "group.id": "g", "auto.offset.reset": "earliest"}
        | {"topic.metadata.refresh.interval.ms": "1000"}
    )
    if how == "assign":
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    else:
        consumer.subscribe(["^t"])
    found: list[tuple[int | None, bytes | None]] = []

    def has(offset: int, value: bytes) -> bool:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
        return bool(found) and found[-1] == (offset, value)

    try:
        wait_for(lambda: has(BEFORE - 1, b"before"), "the records before the election", 60, state=lambda: found)
        elect(archive)
        wait_for(lambda: has(AFTER - 1, b"after"), "the records after the election", 60, state=lambda: found[BEFORE:])
    finally:
        consumer.close()

    assert found[:BEFORE] == [(offset, b"before") for offset in range(BEFORE)]
    assert found[BEFORE:] == [(offset, b"after") for offset in range(PARTED, AFTER)]


HOW = {
    "partition": ["--topic", "t", "--partition", "0", "--offset", "earliest"],
    "pattern": ["--include", "t", "--from-beginning"],
}


@contextmanager
def console(line: Line, bootstrap: str, directory: Path, how: str) -> Iterator[Path]:
    """Run Kafka's console consumer, and yield the file that it writes."""
    out = directory / "out.txt"
    arguments = ["--bootstrap-server", bootstrap, *HOW[how]]
    arguments += ["--property", "print.offset=true", "--consumer-property", "metadata.max.age.ms=1000"]
    command = java_command(line, "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments)
    with out.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL) as process:
        try:
            yield out
        finally:
            process.kill()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("line", cases(["3.9", "4"], quick=[]))
def test_e03_javas_consumer_reads_again_from_there_too(
    archive: MadeArchive, endpoint: Running, tmp_path: Path, line: Line, how: str
) -> None:
    """Its own log names the truncation; the application gets the new records."""
    with console(line, endpoint.address, tmp_path, how) as out:

        def ends_with(offset: int, value: str) -> bool:
            return out.read_text().endswith(f"Offset:{offset}\t{value}\n")

        wait_for(lambda: ends_with(BEFORE - 1, "before"), "the records before the election", 60, state=out.read_text)
        elect(archive)
        wait_for(lambda: ends_with(AFTER - 1, "after"), "the records after the election", 60, state=out.read_text)
        lines = [row for row in out.read_text().splitlines() if row.startswith("Offset:")]

    expected = [(offset, "before") for offset in range(BEFORE)] + [(offset, "after") for offset in range(PARTED, AFTER)]
    assert lines == [f"Offset:{offset}\t{value}" for offset, value in expected]
