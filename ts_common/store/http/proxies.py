"""Read the proxies of the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY) as other tools do.

The URL of a proxy may have no scheme (`proxy:3128` is `http://proxy:3128`), and may have a user and a password.
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
from ts_common.store.http.response_head import POOLS
from ts_common.store.response_body import read_whole

_METADATA = "metadata.google.internal"  # link-local, although it is a name
_NO_UPSTREAM = {502, 504}  # sent by a gateway that has no response


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy.

    Attributes:
        url: without user and password.
        headers: with user and password.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy for a URL; None without one.

    Raises:
        ConfigurationError: the environment has an invalid URL of a proxy.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    setting = getproxies().get(parts.scheme)
    if not setting or proxy_bypass(host) or _is_link_local(host):
        return None
    try:
        named = urlsplit(setting if "://" in setting else f"http://{setting}")
        port = f":{named.port}" if named.port else ""
    except ValueError:
        named, port = urlsplit(""), ""
    if named.scheme not in {"http", "https"} or not named.hostname:
        problem = f"{parts.scheme.upper()}_PROXY is not the URL of a proxy: write it as in http://proxy:3128"
        raise ConfigurationError("the environment", [problem])
    bare = f"[{named.hostname}]" if ":" in named.hostname else named.hostname
    headers = {}
    if named.username is not None:
        credentials = f"{unquote(named.username)}:{unquote(named.password or '')}".encode()
        headers["proxy-authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
    return Proxy(f"{named.scheme}://{bare}{port}", headers)


def pool_for(url: str, **settings: Any) -> urllib3.PoolManager:
    """Return a pool of connections to a URL's server, through its proxy.

    Args:
        settings: of urllib3's pools.

    Raises:
        ConfigurationError: as `proxy_of`.
    """
    proxy = proxy_of(url)
    if proxy is None:
        pool = urllib3.PoolManager(**settings)
    else:
        pool = urllib3.ProxyManager(proxy.url, proxy_headers=proxy.headers, **settings)
    pool.pool_classes_by_scheme = POOLS
    return pool


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """A response in the form that google-auth expects.

    Attributes:
        headers: names in any case.
    """

    status: int
    headers: Mapping[str, str]
    data: bytes


class Pools:
    """Connections to any server, each through its proxy; google-auth sends its requests with them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[str | None, urllib3.PoolManager] = {}

    def request(self, method: str, url: str, **arguments: Any) -> TokenResponse:
        """Send one request and return its response.

        Raises:
            urllib3.exceptions.HTTPError: no response, also if a gateway reports that.
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
        if response.status in _NO_UPSTREAM:
            raise http.HTTPError(f"{url}: HTTP {response.status}")
        return TokenResponse(response.status, response.headers, body)


def _is_link_local(host: str) -> bool:
    """Return whether no proxy can reach a host for this one, such as the metadata server, which each machine has."""
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return host == _METADATA
