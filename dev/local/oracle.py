"""The oracle: the records of a topic as Kafka's own Java consumer returns them, field by field.

`dump` runs `oracle/DumpRecords.java` in the resident JVM, with the consumer of Kafka 4.1, or in a process with the
consumer of a named line. It reads from a running cluster, so call it before the broker's data is deleted.
"""

import json
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dev.local.jars import Line, oracle_jar
from dev.local.jvm import java_command
from dev.local.resident_jvm import QUIET, CommandFailedError, JvmLostError, resident_jvm

_HEAP_MB: Final = 512

Isolation = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True)
class OracleRecord:
    """A record as Kafka's consumer returns it."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms since 1970; -1 for no timestamp
    timestamp_type: int  # Kafka's id: 0 CreateTime, 1 LogAppendTime, -1 no timestamp
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class OracleFailedError(RuntimeError):
    """The Java program failed. The message has its output."""


def dump(
    bootstrap: str,
    topic: str | Sequence[str],
    isolation: Isolation = "read_uncommitted",
    *,
    start: int | None = None,
    end: int | None = None,
    seconds: float = 300.0,
    line: Line | None = None,
) -> list[OracleRecord]:
    """Return every record of the topics, by partition and offset, without control records.

    Args:
        bootstrap: of a running cluster.
        topic: one topic, or several.
        isolation: with "read_committed" aborted records are hidden, and the last stable offset is the end.
        start: first offset of each partition; None: the earliest.
        end: offset to stop before, of each partition; None: the end offset at the start of the call.
        seconds: timeout of the program.
        line: the line of Kafka whose consumer reads, in its own process; None for the resident JVM.

    Raises:
        OracleFailedError: the program failed: no such topic, no broker, no progress for 60 s.
        ToolMissingError, BuildFailedError: as `dev.local.jars.oracle_jar`.
        subprocess.TimeoutExpired: the process of a line ran longer than `seconds`.
    """
    topics = [topic] if isinstance(topic, str) else list(topic)
    offsets = ["-" if offset is None else str(offset) for offset in (start, end)]
    arguments = [bootstrap, isolation, ",".join(topics), *offsets]
    if line is not None:
        return _dump_by_process(line, arguments, seconds)
    try:
        found = resident_jvm().call("dump", "\n".join(arguments).encode(), seconds=seconds)
    except (CommandFailedError, JvmLostError) as error:
        raise OracleFailedError(f"the oracle failed on {', '.join(topics)} of {bootstrap}:\n{error}") from error
    return [record_of(text) for text in found.splitlines()]


def _dump_by_process(line: Line, arguments: list[str], seconds: float) -> list[OracleRecord]:
    command = java_command(
        line, "DumpRecords", arguments, further_jars=[oracle_jar()], options=[*QUIET], heap_mb=_HEAP_MB
    )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        done = subprocess.run(command, stdout=out, stderr=said, timeout=seconds, check=False)
        if done.returncode != 0:
            said.seek(0)
            text = said.read().decode(errors="replace")[-4000:]
            raise OracleFailedError(f"the oracle failed with {arguments}:\n{text}")
        out.seek(0)
        return [record_of(text) for text in out]


def record_of(line: bytes) -> OracleRecord:
    """Return the record of a line of JSON, as `DumpRecords` writes it."""
    fields = json.loads(line)
    return OracleRecord(
        topic=fields["topic"],
        partition=fields["partition"],
        offset=fields["offset"],
        timestamp=fields["timestamp"],
        timestamp_type=fields["timestampType"],
        key=_bytes(fields["key"]),
        value=_bytes(fields["value"]),
        headers=tuple((name, _bytes(value)) for name, value in fields["headers"]),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
