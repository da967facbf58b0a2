"""An HTTP server that uses few of a program's resources: a bounded number of connections, each with a thread.

If all connections are in use, the oldest is closed for a new one. An answer is ready well within a second, so the
oldest client hangs, reads slowly or sends nothing. No number of clients can use up the descriptors and the memory that
the program's work needs, and no client can block a probe or a scrape.
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
_GIVE_WAY_SECONDS = 1.0  # for the closed connection's thread to end; no other connection is accepted meanwhile


class BoundedServer(ThreadingHTTPServer):
    """A `ThreadingHTTPServer` with at most `MOST_CONNECTIONS` connections.

    Args:
        address: host and port.
        handler: class that handles one connection.

    Raises:
        OSError, OverflowError: the address is malformed, not of this machine, or in use.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._serving: dict[Any, None] = {}  # the oldest connection first; guarded by the condition
        self._changed = threading.Condition()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its own thread if one is free in time; else close it."""
        with self._changed:
            if len(self._serving) >= MOST_CONNECTIONS:
                oldest = next(iter(self._serving))
                self._serving[oldest] = self._serving.pop(oldest)  # to the end: the next call closes another one
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
        """Close an ended connection."""
        try:
            super().shutdown_request(request)
        finally:
            with self._changed:
                self._serving.pop(request, None)
                self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (the base class names them so)
        """Log an error of a handler and continue; ignore disconnected clients."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("page_failed", error=repr(error))
