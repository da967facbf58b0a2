"""Stores that a process opens once and keeps: readers read many splits of few locations."""

import os
from functools import lru_cache

from ts_common.store.contract import ObjectStore
from ts_common.store.environment import StoreEnvironment, store_environment
from ts_common.store.factory import open_store
from ts_common.store.options import BY_ENVIRONMENT, Connection, StorageOptions


def shared_store(location: str, connection: Connection = BY_ENVIRONMENT) -> ObjectStore:
    """Return the open store of a location.

    A forked process opens its own, because connections are not shared. So does a changed environment: it may have
    another identity or endpoint.

    Raises:
        ConfigurationError, OperatorError: as `ts_common.store.factory.open_store`.
    """
    return _opened(location, connection, os.getpid(), store_environment())


@lru_cache(maxsize=8)
def _opened(location: str, connection: Connection, _process: int, _environment: StoreEnvironment) -> ObjectStore:
    return open_store(location, StorageOptions(connection))
