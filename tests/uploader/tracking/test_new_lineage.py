"""What the tracker ships again after the commit began a new lineage (protocol rules 5 and 6)."""

from dataclasses import replace

from tests.uploader.tracking.led_partition import LedPartition
from tests.uploader.tracking.messages import TP, bases, failed, position, position_read, shipped, ships
from ts_common.archive.commit import Lineage
from ts_uploader.messages.results import Committed
from ts_uploader.messages.tasks import Ship, WriteCommit


def test_below_what_a_lineage_may_have_deleted_only_variants_are_shipped() -> None:
    """A deletion of the former lineage can be late, and names plain objects."""
    led = LedPartition(0, 100, 200)
    where = replace(position(0), lineage=Lineage(1, 0, 150))
    ships = led.tracker.conclude(replace(position_read(led.read, 0), position=where))
    assert [task.variants_below for task in ships if isinstance(task, Ship)] == [150, 150]


def test_u36_what_a_new_lineage_found_shipped_or_under_way_is_shipped_again_as_a_variant() -> None:
    """The commit was lost during the leadership: plain names below `highest` are not part of the new run."""
    led = LedPartition(0, 100, 200, 300, 400)
    at_0, at_100, at_200, at_300 = ships(led.at(0))
    (write,) = led.tracker.conclude(shipped(at_0))
    assert isinstance(write, WriteCommit)
    assert led.tracker.conclude(shipped(at_200)) == []
    (ask,) = led.tracker.conclude(failed(write))
    assert led.tracker.conclude(shipped(at_100)) == []
    where = replace(position(100), lineage=Lineage(1, 100, 300))
    tasks = led.tracker.conclude(replace(position_read(ask, 100), position=where))
    again, last = ships(tasks)
    assert len(tasks) == 2
    assert [(task.base, task.variants_below) for task in (again, last)] == [(100, 300), (200, 300)]
    led.tracker.conclude(shipped(at_300))  # at `highest` and above, plain names count
    (write,) = led.tracker.conclude(shipped(again))
    assert isinstance(write, WriteCommit)
    assert [done.base for done in write.run] == [100]
    led.tracker.conclude(shipped(last))
    (write,) = led.tracker.conclude(Committed(TP, write.generation, write.leadership, replace(where, next_offset=200)))
    assert isinstance(write, WriteCommit)
    assert [done.base for done in write.run] == [200, 300]


def test_u36_what_is_under_way_when_a_new_lineage_is_found_is_shipped_again_as_a_variant() -> None:
    """An upload can end after the position was read."""
    led = LedPartition(0, 100, 200)
    at_0, at_100 = ships(led.at(0))
    (ask,) = led.tracker.conclude(failed(at_0))
    where = replace(position(0), lineage=Lineage(1, 0, 200))
    assert bases(led.tracker.conclude(replace(position_read(ask, 0), position=where))) == [0]
    (again,) = ships(led.tracker.conclude(shipped(at_100)))
    assert (again.base, again.variants_below) == (100, 200)


def test_u36_a_variant_of_the_lineage_before_is_shipped_again() -> None:
    """The commit was lost twice in one leader epoch: a deletion can still name the objects of the first lineage."""
    led = LedPartition(0, 100, 200)
    first = replace(position(0), lineage=Lineage(1, 0, 200))
    at_0, at_100 = ships(led.tracker.conclude(replace(position_read(led.read, 0), position=first)))
    assert led.tracker.conclude(shipped(at_100)) == []
    (ask,) = led.tracker.conclude(failed(at_0))
    second = replace(first, lineage=Lineage(1, 50, 200))
    assert bases(led.tracker.conclude(replace(position_read(ask, 0), position=second))) == [0, 100]
