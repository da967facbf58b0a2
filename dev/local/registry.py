"""A real schema registry in one process: Apicurio Registry, with its schemas in memory.

It has the API of Confluent's registry below `/apis/ccompat/v7`: producers' serializers and `ts_reader.schemas` use it
as they use Confluent's. It has no GUIDs, and does not keep its schemas in a topic `_schemas`.

apicurio_jar()          (dev.local.jars) return its jar, fetched if needed
RegistryServer          a Server (start, stop, kill, pause, resume, restart) and
  url                   "http://127.0.0.1:<port>/apis/ccompat/v7"
  register(subject, schema, kind, references)

`python -m dev.local.registry` fetches it, so that a later start needs no network.
"""

import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dev.local.jars import apicurio_jar, print_fetched
from dev.local.jdk import program
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

_API = "/apis/ccompat/v7"


class RegistryServer(Server):
    """Apicurio Registry on a free port.

    Args:
        directory: its working directory; it writes nothing there.
        logs: directory of its log.
    """

    start_seconds = 120.0
    stop_seconds = 5.0

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("registry", directory, logs / "registry.log")
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}{_API}"

    def command(self) -> list[str]:
        """Return the command for a registry in memory; the compiler's first tier is the fastest to start."""
        return [
            *(program("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"),
            *(f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self.port}", "-Dquarkus.log.level=WARN"),
            *("-jar", str(apicurio_jar())),
        ]

    def not_ready(self) -> str | None:
        """List the subjects."""
        try:
            status, _ = request(self.port, f"{_API}/subjects")
        except ERRORS as error:
            return str(error)
        return None if status == HTTPStatus.OK else f"{self.url} returned {status}"

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Sequence[dict[str, Any]] = ()) -> int:
        """Register a schema, and return its id.

        Raises:
            RuntimeError: the registry rejected it.
        """
        content = {"schema": schema, "schemaType": kind, "references": list(references)}
        path = f"{_API}/subjects/{quote(subject, safe='')}/versions"
        headers = {"content-type": "application/json"}
        status, body = request(self.port, path, method="POST", body=json.dumps(content), headers=headers, seconds=30)
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{subject}: {status}: {body[:300]!r}")
        found: int = json.loads(body)["id"]
        return found


def main() -> int:
    """Fetch the registry and print its place."""
    return print_fetched(("schema registry", apicurio_jar))


if __name__ == "__main__":
    sys.exit(main())
