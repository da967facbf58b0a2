"""Processes of `ts-endpoint serve`, as an operator starts them."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dev.local import forks
from dev.local.ports import free_ports
from dev.local.waiting import wait_for
from tests.made_archive import MadeArchive, batches, steps

TOPIC = "orders"
PARTITIONS = 8
RECORDS = 1000  # of each partition


def made_archive(directory: Path) -> MadeArchive:
    """Make an archive with one topic: its partitions have two segments each, of two leader epochs."""
    archive = MadeArchive(directory)
    put_topic(archive)
    return archive


def put_topic(archive: MadeArchive) -> None:
    """Put the topic of `made_archive`."""
    for partition in range(PARTITIONS):
        for base, epoch in ((0, 0), (RECORDS // 2, 2)):
            log = batches(*steps(base, base + RECORDS // 2), epoch=epoch)
            archive.put_segment(TOPIC, base, log, partition=partition)
        epochs = ((0, 0), (2, RECORDS // 2))
        archive.commit(TOPIC, RECORDS, partition=partition, highest_base=RECORDS // 2, epochs=epochs)


class Running:
    """One process.

    Attributes:
        address: that clients connect to.
        http_address: of its pages.
        process: the running command.

    Args:
        archive: the options that name it; a text is the value of `--url`.
        log: file for standard error.
        port: of the listener.
        http_port: of its pages.
        options: further options.
        prefix: a command that runs this one.
        environment: variables; None for those of this process.
    """

    def __init__(
        self,
        archive: str | Sequence[str],
        log: Path,
        port: int,
        http_port: int,
        options: Sequence[str] = (),
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self.http_address = f"127.0.0.1:{http_port}"
        self._log = log
        named = ("--url", archive, "--cluster", "prod") if isinstance(archive, str) else archive
        command = ["ts-endpoint", "serve", *named, "--listen", self.address, "--http-address", self.http_address]
        env = {**os.environ} if environment is None else environment
        self.process: subprocess.Popen[bytes] | forks.Forked
        with log.open("ab") as file:
            if prefix:
                program = [*prefix, str(Path(sys.executable).with_name(command[0])), *command[1:], *options]
                self.process = subprocess.Popen(program, stderr=file, stdout=file, env=env)
            else:
                self.process = forks.start([*command, *options], cwd=Path.cwd(), env=env, output=file.fileno())

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def page(self, path: str) -> tuple[int, str]:
        """Return the status and the text of a page; 0 if nothing answers."""
        try:
            with urllib.request.urlopen(f"http://{self.http_address}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:  # Python 3.14 warns of one that is not closed
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def facts(self, path: str) -> dict[str, Any]:
        """Return the fields of a probe's answer."""
        found: dict[str, Any] = json.loads(self.page(path)[1] or "{}")
        return found

    def metric(self, sample: str) -> float:
        """Return the value of one sample, by its name with labels."""
        found = [line for line in self.page("/metrics")[1].splitlines() if line.startswith(f"{sample} ")]
        return float(found[0].rpartition(" ")[2])

    def wait_until_ready(self) -> None:
        """Wait for 200 of `/readyz`."""
        wait_for(
            lambda: self.process.poll() is not None or self.page("/readyz")[0] == 200,
            "an endpoint",
            60,
            state=self._state,
        )
        assert self.process.poll() is None, self.log

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def _state(self) -> str:
        return self.log


@contextmanager
def running(location: str, directory: Path, number: int = 1, options: Sequence[str] = ()) -> Iterator[list[Running]]:
    """Run processes of one cluster, and end them.

    Args:
        location: of the archive.
        directory: for their logs.
        number: of processes; several have one another as peers.
        options: further options of all.
    """
    ports = free_ports(2 * number)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    peers = ",".join(f"127.0.0.1:{port}=127.0.0.1:{http_port}" for port, http_port in pairs)
    together = ["--peers", peers] if number > 1 else []
    with ExitStack() as ending:
        found = []
        for each, (port, http_port) in enumerate(pairs):
            process = Running(location, directory / f"endpoint-{each}.log", port, http_port, [*together, *options])
            ending.callback(process.stop, signal.SIGKILL)
            found.append(process)
        for process in found:
            process.wait_until_ready()
        yield found
