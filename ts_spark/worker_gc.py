"""Less garbage collection in a Python worker of an executor."""

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def freeze_gc_once() -> None:
    """Exclude the modules that a first split loaded from garbage collection, once per Python worker.

    PySpark collects garbage after every task, and would scan the objects of all loaded modules each time.
    """
    gc.freeze()
