"""A bare relay: what one Python process needs to receive objects from a store and to send them on.

It checks and parses nothing, and has no event loop: one thread for each connection, and one buffer. So no endpoint in
Python is faster between the same store and the same client.
"""

import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dev.local.ports import free_ports
from dev.local.waiting import wait_for
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

_BUFFER_BYTES: Final = 2 << 20
_NAME_BYTES: Final = 4
_SECONDS: Final = 60.0


class RelayProcess:
    """A process that sends the objects below prefixes; a context manager that ends it.

    Args:
        location: of the store, a URL.
        prefixes: of the `.log` objects of each connection.
    """

    def __init__(self, location: str, prefixes: Sequence[str]) -> None:
        (self._port,) = free_ports(1)
        self._count = len(prefixes)
        command = [sys.executable, "-m", "dev.bench.measuring.relay", str(self._port), location, *prefixes]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[3])

    def __enter__(self) -> Self:
        wait_for(self._listens, "a relay", _SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(_SECONDS)

    def read_all(self) -> int:
        """Receive the objects below all prefixes at the same time, drop them, and return their bytes."""
        with ThreadPoolExecutor(self._count) as threads:
            return sum(threads.map(self._read, range(self._count)))

    def _read(self, number: int) -> int:
        sink, total = bytearray(_BUFFER_BYTES), 0
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(number.to_bytes(_NAME_BYTES, "big"))
            while count := connection.recv_into(sink, 0, socket.MSG_TRUNC):
                total += count
        return total

    def _listens(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError("the relay ended")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def relay(store: ObjectStore, keys: Sequence[Sequence[str]], connection: socket.socket) -> None:
    """Send the objects that a client names by the number of their prefix."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with connection:
        name = connection.recv(_NAME_BYTES)
        for key in keys[int.from_bytes(name, "big")] if name else ():
            with store.open(key) as stream:
                while count := stream.readinto(buffer):
                    connection.sendall(buffer[:count])


def main() -> None:
    """List the objects, and serve until the process is ended."""
    port, location, *prefixes = sys.argv[1:]
    with open_store(location) as store, socket.create_server(("127.0.0.1", int(port))) as listener:
        keys = [[info.key for info in store.list(prefix) if info.key.endswith(".log")] for prefix in prefixes]
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=relay, args=(store, keys, connection), daemon=True).start()


if __name__ == "__main__":
    main()
