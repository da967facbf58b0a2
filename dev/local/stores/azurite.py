"""A real Azure Blob Storage in one process: Azurite, Microsoft's emulator.

npm installs Azurite by the lock file in `azurite-3.37/`. Azurite
checks signatures, conditions and MD5s, and keeps everything in memory here.

azurite()               return the directory of Azurite, fetched if needed
AzuriteServer           a Server (start, stop, kill, pause, resume, restart) and
  endpoint              "http://127.0.0.1:<port>/devstoreaccount1"
  create_container(name)
  environment()         AZURE_STORAGE_CONNECTION_STRING

`python -m dev.local.stores.azurite` fetches it, so that a later start needs no network.
"""

import sys
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path

from dev.local.jars import BUILD, PACKAGE, build_once, print_fetched
from dev.local.loopback_http import ERRORS, request
from dev.local.node_clients import made_from, node, npm_ci
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server
from ts_common.store.azure.account import API_VERSION, account_of
from ts_common.store.http.client import Request

ACCOUNT = "devstoreaccount1"
# Microsoft's public key of its emulators; not a secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_FILES = PACKAGE / "azurite-3.37"


def azurite() -> Path:
    """Return the directory of Azurite's `node_modules`, fetched if needed.

    Raises:
        BuildFailedError: npm could not fetch it.
    """
    return build_once(BUILD / "azurite", made_from(_FILES), partial(npm_ci, _FILES))


class AzuriteServer(Server):
    """Azurite on a free port.

    Args:
        directory: its working directory.
        logs: directory of its log.
    """

    stop_seconds = 2.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("azurite", directory, logs / "azurite.log")
        self.port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{self.port}/{ACCOUNT}"

    def command(self) -> list[str]:
        """Return the command of the blob service."""
        program = azurite() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        return [
            *(str(node()), str(program), "--blobHost", LOOPBACK, "--blobPort", str(self.port)),
            *("--inMemoryPersistence", "--disableTelemetry", "--silent"),
        ]

    def not_ready(self) -> str | None:
        """Request `/`; any response is enough."""
        status = self._status("GET", "/")
        return None if isinstance(status, int) else status

    def create_container(self, name: str) -> str:
        """Create a container, and return its name."""
        url = f"{self.endpoint}/{name}?restype=container"
        signed = account_of(self.environment()).authorize(Request("PUT", url, {"x-ms-version": API_VERSION}))
        path = signed.url.partition(str(self.port))[2]
        status = self._status("PUT", path, signed.headers)
        if status != HTTPStatus.CREATED:
            raise RuntimeError(f"{url} was not created: {status}")
        return name

    def environment(self) -> dict[str, str]:
        """Return the variables for the driver."""
        said = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint};"
        return {"AZURE_STORAGE_CONNECTION_STRING": said, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}

    def _status(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> int | str:
        try:
            return request(self.port, path, method=method, headers=headers)[0]
        except ERRORS as error:
            return f"{self.endpoint}: {error}"


def main() -> int:
    """Fetch Azurite and print its directory."""
    return print_fetched(("Azurite", azurite))


if __name__ == "__main__":
    sys.exit(main())
