"""The sample of a drill, from plans that a test makes."""

from dataclasses import replace
from typing import Any

from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.restored import Ended, Outcome
from ts_common.model import TopicPartition
from tsctl.drill.sample import newest
from tsctl.restore.documents import GroupsPlan, RestorePlan, TopicPlan
from tsctl.restore.partition_plan import Hole, PartitionPlan, Source, Step

HOUR = 3_600_000
PARTITION = TopicPartition("t", 0)


def part_of(*times: int | None, **fields: Any) -> PartitionPlan:
    """Return a plan with a segment of 100 offsets for each greatest timestamp."""
    steps = tuple(
        Step(number * 100, number * 100 + 100, (Source(f"{number * 100:020}", 10, None, time),))
        for number, time in enumerate(times)
    )
    end = len(times) * 100
    plan = PartitionPlan(5, end, end, end, (1,), steps, (), (), EpochHistory(), None, ())
    return replace(plan, **fields)


def sample_of(part: PartitionPlan, milliseconds: int = HOUR, offset: int = 10) -> RestorePlan:
    groups = GroupsPlan("a snapshot", 1, {"g": {PARTITION: offset}})
    plan = RestorePlan("p", 1, "prod", (), None, {"t": TopicPlan("t", {0: part}, {})}, groups, ())
    return newest(plan, milliseconds)


def restored(sample: RestorePlan) -> tuple[int, int]:
    """Return the start, and the number of segments."""
    part = sample.partitions[PARTITION]
    return part.start, len(part.steps)


def test_the_last_hour_is_that_of_the_newest_record() -> None:
    """A segment with a record of that hour is whole in the sample; the clock of the host has no effect."""
    assert restored(sample_of(part_of(0, 9 * HOUR, 10 * HOUR))) == (100, 2)
    assert restored(sample_of(part_of(0, 9 * HOUR - 1, 10 * HOUR))) == (200, 1)
    assert restored(sample_of(part_of(1, 2, 3))) == (5, 3)
    assert restored(sample_of(part_of())) == (5, 0)


def test_a_time_that_is_wrong_or_unknown_leaves_the_last_segment() -> None:
    """Neither a far time in an old segment nor a missing one makes the sample the whole partition."""
    assert restored(sample_of(part_of(99 * HOUR, 1, 10 * HOUR))) == (200, 1)
    assert restored(sample_of(part_of(1, 2, None))) == (200, 1)
    assert restored(sample_of(part_of(1, None, 2))) == (200, 1)


def test_a_transaction_that_is_open_at_the_end_is_whole() -> None:
    """The restore ends it, and finds its first record in the files."""
    ended = (Ended(7, 0, 150, Outcome.ABORT),)
    assert restored(sample_of(part_of(0, 0, 0, 10 * HOUR, ended=ended))) == (100, 3)


def test_groups_and_lost_offsets_follow_the_start() -> None:
    """A group below the sample is raised to its start; a hole below it is not in the sample."""
    lost = (Hole(50, 60, "below"), Hole(250, 260, "within"))
    sample = sample_of(part_of(0, 0, 10 * HOUR, lost=lost))
    assert sample.groups.offsets == {"g": {PARTITION: 200}}
    assert sample.partitions[PARTITION].lost == lost[1:]
    assert sample_of(part_of(0, 0, 10 * HOUR), offset=250).groups.offsets == {"g": {PARTITION: 250}}
