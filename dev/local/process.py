"""One server process: start it, wait until it answers, stop, kill, pause and restart it.

A server runs in its own session, so that Ctrl-C in a terminal reaches only this process, which ends the servers in
order. The server ends with this process, even after kill -9, because `setpriv --pdeathsig KILL` sets its parent-death
signal. The kernel sends that signal when the *thread* that forked the server ends. So one thread, which runs as long as
the interpreter, forks all servers, and a cluster may be started from any thread.

    Server          subclass it: command(), not_ready(), and prepare() if files must be written first;
                    `with` starts it, and kills it at the end
      start()         launch() and wait_ready()
      launch()        fork and exec, without waiting: several servers can start at once
      wait_ready()    returns when the server answers; raises ServerDiedError or WaitTimedOutError with its log's tail
      stop()          SIGTERM, after stop_seconds SIGKILL
      kill()          SIGKILL, at once, as a crash
      pause(), resume()   SIGSTOP, SIGCONT
      restart()       stop() unless it is dead already, and start()
      alive, paused, answers, pid, name, log   log is one file for stdout and stderr, continued over restarts
"""

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from dev.local.forks import Forked
from dev.local.waiting import WaitTimedOutError, wait_for

# One for all servers: see the module's docstring on the thread that forks. It ends with the interpreter, and all
# running servers end with it.
_FORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-forker")

TAIL_LINES = 30
_TAIL_COLUMNS = 200


class ServerDiedError(RuntimeError):
    """A server ended before it was ready. The message has its exit status and the end of its log."""


class ServerNotRunningError(RuntimeError):
    """The server to signal was not started, or has ended."""


class Server(ABC):
    """A server process that can be started repeatedly; not safe for use from two threads at once."""

    start_seconds = 60.0
    stop_seconds = 15.0

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self.paused = False
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments; it runs in `directory`."""

    @abstractmethod
    def not_ready(self) -> str | None:
        """Return what is missing before the server can be used, or None. It raises nothing while the server starts."""

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing here
        """Write what the server needs before each start; by default nothing."""

    def clean_up(self) -> None:  # noqa: B027 - most servers leave nothing
        """Remove what the server left outside `directory`, after each end; by default nothing."""

    def variables(self) -> Mapping[str, str]:
        """Return variables for the server in addition to this process's; by default none."""
        return {}

    @property
    def alive(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def answers(self) -> bool:
        """Whether the process exists and is not paused."""
        return self.alive and not self.paused

    @property
    def pid(self) -> int:
        """The running server's process id.

        Raises:
            ServerNotRunningError: it does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise ServerNotRunningError(f"{self.name} does not run; start() it first")
        return self._process.pid

    def start(self) -> None:
        """Start the server unless it runs, and wait until it answers.

        Raises:
            ServerDiedError, WaitTimedOutError: as `wait_ready`; the process has ended then.
        """
        if not self.alive:
            self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting."""
        if self.alive:
            raise RuntimeError(f"{self.name} runs already, as process {self.pid}")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.prepare()
        forked = _FORKER.submit(self._fork)
        try:
            self._process = forked.result()
        except KeyboardInterrupt:
            self._process = forked.result()  # the process exists all the same, and must be known in order to be killed
            raise
        self.paused = False

    def wait_ready(self) -> None:
        """Wait until the server answers.

        Raises:
            ServerDiedError: the process ended meanwhile.
            WaitTimedOutError: it did not answer within `start_seconds`; it was killed.
        """
        missing: str | None = None

        def ready() -> bool:
            nonlocal missing
            if not self.alive:
                status = "was never started" if self._process is None else f"exit status {self._process.returncode}"
                self.clean_up()
                raise ServerDiedError(f"{self.name} ended before it was ready ({status}).\n{self.tail()}")
            missing = self.not_ready()
            return missing is None

        try:
            wait_for(ready, f"{self.name} to be ready", self.start_seconds, state=lambda: missing)
        except WaitTimedOutError as error:
            self.kill()
            raise WaitTimedOutError(f"{error}\n{self.tail()}") from None

    def stop(self) -> None:
        """Stop a running process: SIGTERM, and SIGKILL after `stop_seconds`."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a paused process handles SIGTERM only after SIGCONT
            try:
                process.wait(self.stop_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.clean_up()

    def kill(self) -> None:
        """Kill a running process (SIGKILL), as in a crash."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.kill()
            process.wait()
        self.clean_up()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): its connections stay open, and it answers nothing."""
        status = Path(f"/proc/{self.pid}/status")
        os.kill(self.pid, signal.SIGSTOP)
        wait_for(lambda: "\nState:\tT" in status.read_text(), f"{self.name} to be paused")
        self.paused = True

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def restart(self) -> None:
        """Stop the process unless it has ended, and start it again with the same ports and data."""
        self.stop()
        self.start()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the end of the server's log, below a line with the file's name."""
        return tail_of(self.log, lines)

    def _fork(self) -> "subprocess.Popen[bytes] | Forked":
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [_setpriv(), "--pdeathsig", "KILL", "--", *self.command()],
                cwd=self.directory,
                env={**os.environ, **self.variables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def tail_of(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a file, at most 64 KiB, below a line with its name."""
    if not log.exists():
        return f"--- {log}: no such file"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65_536))
        text = file.read().decode(errors="replace")
    return "\n".join([f"--- the end of {log}", *(line[:_TAIL_COLUMNS] for line in text.splitlines()[-lines:])])


def _setpriv() -> str:
    found = shutil.which("setpriv")
    if found is None:
        raise FileNotFoundError("setpriv is missing; install it with: apt-get install util-linux")
    return found
