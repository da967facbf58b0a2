"""Events that are logged once, by what identifies them, in this process."""

import threading
from collections.abc import Hashable
from typing import Final

_MOST: Final = 10_000  # identities that are remembered
_lock = threading.Lock()
_seen: dict[Hashable, None] = {}


def is_first(identity: Hashable) -> bool:
    """Return whether this is the first call with an identity; thread-safe."""
    with _lock:
        if identity in _seen:
            return False
        _seen[identity] = None
        if len(_seen) > _MOST:
            del _seen[next(iter(_seen))]
        return True
