"""From a split to Arrow batches: the executor's side of a query."""

import gc
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from ts_common.reading.rows import read_ranges
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import BY_ENVIRONMENT, Connection, StorageOptions
from ts_spark.options.modes import WAY_OUT
from ts_spark.split import Split


@lru_cache(maxsize=8)
def shared_store(location: str, connection: Connection = BY_ENVIRONMENT) -> ObjectStore:
    """The store of a location, opened once per Python worker and left open: workers are used again."""
    return open_store(location, StorageOptions(connection))


@lru_cache(maxsize=1)
def freeze_gc_once() -> None:
    """Take what a first split loaded out of the garbage collector's sight, once per Python worker.

    PySpark collects garbage after every task, and looking through numba's objects each time takes 50 ms.
    """
    gc.freeze()


def read_split(store: ObjectStore, split: Split, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a split, range by range, in the order of offsets, with the named columns.

    Raises:
        CorruptData, BatchTooLarge: naming the object and the place.
        ObjectNotFound: retention took an object since the query was planned.
        StoreUnavailable, AccessDenied: the store's.
    """
    yield from read_ranges(store, split.ranges, names, split.aborted, way_out=WAY_OUT, limit=split.limit)
