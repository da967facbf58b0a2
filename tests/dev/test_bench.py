"""The parts of the benchmarks that could cause a wrong figure; `make bench` measures the figures themselves."""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dev.bench import page_cache, pruning
from dev.bench.against import figures
from dev.bench.measuring import made_archives
from dev.bench.measuring.agent_runs import AgentLog
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, quantile, rounds
from dev.bench.measuring.processes import PeakMemory, ProcessWatch
from dev.bench.paced_producer import Produced
from dev.bench.producer_loss import ProducerWindow, losses, window
from dev.local.cached_pages import PAGE_BYTES, cache, uncache
from ts_common.store.factory import open_store


def test_rounds_turn_their_order_and_drop_the_warm_up() -> None:
    """Each thing runs first in a round as often as the others."""
    order: list[str] = []

    def thing(name: str) -> int:
        order.append(name)
        return len(order)

    things = {name: partial(thing, name) for name in ("a", "b")}
    assert rounds(things, 2, warm_up=1) == {"a": [3, 6], "b": [4, 5]}
    assert order == ["b", "a", "a", "b", "b", "a"]


def test_a_ratio_is_the_median_of_each_rounds_own() -> None:
    """A slow round slows both sides, so its ratio still counts."""
    assert median_ratio([1.0, 10.0, 3.0], [2.0, 10.0, 1.0]) == 1.0


def test_goals_are_met_on_their_bound_and_counted_beyond_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A missed goal is printed and counted; a value equal to the bound meets the goal."""
    goals = [
        Goal("rate", 0.9, 0.9, at_least=True),
        Goal("cost", 1.51, 1.5, at_least=False),
        Goal("memory", 119.0, 120.0, at_least=False, unit=" MiB"),
    ]
    assert print_goals(goals) == 1
    assert capsys.readouterr().out.count("MISSED") == 1


def test_a_process_of_a_benchmark_keeps_the_credentials_that_it_was_given() -> None:
    """The first process alone removes the machine's own; the servers' are set after that."""
    child = "import os, dev.bench; print(os.environ.get('AWS_ACCESS_KEY_ID'))"
    parent = f"""
import os, subprocess, sys
import dev.bench
found = os.environ.get("AWS_ACCESS_KEY_ID")
given = {{**os.environ, "AWS_ACCESS_KEY_ID": "the server's"}}
print(found, subprocess.check_output([sys.executable, "-c", {child!r}], env=given, text=True))
"""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "the machine's"}
    del environment["BENCH_ISOLATED"]  # this process is not the first one
    printed = subprocess.check_output([sys.executable, "-c", parent], env=environment, text=True)
    assert printed.split(None, 1) == ["None", "the server's\n\n"]


def test_a_comparison_reads_every_goal_that_a_benchmark_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever its unit, for instance a percentage."""
    print_goals([Goal(f"in{unit}", 1.5, 2.0, at_least=False, unit=unit) for unit in ("", " %", " MiB", " s")])
    found = figures(capsys.readouterr().out)
    assert [(figure.found, figure.unit, figure.at_least) for figure in found.values()] == [
        (1.5, unit, False) for unit in ("", "%", "MiB", "s")
    ]


@pytest.mark.parametrize(("missed", "arguments", "code"), [(0, [], 0), (2, [], 1), (2, ["--no-gate"], 0)])
def test_a_missed_goal_fails_the_command(missed: int, arguments: list[str], code: int) -> None:
    """With `--no-gate` the command only prints."""
    assert exit_code(missed, gate_parser("").parse_args(arguments)) == code


def test_a_watched_process_shows_the_cpu_between_two_instants_and_its_peak() -> None:
    """Half a second of work is seen by the sampler."""
    with ProcessWatch(os.getpid()) as watch:
        began, before = time.time(), time.process_time()
        while time.process_time() - before < 0.5:
            sum(range(1000))
        ended = time.time()
    assert watch.cpu_seconds(began, ended) > 0
    assert watch.peak_mib > 1


def test_a_peak_of_memory_begins_at_what_a_process_has() -> None:
    """Memory that was freed before does not count; memory that was freed since does."""
    for _ in range(2):
        use_memory(200_000_000)
        peak = PeakMemory(os.getpid())
        assert peak.megabytes < 50
        use_memory(100_000_000)
        assert 90 < peak.megabytes < 250


def use_memory(size: int) -> None:
    """Write to new memory, and return it to the kernel: the heap could keep it, as other tests set it."""
    with mmap.mmap(-1, size) as memory:
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1


def test_a_quantile_is_a_value_that_was_measured() -> None:
    """Among a hundred values p99 is the second largest, among few it is the largest."""
    values = [float(number) for number in reversed(range(1, 101))]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert quantile([3.0, 7.0], 0.99) == 7.0


def test_an_agents_log_is_read_as_it_grows(tmp_path: Path) -> None:
    """A half-written line is read when it is complete; lines that are not events are skipped."""
    path, later = tmp_path / "agent.log", b'"timestamp": "1970-01-01T00:00:02Z"}\n'
    log = AgentLog(path)
    assert log.events("committed") == []
    first = b'{"event": "committed", "partition": "t-0", "next_offset": 5, "timestamp": "1970-01-01T00:00:01.5Z"}\n'
    second = b'{"event": "committed", "partition": "t-0", "next_offset": 9, '
    path.write_bytes(b"a warning\n" + first + second)
    assert log.next_offsets() == {"t-0": 5}
    with path.open("ab") as file:
        file.write(later)
    assert log.next_offsets() == {"t-0": 9}
    assert [event["at"] for event in log.events("committed")] == [1.5, 2.0]


def test_a_producers_rate_and_latencies_are_those_inside_the_window() -> None:
    """What was acknowledged before and after does not count."""
    produced = Produced([0.0, 1.0, 2.0, 3.0, 4.0], [0, 500, 600, 800, 9000], [0.5, 1.5, 2.5, 3.5], [9.0, 0.1, 0.2, 9.0])
    assert produced.rate_between(0.9, 3.1) == 150.0
    assert window(produced, 1.0, 3.0) == ProducerWindow(150.0, 0.2, 2.0)
    with pytest.raises(ValueError, match="no two samples"):
        produced.rate_between(1.1, 2.1)


def test_a_producer_that_catches_up_in_its_window_lost_nothing() -> None:
    """A loss is the shortfall against the requested rate, in percent of that rate."""
    assert losses([ProducerWindow(rate, 0.0, 1.0) for rate in (75.0, 100.0, 130.0)], 100.0) == [25.0, 0.0, 0.0]


def test_the_page_cache_that_a_shipper_leaves_is_measured() -> None:
    """A shipper that reads nothing, one that leaves its pages cached, one that drops all; on a disk, not in /tmp."""
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=build, prefix="bench-") as directory:
        log, other = Path(directory, "log"), Path(directory, "other")
        for path in (log, other):
            path.write_bytes(bytes(100 * PAGE_BYTES))

        def left(ship: Callable[[Path], None]) -> tuple[float, float, float]:
            def timed() -> float:
                ship(log)
                return 1.0

            found = page_cache.measure(timed, [log], other, 1)
            return found.kept, found.pulled_in, found.other

        assert left(lambda _: None) == pytest.approx((1.0, 0.0, 1.0), abs=0.1)  # the kernel may evict some pages itself
        assert left(lambda log: cache(log, 0, 25 * PAGE_BYTES)) == pytest.approx((1.0, 0.5, 1.0), abs=0.1)
        assert left(uncache) == pytest.approx((0.0, 0.0, 1.0), abs=0.1)


def test_all_that_a_query_fetches_is_counted(tmp_path: Path) -> None:
    """Planning and reading both count: a whole scan reads all bytes once, 1 % by time a little more than 1 %."""
    store = pruning.CountingStore(open_store(tmp_path.as_uri()))
    records, batches = made_archives.RECORDS_A_BATCH, 500
    made = made_archives.template_segment(
        made_archives.small_records(records), 0, records, batches, made_archives.TIME, 100
    )
    total = made_archives.ship(store, "t", [(0, made)], records * batches)
    assert total == len(made[0]) > 8_000_000
    percent, rows = pruning.share(store, "t", total, {})
    assert (100 <= percent < 101, rows) == (True, records * batches)
    middle = made_archives.TIME + 100 * batches // 2
    options = {"startingTimestamp": middle, "endingTimestamp": middle + 100 * batches // 100}
    percent, rows = pruning.share(store, "t", total, options)
    assert rows == records * batches // 100
    assert percent * total / 100 < 2_000_000  # includes a last chunk of 1 MiB that is mostly unused
