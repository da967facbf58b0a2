"""What is asked many times at once, and what the log says meanwhile."""

import threading

import pytest
from structlog.testing import capture_logs

from ts_common.reading.parallel import TOLD_EVERY_SECONDS, Progress, in_threads


class Clock:
    """Moves on with each thing done."""

    def __init__(self, seconds: float) -> None:
        self._each = seconds
        self._now = 100.0

    def __call__(self) -> float:
        return self._now

    def work(self, item: int) -> int:
        self._now += self._each
        return item


def told(each_seconds: float, total: int) -> list[int]:
    """How many were done at each line, where one takes so long."""
    clock = Clock(each_seconds)
    work = Progress("list", total, clock).counting(clock.work)
    with capture_logs() as lines:
        assert [work(item) for item in range(total)] == list(range(total))
    assert {(line["event"], line["step"], line["of_partitions"]) for line in lines} <= {
        ("planning_progress", "list", total)
    }
    return [line["partitions"] for line in lines]


def test_long_planning_says_every_few_seconds_how_far_it_came() -> None:
    """A line each few seconds, and none for what is quick or has just ended."""
    assert told(TOLD_EVERY_SECONDS / 8, 35) == [8, 16, 24, 32]
    assert told(TOLD_EVERY_SECONDS / 8, 8) == []
    assert told(TOLD_EVERY_SECONDS * 2, 3) == [1, 2]


def test_answers_keep_the_order_of_what_was_asked() -> None:
    """Whichever comes first."""
    first_waits = threading.Event()

    def ask(item: int) -> int:
        if item == 0:
            assert first_waits.wait(10)
        else:
            first_waits.set()
        return -item

    assert in_threads(ask, range(5), telling="list") == [0, -1, -2, -3, -4]


def test_the_first_error_in_the_order_of_what_was_asked_is_raised() -> None:
    """The same error each time, whichever thread was quicker."""

    def ask(item: int) -> int:
        if item % 2:
            raise PermissionError(item)
        return item

    with pytest.raises(PermissionError, match=r"^1$"):
        in_threads(ask, range(100))
