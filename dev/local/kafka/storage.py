"""Formats the log dirs of KRaft nodes, as Kafka's storage tool does, without a JVM for each.

The tool writes two files into each directory: `bootstrap.checkpoint`, which is the same for all clusters of one
version, and `meta.properties`. The first one is copied from a directory that the tool has formatted once.
"""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dev.local.jars import BUILD, Line, build_once, kafka_jars, run
from dev.local.jvm import java_command
from dev.local.ports import LOOPBACK

_CHECKPOINT: Final = "bootstrap.checkpoint"
_META: Final = "meta.properties"


def new_cluster_id() -> str:
    """Return a random id in Kafka's form: a UUID in URL-safe base64 that does not begin with a dash.

    Kafka's own generator avoids the dash too, because a command line would parse such an id as an option.
    """
    while True:
        made = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def format_storage(line: Line, cluster_id: str, node_id: int, log_dirs: Iterable[Path]) -> None:
    """Format the log dirs of a node that are not formatted yet.

    Raises:
        ToolMissingError, BuildFailedError: as `dev.local.jars.kafka_jars`, or the storage tool failed.
    """
    for directory in log_dirs:
        if (directory / _META).exists():
            continue
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _CHECKPOINT).write_bytes((_template(line) / _CHECKPOINT).read_bytes())
        fields = {"version": 1, "cluster.id": cluster_id, "node.id": node_id, "directory.id": new_cluster_id()}
        (directory / _META).write_text("".join(f"{key}={value}\n" for key, value in fields.items()))


def _template(line: Line) -> Path:
    def formatted(directory: Path) -> None:
        properties = {
            "node.id": 1,
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{LOOPBACK}:9",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{LOOPBACK}:9",
            "log.dirs": directory,
        }
        file = directory / "node.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        arguments = ["format", "--cluster-id", new_cluster_id(), "--config", str(file)]
        run(java_command(line, "kafka.tools.StorageTool", arguments))

    jars = " ".join(sorted(jar.name for jar in kafka_jars(line).glob("*.jar")))
    return build_once(BUILD / "storage" / line, jars.encode(), formatted)
