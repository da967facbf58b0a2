"""`python -m dev.demo` as a user runs it: its output, its exit status, and that it leaves nothing behind."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from dev.demo.query import compare, start_spark
from dev.local.jars import BUILD
from dev.local.waiting import wait_for

ROOT = BUILD.parent
MARK = "TS_DEMO_TEST"  # in the environment of the demo, and so of all that it starts


class Demo:
    """One run of the demo."""

    def __init__(self, log: Path, records: str) -> None:
        self.log = log
        self._mark = uuid.uuid4().hex
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dev.demo"],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DEMO_RECORDS": records,
                    "DEMO_KEEP": "1",
                    "PYTHONUNBUFFERED": "1",
                    MARK: self._mark,
                },
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    def running(self) -> list[str]:
        """Return the running processes that the demo started, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark:
                    found.append(" ".join(process.cmdline()))
            except (psutil.Error, OSError):
                continue  # it ended meanwhile, or belongs to another user
        return found

    def files(self) -> list[Path]:
        """Return its directories under build."""
        return [*BUILD.glob(f"tmp/demo.{self.process.pid}.*"), *BUILD.glob(f"logs/demo.{self.process.pid}.*")]

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def assert_nothing_left(self) -> None:
        assert self.running() == []
        assert self.files() == []


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Demo]:
    """Start a demo with as many records as the test's parameter."""
    run = Demo(tmp_path / "demo.txt", request.param)
    try:
        yield run
    finally:
        run.process.kill()  # the servers die with it
        run.process.communicate()


@pytest.mark.full  # `.ci/run` runs it as a user does
@pytest.mark.parametrize("demo", ["6000"], indirect=True)
def test_the_demo_ships_deletes_the_broker_and_reads_everything_back(demo: Demo) -> None:
    """6,000 records, and one per partition that closes its last segment; each door, and its command while it stays."""
    wait_for(lambda: "Enter ends" in demo.text or demo.process.poll() is not None, "the demo to stay", 240)
    exports = dict(re.findall(r"export (AWS_\w+)=(\S*)", demo.text))
    (listing,) = re.findall(r"^ +tsctl (ls .+)$", demo.text, re.MULTILINE)
    listed = subprocess.run(
        [Path(sys.executable).with_name("tsctl"), *listing.split()],
        cwd=ROOT,
        env={**os.environ, **exports},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "page_views" in listed.stdout
    assert demo.process.stdin is not None
    demo.process.stdin.write(b"\n")
    demo.process.stdin.flush()
    assert demo.wait(60) == 0, demo.text
    text = demo.text
    rows = re.findall(r"^ +([0-2]) +([\d,]+) +([\d,]+) +1 +0 +[1-9] +[\d.]+ MB *$", text, re.MULTILINE)
    produced, shipped = ([int(row[column].replace(",", "")) for row in rows] for column in (1, 2))
    assert len(rows) == 3, text
    assert sum(produced) == 6003
    assert shipped == [count - 1 for count in produced]
    assert "6,000 of 6,003 records are shipped in segments: 99.95 %." in text
    assert "The live tail has the others: readers return all 6,003." in text
    assert re.search(r"Deleted /\S+/broker-1, with [\d.]+ MB of log\.", text)
    # 250 views an hour.
    assert "250 rows; the journal has 250." in text
    assert "6,003 equal, 0 missing, 0 unexpected, 0 twice, 0 different." in text
    assert sum(int(views) for views in re.findall(r"^ +[A-Z]{2} +(\d+) *$", text, re.MULTILINE)) == 6000
    assert re.search(r"^ +None +3 *$", text, re.MULTILINE)  # what closed the last segments has no country
    assert re.search(r"6,003 rows in \d+ Parquet files", text)
    assert "12:00 to 13:00: 250 records; the journal has 250." in text
    drilled = re.findall(r"^ +page_views-[0-2] +(read_\w+) +0 +([\d,]+) +([\d,]+) *$", text, re.MULTILINE)
    assert sorted(level for level, _, _ in drilled) == ["read_committed"] * 3 + ["read_uncommitted"] * 3
    assert all(end == records for _, end, records in drilled)
    assert re.search(r"The topic is back at its offsets in [\d.]+ s: 6,003 records", text)
    assert "What to try next" in text
    for page in re.findall(r"docs/[\w-]+\.md", text):
        assert (ROOT / page).exists(), page
    assert not re.search(r"WARN|INFO|Traceback", text)
    demo.assert_nothing_left()


@pytest.mark.full  # `test_process.py` has the same of servers in any block
@pytest.mark.parametrize("demo", ["20000000"], indirect=True)
@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    ],
)
def test_a_signal_while_producing_ends_everything(demo: Demo, number: signal.Signals, status: int) -> None:
    """One line instead of a traceback, and the status that shells expect; a second Ctrl-C changes nothing."""
    wait_for(
        lambda: re.search(r"produced [1-9]", demo.text) or demo.process.poll() is not None,
        "records to be produced",
        90,
        state=lambda: demo.text,
    )
    running = len(demo.running())
    assert running >= 5  # itself, ZooKeeper, Kafka, S3, the agent
    demo.process.send_signal(number)
    wait_for(lambda: len(demo.running()) < running, "the cleaning up to begin", 60)
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait(60) == status, demo.text
    assert demo.text.endswith(f"Ended by {number.name}. The servers are stopped and the demo's files deleted.\n")
    assert "Traceback" not in demo.text
    demo.assert_nothing_left()


def compare_spoilt_rows(scratch: str) -> dict[str, Any]:
    """Run the demo's comparison over 22 rows; each row after the tenth is wrong in another way."""
    spark = start_spark(scratch)
    then = datetime(2026, 1, 1, tzinfo=UTC)
    headers = [("a", b"x"), ("b", None)]
    written: list[tuple[Any, ...]] = [
        (0, offset, b"key" if offset % 2 else None, b"value", "t", then, 0, headers) for offset in range(22)
    ]
    found = [list(row) for row in written]
    found[10][2] = b""  # was null
    found[11][2] = None
    found[12][3] = b"valuf"
    found[13][4] = "u"
    found[14][5] = then + timedelta(milliseconds=1)
    found[15][6] = 1
    found[16][7] = None
    found[17][7] = [("a", b"x"), ("b", b"")]
    found[18][7] = [("b", None), ("a", b"x")]
    found[19][0] = 1  # missing in partition 0, unexpected in partition 1
    del found[20]
    found.append(found[20])  # what was row 21
    schema = (
        "partition int, offset long, key binary, value binary, topic string, timestamp timestamp, timestampType int, "
        "headers array<struct<key:string,value:binary>>"
    )
    return compare(spark.createDataFrame(found, schema), spark.createDataFrame(written, schema))


@pytest.mark.full
def test_the_comparison_finds_each_kind_of_wrong_row(tmp_path: Path) -> None:
    """In a process of its own, since Spark's Java lasts as long as the process that started it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        found = other.submit(compare_spoilt_rows, str(tmp_path)).result(600)
    assert len(found.pop("examples")) == 5
    assert found == {
        "equal": 11,  # the row that was read twice also counts as equal
        "missing": 2,
        "unexpected": 1,
        "twice": 1,
        "different": 9,
        "fields": {"key": 2, "value": 1, "topic": 1, "timestamp": 1, "timestampType": 1, "headers": 3},
    }


@pytest.mark.parametrize("demo", ["many", "999", "-5", "1e6"], indirect=True)
def test_an_invalid_size_is_rejected(demo: Demo) -> None:
    """One line names the expected range; nothing is started."""
    assert demo.wait(30) == 2
    assert re.fullmatch(r"DEMO_RECORDS=\S+: expected a whole number from 1,000 to 100,000,000\n", demo.text), demo.text
    demo.assert_nothing_left()
