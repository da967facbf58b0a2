"""Kafka's command-line tools: the command `tool` of the resident JVM, where a tool needs a tenth of a JVM's start."""

import struct
from collections.abc import Sequence
from typing import Final

from dev.local.resident_jvm import resident_jvm

# Main classes.
CONFIGS: Final = "kafka.admin.ConfigCommand"
DUMP_LOG: Final = "kafka.tools.DumpLogSegments"
GET_OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_NUMBER: Final = struct.Struct(">i")


def run_tool(main: str, arguments: Sequence[str], *, seconds: float = 120.0) -> tuple[int, str]:
    """Run a tool of Kafka 4.1; return its exit status and its standard output.

    Args:
        main: its class. It must not keep anything in static fields, as the console consumer counts records.
        arguments: of its command line.
        seconds: until the JVM is lost.

    Raises:
        CommandFailedError, JvmLostError: as `ResidentJvm.call`.
    """
    words = [struct.pack(">H", len(data)) + data for data in (word.encode() for word in (main, *arguments))]
    given = words[0] + _NUMBER.pack(len(arguments)) + b"".join(words[1:])
    found = resident_jvm().call("tool", given, seconds=seconds)
    return _NUMBER.unpack_from(found)[0], found[_NUMBER.size :].decode()


def output_of(main: str, arguments: Sequence[str], *, seconds: float = 120.0) -> str:
    """Return the standard output of a tool; it must succeed. Arguments as of `run_tool`."""
    status, printed = run_tool(main, arguments, seconds=seconds)
    if status:
        raise RuntimeError(f"{main} {' '.join(arguments)}: status {status}\n{printed[-4000:]}")
    return printed
