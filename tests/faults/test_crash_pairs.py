"""A kill, a restart and a second agent at every two steps of the protocol (fault U31)."""

from collections.abc import Callable, Sequence

import pytest

from tests.faults.crashes import Fate, Step
from tests.faults.lives import History, Past, live_pairs, struck_twice


@pytest.mark.parametrize("fate", ["kill", "pause"])
def test_u31_two_agents_at_two_steps(
    past: Past, history_of: Callable[..., History], pairs: Sequence[tuple[Step, Step]], fate: Fate
) -> None:
    """One agent killed or paused at a step, another killed meanwhile at a second one beside the same broker."""
    live_pairs(
        pairs,
        history_of,
        lambda history, steps, random: struck_twice(history, past, steps, random, fate=fate, completes=0),
    )
