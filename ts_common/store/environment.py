"""The environment that stores read: credentials, endpoints, proxies. A store keeps what it had when it was opened."""

import os
from typing import Final

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
