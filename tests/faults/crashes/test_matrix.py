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


@pytest.mark.parametrize("alike", [True, pytest.param(False, marks=pytest.mark.full)], ids=["kinds", "all"])
@pytest.mark.parametrize("moment", cases(MOMENTS, quick=["before"]))
def test_u03_killed_at_each_step_of_the_protocol(
    past: Past, history_of: Callable[..., History], moment: Moment, alike: bool
) -> None:
    """Each life is killed at its first step without a kill so far: every view is right, and everything completes.

    With `alike`, one kill for each kind of step is enough.
    """
    history = history_of(properties=ONE_THREAD)
    proxy = history.proxy()
    guard = Guard(history.archive, proxy)

    def is_new(step: Step, met: frozenset[Step]) -> bool:
        return step.kind not in {each.kind for each in met} if alike else step not in met

    victim = Victim(history.archive, proxy, moment, is_new)
    lives = 0
    while until_struck_or_done(victim, history, past):
        lives += 1
        assert_view(history.archive, past.oracle)
        assert lives <= 2 * len(past.steps), "each life gets further than the one before"
    assert [str(step) for step in past.steps if is_new(step, victim.met)] == []
    complete(history, past, guard)


# For the protocol a second agent equals the next life of the first one: U31 covers all pairs.
@pytest.mark.parametrize("pairs", ["some"], indirect=True)
@pytest.mark.full
def test_u03_killed_at_two_steps(
    past: Past, history_of: Callable[..., History], pairs: Sequence[tuple[Step, Step]]
) -> None:
    """A kill, a restart, a second kill, each before or after a step."""
    live_pairs(
        pairs, history_of, lambda history, steps, random: struck_twice(history, past, steps, random, completes=1)
    )
