"""`tsctl consume` prints what `kafka-console-consumer` prints, from the archive and from Kafka."""

import os
import struct
from pathlib import Path

import pytest

from dev.local.forks import run
from dev.local.kafka.cluster import Record
from tests.consumer.archives import Both, fill, ship
from tests.docs.commands import CHECKOUT
from tests.endpoint.kafka_clients.java_tools import run_tool_raw
from tests.made_archive import CLUSTER, MadeArchive, batches

TOPIC = "console"
PACKAGE = "org.apache.kafka.common.serialization."
# Without the leader epoch: Kafka's tool drops it before it prints.
PARTS = [f"print.{name}=true" for name in ("timestamp", "partition", "offset", "headers", "key", "value")]
SHOWN = [word for part in (*PARTS, "null.literal=NULL", "key.separator=|") for word in ("--property", part)]


def printed(archive: MadeArchive, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Return standard output and standard error of `tsctl consume`."""
    command = ["tsctl", "consume", *arguments, "--url", archive.location, "--cluster", CLUSTER]
    ended = run(command, cwd=CHECKOUT, env=os.environ, timeout=120)
    assert ended.returncode == code, ended.stderr
    return ended.stdout, ended.stderr


def test_each_line_is_that_of_kafkas_tool(both: Both) -> None:
    """All parts of a line, with nulls and headers; the first half of the records is in the archive alone."""
    fill(both.cluster, TOPIC, partitions=1, rounds=2)
    end = both.cluster.latest(TOPIC, 0)
    arguments = ["--bootstrap-server", both.cluster.bootstrap, "--topic", TOPIC, "--partition", "0"]
    arguments += ["--offset", "earliest", "--max-messages", str(end), "--timeout-ms", "60000", *SHOWN]
    expected = run_tool_raw("4", "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments)
    (shipped,) = ship(both.archive, both.cluster, TOPIC, 1)
    both.cluster.delete_records(TOPIC, {0: shipped // 2})
    out, said = printed(both.archive, *arguments)
    assert out.encode("utf-8", "surrogateescape") == expected
    assert f"Processed a total of {end} messages" in said


@pytest.mark.full
def test_a_deserializer_prints_as_in_kafkas_tool(both: Both) -> None:
    """Numbers of keys and values; a record of another size is skipped on request, and else ends the command."""
    topic = "console-numbers"
    both.cluster.create_topic(topic)
    numbers = (0.1, -1e-5, 123456.75, 3e22)
    records = [Record(struct.pack(">d", number), key=struct.pack(">q", place)) for place, number in enumerate(numbers)]
    both.cluster.produce(topic, [*records, Record(b"x", key=b"y"), *records])
    options = ["--bootstrap-server", both.cluster.bootstrap, "--topic", topic, "--partition", "0"]
    options += ["--offset", "earliest", "--timeout-ms", "60000", "--property", "print.key=true"]
    options += [
        "--key-deserializer",
        f"{PACKAGE}LongDeserializer",
        "--value-deserializer",
        f"{PACKAGE}DoubleDeserializer",
    ]
    options += ["--skip-message-on-error", "--enable-systest-events", "--max-messages", "9"]
    expected = run_tool_raw("4", "org.apache.kafka.tools.consumer.ConsoleConsumer", options).decode()
    out, said = printed(both.archive, *options)
    assert out == expected
    assert out.endswith("shutdown_complete\n")
    assert f"skipped {topic}-0 at offset 4: key: 1 byte; Long has 8" in said
    options.remove("--skip-message-on-error")
    out, said = printed(both.archive, *options, code=1)
    assert out == "".join(expected.splitlines(keepends=True)[:4]) + "shutdown_complete\n"
    assert "--skip-message-on-error continues after such a record" in said
    assert "Processed a total of 4 messages" in said


def test_a_group_continues_after_what_was_printed(both: Both) -> None:
    """A record that ends the command, and those that were read with it, are not committed."""
    topic = "console-halt"
    both.cluster.create_topic(topic)
    both.cluster.produce(topic, [Record(b"%04d" % number) for number in range(3)] + [Record(b"x"), Record(b"9999")])
    options = ["--bootstrap-server", both.cluster.bootstrap, "--topic", topic, "--from-beginning"]
    options += ["--group", topic, "--timeout-ms", "60000", "--max-messages", "2"]
    options += ["--value-deserializer", f"{PACKAGE}IntegerDeserializer"]
    assert len(printed(both.archive, *options)[0].split()) == 2
    out, _ = printed(both.archive, *options[:-4], "--value-deserializer", f"{PACKAGE}IntegerDeserializer", code=1)
    assert len(out.split()) == 1
    assert printed(both.archive, *options[:-2])[0] == "x\n9999\n"


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Two partitions of ten records; no broker exists."""
    made = MadeArchive(tmp_path / "archive")
    for partition in range(2):
        made.put_segment(TOPIC, 0, batches((0, 10)), partition=partition)
        made.commit(TOPIC, 10, partition=partition)
    return made


def test_the_archive_alone_needs_no_broker(archive: MadeArchive, tmp_path: Path) -> None:
    """All partitions, or one from an offset on; it ends after a time without a record."""
    alone = ["--mode", "tiered_storage_only", "--topic", TOPIC]
    out, said = printed(archive, *alone, "--from-beginning", "--max-messages", "20")
    assert out == "v\n" * 20
    assert "Processed a total of 20 messages" in said
    (tmp_path / "shown.properties").write_text("print.key=true\n")
    one = ["--partition", "1", "--offset", "7", "--max-messages", "3"]
    one += ["--formatter-config", str(tmp_path / "shown.properties")]
    assert printed(archive, *alone, *one)[0] == "7\tv\n8\tv\n9\tv\n"


@pytest.mark.full
def test_json_lines_are_those_of_cat(archive: MadeArchive) -> None:
    """Of each partition."""
    out, _ = printed(
        archive, "--mode", "TIERED_STORAGE_ONLY", "--topic", TOPIC, "--from-beginning", "--max-messages", "20", "--json"
    )
    command = ["tsctl", "cat", TOPIC, "--url", archive.location, "--cluster", CLUSTER]
    expected = run(command, cwd=CHECKOUT, env=os.environ, timeout=120).stdout
    assert sorted(out.splitlines()) == sorted(expected.splitlines())


def test_every_mistake_of_a_command_line_is_named_at_once(archive: MadeArchive) -> None:
    """Exit code 2, and nothing is printed as a record."""
    out, said = printed(
        archive, "--include", "a.*", "--offset", "x", "--property", "print.kee=true", "--isolation-level", "any", code=2
    )
    assert out == ""
    for part in (
        "--bootstrap-server is missing",
        "--offset x: --partition is needed",
        "--property print.kee=true: unknown; accepted are print.timestamp, print.key",
        "isolation level any: accepted are read_committed, read_uncommitted",
    ):
        assert part in said


def test_a_hole_ends_the_command_with_findings(archive: MadeArchive) -> None:
    """The records before it are printed."""
    archive.put_segment(TOPIC, 20, batches((20, 30)))
    archive.commit(TOPIC, 30, highest_base=20)
    alone = ["--mode", "TIERED_STORAGE_ONLY", "--topic", TOPIC, "--partition", "0", "--offset", "earliest"]
    out, said = printed(archive, *alone, code=1)
    assert out == "v\n" * 10
    assert "offsets 10 to 19 are lost" in said


def test_a_text_that_librdkafka_cannot_have_is_refused(archive: MadeArchive) -> None:
    """The binding ends the process at some of them."""
    mistakes = ["--group", "", "--include", "(", "--partition", "0", "--offset", "9" * 20]
    mistakes += ["--consumer-property", "error_cb=x", "--consumer-property", "group.id="]
    out, said = printed(archive, "--bootstrap-server", "127.0.0.1:1", "--topic", "a\udcff", *mistakes, code=2)
    assert (out, "Traceback" in said) == ("", False)
    for part in (
        "--topic: it is empty, or no Unicode text",
        "--group: it is empty, or no Unicode text",
        "--include (: no regular expression",
        "--offset 99999999999999999999: a number from 0",
        "error_cb: a command line has no callbacks",
        "group.id is empty",
    ):
        assert part in said
    unknown = ["--bootstrap-server", "127.0.0.1:1", "--topic", "a", "--consumer-property", "no.such=1"]
    assert 'No such configuration property: "no.such"' in printed(archive, *unknown, code=2)[1]


@pytest.mark.full
def test_a_time_without_a_record_after_an_error_is_a_failure(both: Both, archive: MadeArchive) -> None:
    """An unknown topic, and brokers that do not answer."""
    broker = ["--bootstrap-server", both.cluster.bootstrap, "--from-beginning"]
    _, said = printed(archive, *broker, "--topic", "console-unknown", "--timeout-ms", "5000", code=2)
    assert "no record arrived: Subscribed topic not available: console-unknown" in said
    no_broker = ["--bootstrap-server", "127.0.0.1:1", "--topic", "a", "--timeout-ms", "3000"]
    assert "no record arrived: " in printed(archive, *no_broker, code=75)[1]


def test_a_time_without_a_record_ends_the_command(archive: MadeArchive) -> None:
    """Without an error, the exit code is 0; a partition that the archive lacks is a mistake."""
    alone = ["--mode", "TIERED_STORAGE_ONLY", "--topic", TOPIC, "--from-beginning", "--timeout-ms", "1000"]
    assert printed(archive, *alone)[0] == "v\n" * 20
    assert "the archive has [0, 1] of console" in printed(archive, *alone, "--partition", "9", code=2)[1]
