"""The kinds of findings."""

from pathlib import Path

from tsctl.verify.finding_kinds import KINDS

TESTS = Path(__file__).parents[2]


def test_codes_are_each_ones_own() -> None:
    """Scripts depend on them."""
    assert len({kind.code for kind in KINDS}) == len(KINDS) > 30


def test_a_test_expects_each_kind() -> None:
    """Nothing else notices a kind that `verify` no longer reports."""
    texts = [file.read_text() for file in TESTS.rglob("*.py") if file != Path(__file__)]
    assert [kind.code for kind in KINDS if not any(f'"{kind.code}"' in text for text in texts)] == []
