"""Stores that a process opens once and keeps: readers read many splits of few locations.

A store keeps the environment that it had when it was opened: credentials, endpoints, proxies.
"""

import os
from functools import lru_cache
from typing import Final

from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import BY_ENVIRONMENT, Connection, StorageOptions

_BEGINNINGS: Final = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_", "KRB5", "BOTO_")
_PROXY: Final = "_proxy"

StoreEnvironment = tuple[tuple[str, str], ...]


def store_environment() -> StoreEnvironment:
    """Return the variables that SDKs of stores read, with their values, by name."""
    return tuple(
        sorted(
            (name, value)
            for name, value in os.environ.items()
            if name.startswith(_BEGINNINGS) or name.lower().endswith(_PROXY)
        )
    )


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
