"""Histories of elections, truncation, compaction, retention, crashes and store faults, against a model of the brokers.

The tracker, the uploader and the commit log are the real ones, and so are the segments' bytes and the brokers' files;
brokers, time, threads and the store are a model. `draws` draws histories, and `world` runs them. `checks` has the
promises that hold whenever an object lands in the store, `liveness` those that hold after the last fault, and `mutants`
the faults that histories must notice.
"""

from collections.abc import Iterable, Iterator

import pytest
import structlog

from tests.histories.draws import draw
from tests.histories.mutant_list import MUTANTS, Mutant
from tests.histories.mutants import SEEDS, applied, try_mutant
from tests.histories.run import STEPS, run, shrink, silence

_SHRINK_SECONDS = 30.0
# Together they notice 39 of the 41 mutants, among them all of `_REVIEWED`. `make test-full` runs 1,100 more.
_HISTORIES = (5, 23, 41, 51, 60, 78, 81, 85, 98, 99, 101, 118, 144, 220, 409, 893)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Suppress the log lines of thousands of agents."""
    silence()
    yield
    structlog.reset_defaults()


def test_whatever_happens_readers_see_the_living_line() -> None:
    """Elections, truncation, compaction, retention, crashes, store faults: no history loses or doubles a record."""
    _all_hold(_HISTORIES, calm=False)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_whatever_happens_in_many_more_histories_readers_see_the_living_line() -> None:
    """Beyond these, a few show dead records of compacted segments, a limit that docs/protocol.md names."""
    _all_hold((*range(1_000), *range(6_000, 6_060), *range(9_000, 9_060)), calm=False)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_where_no_election_loses_records_nothing_ever_is_lost() -> None:
    """Many more, without elections that lose acknowledged records; `python -m tests.histories.run` has those."""
    _all_hold(range(3_000), calm=True)


def _all_hold(seeds: Iterable[int], *, calm: bool) -> None:
    for seed in seeds:
        failure = run(seed, draw(seed, STEPS, calm=calm), calm=calm)
        if failure is not None:
            pytest.fail(str(shrink(failure, _SHRINK_SECONDS)), pytrace=False)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_each_mutant_changes_the_present_code(mutant: Mutant) -> None:
    """A change of a function changes its mutants too."""
    with applied(mutant):
        pass


@pytest.mark.parametrize("name", ["m1", "m9"])
def test_histories_notice_a_fault_of_the_agent(name: str) -> None:
    """Histories can fail: with a rule broken on purpose, one of the first does. `make mutants` runs all mutants."""
    (mutant,) = (each for each in MUTANTS if each.name == name)
    assert try_mutant(mutant, SEEDS[0], 20).killed_by is not None


_REVIEWED = [mutant for mutant in MUTANTS if mutant.name in {f"m{number}" for number in range(1, 13)}]


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mutant", _REVIEWED, ids=[mutant.name for mutant in _REVIEWED])
def test_the_histories_of_each_run_notice_what_the_review_tried(mutant: Mutant) -> None:
    """Draw exactly the histories of `test_whatever_happens_readers_see_the_living_line`."""
    assert len(_REVIEWED) == 12
    assert any(try_mutant(mutant, seed, 1).killed_by is not None for seed in _HISTORIES)
