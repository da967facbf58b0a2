"""Servers that receive metrics as Graphite and StatsD do, over real sockets."""

import socket
import socketserver
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from dev.local.ports import LOOPBACK
from tests.http_servers import running


@contextmanager
def graphite(port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """A port that receives lines over TCP, and the lines so far."""
    lines: list[str] = []

    class Take(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines.extend(self.rfile.read().decode().splitlines())

    with running(socketserver.TCPServer((LOOPBACK, port), Take)) as listening:
        yield listening, lines


@contextmanager
def hanging_up() -> Iterator[tuple[int, list[object]]]:
    """A port that reads a byte of each connection and resets it, and the addresses of the clients so far."""
    clients: list[object] = []

    class HangUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            clients.append(self.client_address)
            self.request.recv(1)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    class Server(socketserver.TCPServer):
        def shutdown_request(self, request: Any) -> None:
            self.close_request(request)  # without the orderly end that a shutdown would be

    with running(Server((LOOPBACK, 0), HangUp)) as port:
        yield port, clients


@contextmanager
def statsd(port: int = 0) -> Iterator[tuple[int, socket.socket]]:
    """A port, and its socket to receive datagrams from."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as receiver:
        receiver.bind((LOOPBACK, port))
        receiver.settimeout(60)
        yield receiver.getsockname()[1], receiver


def datagrams(receiver: socket.socket, last: str) -> list[bytes]:
    """Return the datagrams up to the one with a line that begins with `last`."""
    found: list[bytes] = []
    while not any(line.startswith(last) for datagram in found for line in datagram.decode().splitlines()):
        found.append(receiver.recv(65_536))
    return found
