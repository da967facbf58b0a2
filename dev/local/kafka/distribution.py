"""A Kafka directory as an operator has one, with `bin` and `libs`, from the jars of a line.

Its scripts are those that `tsctl drill` runs. Like Kafka's own they replace themselves by Java.
"""

import shlex
from pathlib import Path

from dev.local.jars import BUILD, Line, build_once, kafka_jars
from dev.local.jvm import java_command

_PROGRAMS = {"kafka-server-start.sh": "kafka.Kafka", "kafka-storage.sh": "kafka.tools.StorageTool"}


def kafka_directory(line: Line) -> Path:
    """Return the directory.

    Raises:
        ToolMissingError, BuildFailedError: as `dev.local.jars.kafka_jars`.
    """
    jars = kafka_jars(line)
    scripts = {
        name: f'#!/bin/sh\nexec {shlex.join(java_command(line, main, []))} "$@"\n' for name, main in _PROGRAMS.items()
    }

    def make(directory: Path) -> None:
        (directory / "libs").symlink_to(jars)
        (directory / "bin").mkdir()
        for name, text in scripts.items():
            script = directory / "bin" / name
            script.write_text(text)
            script.chmod(0o755)

    return build_once(BUILD / "kafka" / line, "".join(scripts.values()).encode(), make)
