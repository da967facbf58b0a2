"""Helpers of the contract suite: keys of a store, and calls on several threads at once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ts_common.errors import TieredStorageError
from ts_common.store.contract import ObjectStore

DIRECTORIES: Final = {"file", "webhdfs"}
LARGE: Final = bytes(range(256)) * (3 << 12)  # 3 MiB: drivers send it in several pieces


def keys_of(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    """Return the keys of a listing."""
    return [info.key for info in store.list(prefix, start_after=start_after)]


def outcomes(count: int, work: Callable[[int], object]) -> list[object]:
    """Return the results of `work` on several threads that begin together; errors are returned as their types."""
    barrier = threading.Barrier(count)

    def one(number: int) -> object:
        barrier.wait()
        try:
            return work(number)
        except TieredStorageError as error:
            return type(error)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))
