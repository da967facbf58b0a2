"""The simulation of a fleet: short runs with the agents' real parts."""

from dataclasses import replace

import pytest

from dev.simulation.page import page
from dev.simulation.run import Run, run_all
from dev.simulation.scenarios import SHORT

_OUTAGE_SECONDS = SHORT.outage[1] - SHORT.outage[0]
_FEW_WRITES = 2.0
_SCENARIOS = (SHORT, SHORT, replace(SHORT, sampled_partitions=2))


@pytest.fixture(scope="module")
def limited() -> Run:
    """The short scenario with a store that serves few writes."""
    (run,) = run_all([replace(SHORT, writes=_FEW_WRITES)], seed=7)
    return run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """The short scenario twice, and with a part of its partitions."""
    return list(run_all(_SCENARIOS, seed=7, processes=2))


@pytest.mark.full
def test_the_same_seed_has_the_same_figures(runs: list[Run]) -> None:
    """In two processes, whose sets have different orders; another seed has others."""
    first, again, *_ = runs
    assert first.figures == again.figures
    assert first.figures.digest == again.figures.digest
    (other,) = run_all([SHORT], seed=8)
    assert other.figures.digest != first.figures.digest


def test_every_closed_segment_is_committed(limited: Run) -> None:
    """After an outage and elections, and with a store that throttles."""
    assert limited.figures.segments > 0
    assert limited.figures.uncommitted == 0


@pytest.mark.full
def test_an_outage_delays_commits_until_it_ends(runs: list[Run]) -> None:
    """Segments wait, then all are committed within the time of the longest backoff and their uploads."""
    figures = runs[0].figures
    begin, end = (int(second // 60) for second in SHORT.outage)
    assert figures.backlog[begin - 1] < max(figures.backlog[begin:end]) == figures.backlog[end - 1]
    assert max(greatest for *_, greatest in figures.lags) > 0.9 * _OUTAGE_SECONDS
    assert 0 < figures.recovery_seconds < 120
    assert figures.lags[-1][-1] < 30


@pytest.mark.full
def test_new_leaders_read_their_positions(runs: list[Run]) -> None:
    """After two checkpoint files, which are five seconds apart."""
    assert all(each.figures.segments > 0 and each.figures.uncommitted == 0 for each in runs)
    median, _, greatest = runs[0].figures.takeover_seconds
    assert 5 < median <= greatest < 30


def test_a_prefix_serves_no_more_than_its_limit(limited: Run) -> None:
    """The store throttles the others, and the agents send fewer."""
    figures = limited.figures
    assert any(figures.slow_downs)
    prefixes = 2**SHORT.entropy_bits
    served = [puts - slow for puts, slow in zip(figures.operations["PUT"], figures.slow_downs, strict=True)]
    assert max(served) <= prefixes * _FEW_WRITES * (1 + 1 / 60)  # a second's requests may be saved up


@pytest.mark.full
def test_the_page_names_the_sampling(runs: list[Run]) -> None:
    """It has each run's figures, and needs no network."""
    text = page(runs)
    assert not any(runs[0].figures.slow_downs)
    assert text.count("Nothing is sampled.") == 2
    assert "4 brokers with 2 partitions each, so that one stands for 2.5" in text
    assert all(each.figures.digest in text for each in runs)
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text
