"""Free loopback ports that no other test run on this machine receives at the same time.

Before the server binds a free port, another process can bind it, or the system can give it to an outgoing connection as
an ephemeral port. So ports are chosen below the ephemeral range. Each is locked until this process ends, as one byte of
a file that all processes share.
"""

import errno
import fcntl
import os
import random
import socket
import threading
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST = 15_000
_DEFAULT_EPHEMERAL_START = 32_768
_CANDIDATES = 500

_guard = threading.Lock()
_held: set[int] = set()  # guarded by _guard
_locks: list[int] = []  # the shared file's descriptor, once open; closing it would free every port


class NoFreePortError(RuntimeError):
    """No free port was found in many attempts."""


def free_port() -> int:
    """Return a free loopback port that this function returns to no other caller, in any process, meanwhile.

    Raises:
        NoFreePortError: all random candidates were in use.
    """
    highest = _ephemeral_start() - 1
    with _guard:
        for _ in range(_CANDIDATES):
            port = random.randint(_LOWEST, highest)
            if port not in _held and _lock(port) and _is_free(port):
                _held.add(port)
                return port
    raise NoFreePortError(f"no free port on {LOOPBACK} from {_LOWEST} to {highest}: {_CANDIDATES} were in use")


def listen(backlog: int) -> socket.socket:
    """Return a socket that listens on a free loopback port; a port that another process has just bound is skipped.

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
    """Return `count` different ports, as `free_port` does."""
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
        # Not below TMPDIR: it differs between the tests and what runs beside them.
        path = Path("/tmp") / f"ts-local-ports-{os.getuid()}.lock"
        _locks.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True
