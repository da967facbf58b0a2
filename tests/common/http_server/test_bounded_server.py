"""What clients of a program's pages may cost it, however many they are and whatever they do."""

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from dev.local.waiting import wait_for
from ts_common.http_server.answers import Answers
from ts_common.http_server.bounded_server import MOST_CONNECTIONS
from ts_common.http_server.listening import HttpServer

_NOTHING = b"GET /metrics HTTP/1.1\r\n"  # and no end of it


class Held:
    """A page that is sent when a test allows it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def pieces(self) -> Iterator[bytes]:
        """Yield one large piece, later."""
        self.asked.set()
        self.go.wait(60)
        yield b"a" * 5_000_000


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def server(held: Held) -> Iterator[HttpServer]:
    class Pages(Answers):
        def page(self, path: str) -> None:
            if path == "/metrics":
                self.stream("text/plain", held.pieces())
            else:
                self.verdict("ok", {}, well=True)

    made = HttpServer("127.0.0.1:0", Pages, "test")
    made.start()
    yield made
    held.go.set()
    made.stop()


def connected(server: HttpServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def threads_of_connections() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_clients_that_hang_block_no_other_client_and_use_few_threads(server: HttpServer) -> None:
    """Many connections that send half a request, and then a probe: the first of them is closed."""
    before = threads_of_connections()
    with ExitStack() as opened:
        clients = [opened.enter_context(connected(server)) for _ in range(3 * MOST_CONNECTIONS)]
        for client in clients:
            client.sendall(_NOTHING)
        with closing(http.client.HTTPConnection(server.address, timeout=60)) as probe:
            probe.request("GET", "/healthz")
            assert probe.getresponse().status == http.client.OK
        assert threads_of_connections() - before <= MOST_CONNECTIONS
        assert clients[0].recv(1) == b""


def test_a_client_that_disconnects_leaves_no_traceback(
    server: HttpServer, held: Held, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the midst of a page, with a reset; the next one is served."""
    before = threads_of_connections()
    with connected(server) as client:
        client.sendall(_NOTHING + b"\r\n")
        assert held.asked.wait(60)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    held.go.set()
    wait_for(lambda: threads_of_connections() <= before, "the connection's thread to end")
    with closing(http.client.HTTPConnection(server.address, timeout=60)) as probe:
        probe.request("GET", "/healthz")
        assert probe.getresponse().status == http.client.OK
    assert capfd.readouterr().err == ""
