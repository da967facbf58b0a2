"""The parts of the benchmarks that a wrong figure could come from; the figures themselves are for `make bench`."""

import os
import time
from functools import partial

import pytest

from bench.pairs import Goal, median_ratio, print_goals, rounds
from bench.processes import ProcessWatch


def test_rounds_turn_their_order_and_drop_the_warm_up() -> None:
    """Whatever goes first or last in a round does so as often as the others."""
    order: list[str] = []

    def thing(name: str) -> int:
        order.append(name)
        return len(order)

    things = {name: partial(thing, name) for name in ("a", "b")}
    assert rounds(things, 2, warm_up=1) == {"a": [3, 6], "b": [4, 5]}
    assert order == ["b", "a", "a", "b", "b", "a"]


def test_a_ratio_is_the_median_of_each_rounds_own() -> None:
    """A slow round slows both sides, so its ratio still counts."""
    assert median_ratio([1.0, 10.0, 3.0], [2.0, 10.0, 1.0]) == 1.0


def test_goals_are_met_on_their_bound_and_counted_beyond_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is missed is printed and counted, and the bound itself is met."""
    goals = [
        Goal("rate", 0.9, 0.9, at_least=True),
        Goal("cost", 1.51, 1.5, at_least=False),
        Goal("memory", 119.0, 120.0, at_least=False, unit=" MiB"),
    ]
    assert print_goals(goals) == 1
    assert capsys.readouterr().out.count("MISSED") == 1


def test_a_watched_process_shows_the_cpu_between_two_instants_and_its_peak() -> None:
    """Half a second of work is seen by the sampler."""
    with ProcessWatch(os.getpid()) as watch:
        began, before = time.time(), time.process_time()
        while time.process_time() - before < 0.5:
            sum(range(1000))
        ended = time.time()
    assert watch.cpu_seconds(began, ended) > 0
    assert watch.peak_mib > 1
