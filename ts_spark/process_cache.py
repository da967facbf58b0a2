"""What a Python worker of an executor keeps for its next split."""

import gc
from functools import lru_cache

from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import BY_ENVIRONMENT, Connection, StorageOptions


@lru_cache(maxsize=8)
def shared_store(location: str, connection: Connection = BY_ENVIRONMENT) -> ObjectStore:
    """Return the store of a location: opened once per Python worker, and left open because workers are reused."""
    return open_store(location, StorageOptions(connection))


@lru_cache(maxsize=1)
def freeze_gc_once() -> None:
    """Exclude the modules that a first split loaded from garbage collection, once per Python worker.

    PySpark collects garbage after every task, and a scan of numba's objects takes 50 ms each time.
    """
    gc.freeze()
