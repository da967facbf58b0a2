"""Less garbage collection while a plan is made.

A plan of 100,000 segments is a few million objects, all of which stay. Python's collector looks through what has grown
again and again, and through all that was loaded before (numba, PySpark) with it: a quarter of the time of planning.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# New objects before a look at the young ones, and such looks before the older ones are gone through. What the SDK
# leaves in cycles, some kilobytes for each request, still goes.
_THRESHOLDS: Final = (20_000, 50, 50)


@contextmanager
def collecting_less() -> Iterator[None]:
    """What is there already is not looked at, what comes is looked at seldom; afterwards all is as it was."""
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:
            gc.unfreeze()
