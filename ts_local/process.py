"""One server process: start it, wait until it answers, stop, kill, pause, restart it.

A server runs in its own session, so that Ctrl-C in a terminal reaches only us and the servers are ended in order. It
dies with this process whatever ends us, kill -9 included: `setpriv --pdeathsig KILL` asks the kernel for that. That
signal is sent when the *thread* that forked the server ends, so one thread, which lives as long as the interpreter,
starts all of them; a cluster may be started from any thread.

    Server          subclass it: command(), not_ready(), and prepare() where files must be written first
      start()         launch() and wait_ready()
      launch()        fork and exec, without waiting: several servers can come up at once
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

from ts_local.waiting import WaitTimedOutError, wait_for

# Not per server: see the module's docstring on the thread that forks. It ends with the interpreter, and with it end
# all servers that nobody stopped.
_FORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-forker")

TAIL_LINES = 30
_TAIL_COLUMNS = 200


class ServerDiedError(RuntimeError):
    """A server ended before it was ready. The message holds its exit status and its log's tail."""


class ServerNotRunningError(RuntimeError):
    """A signal was asked for, but the server has not been started or has ended."""


class Server(ABC):
    """A server process that can be started again and again; not safe for use from two threads at once."""

    start_seconds = 60.0
    stop_seconds = 15.0

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self.paused = False
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments; run in `directory`."""

    @abstractmethod
    def not_ready(self) -> str | None:
        """What is still missing before the server can be used, or None when it can. Never raises for "not yet"."""

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing here
        """Write what the server needs before each start; by default nothing."""

    def clean_up(self) -> None:  # noqa: B027 - most servers leave nothing
        """Remove what the server left outside `directory`; called after each end; by default nothing."""

    def variables(self) -> Mapping[str, str]:
        """Environment variables added to ours for the server; by default none."""
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
        """Start and wait until the server answers; does nothing where it runs already.

        Raises:
            ServerDiedError, WaitTimedOutError: as `wait_ready`; the process is then gone.
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
            self._process = forked.result()  # it is there all the same, and must be known to be killed
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
        """End the process in order: SIGTERM, and SIGKILL after `stop_seconds`. Nothing where it has ended."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a paused process takes SIGTERM only once it goes on
            try:
                process.wait(self.stop_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.clean_up()

    def kill(self) -> None:
        """End the process as a crash does: SIGKILL. Nothing where it has ended."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.kill()
            process.wait()
        self.clean_up()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP), and return once it stands: its connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.paused = True

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def restart(self) -> None:
        """Stop the process in order unless it has ended already, and start it again on the same ports and data."""
        self.stop()
        self.start()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The end of the server's log, below a line that names the file."""
        return tail_of(self.log, lines)

    def _fork(self) -> "subprocess.Popen[bytes]":
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
    """The last lines of a file, at most 64 KiB of them, below a line that names it."""
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
