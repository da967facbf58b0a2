"""A real ZooKeeper, one server without an ensemble, from Kafka 3.9's jars."""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from dev.local.jvm import java_command, temporary_files_in
from dev.local.kafka.zookeeper_security import ZooKeeperSecurity
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server
from dev.local.waiting import wait_for

_CONFIGURATION = """\
clientPort={port}
clientPortAddress={host}
dataDir={data}
# Also the unit of session timeouts, by default between 2 and 20 ticks.
tickTime=500
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""


_SECRET: Final = 0xB3415C00  # `superSecret` of ZooKeeperServer
# Of `java.util.Random`.
_MULTIPLIER: Final = 0x5DEECE66D
_48_BITS: Final = (1 << 48) - 1


@dataclass(frozen=True)
class PartitionState:
    """The content of /brokers/topics/<topic>/partitions/<partition>/state."""

    leader: int  # -1 for no leader
    leader_epoch: int
    isr: tuple[int, ...]


class ZooKeeper(Server):
    """ZooKeeper on a free port; `connect` is the value for `zookeeper.connect`, `secure_connect` the same with TLS.

    `security` may be changed between two starts.
    """

    def __init__(self, directory: Path, logs: Path, security: ZooKeeperSecurity | None = None) -> None:
        super().__init__("zookeeper", directory, logs / "zookeeper.log")
        self.port = free_port()
        self.connect = f"{LOOPBACK}:{self.port}"
        self.security = security or ZooKeeperSecurity()
        self.secure_port = free_port()
        self.secure_connect = f"{LOOPBACK}:{self.secure_port}"
        self._configuration = directory / "zoo.cfg"
        self._jaas = directory / "jaas.conf"

    def prepare(self) -> None:
        """Write `zoo.cfg`."""
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        self._configuration.write_text(
            _CONFIGURATION.format(port=self.port, host=LOOPBACK, data=data)
            + self.security.configuration(LOOPBACK, self.secure_port)
        )
        self._jaas.write_text(self.security.server_jaas())

    def command(self) -> list[str]:
        """Return the command of ZooKeeper's stand-alone main class."""
        # Without fsync, only a machine without power loses data, not a killed process. With it, creating a topic waits
        # for the disk several times.
        options = ["-Dzookeeper.forceSync=no", "-Dzookeeper.nio.numSelectorThreads=1"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return java_command(
            "3.9",
            main,
            [str(self._configuration)],
            heap_mb=128,
            options=[*options, *self._security_options(), *temporary_files_in(self.directory)],
        )

    def _security_options(self) -> list[str]:
        jaas = [f"-Djava.security.auth.login.config={self._jaas}"] if self.security.server_jaas() else []
        return [*jaas, *self.security.options]

    def not_ready(self) -> str | None:
        """Send `srvr`, one of ZooKeeper's four-letter words."""
        try:
            # While ZooKeeper starts, it accepts connections that it never answers: use a short timeout and retry.
            with socket.create_connection((LOOPBACK, self.port), timeout=0.5) as connection:
                connection.sendall(b"srvr")
                said = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError as error:
            return f"{self.connect}: {error}"
        return None if b"Mode: standalone" in said else f"srvr returned {said!r}"

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """Yield a started client; close it at the end."""
        client = KazooClient(hosts=self.connect, timeout=10.0)
        client.start(timeout=10)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def registered_brokers(self) -> set[int]:
        """Return the ids below /brokers/ids."""
        with self.client() as client:
            try:
                return {int(name) for name in client.get_children("/brokers/ids")}
            except NoNodeError:
                return set()

    def partition_state(self, topic: str, partition: int) -> PartitionState | None:
        """Return a partition's leader, epoch and in-sync replicas; None before the first election."""
        with self.client() as client:
            try:
                raw, _ = client.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
            except NoNodeError:
                return None
        state = json.loads(raw)
        return PartitionState(state["leader"], state["leader_epoch"], tuple(state["isr"]))

    def expire_session(self, broker: int) -> None:
        """End the session of a broker that is paused or was killed, as its timeout would.

        ZooKeeper removes its nodes, also that of the controller. A broker that is resumed finds its session
        expired, and registers again. Without a session of the broker nothing happens.

        Raises:
            WaitTimedOutError: the session did not end.
        """
        path = f"/brokers/ids/{broker}"
        with self.client() as client:
            if (node := client.exists(path)) is None:
                return
            session = node.owner_session_id
            # ZooKeeper closes the broker's connection when another one continues its session.
            successor = KazooClient(hosts=self.connect, timeout=10.0, client_id=(session, _password(session)))
            successor.start(timeout=10)
            successor.stop()
            successor.close()
            wait_for(
                lambda: (now := client.exists(path)) is None or now.owner_session_id != session,
                f"the session of broker {broker} to end",
            )


def _password(session: int) -> bytes:
    """Return the password of a session, as `generatePasswd` of ZooKeeper's `ZooKeeperServer` makes it: by a seed."""
    state, words = (session ^ _SECRET ^ _MULTIPLIER) & _48_BITS, list[int]()
    for _ in range(4):
        state = (state * _MULTIPLIER + 0xB) & _48_BITS
        words.append(state >> 16)
    return struct.pack("<4I", *words)
