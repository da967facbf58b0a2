"""The proxies that the environment names (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), as other tools read them.

A proxy may come without a scheme (`proxy:3128` is `http://proxy:3128`), and with a user and a password.
"""

import base64
import ipaddress
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import exceptions as http

from ts_common.errors import ConfigurationError
from ts_common.store.http.bodies import read_whole

_METADATA = "metadata.google.internal"  # on the machine's own link, as every link-local address
_IN_BETWEEN = {502, 504}  # a gateway's word for having no answer


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy.

    Attributes:
        url: without who asks.
        headers: that show who asks.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def proxy_of(url: str) -> Proxy | None:
    """The proxy by which a URL is reached; None where there is none.

    Raises:
        ConfigurationError: the environment names one that is none.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    said = getproxies().get(parts.scheme)
    if not said or proxy_bypass(host) or _is_on_the_link(host):
        return None
    try:
        named = urlsplit(said if "://" in said else f"http://{said}")
        port = f":{named.port}" if named.port else ""
    except ValueError:
        named, port = urlsplit(""), ""
    if named.scheme not in {"http", "https"} or not named.hostname:
        problem = f"{parts.scheme.upper()}_PROXY names no proxy that can be used: write it as in http://proxy:3128"
        raise ConfigurationError("the environment", [problem])
    bare = f"[{named.hostname}]" if ":" in named.hostname else named.hostname
    headers = {}
    if named.username is not None:
        asking = f"{unquote(named.username)}:{unquote(named.password or '')}".encode()
        headers["proxy-authorization"] = f"Basic {base64.b64encode(asking).decode()}"
    return Proxy(f"{named.scheme}://{bare}{port}", headers)


def pool_for(url: str, **settings: Any) -> urllib3.PoolManager:
    """Connections to a URL's server, through its proxy.

    Args:
        url: of the server.
        settings: of urllib3's pools.

    Raises:
        ConfigurationError: as `proxy_of`.
    """
    proxy = proxy_of(url)
    if proxy is None:
        return urllib3.PoolManager(**settings)
    return urllib3.ProxyManager(proxy.url, proxy_headers=proxy.headers, **settings)


@dataclass(frozen=True, slots=True)
class Received:
    """An answer, as google-auth takes it.

    Attributes:
        status: of HTTP.
        headers: names in any case.
        data: the body.
    """

    status: int
    headers: Mapping[str, str]
    data: bytes


class Pools:
    """Connections to any server, each through its proxy: what google-auth sends its requests by."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[str | None, urllib3.PoolManager] = {}

    def request(self, method: str, url: str, **arguments: Any) -> Received:
        """One request.

        Raises:
            urllib3.exceptions.HTTPError: no answer, also where a gateway says so.
            ConfigurationError: as `proxy_of`.
        """
        proxy = proxy_of(url)
        with self._lock:
            key = None if proxy is None else proxy.url
            if key not in self._opened:
                self._opened[key] = pool_for(url)
            pool = self._opened[key]
        response = pool.request(method, url, preload_content=False, **arguments)
        try:
            body = read_whole(response)
        except (OSError, ValueError) as error:
            raise http.HTTPError(f"{url}: {error}") from error
        finally:
            response.close()
        if response.status in _IN_BETWEEN:
            raise http.HTTPError(f"{url}: HTTP {response.status}")
        return Received(response.status, response.headers, body)


def _is_on_the_link(host: str) -> bool:
    """Whether no proxy could reach a host in this machine's place: the metadata server is one for each machine."""
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return host == _METADATA
