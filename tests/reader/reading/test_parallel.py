"""Many calls at once: order, errors, and progress in the log."""

import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from ts_common.call_waits import CallWaits
from ts_reader.reading import parallel
from ts_reader.reading.parallel import LOG_EVERY_SECONDS, Progress, in_threads, stream_in_threads


class Clock:
    """A clock that advances with each call of `work`."""

    def __init__(self, seconds: float) -> None:
        self._each = seconds
        self._now = 100.0

    def __call__(self) -> float:
        return self._now

    def work(self, item: int) -> int:
        self._now += self._each
        return item


def logged(each_seconds: float, total: int) -> list[int]:
    """Return the count of each log line, if each call lasts that many seconds."""
    clock = Clock(each_seconds)
    work = Progress("list", total, clock).counting(clock.work)
    with capture_logs() as lines:
        assert [work(item) for item in range(total)] == list(range(total))
    assert {(line["event"], line["step"], line["of_partitions"]) for line in lines} <= {
        ("planning_progress", "list", total)
    }
    return [line["partitions"] for line in lines]


def test_a_long_step_logs_its_progress_every_few_seconds() -> None:
    """A quick step logs nothing, and neither does the last call."""
    assert logged(LOG_EVERY_SECONDS / 8, 35) == [8, 16, 24, 32]
    assert logged(LOG_EVERY_SECONDS / 8, 8) == []
    assert logged(LOG_EVERY_SECONDS * 2, 3) == [1, 2]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls wait for the network, so that they run at once."""
    waits = CallWaits()
    waits.prevail.set()
    monkeypatch.setattr(parallel, "_WAITS", waits)


@pytest.mark.usefixtures("waiting")
def test_results_have_the_order_of_the_inputs() -> None:
    """Whatever call ends first."""
    first_waits = threading.Event()

    def call(item: int) -> int:
        if item == 0:
            assert first_waits.wait(10)
        else:
            first_waits.set()
        return -item

    assert in_threads(call, range(5), step="list") == [0, -1, -2, -3, -4]


def test_calls_that_compute_run_on_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """For them, threads cost more than the work; a caller can have them in any case."""
    monkeypatch.setattr(parallel, "_WAITS", CallWaits())
    here = threading.get_ident()
    assert {*in_threads(lambda _: threading.get_ident(), range(50))} == {here}
    assert {*stream_in_threads(lambda _: threading.get_ident(), range(50), most=4)} == {here}
    assert here not in in_threads(lambda _: threading.get_ident(), range(50), at_once=True)


def test_calls_run_on_threads_once_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three quarters of the time, of calls of 50 ms in all."""
    now = computed = 0.0
    monkeypatch.setattr(parallel, "_WAITS", CallWaits(lambda: now, lambda: computed))

    def call(number: int) -> bool:
        nonlocal now, computed
        now, computed = now + 0.03, computed + (0.03 if number == 0 else 0.001)
        return threading.get_ident() == here

    here = threading.get_ident()
    assert in_threads(call, range(8)) == [True] * 5 + [False] * 3
    assert [*stream_in_threads(call, range(3), most=2)] == [False, False, False]


@pytest.mark.usefixtures("waiting")
def test_no_more_threads_run_than_are_allowed() -> None:
    """With one thread, all calls are made on it."""
    assert len(set(in_threads(lambda _: threading.get_ident(), range(50), most=1))) == 1


def test_the_first_error_in_the_order_of_the_inputs_is_raised() -> None:
    """The same error each time, whatever thread is quicker."""

    def call(item: int) -> int:
        if item % 2:
            raise PermissionError(item)
        return item

    with pytest.raises(PermissionError, match=r"^1$"):
        in_threads(call, range(100))


@pytest.mark.usefixtures("waiting")
def test_a_stream_keeps_the_order_and_reads_few_inputs_ahead() -> None:
    """Results that wait for the caller are bounded, so memory is."""
    read: list[int] = []

    def inputs() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    results = stream_in_threads(lambda number: -number, inputs(), most=3)
    assert next(results) == 0
    assert len(read) == 3
    assert list(results) == [-number for number in range(1, 100)]
