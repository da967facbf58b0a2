"""The SDK's clients, shared by the stores of a process that speak to S3 in the same way.

A pair of clients takes some megabytes and a tenth of a second to open, and a cluster's topics may be stored in dozens
of ways (`Storing`), which no client knows of.
"""

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ts_common.store.options import Connection
from ts_common.store.s3.client import open_clients
from ts_common.store.wrappers.bandwidth import Allowance

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_Way = tuple[Connection, float, int, Allowance, frozenset[tuple[str, str]]]


@dataclass(slots=True)
class _Pair:
    reads: "S3Client"
    writes: "S3Client"
    users: int = 0


_lock = threading.Lock()  # guards all pairs, and is held while one is opened
_opened: dict[_Way, _Pair] = {}


class SharedClients:
    """One user's hold on a pair of clients; the last one's end closes them.

    Attributes:
        reads: for reads and deletes.
        writes: for puts.

    Args:
        connection: how S3 is spoken to.
        timeout_seconds: how long a connect, a send or a receive may stand still.
        connections: how many each client keeps for reuse.
        allowance: what the bodies of puts are taken from.

    Raises:
        ConfigurationError, and botocore's errors: as `open_clients`.
    """

    def __init__(self, connection: Connection, timeout_seconds: float, connections: int, allowance: Allowance) -> None:
        # What the environment says counts at the opening, as it does without sharing.
        said = frozenset(
            (name, value)
            for name, value in os.environ.items()
            if name.startswith("AWS_") or name.lower().endswith("_proxy") or name == "HOME"
        )
        self._way: _Way = (connection, timeout_seconds, connections, allowance, said)
        self._held = True  # guarded by the lock
        with _lock:
            if self._way not in _opened:
                _opened[self._way] = _Pair(*open_clients(connection, timeout_seconds, connections, allowance))
            pair = _opened[self._way]
            pair.users += 1
        self.reads = pair.reads
        self.writes = pair.writes

    def close(self) -> None:
        """Let go. Safe to repeat."""
        with _lock:
            if not self._held:
                return
            self._held = False
            pair = _opened[self._way]
            pair.users -= 1
            if pair.users:
                return
            del _opened[self._way]
        pair.reads.close()
        pair.writes.close()
