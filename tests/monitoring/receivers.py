"""Servers that receive metrics as Graphite and StatsD do, over real sockets."""

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from ts_local.ports import LOOPBACK


@contextmanager
def graphite(port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield a port that receives lines over TCP, and the lines so far."""
    lines: list[str] = []

    class Receive(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines.extend(self.rfile.read().decode().splitlines())

    with socketserver.TCPServer((LOOPBACK, port), Receive) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1], lines
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hanging_up() -> Iterator[tuple[int, list[object]]]:
    """Yield a port that reads a byte of each connection and resets it, and the clients' addresses so far."""
    clients: list[object] = []

    class HangUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            clients.append(self.client_address)
            self.request.recv(1)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    class Server(socketserver.TCPServer):
        def shutdown_request(self, request: Any) -> None:
            self.close_request(request)  # without the orderly end that a shutdown would be

    with Server((LOOPBACK, 0), HangUp) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1], clients
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def statsd(port: int = 0) -> Iterator[tuple[int, socket.socket]]:
    """Yield a port, and its socket to receive datagrams from."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind((LOOPBACK, port))
        taken.settimeout(60)
        yield taken.getsockname()[1], taken


def datagrams(taken: socket.socket, last: str) -> list[bytes]:
    """Return the received datagrams, up to one with a line that begins with `last`."""
    found: list[bytes] = []
    while not any(line.startswith(last) for datagram in found for line in datagram.decode().splitlines()):
        found.append(taken.recv(65_536))
    return found
