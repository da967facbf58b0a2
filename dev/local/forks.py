"""A fork server: the programs of this checkout run as forks of one process that has imported them.

An agent's start imports hundreds of modules, for 0.75 s of CPU; a fork has them. It is a process all the same: it has
its own id and session, its own files, variables and directory, and ends by signals, by `kill -9` too. Only its command
line in `/proc` is that of the fork server. A test of that, of memory or of the executable runs the executable.

    process = start(["ts-uploader", "run", ...], cwd=..., env=..., output=log)   # like subprocess.Popen
    process.pid, poll(), wait(seconds), returncode, send_signal(number), terminate(), kill()
    write_command(path, "tsctl")   # an executable file that runs `tsctl` so; processes need `pass_fds=inherited()`

The fork server imports no module that starts a thread, because a fork has only the thread that forked it. The
exception is that of Arrow's jemalloc, which starts again in a fork.
"""

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Final

from dev.local.sdk_memory import remember
from ts_common.installed import Hidden
from ts_common.store.factory import open_store
from ts_common.store.options import Connection, Credentials, StorageOptions


@dataclass(frozen=True)
class Program:
    """A program that forks run.

    Attributes:
        module: of its function `main`.
        preloaded: modules that the fork server imports.
        hidden: packages that these find missing, as the program has it.
    """

    module: str
    preloaded: tuple[str, ...]
    hidden: tuple[str, ...] = ()


PROGRAMS: Final = {
    "ts-uploader": Program(
        "ts_uploader.start",
        (
            "ts_uploader.cli",
            "ts_uploader.agent",
            "ts_uploader.leadership.kraft.leadership",
            "ts_uploader.leadership.zookeeper.leadership",
            "ts_common.store.s3.driver",
            "botocore.session",
            "confluent_kafka.admin",
        ),
    ),
    "ts-endpoint": Program("ts_endpoint.start", ("ts_endpoint.cli", "ts_common.store.s3.driver", "botocore.session")),
    "tsctl": Program(
        "tsctl.start",
        (
            "tsctl.cli",
            *(f"tsctl.commands.{name}" for name in ("cat", "consume", "cost", "gc", "report", "sql", "tables")),
            *("rich.progress", "structlog.dev", "ts_common.store.s3.driver", "botocore.session", "confluent_kafka"),
            *("pyarrow.dataset", "duckdb", "ts_reader.archive", "ts_reader.decode.segment_decoder", "llvmlite.binding"),
        ),
        hidden=("pandas",),
    ),
}
_MOST_BYTES: Final = 1 << 20  # of a request
_CHECKOUT: Final = Path(__file__).parents[2]
# What a connection brings: of a fork that is a process of its own, and of its end.
_STARTED: Final = "started"
_ENDED: Final = "ended"
_PR_SET_PDEATHSIG: Final = 1
_COMMAND: Final = """\
#!{python} -IS
import json, os, socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
request = {{"arguments": ["{name}", *sys.argv[1:]], "cwd": os.getcwd(), "env": dict(os.environ)}}
data = json.dumps(request).encode()
socket.send_fds(socket.socket(fileno={requests}), [data], [theirs.fileno(), 1, 2])
theirs.close()
ours.recv(64)
code = int(ours.recv(64).split()[1])
os._exit(code if code >= 0 else 128 - code)
"""

Ended = subprocess.CompletedProcess[str]


class Forked:
    """A program that runs as a fork, with the methods of `subprocess.Popen` that servers need.

    Args:
        connection: to the fork server, which sends the exit status of this fork.
    """

    def __init__(self, arguments: Sequence[str], pid: int, connection: socket.socket) -> None:
        self.args = arguments
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status when the process has ended.

        Raises:
            subprocess.TimeoutExpired: it runs for longer than so many seconds.
        """
        if (found := self._read(timeout)) is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return found

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            data = self._connection.recv(64)
            self._connection.close()
            if not data:
                raise RuntimeError(f"the fork server ended before {self.args[0]}, process {self.pid}")
            self.returncode = int(data.decode().removeprefix(_ENDED))
        return self.returncode


class ForkServer:
    """The fork server of one program; it starts with the first fork, and ends with this process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._requests: socket.socket | None = None

    def start(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int, errors: int | None = None
    ) -> Forked:
        """Start the program.

        Args:
            arguments: its name, and its arguments.
            env: all its variables.
            output: descriptor of its standard output.
            errors: descriptor of its standard error; None for that of its output.
        """
        request = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptors = [theirs.fileno(), output, output if errors is None else errors]
            socket.send_fds(self.requests(), [request], descriptors)
        kind, _, pid = ours.recv(64).decode().partition(" ")
        if kind != _STARTED:
            raise RuntimeError(f"{arguments[0]} or its fork server ended at its start; standard error has the reason")
        return Forked(list(arguments), int(pid), ours)

    def requests(self) -> socket.socket:
        """Return the connection for requests, of a fork server that runs."""
        with self._lock:
            if self._requests is None:
                self._requests = _launched(self._name)
            return self._requests


_SERVERS: Final = {name: ForkServer(name) for name in PROGRAMS}


def start(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int, errors: int | None = None
) -> Forked:
    """Start a program of `PROGRAMS`, as `ForkServer.start` describes it."""
    return _SERVERS[arguments[0]].start(arguments, cwd=cwd, env=env, output=output, errors=errors)


def write_command(path: Path, name: str) -> None:
    """Write an executable file that runs a program of `PROGRAMS` as a fork, for the shell of a page's commands."""
    requests = _SERVERS[name].requests().fileno()
    path.write_text(_COMMAND.format(python=sys.executable, name=name, requests=requests))
    path.chmod(0o755)


def inherited() -> list[int]:
    """Return the descriptors that commands of `write_command` need."""
    return [requests.fileno() for server in _SERVERS.values() if (requests := server._requests) is not None]


def run(arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float) -> Ended:
    """Run a program to its end, and return its exit status and output.

    Raises:
        subprocess.TimeoutExpired: it ran longer than so many seconds; it was killed.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        process = start(arguments, cwd=cwd, env=env, output=output.fileno(), errors=errors.fileno())
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    return subprocess.CompletedProcess(list(arguments), code, *texts)


def _launched(name: str) -> socket.socket:
    """Start the fork server, and return the connection for requests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    with theirs:
        # It ends when the connection does: with this process, however that ends.
        server = subprocess.Popen(
            [sys.executable, "-m", "dev.local.forks", str(theirs.fileno()), name],
            pass_fds=[theirs.fileno()],
            cwd=_CHECKOUT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def serve(requests: socket.socket) -> Callable[[], object] | None:
    """Fork for each request. Return None in the fork server when requests have ended, and the program in a fork."""
    wakeup, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
            _report_ended(running)
        if requests.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
            if not data:
                return None
            connection = socket.socket(fileno=descriptors[0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of jemalloc's thread
                pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (requests, *running.values()):
                    each.close()
                os.close(wakeup)
                os.close(waking)
                return _program(json.loads(data), connection, *descriptors[1:])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            running[pid] = connection


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        connection = running.pop(pid)
        with connection, suppress(OSError):  # its test can have ended
            connection.send(f"{_ENDED} {os.waitstatus_to_exitcode(status)}".encode())


def _program(request: Mapping[str, Any], connection: socket.socket, output: int, errors: int) -> Callable[[], object]:
    """Make this fork a program's process, and return its function."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    # Those of the fork server can seek, as its own files do, and have lines or blocks as these need.
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=sys.stderr.encoding, errors=sys.stderr.errors, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    with connection:
        connection.send(f"{_STARTED} {os.getpid()}".encode())
    sys.argv = list(request["arguments"])
    if os.environ.get("PYTHONPATH"):  # Python reads it at its start
        os.execv(Path(sys.executable).with_name(sys.argv[0]), sys.argv)
    sys.modules["__main__"].__package__ = None  # else messages have the name of this module
    found: Callable[[], object] = import_module(PROGRAMS[sys.argv[0]].module).main
    return found


def _run(program: Callable[[], object]) -> None:
    """Run a program, and end the process as Python does, but without freeing each object: that copies its memory."""
    try:
        program()
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        code = error.code or 0
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python reports it
    os._exit(code)


def main() -> None:
    """Run the fork server, or a program in a fork of it."""
    preloading = PROGRAMS[sys.argv[2]]
    hidden = Hidden(*preloading.hidden)
    sys.meta_path.insert(0, hidden)
    for name in preloading.preloaded:
        import_module(name)
    sys.meta_path.remove(hidden)
    remember()
    open_store("s3://any-bucket/path", StorageOptions(Connection(credentials=Credentials("", "", None)))).close()
    gc.freeze()  # else each collection of a fork would copy the memory of all objects
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        _run(program)


if __name__ == "__main__":
    main()
