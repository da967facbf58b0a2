"""The agent beside a local broker, as the installed command `ts-uploader run`.

    agent = AgentProcess(directory, logs, config_dir, broker.server_properties, "demo", environment=s3.environment())
    write_config(config_dir, "demo", {"storage.service.endpoint.url": "s3://archive/base"})
    agent.start()                                      # ready when /healthz answers
    agent.metrics()["ts_uploader_bytes_total"]

AgentProcess           a Server (start, stop, kill, pause, resume, restart, tail) and
  address              "127.0.0.1:<port>" of /metrics and /healthz
  health()             what /healthz says
  status()             what /status.json says
  page(path)           any page, as text
  metrics()            what /metrics shows, by sample
write_config(...)      writes CONFIG_DIR/<clusterId>.properties
"""

import http.client
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server

_ANSWER_SECONDS = 10.0  # the agent itself waits up to 5 s for what /metrics asks it


class AgentProcess(Server):
    """One agent.

    Args:
        directory: it runs there; it writes nothing.
        logs: directory of its log.
        config_dir: holds `<cluster_id>.properties`.
        server_properties: the broker's own file; None where `arguments` name another environment provider.
        cluster_id: None leaves it to the broker's `meta.properties`.
        http_port: None takes a free one.
        environment: variables added to ours: endpoint and credentials of S3.
        arguments: further ones of `ts-uploader run`.
        prefix: a command that runs the agent as its arguments say, `setpriv` with fewer rights.
        name: names its log; of several agents each needs its own.
    """

    # Ten seconds more than the agent gives its uploads after SIGTERM.
    stop_seconds = 30.0

    def __init__(
        self,
        directory: Path,
        logs: Path,
        config_dir: Path,
        server_properties: Path | None,
        cluster_id: str | None = None,
        *,
        http_port: int | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        prefix: Sequence[str] = (),
        name: str = "agent",
    ) -> None:
        super().__init__(name, directory, logs / f"{name}.log")
        self.port = free_port() if http_port is None else http_port
        self.address = f"{LOOPBACK}:{self.port}"
        self.config_dir = config_dir
        self._server_properties = server_properties
        self._cluster_id = cluster_id
        self._environment = dict(environment or {})
        self._arguments = tuple(arguments)
        self._prefix = tuple(prefix)

    def command(self) -> list[str]:
        """`ts-uploader run`, from the environment that runs us."""
        program = Path(sys.executable).with_name("ts-uploader")
        command = [*self._prefix, str(program), "run", str(self.config_dir.absolute()), "--http-address", self.address]
        if self._server_properties is not None:
            command += ["--server-properties", str(self._server_properties.absolute())]
        if self._cluster_id is not None:
            command += ["--cluster-id", self._cluster_id]
        return [*command, *self._arguments]

    def variables(self) -> Mapping[str, str]:
        """What the constructor was given."""
        return self._environment

    def not_ready(self) -> str | None:
        """Asks `/healthz`; an agent that answers that it is not well is up."""
        try:
            status, body = self._get("/healthz")
        except (OSError, http.client.HTTPException) as error:
            return f"http://{self.address}/healthz: {error}"
        if status not in {200, 503}:
            return f"http://{self.address}/healthz answers {status}"
        return "it asks its stores still" if json.loads(body).get("phase") == "starting" else None

    def health(self) -> dict[str, Any]:
        """The object that `/healthz` answers with; `status` is "ok" or "failing".

        Raises:
            OSError, http.client.HTTPException: it does not answer.
        """
        _, body = self._get("/healthz")
        facts: dict[str, Any] = json.loads(body)
        return facts

    def status(self) -> dict[str, Any]:
        """The object of `/status.json`.

        Raises:
            OSError, http.client.HTTPException: it does not answer.
        """
        facts: dict[str, Any] = json.loads(self.page("/status.json"))
        return facts

    def page(self, path: str) -> str:
        """The text of a page, whatever its status.

        Raises:
            OSError, http.client.HTTPException: it does not answer.
        """
        _, body = self._get(path)
        return body.decode()

    def metrics(self) -> dict[str, float]:
        """What `/metrics` shows, by sample as it is written there.

        `{"ts_uploader_bytes_total": 1.5e6, 'ts_uploader_partition_next_offset{partition="0",topic="t"}': 250.0}`;
        labels are in the order of their names.

        Raises:
            OSError, http.client.HTTPException: it does not answer.
        """
        status, body = self._get("/metrics")
        if status != http.client.OK:
            raise http.client.HTTPException(f"http://{self.address}/metrics answers {status}")
        samples = (line.rpartition(" ") for line in body.decode().splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def _get(self, path: str) -> tuple[int, bytes]:
        # No urllib: it would ask a proxy that the environment names.
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def write_config(config_dir: Path, cluster_id: str, properties: Mapping[str, str]) -> Path:
    """Write `CONFIG_DIR/<clusterId>.properties`, and give its path back."""
    config_dir.mkdir(parents=True, exist_ok=True)
    path = config_dir / f"{cluster_id}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
