"""Asking the store many things at once: each answer waits for the network, not for the processor."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

_THREADS: Final = 8

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def in_threads(function: Callable[[_In], _Out], inputs: Iterable[_In]) -> list[_Out]:
    """`map`, on threads; the first error, in the order of the inputs, is raised."""
    items = list(inputs)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items)), "plan") as pool:
        return list(pool.map(function, items))
