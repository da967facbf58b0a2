"""An agent for a local broker, run as the installed command `ts-uploader run`.

    agent = AgentProcess(directory, logs, config_dir, broker.server_properties, "demo", environment=s3.environment())
    write_config(config_dir, "demo", {"storage.service.endpoint.url": "s3://archive/base"})
    agent.start()                                      # returns when /healthz answers
    agent.metrics()["ts_uploader_bytes_total"]

AgentProcess           a Server (start, stop, kill, pause, resume, restart, tail) and
  address              "127.0.0.1:<port>" of /metrics and /healthz
  health()             the object of /healthz
  status()             the object of /status.json
  page(path)           any page, as text
  metrics()            the values of /metrics, by sample
write_config(...)      writes CONFIG_DIR/<clusterId>.properties
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dev.local import forks
from dev.local.forks import Forked
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

_ANSWER_SECONDS = 10.0  # the agent itself may need 5 s for /metrics


class AgentProcess(Server):
    """One agent.

    Args:
        directory: its working directory; it writes nothing there.
        logs: directory of its log.
        config_dir: contains `<cluster_id>.properties`.
        server_properties: the broker's own file; None if `arguments` name another environment provider.
        cluster_id: None: from the broker's `meta.properties`.
        http_port: None: a free port.
        environment: variables in addition to this process's: endpoint and credentials of S3.
        arguments: further arguments of `ts-uploader run`.
        prefix: a command that runs the agent, such as `setpriv` with fewer rights.
        name: the name of its log; agents of one directory need different names.
        is_forked: whether it is a fork of `dev.local.forks`, which starts with less CPU; never with a `prefix`.
    """

    # The agent's uploads have ten seconds less than this after SIGTERM.
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
        is_forked: bool = False,
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
        self._is_forked = is_forked and not prefix

    def command(self) -> list[str]:
        """Return `ts-uploader run` of this process's virtual environment."""
        program = Path(sys.executable).with_name("ts-uploader")
        command = [*self._prefix, str(program), "run", str(self.config_dir.absolute()), "--http-address", self.address]
        if self._server_properties is not None:
            command += ["--server-properties", str(self._server_properties.absolute())]
        if self._cluster_id is not None:
            command += ["--cluster-id", self._cluster_id]
        return [*command, *self._arguments]

    def variables(self) -> Mapping[str, str]:
        """Return the variables that the constructor received."""
        return self._environment

    def not_ready(self) -> str | None:
        """Request `/healthz`; an unhealthy agent is ready too."""
        try:
            status, body = self._get("/healthz")
        except ERRORS as error:
            return f"http://{self.address}/healthz: {error}"
        if status not in {200, 503}:
            return f"http://{self.address}/healthz returned {status}"
        return "it still checks its stores" if json.loads(body).get("phase") == "starting" else None

    def _fork(self) -> "subprocess.Popen[bytes] | Forked":
        if not self._is_forked:
            return super()._fork()
        arguments = ["ts-uploader", *self.command()[1:]]
        with self.log.open("ab") as log:
            env = {**os.environ, **self.variables()}
            return forks.start(arguments, cwd=self.directory, env=env, output=log.fileno())

    def health(self) -> dict[str, Any]:
        """Return the object of `/healthz`; its `status` is "ok" or "failing".

        Raises:
            OSError, http.client.HTTPException: the agent did not answer.
        """
        _, body = self._get("/healthz")
        facts: dict[str, Any] = json.loads(body)
        return facts

    def status(self) -> dict[str, Any]:
        """Return the object of `/status.json`.

        Raises:
            OSError, http.client.HTTPException: the agent did not answer.
        """
        facts: dict[str, Any] = json.loads(self.page("/status.json"))
        return facts

    def page(self, path: str) -> str:
        """Return the text of a page, for any HTTP status.

        Raises:
            OSError, http.client.HTTPException: the agent did not answer.
        """
        _, body = self._get(path)
        return body.decode()

    def metrics(self) -> dict[str, float]:
        """Return the values of `/metrics`, by sample as written there.

        `{"ts_uploader_bytes_total": 1.5e6, 'ts_uploader_partition_next_offset{partition="0",topic="t"}': 250.0}`;
        labels are sorted by name.

        Raises:
            OSError, http.client.HTTPException: the agent did not answer.
        """
        status, body = self._get("/metrics")
        if status != HTTPStatus.OK:
            raise http.client.HTTPException(f"http://{self.address}/metrics returned {status}")
        samples = (line.rpartition(" ") for line in body.decode().splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def _get(self, path: str) -> tuple[int, bytes]:
        return request(self.port, path, seconds=_ANSWER_SECONDS)


def write_config(config_dir: Path, cluster_id: str, properties: Mapping[str, str]) -> Path:
    """Write `CONFIG_DIR/<clusterId>.properties`, and return its path."""
    config_dir.mkdir(parents=True, exist_ok=True)
    path = config_dir / f"{cluster_id}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
