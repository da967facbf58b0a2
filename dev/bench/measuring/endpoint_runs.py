"""The endpoint as a process, and what it uses."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from dev.local.ports import free_ports
from dev.local.waiting import wait_for

_SECONDS = 120.0


class EndpointProcess:
    """A process of `ts-endpoint serve`; a context manager that ends it.

    Attributes:
        address: that clients connect to.

    Args:
        location: of the archive, a URL.
        log: file for its log.
    """

    def __init__(
        self,
        location: str,
        cluster: str,
        log: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        port, self._http_port = free_ports(2)
        self.address = ("127.0.0.1", port)
        self._log = log
        command = [sys.executable, "-m", "ts_endpoint.cli", "serve", "--url", location, "--cluster", cluster]
        command += ["--listen", f"127.0.0.1:{port}", "--http-address", f"127.0.0.1:{self._http_port}"]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*command, *options],
                cwd=Path(__file__).parents[3],
                stdout=file,
                stderr=file,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        wait_for(self._is_ready, "an endpoint", _SECONDS, state=self._log.read_text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60)

    @property
    def bootstrap(self) -> str:
        """The address as clients are given it."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the processor time so far."""
        return cpu_seconds(self.pid)

    def resident(self) -> int:
        """Return the resident bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def metric(self, sample: str) -> float:
        """Return a sample of `/metrics`, by its name with labels.

        Raises:
            LookupError: the page does not have it.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics") as page:
            for line in page.read().decode().splitlines():
                if line.startswith(f"{sample} "):
                    return float(line.rpartition(" ")[2])
        raise LookupError(f"/metrics has no {sample}")

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"the endpoint ended: {self._log.read_text()}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/readyz") as page:
                return bool(page.status == 200)
        except OSError:
            return False


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, in user and kernel mode."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
