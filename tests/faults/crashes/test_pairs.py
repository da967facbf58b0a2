"""A kill, a restart and a second agent at every two steps of the protocol (fault U31)."""

from collections.abc import Callable, Sequence

from tests.faults.crashes.lives import History, Past, live_pairs, struck_twice
from tests.faults.crashes.runs import Step


def test_u31_an_agent_killed_at_a_step_and_a_second_one_at_another(
    past: Past, history_of: Callable[..., History], pairs: Sequence[tuple[Step, Step]]
) -> None:
    """The second one runs on the same broker; the work of both is completed, once."""
    live_pairs(
        pairs,
        history_of,
        lambda history, steps, random: struck_twice(history, past, steps, random, fate="kill", completes=0),
    )
