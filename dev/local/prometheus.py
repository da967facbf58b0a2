"""A real Prometheus for a local cluster, and its `promtool`.

program(name)         the path of `prometheus` or `promtool`: on this machine, or unpacked from Debian's package below
                      `build/`, without installing it or starting a service
PrometheusServer      a Server (start, stop, kill, pause, resume, restart) and
  query(expression)   the series that it has now
  alerts()            the alerts that are pending or firing
  rules()             the rules that it loaded
  targets()           what it scrapes, with `health`

`python -m dev.local.prometheus` fetches them, so that a later start needs no network.
"""

import json
import shutil
import sys
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dev.local.apt import has
from dev.local.debian import unpacked
from dev.local.jars import BUILD, print_fetched
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

_PACKAGE = "prometheus"  # and of promtool, before Debian 13


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`, fetched if needed.

    Raises:
        ToolMissingError: it is missing, and apt is too, or has no such package.
        BuildFailedError: apt or dpkg failed.
    """
    if found := shutil.which(name):
        return found
    built = BUILD / name / "usr" / "bin" / name
    if not built.exists():  # apt needs half a second to find the package
        built = unpacked(name, [name if has(name) else _PACKAGE], name) / "usr" / "bin" / name
    return str(built)


class PrometheusServer(Server):
    """One Prometheus on a free port of loopback.

    Args:
        directory: of its data, and of `prometheus.yml`, which must exist at its start.
        logs: directory of its log.
    """

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("prometheus", directory, logs / "prometheus.log")
        self.port = free_port()

    def command(self) -> list[str]:
        """Return the command of Prometheus."""
        return [
            program("prometheus"),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={LOOPBACK}:{self.port}",
        ]

    def not_ready(self) -> str | None:
        """Request `/-/ready`."""
        try:
            status, body = request(self.port, "/-/ready")
        except ERRORS as error:
            return f"{LOOPBACK}:{self.port}: {error}"
        return None if status == HTTPStatus.OK else body.decode(errors="replace")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query: `metric` and `value` of each.

        Raises:
            ValueError: Prometheus rejected the expression.
            OSError, http.client.HTTPException: it did not answer.
        """
        found: list[dict[str, Any]] = self._api("query", query=expression)["result"]
        return found

    def alerts(self) -> dict[str, str]:
        """Return the state of each active alert, "pending" or "firing", by name."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._api("alerts")["alerts"]}

    def rules(self) -> list[dict[str, Any]]:
        """Return each alerting rule as it was loaded: `name`, `query`, `duration`, `labels`, `annotations`."""
        return [rule for group in self._api("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """Return its scrape targets."""
        found: list[dict[str, Any]] = self._api("targets")["activeTargets"]
        return found

    def _api(self, name: str, **parameters: str) -> Any:
        _, body = request(self.port, f"/api/v1/{name}?{urlencode(parameters)}")
        answer = json.loads(body)
        if answer["status"] != "success":
            raise ValueError(f"{parameters}: {answer['error']}")
        return answer["data"]


def main() -> int:
    """Fetch them and print their paths."""
    return print_fetched(*((name, partial(_path, name)) for name in (_PACKAGE, "promtool")))


def _path(name: str) -> Path:
    return Path(program(name))


if __name__ == "__main__":
    sys.exit(main())
