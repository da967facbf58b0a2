"""Free loopback ports that no other test run on this machine is handed at the same time.

A port that was free a moment ago can be taken before the server binds it: by another process that asks for free ports,
or by any outgoing connection, which the system gives a port from its ephemeral range. So ports come from below that
range, and each is locked, as one byte of a file that all processes share, until this process ends.
"""

import errno
import fcntl
import os
import random
import socket
import tempfile
import threading
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST = 15_000
_DEFAULT_EPHEMERAL_START = 32_768
_CANDIDATES = 500

_guard = threading.Lock()
_held: set[int] = set()  # owned by whoever holds _guard
_locks: list[int] = []  # the shared file's descriptor, once open; closing it would free every port


class NoFreePortError(RuntimeError):
    """No free port was found among many tried."""


def free_port() -> int:
    """A loopback port that is free now and that no caller of this function, in any process, is handed meanwhile.

    Raises:
        NoFreePortError: all random candidates were taken.
    """
    highest = _ephemeral_start() - 1
    with _guard:
        for _ in range(_CANDIDATES):
            port = random.randint(_LOWEST, highest)
            if port not in _held and _lock(port) and _is_free(port):
                _held.add(port)
                return port
    raise NoFreePortError(f"no free port on {LOOPBACK} from {_LOWEST} to {highest}: {_CANDIDATES} were taken")


def listen(backlog: int) -> socket.socket:
    """A socket that listens on a free loopback port: one that somebody bound a moment before is passed over.

    Raises:
        NoFreePortError: as `free_port`.
    """
    while True:
        port = free_port()
        try:
            return socket.create_server((LOOPBACK, port), backlog=backlog)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def free_ports(count: int) -> list[int]:
    """`count` different ports, each as `free_port` gives it."""
    return [free_port() for _ in range(count)]


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except FileNotFoundError:
        return _DEFAULT_EPHEMERAL_START
    start = int(text.split()[0])
    return start if start > _LOWEST + _CANDIDATES else _DEFAULT_EPHEMERAL_START


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _lock(port: int) -> bool:
    if not _locks:
        path = Path(tempfile.gettempdir()) / f"ts-local-ports-{os.getuid()}.lock"
        _locks.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True
