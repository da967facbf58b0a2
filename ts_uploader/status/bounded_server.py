"""An HTTP server that costs the agent little, whoever asks it how much: few connections at once, each with a thread.

Where all are taken the one that has stood for longest is cut for the new one: an answer takes well below a second, so
it is a client that hangs, reads slowly or asks nothing. So no number of clients takes the descriptors and the memory
that the shipping needs, and none of them keeps a probe or a scrape out.
"""

import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog

log = structlog.get_logger()

MOST_CONNECTIONS = 16
_GIVE_WAY_SECONDS = 1.0  # for the one that is cut to end; nobody else is let in meanwhile


class BoundedServer(ThreadingHTTPServer):
    """See the module's page.

    Args:
        address: host and port.
        handler: of one connection.

    Raises:
        OSError, OverflowError: the address is none, not of this machine, or taken.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._serving: dict[Any, None] = {}  # who came first stands first; guarded by the condition
        self._changed = threading.Condition()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, once there is room for it; else close it."""
        with self._changed:
            if len(self._serving) >= MOST_CONNECTIONS:
                oldest = next(iter(self._serving))
                self._serving[oldest] = self._serving.pop(oldest)  # to the end: the next one is another's turn
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
                self._changed.wait_for(lambda: len(self._serving) < MOST_CONNECTIONS, _GIVE_WAY_SECONDS)
            there_is_room = len(self._serving) < MOST_CONNECTIONS
            if there_is_room:
                self._serving[request] = None
        if there_is_room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        try:
            super().shutdown_request(request)
        finally:
            with self._changed:
                self._serving.pop(request, None)
                self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (the base class names them so)
        """That a client went away is no matter; of anything else the log says so, and the next answer comes."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("page_failed", error=repr(error))
