"""Share the SDK's clients between the stores of a process that connect to S3 in the same way.

Opening a pair of clients costs a tenth of a second and some megabytes. A cluster's topics may have dozens of different
`Storing` options, which do not concern the clients.
"""

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ts_common.store.clock import ResponseClock
from ts_common.store.options import Connection
from ts_common.store.s3.client import open_clients
from ts_common.store.wrappers.bandwidth import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

_Settings = tuple[Connection, float, int, Allowance, frozenset[tuple[str, str]]]


@dataclass(slots=True)
class _Pair:
    reads: "S3Client"
    writes: "S3Client"
    clock: ResponseClock = field(default_factory=ResponseClock)
    users: int = 0

    def __post_init__(self) -> None:
        for client in (self.reads, self.writes):
            client.meta.events.register("after-call.s3", cast("Callable[..., None]", self._note))

    def _note(self, http_response: Any, **_: object) -> None:
        self.clock.note(http_response.headers.get("date"))


class _Opened:
    """All pairs of this process."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the clients of the parent in a forked process: two processes cannot share a connection, or a lock."""
        self.lock = threading.Lock()  # guards the pairs; held while one is opened
        self.pairs: dict[_Settings, _Pair] = {}


_OPENED: Final = _Opened()
os.register_at_fork(after_in_child=_OPENED.begin)


class SharedClients:
    """A reference to a pair of clients; closing the last reference closes the clients.

    Attributes:
        reads: for reads and deletes.
        writes: for puts.

    Args:
        connection: how the clients connect to S3.
        timeout_seconds: for each connect, send and receive.
        connections: the number that each client keeps for reuse.
        allowance: limits the bytes per second of the bodies of puts.

    Raises:
        ConfigurationError, and botocore's errors: as `open_clients`.
    """

    def __init__(self, connection: Connection, timeout_seconds: float, connections: int, allowance: Allowance) -> None:
        # The SDK reads these when it opens a client, so stores with another environment need other clients.
        environment = frozenset(
            (name, value)
            for name, value in os.environ.items()
            if name.startswith("AWS_") or name.lower().endswith("_proxy") or name == "HOME"
        )
        self._settings: _Settings = (connection, timeout_seconds, connections, allowance, environment)
        self._held = True  # guarded by the lock
        with _OPENED.lock:
            if self._settings not in _OPENED.pairs:
                _OPENED.pairs[self._settings] = _Pair(
                    *open_clients(connection, timeout_seconds, connections, allowance)
                )
            self._pair = _OPENED.pairs[self._settings]
            self._pair.users += 1
        self.reads = self._pair.reads
        self.writes = self._pair.writes
        self.clock = self._pair.clock

    def close(self) -> None:
        """Release the clients; repeated calls have no effect."""
        with _OPENED.lock:
            if not self._held:
                return
            self._held = False
            self._pair.users -= 1
            if self._pair.users:
                return
            if _OPENED.pairs.get(self._settings) is self._pair:  # not in a process that was forked since
                del _OPENED.pairs[self._settings]
        self.reads.close()
        self.writes.close()
