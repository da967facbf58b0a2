"""When the tracker reads the position again because of a Java uploader (protocol rule 12)."""

from dataclasses import replace

import pytest

from tests.uploader.tracking.led_partition import LedPartition
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    TP,
    bases,
    position,
    position_read,
    shipped,
    watermark,
    watermarks,
)
from ts_uploader.messages.observations import Led
from ts_uploader.messages.results import Committed
from ts_uploader.messages.tasks import AnyTask, FillGap, ReadPosition, Ship
from ts_uploader.tracking.tracker import Tracker

AN_HOUR_OF_LOOKS = [30, 90, 210, 450, 930, 1890, 3810]


def looks(tracker: Tracker, begin: int) -> list[int]:
    """Return the seconds after `begin`, within three idle hours, when the position is read again."""
    seconds = []
    for second in range(begin, begin + 3 * 3600, 10):
        tasks = tracker.check_java(TP, second * 10**9)
        for task in tasks:
            if isinstance(task, ReadPosition):
                seconds.append(second - begin)
                tracker.conclude(replace(position_read(task, 0), beside_java=True))
    return seconds


def test_u29_behind_a_java_uploader_the_store_is_read_again_at_intervals() -> None:
    """Its queued writes can be late, also if nothing is shipped for days: read after 30 s, a minute, and so on."""
    led = LedPartition(0, 100)
    led.tracker.conclude(replace(position_read(led.read, 0), foreign=True))
    assert looks(led.tracker, 10) == AN_HOUR_OF_LOOKS


@pytest.mark.parametrize("restarted", [True, False], ids=["the agent is restarted", "another leader epoch begins"])
def test_u29_the_looks_begin_again_with_a_leadership_and_with_the_agent(restarted: bool) -> None:
    """By then the agent's own commit is stored, and records a recent Java commit. Later reads add nothing."""
    led = LedPartition(0, 100)
    led.tracker.conclude(replace(position_read(led.read, 0), foreign=True))
    led.tracker.check_java(TP, 10**9)
    if restarted:
        led = LedPartition(0, 100)
        ask: AnyTask = led.read
    else:
        led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
        (ask,) = watermarks(led.tracker, 100)
    led.tracker.conclude(replace(position_read(ask, 0), beside_java=True))
    assert looks(led.tracker, 40) == AN_HOUR_OF_LOOKS


def test_u29_a_gap_that_was_filled_is_looked_at_again_after_a_java_uploader_wrote() -> None:
    """A Java uploader can replace the segment that filled the gap with a shorter one."""
    led = LedPartition(0, 100, 200, 300)
    where = replace(position(300), gaps=((100, 200),))
    (ship,) = led.tracker.conclude(replace(position_read(led.read, 0), position=where))
    assert isinstance(ship, Ship)
    (fill,) = led.tracker.conclude(shipped(ship))
    assert isinstance(fill, FillGap)
    assert led.tracker.conclude(Committed(TP, fill.generation, fill.leadership, replace(where, gaps=()))) == []
    (ask,) = led.tracker.observe(watermark(250))
    assert bases(led.tracker.conclude(replace(position_read(ask, 0), position=where, foreign=True))) == [100]


def test_u29_a_java_uploader_that_wrote_again_is_looked_for_as_soon_as_before() -> None:
    """Each late write can be followed by another. Without any, the position is not read again."""
    led = LedPartition(0, 100)
    led.tracker.conclude(replace(position_read(led.read, 0), foreign=True))
    assert led.tracker.check_java(TP, 10**9) == []
    (again,) = led.tracker.check_java(TP, 31 * 10**9)
    led.tracker.conclude(replace(position_read(again, 0), foreign=True))
    assert led.tracker.check_java(TP, 40 * 10**9) == []
    assert len(led.tracker.check_java(TP, 70 * 10**9)) == 1
    ours = LedPartition(0, 100)
    ours.at(0)
    assert ours.tracker.check_java(TP, 10**9) == []
    assert ours.tracker.check_java(TP, 10**14) == []
