"""docs/endpoint.md, and "Security" of docs/running-the-endpoint.md: their commands run against an endpoint.

Clients are the programs that the pages name.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.forks import write_command
from dev.local.jvm import java_command
from dev.local.kcat import kcat
from dev.local.ports import free_ports
from tests.docs.commands import CHECKOUT, Shell, blocks, commands
from tests.endpoint.running import Running
from tests.made_archive import MadeArchive, batches
from ts_endpoint.security.users import read_users

PAGE = CHECKOUT / "docs/endpoint.md"
RUNNING = CHECKOUT / "docs/running-the-endpoint.md"
_RECORDS = 50  # of each of two partitions
# Each of Kafka's scripts runs one class.
_KAFKA = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
_SPARK = """
import sys
from dev.bench.measuring.java_parts import spark_kafka_jars
from pyspark.sql import SparkSession
jars = ",".join(map(str, spark_kafka_jars()))
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
spark = builder.config("spark.ui.enabled", False).getOrCreate()
exec(compile(sys.stdin.read(), "docs/endpoint.md", "exec"))
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run an endpoint with the topic that the page reads."""
    directory = tmp_path_factory.mktemp("page")
    archive = MadeArchive(directory / "archive")
    for partition in range(2):
        archive.put_segment("page_views", 0, batches((0, _RECORDS)), partition=partition)
        archive.commit("page_views", _RECORDS, partition=partition, last_stable_offset=_RECORDS)
    port, http_port = free_ports(2)
    process = Running(archive.location, directory / "log", port, http_port)
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.process.kill()
        process.process.wait()


@pytest.fixture
def shell(endpoint: Running, tmp_path: Path) -> Shell:
    """Return a shell with the page's programs and the endpoint's address."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program, environment = kcat()
    made = {
        "kcat": f"LD_LIBRARY_PATH={shlex.quote(environment.get('LD_LIBRARY_PATH', ''))} {shlex.quote(program)}",
        **{tool: shlex.join(java_command("3.9", main, [])) for tool, main in _KAFKA.items()},
    }
    for name, line in made.items():
        (programs / name).write_text(f'#!/bin/bash\n{line} "$@"\n')
        (programs / name).chmod(0o755)
    write_command(programs / "ts-endpoint", "ts-endpoint")
    (tmp_path / "password").write_text("correct horse\n")
    return Shell(tmp_path, {"127.0.0.1:9092": endpoint.address, "/etc/ts-endpoint": str(tmp_path)}, programs)


def test_kcat_lists_topics_and_prints_each_record(shell: Shell) -> None:
    """As the page shows it: partition, offset, time, key and value."""
    listing, printing = commands(blocks(PAGE, "Clients", language="sh")[0])
    assert 'topic "page_views" with 2 partitions' in shell.run(listing)
    assert sorted(shell.run(printing).splitlines()) == sorted(
        f"{partition} {offset} {1000 + offset} {offset} v" for partition in range(2) for offset in range(_RECORDS)
    )


def test_the_pages_program_prints_each_record_and_ends(endpoint: Running) -> None:
    """A group of one consumer, with `read_committed`."""
    program = blocks(PAGE, "Clients", language="python")[0].text.replace("127.0.0.1:9092", endpoint.address)
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert sorted(printed.stdout.splitlines()) == sorted(
        f"{partition} {offset} b'v'" for partition in range(2) for offset in range(_RECORDS)
    )


def test_users_are_made_as_the_page_shows(shell: Shell, tmp_path: Path) -> None:
    """With a password from a file."""
    (block,) = blocks(RUNNING, "Security", language="sh")
    assert shell.run(block) == (
        "alice  mechanisms=SCRAM-SHA-256,SCRAM-SHA-512  topics=page_views,clicks*  groups=alice-*\n"
    )
    assert [*read_users(tmp_path / "users.yaml")] == ["alice"]


@pytest.mark.full
def test_kafkas_tools_read_records_offsets_and_groups(shell: Shell) -> None:
    """The commands of the page, in their order."""
    consume, offsets, groups = commands(blocks(PAGE, "Clients", language="sh")[1])
    assert shell.run(consume).splitlines().count("v") == 2 * _RECORDS  # between lines of the log
    assert {f"page_views:{partition}:{_RECORDS}" for partition in range(2)} <= {*shell.run(offsets).splitlines()}
    assert any(line.startswith("console-consumer-") for line in shell.run(groups).splitlines())


@pytest.mark.full
def test_sparks_kafka_source_reads_the_topic(endpoint: Running) -> None:
    """The page's frame, in a session with the connector."""
    program = blocks(PAGE, "Clients", language="python")[1].text.replace("127.0.0.1:9092", endpoint.address)
    printed = subprocess.run(
        [sys.executable, "-c", _SPARK],
        input=program,
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        timeout=600,
        check=False,
    )
    expected = ", ".join(f"Row(partition={partition}, count={_RECORDS})" for partition in range(2))
    assert printed.stdout == f"[{expected}]\n", printed.stderr[-4000:]
