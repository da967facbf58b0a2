"""A KRaft controller that is no broker, alone in its quorum: every broker beside it can be killed.

Controller             a Server (start, stop, kill, pause, resume, restart) and
id, port             of its one listener, CONTROLLER
properties           dict[str, str], as rendered at the next start
quorum()             what a broker's file says of it
"""

import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ts_local.jars import Line
from ts_local.jvm import java_command, temporary_files_in
from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server, ServerDiedError


class Controller(Server):
    """See the module's page.

    Args:
        directory: its data.
        logs: directory of its log.
        line: of Kafka.
        cluster_id: of the brokers.
        properties: further ones; they win.
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
            # How long a killed or paused broker keeps its leadership, and how long its id stays taken.
            "broker.session.timeout.ms": "6000",
            **(properties or {}),
        }

    def quorum(self) -> dict[str, str]:
        """What brokers need to find it."""
        return {
            "controller.quorum.voters": f"{self.id}@{LOOPBACK}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def prepare(self) -> None:
        """Write its file, and format its directory before the first start.

        Raises:
            ServerDiedError: the storage tool failed; the message holds what it said.
        """
        self._file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        if (self._data / "meta.properties").exists():
            return
        arguments = ["format", "--cluster-id", self._cluster_id, "--config", str(self._file)]
        command = java_command(self._line, "kafka.tools.StorageTool", arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerDiedError(f"{self.name} could not be formatted:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        """Kafka's own main."""
        return java_command(self._line, "kafka.Kafka", [str(self._file)], options=temporary_files_in(self.directory))

    def not_ready(self) -> str | None:
        """Listens; whether it leads its quorum of one, brokers find out."""
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=0.5).close()
        except OSError as error:
            return f"{LOOPBACK}:{self.port}: {error}"
        return None
