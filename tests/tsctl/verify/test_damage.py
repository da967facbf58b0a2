"""`verify` on generated archives: each damage is reported, an archive without damage has no finding.

A hole is exactly what readers cannot return.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.tsctl.damage import DAMAGES, Expected
from tests.tsctl.made_up import TOPIC, MadeUp, make
from ts_common.archive.gap_records import merged
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verified, Verifier

FEW = range(2)
MANY = range(2, 40)


def verify(made: MadeUp, depth: Depth) -> Verified:
    scope = Scope(depth, in_flight_seconds=0, requests=2)
    verifier = Verifier(made.archive.store, made.archive.keys, scope, clock=lambda: time.time() + 60)
    verifier.find()
    return verifier.run()


def check_without_damage(seed: int, directory: Path) -> None:
    made = make(Random(seed), directory)
    for depth in Depth:
        found = verify(made, depth)
        assert [each for each in found.all_findings if each.severity > Severity.INFORMATION] == [], depth
    (coverage,) = found.coverages
    lost = made.uncovered(made.copies, made.log_start, made.next_offset)
    assert coverage.holes == ()
    assert list(merged(coverage.gaps)) == lost
    assert made.archive.offsets(subscribe=TOPIC, failOnDataLoss="false") == made.shown()


def check_damage(damage: Callable[[MadeUp, Random], list[Expected]], seed: int, directory: Path) -> None:
    random = Random(seed)
    made = make(random, directory)
    expected = damage(made, random)
    for depth in Depth:
        found = verify(made, depth).all_findings  # it ends for any damage
    for each in expected:
        assert any(each.is_met_by(finding) for finding in found), (each, found)
    told = sorted((each.start, each.end) for each in found if each.kind.code == "hole")
    holes = sorted(each.offsets for each in expected if each.offsets is not None)
    if damage.__name__ not in {"change_metadata", "garble_metadata", "cut_log", "rename"}:  # these shorten a copy, too
        assert [each for each in told if each not in holes] == []


@pytest.mark.parametrize("seed", FEW)
def test_an_archive_without_damage_has_no_fault(seed: int, tmp_path: Path) -> None:
    """At any depth, recorded gaps are all that it lacks, and Spark reads all other records once."""
    check_without_damage(seed, tmp_path / "store")


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_archives_without_damage_have_no_fault(part: int, tmp_path: Path) -> None:
    """As above."""
    for seed in MANY[part::4]:
        check_without_damage(seed, tmp_path / str(seed))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damage_is_named(damage: Callable[[MadeUp, Random], list[Expected]], tmp_path: Path) -> None:
    """At depth full it is reported by its key or its offsets; what readers can still return is not a hole."""
    for seed in FEW:
        check_damage(damage, seed, tmp_path / str(seed))


@pytest.mark.full
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damage_is_named_in_many_archives(damage: Callable[[MadeUp, Random], list[Expected]], tmp_path: Path) -> None:
    """As above."""
    for seed in MANY:
        check_damage(damage, seed, tmp_path / str(seed))
