"""A throw-away broker in KRaft mode on loopback, from a Kafka directory of the operator.

It is a process in a session of its own, so that Ctrl-C in a terminal reaches `tsctl`, which ends it in order. Where
`setpriv` exists, the kernel kills the broker if `tsctl` is killed; the next drill removes the data that such a drill
left. Kafka's scripts replace themselves by Java, so signals reach it.
"""

import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from ts_common.errors import ConfigurationError, OperatorError
from ts_reader.options.archive_name import SOURCE

BROKER: Final = 1
_LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = range(10_000, 15_000)  # below the ports of outgoing connections
_START: Final = "kafka-server-start.sh"
_STORAGE: Final = "kafka-storage.sh"
_PREFIX: Final = "tsctl-drill-"
_LOCK: Final = ".lock"
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0
_FORMAT_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_TAIL_BYTES: Final = 1 << 20
_TAIL_CHARACTERS: Final = 4000
_MOST_ERRORS: Final = 10
_IS_ERROR: Final = re.compile(r"\[[^]]+\] (ERROR|FATAL) |Caused by: |[\w.]+(Exception|Error): ")
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Of the operator's own broker: a second one with the same port or agent does not start, and would write its log files.
_DROPPED_VARIABLES: Final = frozenset({"JMX_PORT", "KAFKA_DEBUG", "KAFKA_JMX_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS"})


def check_kafka(directory: Path) -> None:
    """Check that a directory has Kafka's scripts.

    Raises:
        ConfigurationError: it has not.
    """
    missing = [name for name in (_START, _STORAGE) if not os.access(directory / "bin" / name, os.X_OK)]
    if missing or not (directory / "libs").is_dir():
        lacks = ", ".join([*(f"bin/{name}" for name in missing), *([] if (directory / "libs").is_dir() else ["libs/"])])
        raise ConfigurationError(
            SOURCE, [f"--kafka={directory}: it has no {lacks}; the directory of Kafka 3.9 or 4.x is expected"]
        )


@contextmanager
def throwaway_directory(parent: Path | None) -> Iterator[Path]:
    """Yield a new directory, which is removed at the end; those of killed drills are removed too.

    Args:
        parent: of the directory; None for the host's directory of temporary files.

    Raises:
        OperatorError: it cannot be made.
    """
    below = Path(tempfile.gettempdir()) if parent is None else parent
    try:
        _remove_orphans(below)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=below)).absolute()
        unlocked = made / f"{_LOCK}.new"
        lock = os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(made / _LOCK)  # now: another drill removes a directory whose lock it gets
    except OSError as error:
        raise OperatorError(
            f"{below}: no directory for the drill: {error.strerror}; name another --directory"
        ) from error
    try:
        yield made
    finally:
        with _undisturbed():
            shutil.rmtree(made, ignore_errors=True)
            os.close(lock)


def _remove_orphans(below: Path) -> None:
    for path in below.glob(f"{_PREFIX}*/{_LOCK}"):
        with ExitStack() as closed, suppress(FileNotFoundError):  # another drill has removed it
            if path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            closed.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its drill runs
            shutil.rmtree(path.parent, ignore_errors=True)


class ThrowawayBroker:
    """One broker, which is its own controller; a context manager that ends it.

    Args:
        kafka: the Kafka directory.
        directory: for its data, its file and its output.

    Attributes:
        bootstrap: `host:port`.
        server_properties: its file, once it is formatted.

    Raises:
        ConfigurationError: as `check_kafka`.
    """

    def __init__(self, kafka: Path, directory: Path) -> None:
        check_kafka(kafka)
        self._bin = kafka.absolute() / "bin"
        self._directory = directory
        self._output = directory / "kafka.out"
        self._port, self._controller_port = _free_ports(2)
        self.bootstrap = f"{_LOOPBACK}:{self._port}"
        self.server_properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ThrowawayBroker":
        return self

    def __exit__(self, *_: object) -> None:
        with _undisturbed():
            self.kill()

    def format(self) -> None:
        """Write its file, and format its log dir.

        Raises:
            OperatorError: Kafka's tool failed; the message has the end of its output.
        """
        data = self._directory / "data"
        data.mkdir()
        controller = f"{_LOOPBACK}:{self._controller_port}"
        listener = f"PLAINTEXT://{self.bootstrap}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": BROKER,
            "listeners": f"{listener},CONTROLLER://{controller}",
            "advertised.listeners": listener,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{BROKER}@{controller}",
            "log.dirs": data,
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        self.server_properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        options = ["--cluster-id", _new_cluster_id(), "--config", str(self.server_properties)]
        self._wait(self._launch([_STORAGE, "format", *options]), _FORMAT_SECONDS)

    def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            OperatorError: it ended, or does not listen in time; the message has the end of its output.
        """
        self._launch([_START, str(self.server_properties)])
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self.check_running()
            with socket.socket() as probe:
                if probe.connect_ex((_LOOPBACK, self._port)) == 0:
                    return
            if time.monotonic() > deadline:
                raise self._failed(f"it does not listen on {self.bootstrap} after {_START_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def check_running(self) -> None:
        """Check that it did not end by itself: its disk is full, or another process has its port.

        Raises:
            OperatorError: it has; the message has the end of its output.
        """
        if self._process is not None and self._process.poll() is not None:
            raise self._failed(f"it ended with status {self._process.returncode}")

    def stop(self) -> None:
        """Stop it in order.

        Raises:
            OperatorError: it does not end in time.
        """
        if self._process is not None:
            self._process.terminate()
            self._wait(self._process, _STOP_SECONDS, 128 + signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _launch(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        setpriv = shutil.which("setpriv")
        prefix = [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
        kept = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
        variables = {
            "KAFKA_HEAP_OPTS": "-Xmx512m",
            **kept,
            "EXTRA_ARGS": "-name drill",
            "LOG_DIR": str(self._directory / "logs"),
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603  (the operator named the directory)
                [*prefix, str(self._bin / command[0]), *command[1:]],
                cwd=self._directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process

    def _wait(self, process: "subprocess.Popen[bytes]", seconds: float, fine: int = 0) -> None:
        """Wait until a process ends; `fine` is a status that is no failure either."""
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise self._failed(f"it runs after {seconds:.0f} s; it is expected to end") from error
        if status not in {0, fine}:
            raise self._failed(f"it ended with status {status}")

    def _failed(self, what: str) -> OperatorError:
        text = self._output.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        errors = dict.fromkeys(filter(_IS_ERROR.match, text.splitlines()))
        # A stop writes many lines after the errors.
        shown = "\n".join(list(errors)[:_MOST_ERRORS]) or text[-_TAIL_CHARACTERS:]
        return OperatorError(
            f"the broker of the drill, of {self._bin.parent}: {what}. Kafka 4 needs Java 17 or later, in "
            f"JAVA_HOME or on the PATH. Its output:\n{shown}"
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals that would end the clean-up."""
    try:
        former = {each: signal.signal(each, signal.SIG_IGN) for each in _ENDING}
    except ValueError:  # not in the main thread, which receives the signals
        former = {}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


def _free_ports(count: int) -> list[int]:
    """Return different free ports of loopback.

    Raises:
        OperatorError: there are too few.
    """
    found = list(islice(filter(_is_free, random.sample(_PORTS, len(_PORTS))), count))
    if len(found) < count:
        raise OperatorError(f"no {count} free ports on {_LOOPBACK} from {_PORTS[0]} to {_PORTS[-1]}; free some")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def _new_cluster_id() -> str:
    """Return a random id in Kafka's form; the tool would read one that begins with a dash as an option."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made
