"""The processes of a cluster, as `--peers` lists them.

All processes get the same list. The node id is the position in it, so all agree without a message, and a process that
is added at the end changes no other's id. Partitions do not depend on the position, only on the address.
"""

import hashlib
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass

from ts_common.errors import ConfigurationError

OPTION = "--peers"


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port.

    Attributes:
        host: name or IP address; one of IPv6 without brackets.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host:port`, and `[host]:port` of IPv6."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Peer:
    """One process of a cluster.

    Attributes:
        node_id: its broker id in Metadata.
        address: as clients connect to it.
        health: where it serves `/healthz`.
    """

    node_id: int
    address: Address
    health: Address


def parse_address(text: str, option: str) -> Address:
    """Return the address in `host:port` or `[host]:port`.

    Args:
        text: the value of an option, or a part of it.
        option: its name, for the error.

    Raises:
        ConfigurationError: the text has another form.
    """
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif _is_ipv6(host) or _is_ipv6(text.strip()):
        raise ConfigurationError(option, [f"{text!r}: write an IPv6 address as [address]:port"])
    elif ":" in host:
        raise ConfigurationError(
            option, [f"{text!r} is not of the form host:port; only --peers has several, with commas"]
        )
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigurationError(option, [f"{text!r} is not of the form host:port with a port from 1 to 65535"])
    return Address(host, int(port))


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def parse_peers(text: str, health_port: int) -> list[Peer]:
    """Return the processes of `host:port[=health_host:health_port],...`.

    Args:
        text: value of `--peers`.
        health_port: of a process without an own address for health; its host is the process's.

    Raises:
        ConfigurationError: an entry has another form, or two have the same address.
    """
    peers: list[Peer] = []
    for entry in text.split(","):
        own, has_health, health = entry.partition("=")
        address = parse_address(own, OPTION)
        checked = parse_address(health, OPTION) if has_health else Address(address.host, health_port)
        if any(address == other.address for other in peers):
            raise ConfigurationError(OPTION, [f"{address} is listed twice; list each process once"])
        if (twin := next((other for other in peers if checked == other.health), None)) is not None:
            message = f"{twin.address} and {address} have the same address for health, {checked}"
            raise ConfigurationError(OPTION, [f"{message}; give each its own: host:port=health_host:health_port"])
        peers.append(Peer(len(peers), address, checked))
    return peers


def own_entry(peers: Sequence[Peer], advertised: Address) -> Peer:
    """Return the entry of this process.

    Args:
        advertised: how clients connect to this process.

    Raises:
        ConfigurationError: the list has no entry with this address.
    """
    for peer in peers:
        if peer.address == advertised:
            return peer
    listed = ", ".join(str(peer.address) for peer in peers)
    problem = f"{listed}: no entry is this process, {advertised}"
    raise ConfigurationError(OPTION, [f"{problem}; list it, or set --advertise to its entry"])


def digest_of(cluster: str, peers: Sequence[Peer]) -> str:
    """Return 16 hexadecimal digits that are equal in processes with the same cluster and the same list.

    Args:
        peers: the whole list, in order.
    """
    described = json.dumps([cluster, *(str(peer.address) for peer in peers)])
    return hashlib.sha256(described.encode()).hexdigest()[:16]
