"""Which `Host` a request for a status page may name.

A browser that reaches the agent runs scripts of other sites. Such a site can let its own name resolve to the agent's
address (DNS rebinding); its script then reads the pages as if they were its own. The browser sends the site's name as
`Host`. So the agent answers only if `Host` is an IP address, `localhost`, a name of this host, or a name from the
option.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Final

from ts_common.config.cluster_config import ALLOWED_HOSTS_KEY

_HOST: Final = re.compile(r"(?P<name>\[[^\]\s]+\]|[^:\s\[\]]+)(?::[0-9]*)?")


class AllowedHosts:
    """Decides by the `Host` header alone.

    Args:
        listening: the host part of the address that the agent listens on.
        configured: returns the option's names as of now, in lower case; one that begins with a dot stands for all names
            that end with it.
    """

    def __init__(self, listening: str, configured: Callable[[], Sequence[str]]) -> None:
        self._listening = listening
        self._configured = configured

    def refusal(self, hosts: Sequence[str], *, versioned: bool, public: bool) -> tuple[HTTPStatus, str] | None:
        """Return why a request is refused, as a status and one sentence; None where it is answered.

        Args:
            hosts: the values of all `Host` headers.
            versioned: whether the client speaks HTTP/1.1, which demands one such header.
            public: whether any name may be used: metrics and health, which probes read under any name.
        """
        if len(hosts) > 1:
            return HTTPStatus.BAD_REQUEST, "The request has several Host headers; send one."
        if public:
            return None
        if not hosts:  # browsers always send one, so no page of another site sent this request
            return (HTTPStatus.BAD_REQUEST, "The request has no Host header; send one.") if versioned else None
        found = _HOST.fullmatch(hosts[0].strip())
        if found is None:
            return HTTPStatus.BAD_REQUEST, "The request's Host header is no host name and no address."
        if self._is_allowed(found["name"].lower().rstrip(".")):
            return None
        return (
            HTTPStatus.MISDIRECTED_REQUEST,
            "The request's Host is no IP address and no name of this host; use one, or add the name to "
            f"{ALLOWED_HOSTS_KEY} in the cluster's properties file.",
        )

    def _is_allowed(self, name: str) -> bool:
        if name == "localhost" or name == self._listening.lower() or _is_address(name):
            return True
        for allowed in self._configured():
            if name == allowed or (allowed.startswith(".") and name.endswith(allowed)):
                return True
        return name in self._own_names

    @cached_property
    def _own_names(self) -> frozenset[str]:
        """The names of this host; read once, and only for a name that nothing else allows: DNS may be slow."""
        host = socket.gethostname().lower()
        return frozenset({host, host.partition(".")[0], socket.getfqdn().lower().rstrip(".")} - {""})


def _is_address(name: str) -> bool:
    try:
        if name.startswith("["):
            ipaddress.IPv6Address(name[1:-1])
        else:
            ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True
