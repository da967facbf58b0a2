"""Stores that a process opens once and keeps: readers read many splits of few locations."""

import os
from functools import lru_cache

from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import BY_ENVIRONMENT, Connection, StorageOptions


def shared_store(location: str, connection: Connection = BY_ENVIRONMENT) -> ObjectStore:
    """Return the open store of a location; a forked process opens its own, because connections are not shared.

    Raises:
        ConfigurationError, OperatorError: as `ts_common.store.factory.open_store`.
    """
    return _opened(location, connection, os.getpid())


@lru_cache(maxsize=8)
def _opened(location: str, connection: Connection, _process: int) -> ObjectStore:
    return open_store(location, StorageOptions(connection))
