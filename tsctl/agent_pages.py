"""Reads pages of agents over HTTP: their addresses as a command line has them, and one GET with bounds."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import urllib3

from ts_common.errors import ConfigurationError
from ts_reader.options.archive_name import SOURCE
from tsctl.output import size

DEFAULT_PORT: Final = 9464
LONGEST_BYTES: Final = 16 << 20  # of a response: 10,000 partitions need 3 MB
_ADDRESS: Final = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?/?")
_LONGEST_REASON: Final = 500
# What urllib3 and Python write before a reason: `HTTPConnection(host='h', port=1): `, `[Errno 111] `.
_FOR_PROGRAMS: Final = re.compile(r"HTTPS?Connection(?:Pool)?\([^)]*\): |\[Errno -?\d+\] ")
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class NoPage:
    """Why a page was not read.

    Attributes:
        problem: for people, on one line.
    """

    problem: str


def addresses(agents: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """Return the addresses of arguments and of a file, whose comments start with `#`.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    given = list(agents)
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(str(file), [f"cannot be read: {error}"]) from error
        given += [text for line in lines if (text := line.partition("#")[0].strip())]
    return tuple(given)


def page_urls(given: Sequence[str], page: str) -> dict[str, str]:
    """Return the URL of a page of each agent by its address, in the given order.

    Args:
        given: host, host:port or http://host:port.
        page: its path, without the first slash.

    Raises:
        ConfigurationError: an address is malformed; it lists all problems.
    """
    urls, problems = {}, []
    for address in given:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 1 << 16:
            problems.append(f"{address}: not an address; expected host, host:port or http://host:port")
        else:
            port = match["port"] or DEFAULT_PORT
            urls[address] = f"{match['scheme'] or 'http'}://{match['host']}:{port}/{page}"
    if problems:
        raise ConfigurationError(SOURCE, problems)
    return urls


def get_page(pool: urllib3.PoolManager, url: str, timeout: float) -> bytes | NoPage:
    """Return the body of a page with status 200 or 503, which an unhealthy agent answers with the same fields.

    Args:
        pool: of connections, with the same timeout.
        timeout: seconds for the whole response.
    """
    ends = time.monotonic() + timeout
    body = bytearray()
    try:
        with pool.request("GET", url, redirect=False, preload_content=False, decode_content=False) as response:
            while piece := response.read1(_PIECE_BYTES):
                body += piece
                if len(body) > LONGEST_BYTES:
                    return NoPage(f"{url} returned more than {size(LONGEST_BYTES)}; is this an agent?")
                if time.monotonic() > ends:  # the pool's own timeout applies to each piece
                    return NoPage(f"no answer within {timeout:g} s")
    except urllib3.exceptions.HTTPError as error:
        return NoPage(f"no answer: {_reason(error)}")
    if response.status in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
        return bytes(body)
    if response.status == HTTPStatus.MISDIRECTED_REQUEST:
        return NoPage(f"{url}: {body[:_LONGEST_REASON].decode(errors='replace').strip()}")
    return NoPage(f"{url} returned {response.status}; is this an agent?")


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """Return the reason of an error for people, without the names of Python's objects."""
    if isinstance(error, urllib3.exceptions.ProtocolError) and len(error.args) > 1:  # ("Connection aborted.", cause)
        return _FOR_PROGRAMS.sub("", str(error.args[1])) or type(error.args[1]).__name__
    return _FOR_PROGRAMS.sub("", str(error))
