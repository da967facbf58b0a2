"""A KRaft controller without a broker, alone in its quorum, so that every broker can be killed.

Controller             a Server (start, stop, kill, pause, resume, restart) and
  id, port             of its one listener, CONTROLLER
  properties           dict[str, str], rendered at the next start
  quorum()             the settings of a broker's file that name it
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dev.local.jars import Line
from dev.local.jvm import java_command, temporary_files_in
from dev.local.kafka.storage import format_storage
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

# By default an idle quorum writes a record every 500 ms, which each node applies: a fifth of the CPU of an idle broker.
# Kafka measures the delay of metadata by it.
IDLE_QUORUM: Final = {"metadata.max.idle.interval.ms": "5000"}


class Controller(Server):
    """A KRaft controller; see the module's docstring.

    Args:
        directory: its data.
        logs: directory of its log.
        line: version line of Kafka.
        properties: further ones; they override the defaults.
    """

    id = 3000

    def __init__(
        self, directory: Path, logs: Path, line: Line, cluster_id: str, properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("controller", directory, logs / "controller.log")
        self.port = free_port()
        self._line: Line = line
        self._cluster_id = cluster_id
        self._data = directory / "data"
        self._file = directory / "controller.properties"
        self.properties = {
            "process.roles": "controller",
            "node.id": str(self.id),
            "listeners": f"CONTROLLER://{LOOPBACK}:{self.port}",
            "log.dirs": str(self._data),
            **self.quorum(),
            **IDLE_QUORUM,
            # A killed or paused broker keeps its leadership and its id for this time.
            "broker.session.timeout.ms": "6000",
            **(properties or {}),
        }

    def quorum(self) -> dict[str, str]:
        """Return the brokers' settings that name it."""
        return {
            "controller.quorum.voters": f"{self.id}@{LOOPBACK}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def prepare(self) -> None:
        """Write its file, and format its directory before the first start."""
        self._file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        format_storage(self._line, self._cluster_id, self.id, [self._data])

    def command(self) -> list[str]:
        """Return the command of Kafka's main class."""
        return java_command(self._line, "kafka.Kafka", [str(self._file)], options=temporary_files_in(self.directory))

    def not_ready(self) -> str | None:
        """Check that it listens; brokers find out whether it leads its quorum of one."""
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=0.5).close()
        except OSError as error:
            return f"{LOOPBACK}:{self.port}: {error}"
        return None
