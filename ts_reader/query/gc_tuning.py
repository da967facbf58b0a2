"""Less garbage collection while a query is planned.

A plan of 100,000 segments has a few million objects, and none of them is garbage. Python's collector scans them again
and again, with all loaded modules (pyarrow, PySpark). That is a quarter of the time of planning.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# New objects before a collection of the youngest generation, and collections of it before one of the older generations.
# The SDK's cycles, some kilobytes for each request, are still collected.
_THRESHOLDS: Final = (20_000, 50, 50)


@contextmanager
def collecting_less() -> Iterator[None]:
    """Exclude existing objects from collection and collect new ones rarely; restore both settings at the end."""
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
