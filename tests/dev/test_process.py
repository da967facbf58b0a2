"""A server process: readiness, signals, and what remains when something ends."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from dev.local import ports
from dev.local.jars import LINES, build_once, kafka_jars, oracle_jar
from dev.local.ports import free_ports
from dev.local.process import Server, ServerDiedError, ServerNotRunningError
from dev.local.waiting import WaitTimedOutError, wait_for

SAYS_READY_AND_STAYS = "import time; print('ready', flush=True); time.sleep(600)"
IGNORES_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAYS_READY_AND_STAYS


class Script(Server):
    """A line of Python that is ready once its log contains a word."""

    start_seconds = 10.0
    stop_seconds = 0.3

    def __init__(self, directory: Path, code: str, ready: str = "ready") -> None:
        super().__init__("script", directory, directory / "script.log")
        self._code = code
        self._ready = ready
        self._said_before = 0

    def prepare(self) -> None:
        self._said_before = self.log.stat().st_size if self.log.exists() else 0

    def command(self) -> list[str]:
        return [sys.executable, "-c", self._code]

    def not_ready(self) -> str | None:
        return None if self._ready in self.log.read_text()[self._said_before :] else f"the log lacks {self._ready}"


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Make scripts, each in its own directory, and kill those that a failed test left running."""
    made: list[Script] = []

    def make(code: str, ready: str = "ready") -> Script:
        made.append(Script(tmp_path / str(len(made)), code, ready))
        return made[-1]

    yield make
    for server in made:
        server.kill()


def test_a_server_that_dies_at_start_is_an_error_at_once_with_the_end_of_its_log(
    script: Callable[..., Script],
) -> None:
    """A process that ends before it is ready fails the start long before the deadline, and its last output is shown."""
    server = script("import sys; print('no configuration'); sys.exit(3)")
    began = time.monotonic()
    with pytest.raises(ServerDiedError, match=r"(?s)script ended .*exit status 3.*no configuration"):
        server.start()
    assert time.monotonic() - began < 5
    assert not server.alive


def test_a_server_that_never_answers_is_killed_at_the_deadline_and_the_error_names_what_was_missing(
    script: Callable[..., Script],
) -> None:
    """The timeout names what was awaited and the last state, and leaves no process."""
    server = script(SAYS_READY_AND_STAYS, ready="something else")
    server.start_seconds = 0.5
    with pytest.raises(WaitTimedOutError, match=r"(?s)script to be ready.*lacks something else.*ready"):
        server.start()
    assert not server.alive


def test_stop_ends_a_paused_server_and_one_that_ignores_sigterm(script: Callable[..., Script]) -> None:
    """SIGTERM reaches a paused process, and SIGKILL follows if it does not end."""
    polite = script(SAYS_READY_AND_STAYS)
    polite.start()
    polite.pause()
    assert psutil.Process(polite.pid).status() == psutil.STATUS_STOPPED
    assert polite.paused
    assert not polite.answers
    polite.stop()
    stubborn = script(IGNORES_TERM)
    stubborn.start()
    stubborn.stop()
    assert not polite.alive
    assert not stubborn.alive


def test_restart_gives_a_new_process_and_continues_the_log(script: Callable[..., Script]) -> None:
    """A restarted server has another id and appends to the same file; signals to a dead one are an error."""
    server = script(SAYS_READY_AND_STAYS)
    server.start()
    first = server.pid
    server.restart()
    assert server.pid != first
    assert server.log.read_text().count("ready") == 2
    server.kill()
    with pytest.raises(ServerNotRunningError, match="script does not run"):
        server.pause()


def test_a_server_outlives_the_thread_that_started_it(script: Callable[..., Script]) -> None:
    """The kernel's parent-death signal is bound to a thread that runs as long as the interpreter."""
    server = script(SAYS_READY_AND_STAYS)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with pytest.raises(WaitTimedOutError):
        wait_for(lambda: not server.alive, "the server to end", 0.3)


def test_servers_die_with_a_parent_that_is_killed() -> None:
    """After kill -9 of the process that holds a cluster, none of its servers is left."""
    code = (
        "from dev.local.kafka.cluster import LocalCluster\n"
        "import time\n"
        "with LocalCluster(brokers=0, s3=True, name='orphan') as cluster:\n"
        "    print(cluster.logs, *(server.pid for server in cluster.servers), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        logs, *pids = parent.stdout.readline().split()
        servers = [int(pid) for pid in pids]
        assert len(servers) == 2
        parent.kill()
    wait_for(lambda: not any(map(_runs, servers)), "the servers to end with their parent", 10)
    shutil.rmtree(logs)


def test_ctrl_c_ends_the_servers_and_removes_their_data() -> None:
    """SIGINT inside the block leaves neither a process nor the data directory."""
    code = (
        "from dev.local.kafka.cluster import LocalCluster\n"
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores SIGINT
        "with LocalCluster(brokers=0, name='interrupted') as cluster:\n"
        "    print(cluster.zookeeper.pid, cluster.directory, cluster.logs, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, directory, logs = parent.stdout.readline().split()
        parent.send_signal(signal.SIGINT)
        assert parent.wait(20) != 0
    assert not _runs(int(pid))
    assert not Path(directory).exists()
    assert (Path(logs) / "zookeeper.log").exists()
    shutil.rmtree(logs)


def test_free_ports_are_all_different_and_below_the_ephemeral_range() -> None:
    """No port is returned twice, and no outgoing connection can use one."""
    ports = free_ports(200)
    assert len(set(ports)) == 200
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    assert max(ports) < int(ephemeral.read_text().split()[0])


def test_a_port_that_another_process_just_bound_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may bind a free port first."""
    with ports.listen(1) as first:
        handed_out = iter([first.getsockname()[1], *free_ports(1)])
        monkeypatch.setattr(ports, "free_port", lambda: next(handed_out))
        with ports.listen(1) as second:
            assert second.getsockname()[1] != first.getsockname()[1]


def test_a_build_is_done_once_by_many_and_again_when_its_source_changed(tmp_path: Path) -> None:
    """Two callers at once build once; other source bytes cause another build, and nothing old is left."""
    built: list[Path] = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / f"product-{len(built)}").touch()

    target = tmp_path / "target"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: build_once(target, b"one", build), range(4)))
    assert len(built) == 1
    build_once(target, b"two", build)
    assert {path.name for path in target.iterdir()} == {"product-2", ".complete"}


def test_jars_and_the_oracle_are_built() -> None:
    """Both lines of Kafka, ZooKeeper and the oracle's class are where the servers look for them."""
    jars = {line: {path.name for path in kafka_jars(line).iterdir()} for line in LINES}
    assert {"kafka_2.13-3.9.1.jar", "zookeeper-3.8.4.jar"} <= jars["3.9"]
    assert "kafka_2.13-4.1.2.jar" in jars["4"]
    assert oracle_jar().exists()


def _runs(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
