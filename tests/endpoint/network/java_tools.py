"""Kafka's console tools as clients of an endpoint."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from dev.local.jars import Line
from dev.local.jvm import java_command

TOPICS = "org.apache.kafka.tools.TopicCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
PRODUCER = {"3.9": "kafka.tools.ConsoleProducer", "4": "org.apache.kafka.tools.ConsoleProducer"}


async def run_tool(
    main: str, arguments: list[str], *, line: Line = "4", stdin: bytes = b"", options: tuple[str, ...] = ()
) -> tuple[int | None, str]:
    """Return the exit status of a tool and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *java_command(line, main, arguments, heap_mb=128, options=options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate(stdin)
    return process.returncode, printed.decode()


def properties(path: Path, values: Mapping[str, str]) -> Path:
    """Write a file of properties, and return its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path
