"""What a drill refuses before it starts a broker, and the directories that it makes and removes."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.tsctl.running import Run
from ts_common.errors import ConfigurationError, OperatorError
from tsctl.drill.broker import ThrowawayBroker, _remove_orphans, check_kafka, throwaway_directory

# Listens on the port of the file until it is killed.
STUBBORN = f"""exec {sys.executable} -c '
import re, signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
port = int(re.search("^listeners=PLAINTEXT://[^:]+:([0-9]+)", open(sys.argv[1]).read(), re.MULTILINE)[1])
with socket.create_server(("127.0.0.1", port)):
    signal.pause()
' "$1\""""


def kafka_of(directory: Path, **scripts: str) -> Path:
    """Make a Kafka directory with scripts of these bodies."""
    (directory / "libs").mkdir(parents=True)
    (directory / "bin").mkdir()
    for name, body in scripts.items():
        script = directory / "bin" / f"kafka-{name.replace('_', '-')}.sh"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    return directory


def test_a_directory_that_is_no_kafka_is_refused(run: Run, tmp_path: Path) -> None:
    """Before the archive is opened; the message names what is missing."""
    kafka = kafka_of(tmp_path / "kafka", server_start="exit 1")
    with pytest.raises(ConfigurationError, match=r"it has no bin/kafka-storage\.sh; the directory of Kafka"):
        check_kafka(kafka)
    ended = run("drill", "--kafka", tmp_path, "--url", "file:///nowhere", "--cluster", "prod")
    assert ended.code == 2
    assert "it has no bin/kafka-server-start.sh, bin/kafka-storage.sh, libs/" in ended.err


def test_a_tool_or_a_broker_that_fails_is_shown(tmp_path: Path) -> None:
    """The message has its status and its output."""
    (tmp_path / "work").mkdir()
    kafka = kafka_of(tmp_path / "kafka", storage="echo no such feature; exit 3", server_start="echo no memory; exit 4")
    with ThrowawayBroker(kafka, tmp_path / "work") as broker:
        with pytest.raises(OperatorError, match=r"it ended with status 3\.(?s:.)*no such feature"):
            broker.format()
        with pytest.raises(OperatorError, match=r"it ended with status 4\.(?s:.)*no memory"):
            broker.start()


def test_an_interrupted_drill_kills_a_broker_that_ignores_signals(tmp_path: Path) -> None:
    """Ctrl-C and signals arrive as KeyboardInterrupt; a second one does not disturb the end."""
    (tmp_path / "work").mkdir()
    kafka = kafka_of(tmp_path / "kafka", storage="exit 0", server_start=STUBBORN)
    with pytest.raises(KeyboardInterrupt), ThrowawayBroker(kafka, tmp_path / "work") as broker:
        broker.format()
        broker.start()
        assert len(_children()) == 1
        raise KeyboardInterrupt
    assert _children() == []


def _children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "signal.pause()" in " ".join(each.cmdline())]


def test_variables_of_the_operators_own_broker_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two JVMs cannot have one JMX port; the size of the heap is the operator's."""
    monkeypatch.setenv("JMX_PORT", "9999")
    monkeypatch.setenv("KAFKA_OPTS", "-javaagent:exporter.jar")
    monkeypatch.setenv("KAFKA_LOG4J_OPTS", "-Dlog4j.configuration=file:/etc/kafka/log4j.properties")
    monkeypatch.setenv("KAFKA_HEAP_OPTS", "-Xmx2g")
    (tmp_path / "work").mkdir()
    kafka = kafka_of(tmp_path / "kafka", storage="env; exit 3", server_start="exit 4")
    with ThrowawayBroker(kafka, tmp_path / "work") as broker, pytest.raises(OperatorError) as refused:
        broker.format()
    message = str(refused.value)
    assert "KAFKA_HEAP_OPTS=-Xmx2g" in message
    assert "JMX_PORT" not in message
    assert "javaagent" not in message
    assert "log4j.properties" not in message


def test_the_directory_of_a_killed_drill_is_removed_and_that_of_a_running_one_stays(tmp_path: Path) -> None:
    """A running drill holds the lock in its directory."""
    killed, running, other = (tmp_path / name for name in ("tsctl-drill-killed", "tsctl-drill-running", "other"))
    for directory in (killed, running, other):
        directory.mkdir()
        (directory / ".lock").touch()
    held = os.open(running / ".lock", os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with throwaway_directory(tmp_path) as made:
            assert {*tmp_path.iterdir()} == {running, other, made}
            (made / "file").touch()
        assert {*tmp_path.iterdir()} == {running, other}
    finally:
        os.close(held)


def test_drills_that_begin_and_end_together_leave_each_others_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before one has its lock, the other looks; and a directory that was found is removed before its lock is opened."""
    flock, glob = fcntl.flock, Path.glob

    def locked_late(lock: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            _remove_orphans(tmp_path)
        flock(lock, operation)

    def removed_early(path: Path, pattern: str) -> Iterator[Path]:
        for found in [*glob(path, pattern)]:
            shutil.rmtree(found.parent)
            yield found

    monkeypatch.setattr(fcntl, "flock", locked_late)
    with throwaway_directory(tmp_path) as made:
        assert made.is_dir()
    monkeypatch.setattr(Path, "glob", removed_early)
    (tmp_path / "tsctl-drill-ended").mkdir()
    (tmp_path / "tsctl-drill-ended" / ".lock").touch()
    with throwaway_directory(tmp_path) as made:
        assert [*tmp_path.iterdir()] == [made]


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The message names the option."""
    with (
        pytest.raises(OperatorError, match="no directory for the drill: No such file or directory; name another"),
        throwaway_directory(tmp_path / "missing"),
    ):
        pass
