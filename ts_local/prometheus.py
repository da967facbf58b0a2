"""A real Prometheus beside a local cluster, and its `promtool`.

program(name)         the path of `prometheus` or `promtool`: the machine's own, else those of Debian's package, which
                      is fetched and unpacked below `build/`: nothing is installed, and no service runs
PrometheusServer      a Server (start, stop, kill, pause, resume, restart) and
  query(expression)   the series that it has now
  alerts()            the alerts that are pending or firing
  rules()             the rules that it loaded
  targets()           what it scrapes, with `health`

`python -m ts_local.prometheus` fetches it, so that a later start needs no network.
"""

import http.client
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ts_local.debian import unpacked
from ts_local.jars import BuildFailedError, ToolMissingError
from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server

_PACKAGE = "prometheus"
_ANSWER_SECONDS = 10.0


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`, fetched if need be.

    Raises:
        ToolMissingError: it is not on this machine, and there is no apt to fetch it with, or no package.
        BuildFailedError: apt or dpkg ended with an error.
    """
    found = shutil.which(name)
    return found or str(unpacked(_PACKAGE, [_PACKAGE], "prometheus and promtool") / "usr" / "bin" / name)


class PrometheusServer(Server):
    """One Prometheus on a free port of loopback.

    Args:
        directory: of its data, and of the `prometheus.yml` that is there when it starts.
        logs: directory of its log.
    """

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("prometheus", directory, logs / "prometheus.log")
        self.port = free_port()

    def command(self) -> list[str]:
        """Prometheus without its web pages' files; a fast disk is not needed."""
        return [
            program("prometheus"),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={LOOPBACK}:{self.port}",
        ]

    def not_ready(self) -> str | None:
        """Asks `/-/ready`."""
        try:
            status, body = self._get("/-/ready")
        except (OSError, http.client.HTTPException) as error:
            return f"{LOOPBACK}:{self.port}: {error}"
        return None if status == http.client.OK else body.decode(errors="replace")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an instant query answers with: `metric` and `value` of each.

        Raises:
            ValueError: Prometheus refuses the expression.
            OSError, http.client.HTTPException: it does not answer.
        """
        found: list[dict[str, Any]] = self._api("query", query=expression)["result"]
        return found

    def alerts(self) -> dict[str, str]:
        """By name the state of each alert that is active: "pending" or "firing"."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._api("alerts")["alerts"]}

    def rules(self) -> list[dict[str, Any]]:
        """Each alerting rule as it was loaded: `name`, `query`, `duration`, `labels`, `annotations`."""
        return [rule for group in self._api("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes."""
        found: list[dict[str, Any]] = self._api("targets")["activeTargets"]
        return found

    def _api(self, name: str, **parameters: str) -> Any:
        _, body = self._get(f"/api/v1/{name}?{urlencode(parameters)}")
        answer = json.loads(body)
        if answer["status"] != "success":
            raise ValueError(f"{parameters}: {answer['error']}")
        return answer["data"]

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def main() -> int:
    """Fetch it, saying where it is."""
    try:
        print(f"Prometheus: {program('prometheus')}")
    except (ToolMissingError, BuildFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
