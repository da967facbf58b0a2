"""A proxy before a broker that keeps the requests of clients.

Clients see the broker as an endpoint would be seen: the proxy offers the requests and versions that an endpoint serves,
and turns fetch sessions off, so that each Fetch names all its partitions. Everything else is the broker's own reply.
"""

import socket
import threading
from contextlib import suppress
from typing import Final, Self

from dev.local.kafka.broker import Broker
from dev.local.ports import LOOPBACK, free_port, listen
from tests.endpoint.recorded.frames import Frame, head_of
from ts_endpoint.protocol.replies import api_versions, encode_reply
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api, served_versions

_NAME: Final = "RECORDED"  # of the listener
_SESSIONS_SINCE: Final = 7  # version of Fetch
_FLEXIBLE_SINCE: Final = 12
_SESSION_ID_AT: Final = 10  # after correlation id, throttle time and error; a flexible header has a byte more


class Recorder:
    """A free loopback port before a listener of its own of a broker, which advertises it.

    Attributes:
        address: that clients connect to.

    Args:
        broker: that has not started yet; its properties for listeners are changed.
    """

    def __init__(self, broker: Broker) -> None:
        self._listener = listen(128)
        port: int = self._listener.getsockname()[1]
        self.address = f"{LOOPBACK}:{port}"
        self._target = free_port()
        for name, value in (
            ("listeners", f"{_NAME}://{LOOPBACK}:{self._target}"),
            ("advertised.listeners", f"{_NAME}://{self.address}"),
            ("listener.security.protocol.map", f"{_NAME}:PLAINTEXT"),
        ):
            broker.properties[name] += f",{value}"
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._unserved: set[tuple[int, int]] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def taken(self) -> tuple[list[Frame], set[tuple[int, int]]]:
        """Return the requests since the last call, and the number and version of each that no endpoint serves."""
        with self._lock:
            found = self._frames, self._unserved
            self._frames, self._unserved = [], set()
            return found

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection((LOOPBACK, self._target))
                asked: dict[int, tuple[int, int]] = {}
                for work in (self._to_broker, self._to_client):
                    threading.Thread(target=work, args=(client, broker, asked), daemon=True).start()

    def _to_broker(self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with suppress(OSError), client.makefile("rb") as stream:
            while size := stream.read(4):
                data = stream.read(int.from_bytes(size, "big"))
                key, version, correlation = head_of(data)
                asked[correlation] = key, version
                with self._lock:
                    if _is_served(key, version):
                        self._frames.append(Frame(Api(key), version, data))
                    else:
                        self._unserved.add((key, version))
                broker.sendall(size + data)
        _close(client, broker)

    def _to_client(self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with suppress(OSError), broker.makefile("rb") as stream:
            while size := stream.read(4):
                data = stream.read(int.from_bytes(size, "big"))
                client.sendall(_as_of_endpoint(data, *asked.pop(int.from_bytes(data[:4], "big"))))
        _close(client, broker)


def _is_served(key: int, version: int) -> bool:
    versions = served_versions(key)
    return versions is not None and versions[0] <= version <= versions[1]


def _as_of_endpoint(reply: bytes, key: int, version: int) -> bytes:
    """Return the frame of a reply."""
    if key == Api.API_VERSIONS and _is_served(key, version):
        asked = Request(Api.API_VERSIONS, version, int.from_bytes(reply[:4], "big"), None, None)
        return b"".join(encode_reply(asked, api_versions()))
    if key == Api.FETCH and version >= _SESSIONS_SINCE:
        at = _SESSION_ID_AT + (version >= _FLEXIBLE_SINCE)
        reply = reply[:at] + bytes(4) + reply[at + 4 :]
    return len(reply).to_bytes(4, "big") + reply


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
