"""Cases of a matrix and examples of a property: `make test` runs a few of them, `make test-full` runs all."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Item = TypeVar("Item")


def cases(every: Iterable[Any], *, quick: Iterable[Any]) -> list[Any]:
    """Return `every` case for `parametrize`; cases that are not in `quick` have the marker `full`.

    Raises:
        ValueError: a quick case is not in `every`.
    """
    values, few = list(every), list(quick)
    if unknown := [value for value in few if value not in values]:
        raise ValueError(f"no cases: {unknown}")
    return [pytest.param(value, marks=() if value in few else pytest.mark.full) for value in values]


def examples(every: int, *, quick: int) -> int:
    """Return the number of examples of a property: `quick` under the profile of `make test`, otherwise `every`."""
    return quick if settings.get_current_profile_name() == "repeatable" else every


def sampled(every: Sequence[Item], *, step: int) -> Sequence[Item]:
    """Return `every` item; under the profile of `make test`, each `step`th of them."""
    return every[:: examples(1, quick=step)]
