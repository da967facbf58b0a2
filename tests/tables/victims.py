"""A process that is killed at each of its writes to S3."""

import os
import re
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any, Final

from dev.local.proxy.s3 import DropRequest, Request, S3FaultProxy

_NAMES: Final = re.compile(
    r"\d{8}-\d{5}-[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,32}|(?<=_ts/)[0-9a-f]{8}(?=/)"
    r"|snap-\d+|staging/\d+|\d{8}|\d{5}"
)
_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["tests.tables.test_kills", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "ts_common.store.s3.driver"]
)


class Victim:
    """A call in a process of its own, killed at its first write of a kind that has not killed one yet.

    Args:
        proxy: that the process writes through.
        directory: last part of the keys that all processes share; the rest of a key is the kind of a write.
        moment: whether it is killed `before` a write or `after` it.

    Attributes:
        met: the kinds of the writes that killed a process.
        seen: the kinds of all writes.
        only: kinds of writes that kill a process; None for every kind.
    """

    def __init__(self, proxy: S3FaultProxy, directory: str, moment: str) -> None:
        self.met: set[str] = set()
        self.seen: set[str] = set()
        self.only: frozenset[str] | None = None
        self._directory = directory
        self._moment = moment
        self._pid = 0
        self._lock = threading.Lock()
        proxy.before(lambda request: self._at(request, "before"))
        proxy.after(lambda request: self._at(request, "after"))

    def live(
        self, function: Callable[..., None], *arguments: Any, immortal: bool = False, longest_seconds: float = 120
    ) -> int:
        """Call a function in a process once, and return the exit code of the process."""
        process = _CONTEXT.Process(target=function, args=arguments)
        process.start()
        with self._lock:
            self._pid = 0 if immortal else process.pid or 0
        process.join(longest_seconds)
        assert process.exitcode is not None
        return process.exitcode

    def _at(self, request: Request, moment: str) -> None:
        if request.method not in {"PUT", "POST", "DELETE"}:
            return
        name = _NAMES.sub("#", request.target.partition("?")[0].rpartition(f"/{self._directory}/")[2])
        kind = f"{request.method} {name}"
        with self._lock:
            self.seen.add(kind)
            is_wanted = kind not in self.met and (self.only is None or kind in self.only)
            if moment != self._moment or not is_wanted or not self._pid:
                return
            os.kill(self._pid, signal.SIGKILL)
            self._pid = 0
            self.met.add(kind)
        if moment == "before":
            raise DropRequest
