"""An interrupted command leaves no partial files, and ends with one exit code."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run

# Stops after the first bytes of a segment until the test ends it.
STOPPED = """
import signal, sys, threading
from ts_common.archive.fetch import ResumableReader
from tsctl import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background has it ignored,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and under nohup this one
read = ResumableReader.read
def stopping(reader, size):
    if reader._position > 0:
        print("writing", flush=True)
        threading.Event().wait()
    return read(reader, 10)
ResumableReader.read = stopping
sys.argv = ["tsctl", *sys.argv[1:]]
cli.main()
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_get_that_is_ended_leaves_nothing(
    hand_made: Archive, named: tuple[str, ...], tmp_path: Path, ending: signal.Signals
) -> None:
    """Neither a complete nor a partial directory is left."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    command = [sys.executable, "-c", STOPPED, "get", "t", str(tmp_path / "out"), *named]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "writing\n"
        assert len(list((tmp_path / "out").iterdir())) == 1
        running.send_signal(ending)
        _, err = running.communicate(timeout=300)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert list((tmp_path / "out").iterdir()) == []


def test_a_topic_with_the_longest_name_can_be_fetched(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Kafka allows 249 characters, and a file system 255."""
    topic = "t" * 249
    hand_made.put_segment(topic, 0, batches((0, 10)))
    hand_made.commit(topic, 10)
    assert run("get", topic, tmp_path / "out", *named).code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"{topic}-0"]
