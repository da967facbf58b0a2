"""A pause at a step of the protocol, and a second agent that is killed meanwhile at another (fault U31)."""

from collections.abc import Callable, Sequence

import pytest

from tests.faults.crashes.lives import History, Past, live_pairs, struck_twice
from tests.faults.crashes.runs import Step


@pytest.mark.full
def test_u31_an_agent_paused_at_a_step_while_a_second_one_is_killed_at_another(
    past: Past, history_of: Callable[..., History], pairs_to_pause: Sequence[tuple[Step, Step]]
) -> None:
    """The resumed agent continues with outdated state, and no record is lost or doubled."""
    live_pairs(
        pairs_to_pause,
        history_of,
        lambda history, steps, random: struck_twice(history, past, steps, random, fate="pause", completes=0),
    )
