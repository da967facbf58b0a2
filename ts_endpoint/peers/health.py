"""Requests the health of other processes, on the event loop and without a thread for each."""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from ts_common.errors import CorruptData
from ts_common.json_objects import decoding, parse_json, text
from ts_endpoint.peers.addresses import Address

_LONGEST: Final = 64 * 1024  # bytes of an answer; it has some hundred
_MOST_LEVELS: Final = 4  # of an answer, which has one
_MOST_CHARACTERS: Final = 300  # of a field; the name of a host has at most 253
_FIELDS: Final = ("status", "address", "peers")
_MOST_LOOKUPS: Final = 4  # threads for names


class HealthUnknown(Exception):
    """A process did not answer, or not with its health; the message has the reason."""


class HealthClient:
    """Sends `GET /healthz`, one connection for each request.

    Args:
        deadline: seconds until an answer must be complete.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        # Not the loop's own executor: a name server that does not answer would use up its threads.
        self._lookups = ThreadPoolExecutor(_MOST_LOOKUPS, thread_name_prefix="peer-names")
        self._running: set[Address] = set()

    async def ask(self, address: Address) -> Mapping[str, str]:
        """Return `status`, `address` and `peers` of an answer, as far as it has them; of any status of HTTP.

        Args:
            address: where the process serves its health.

        Raises:
            HealthUnknown: there is no complete answer in time, or it is no JSON object with short texts in them.
        """
        try:
            async with asyncio.timeout(self._deadline):
                return _fields(await _exchange(await self._resolved(address), address))
        except TimeoutError:
            raise HealthUnknown(f"{address} did not answer within {self._deadline:g} s") from None
        except OSError as error:
            raise HealthUnknown(f"{address}: {error.strerror or error}") from error
        except UnicodeError as error:  # a name that IDNA rejects, as one with an empty label
            raise HealthUnknown(f"{address}: {error}") from error

    def close(self) -> None:
        """Start no lookup any more; one that hangs does not block."""
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _resolved(self, address: Address) -> tuple[Any, ...]:
        """Return family and first socket address of a host. A lookup that is still running fails at once."""
        with suppress(ValueError):
            is_six = ipaddress.ip_address(address.host).version == 6
            return socket.AF_INET6 if is_six else socket.AF_INET, (address.host, address.port)
        if address in self._running:
            raise HealthUnknown(f"{address}: the lookup of the name hangs")
        self._running.add(address)
        lookup = self._lookups.submit(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def end() -> None:
            self._running.discard(address)
            if not done.done():
                done.set_result(None)

        lookup.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(end))
        await done
        family, _, _, _, target = lookup.result()[0]
        return family, target


async def _exchange(resolved: tuple[Any, ...], address: Address) -> bytes:
    """Return the bytes of an answer."""
    family, target = resolved
    reader, writer = await asyncio.open_connection(target[0], target[1], family=family)
    try:
        writer.write(f"GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        answer = bytearray()
        while piece := await reader.read(_LONGEST):
            answer += piece
            if len(answer) > _LONGEST:
                raise HealthUnknown(f"{address} sent more than {_LONGEST} bytes")
        return bytes(answer)
    finally:
        writer.close()


def _fields(answer: bytes) -> Mapping[str, str]:
    """Return the fields of an answer. Another program can listen there, so they have bounds."""
    _, _, body = answer.partition(b"\r\n\r\n")
    try:
        found = parse_json(body, "the answer", _LONGEST, _MOST_LEVELS)
        with decoding("the answer", "a health"):
            if not isinstance(found, dict):
                raise ValueError("it is no object")  # noqa: TRY004  (the data is wrong)
            return {name: text(found[name], _MOST_CHARACTERS) for name in _FIELDS if name in found}
    except CorruptData as error:
        raise HealthUnknown(f"the answer is no health of an endpoint: {answer[:80]!r}") from error
