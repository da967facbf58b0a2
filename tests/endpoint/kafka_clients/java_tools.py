"""Kafka's own consumer and command-line tools, of both lines of Kafka, each in a JVM of its own."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dev.local.jars import Line
from dev.local.jvm import java_command
from dev.local.kafka.tools import GET_OFFSETS, GROUPS, output_of
from dev.local.oracle import Isolation, OracleRecord, dump
from tests.endpoint.kafka_clients.interface import SECONDS, ClientFailedError, ReadOne, ReadSeveral
from tests.endpoint.kafka_clients.python_clients import by_assign

_FIELD: Final = b"\x1f<field>\x1f"  # in no key, value or header of a test
_LINE: Final = b"\x1e<line>\x1e"
_HEADER: Final = b"\x1d<header>\x1d"
_NULL: Final = b"\x1c<null>\x1c"
_TYPES: Final = {b"CreateTime": 0, b"LogAppendTime": 1}
_QUIET_MS: Final = 120_000  # after which the console consumer ends with fewer records


def run_tool(line: Line, main: str, arguments: Sequence[str]) -> str:
    """Return the standard output of a tool.

    Raises:
        ClientFailedError: it failed.
    """
    return _run(line, main, arguments).decode()


def run_tool_raw(line: Line, main: str, arguments: Sequence[str]) -> bytes:
    """Return the standard output of a tool, as bytes; raise as `run_tool`."""
    return _run(line, main, arguments)


def consumer(line: Line) -> ReadSeveral:
    """Return a way to read with Kafka's consumer: `assign`, and the end offsets of the start."""

    def read(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> list[OracleRecord]:
        return dump(bootstrap, topics, isolation, line=None if line == "4" else line, seconds=SECONDS)

    return read


def console(line: Line) -> ReadOne:
    """Return a way to read with `kafka-console-consumer`, as the only member of a group.

    The tool has no option to end at the end of a topic. So it ends after as many records as librdkafka returns.
    """
    options = [f"print.{name}=true" for name in ("timestamp", "partition", "offset", "headers", "key", "value")]
    tokens = {
        "key.separator": _FIELD,
        "line.separator": _LINE,
        "headers.separator": _HEADER,
        "null.literal": _NULL,
    }
    options += [f"{name}={token.decode()}" for name, token in tokens.items()]

    def read(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
        count = len(by_assign(bootstrap, topic, isolation))
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
        arguments += ["--isolation-level", isolation, "--timeout-ms", str(_QUIET_MS), "--max-messages", str(count)]
        for option in options:
            arguments += ["--property", option]
        out = _run(line, "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments)
        return [_printed(topic, text) for text in out.split(_LINE)[:-1]]

    return read


def _printed(topic: str, text: bytes) -> OracleRecord:
    """Return the record of a line of the console consumer: time, partition, offset, headers, key, value."""
    time, partition, offset, headers, key, value = text.split(_FIELD)
    kind, _, milliseconds = time.partition(b":")
    return OracleRecord(
        topic=topic,
        partition=int(partition.removeprefix(b"Partition:")),
        offset=int(offset.removeprefix(b"Offset:")),
        timestamp=int(milliseconds) if milliseconds else -1,
        timestamp_type=_TYPES.get(kind, -1),
        key=_or_null(key),
        value=_or_null(value),
        headers=tuple(_pair(pair) for pair in headers.split(_HEADER)) if headers != b"NO_HEADERS" else (),
    )


def _pair(text: bytes) -> tuple[str, bytes | None]:
    name, _, value = text.partition(b":")
    return name.decode(), _or_null(value)


def _or_null(text: bytes) -> bytes | None:
    return None if text == _NULL else text


def offsets(bootstrap: str, topic: str, time: str, line: Line) -> dict[int, int]:
    """Return what `kafka-get-offsets` prints of each partition.

    Args:
        bootstrap: servers.
        topic: its name.
        time: "earliest", "latest", "max-timestamp" or milliseconds.
        line: of Kafka.
    """
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--time", time]
    out = output_of(GET_OFFSETS, arguments) if line == "4" else run_tool(line, GET_OFFSETS, arguments)
    return {
        int(partition): int(offset)
        for name, partition, offset in re.findall(r"^(.+):(\d+):(-?\d+)$", out, re.MULTILINE)
        if name == topic
    }


def groups(bootstrap: str, line: Line, *arguments: str) -> str:
    """Return what `kafka-consumer-groups` prints."""
    return run_tool(line, GROUPS, ["--bootstrap-server", bootstrap, *arguments])


def _run(line: Line, main: str, arguments: Sequence[str]) -> bytes:
    logs = ["-Dlog4j.configuration=", "-Dlog4j2.configurationFile=", "-Dorg.apache.logging.log4j.level=OFF"]
    command = java_command(line, main, arguments, options=logs)
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, cwd=Path("/"))
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")[-4000:]
        raise ClientFailedError(f"{main} {' '.join(arguments)} of Kafka {line}: status {done.returncode}\n{said}")
    return done.stdout
