"""Which cases of a matrix `make test` runs: a few that stand for all. `make test-full` runs every one."""

from collections.abc import Iterable
from typing import Any

import pytest


def cases(every: Iterable[Any], *, quick: Iterable[Any]) -> list[Any]:
    """For `parametrize`: `every` case, of which those that are not in `quick` are marked full.

    Raises:
        ValueError: a quick one is none of them.
    """
    values, few = list(every), list(quick)
    if unknown := [value for value in few if value not in values]:
        raise ValueError(f"no cases: {unknown}")
    return [pytest.param(value, marks=() if value in few else pytest.mark.full) for value in values]
