"""Agents killed at every step of the protocol, and at two (fault U03).

The steps are those of a recorded run, so a new PUT joins by itself.
"""

from collections.abc import Callable, Sequence

import pytest

from tests.faults.crashes.lives import (
    MOMENTS,
    PARTITIONS,
    SEGMENTS,
    TOPIC,
    History,
    Past,
    complete,
    live_pairs,
    struck_twice,
    until_struck_or_done,
)
from tests.faults.crashes.runs import Moment, Step, Victim
from tests.faults.store_faults import ONE_THREAD, Guard, assert_view
from tests.matrix import cases


def test_the_recorded_run_holds_the_steps_of_the_protocol(past: Past) -> None:
    """The matrix has every kind of object, each partition's own, and both conditions of a commit."""
    assert {step.kind for step in past.steps} >= {
        "incarnations.json first",
        "log.start first",
        "<base>.index",
        "<base>.timeindex",
        "<base>.log first",
        "offset.wm first",
        "offset.wm",
    }
    for partition in range(PARTITIONS):
        logs = [step for step in past.steps if step.directory == f"{TOPIC}-{partition}" and step.name.endswith(".log")]
        assert len(logs) >= SEGMENTS


@pytest.mark.parametrize("moment", cases(MOMENTS, quick=["before"]))
def test_u03_killed_at_each_step_of_the_protocol(
    past: Past, history_of: Callable[..., History], moment: Moment
) -> None:
    """Each life is killed at its first step without a kill so far: every view is right, and everything completes."""
    history = history_of(properties=ONE_THREAD)
    proxy = history.proxy()
    guard = Guard(history.archive, proxy)
    victim = Victim(history.archive, proxy, moment, lambda step, met: step not in met)
    lives = 0
    while until_struck_or_done(victim, history, past):
        lives += 1
        assert_view(history.archive, past.oracle)
        assert lives <= 2 * len(past.steps), "each life gets further than the one before"
    assert victim.met >= set(past.steps), sorted(map(str, set(past.steps) - victim.met))
    complete(history, past, guard)


# For the protocol a second agent equals the next life of the first one: U31 covers all pairs.
@pytest.mark.parametrize("pairs", ["some"], indirect=True)
def test_u03_killed_at_two_steps(
    past: Past, history_of: Callable[..., History], pairs: Sequence[tuple[Step, Step]]
) -> None:
    """A kill, a restart, a second kill, each before or after a step."""
    live_pairs(
        pairs, history_of, lambda history, steps, random: struck_twice(history, past, steps, random, completes=1)
    )
