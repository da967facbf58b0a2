"""Other agents beside the same broker that ship to the same place: in an upgrade for a moment, or by mistake for good.

Nothing is lost or shown twice by it, since two such agents are to the store what a restarted one is to its former life
(protocol rules 6 to 8): whatever one has shipped the other finds, and of two commits one is refused. It is twice the
work, so each agent says at its start which others there are.

An agent is known by an abstract Unix socket (unix(7)) that nothing is ever sent to: its name goes with the process, in
whatever way that ends, and leaves nothing on a disk. It is seen in the same network namespace only, so agents in
containers of their own networks do not know of each other.
"""

import hashlib
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import structlog

from ts_common.endpoints.provider import EndpointProvider
from ts_uploader.environment import Environment

log = structlog.get_logger()

_NAMES = Path("/proc/net/unix")  # the name is the last column; an abstract one begins with @ there


def announce(environment: Environment, endpoints: EndpointProvider) -> "Presence":
    """Make an agent known to others, and say which others there are."""
    locations = (endpoint.location for endpoint in endpoints.endpoints())
    presence = Presence(environment.cluster_id, environment.log_dirs, locations)
    others = presence.others()
    if others:
        log.warning(
            "another agent ships this broker's segments to the same place: nothing is lost by it, and all is done "
            "twice; end one of them",
            others=[f"process {other.process}, ts-uploader {other.version}" for other in others],
        )
    return presence


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another agent.

    Attributes:
        process: its id, as it sees it itself.
        version: of ts-uploader.
    """

    process: int
    version: str


class Presence:
    """Makes this agent known to those that start later, until `close`, and knows those that started before.

    Args:
        cluster_id: stands in the keys.
        log_dirs: the broker's; known by device and inode, so that another mount of them is the same.
        locations: of the stores that it ships to.
    """

    def __init__(self, cluster_id: str, log_dirs: Iterable[Path], locations: Iterable[str]) -> None:
        places = []
        for log_dir in log_dirs:
            with suppress(OSError):  # on a disk that failed
                found = log_dir.stat()
                places.append((found.st_dev, found.st_ino))
        work = repr((cluster_id, sorted(places), sorted(set(locations)))).encode()
        self._group = f"ts-uploader/{hashlib.sha256(work).hexdigest()[:32]}/"
        self._own = f"{self._group}{os.getpid()}/{metadata.version('ts-uploader')}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):  # this process has another agent, which is known already
            self._socket.bind(f"\0{self._own}")

    def others(self) -> tuple[Neighbour, ...]:
        """The agents that do the same work; none where this system does not tell."""
        try:
            lines = _NAMES.read_text(errors="replace").splitlines()
        except OSError:
            return ()
        names = {line.rpartition(" @")[2] for line in lines}
        found = (name.removeprefix(self._group).split("/") for name in names - {self._own} if self._is_ours(name))
        return tuple(sorted((Neighbour(int(process), version) for process, version in found), key=lambda n: n.process))

    def close(self) -> None:
        """Be known no more."""
        self._socket.close()

    def _is_ours(self, name: str) -> bool:
        parts = name.removeprefix(self._group).split("/")
        return name.startswith(self._group) and len(parts) == 2 and parts[0].isdecimal()
