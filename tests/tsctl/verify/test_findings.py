"""The kinds of findings."""

import ast
from pathlib import Path

from tsctl.verify.finding_kinds import KINDS

TESTS = Path(__file__).parents[2]


def test_codes_are_each_ones_own() -> None:
    """Scripts depend on them."""
    assert len({kind.code for kind in KINDS}) == len(KINDS) > 30


def test_a_test_expects_each_kind() -> None:
    """Nothing else notices a kind that `verify` no longer reports."""
    files = [file for file in TESTS.rglob("*.py") if file != Path(__file__)]
    strings = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert [kind.code for kind in KINDS if kind.code not in strings] == []
