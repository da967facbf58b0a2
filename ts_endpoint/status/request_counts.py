"""Errors and times of requests, counted around their handlers; plain numbers, which the metrics read."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ts_endpoint.contract import Handler, Handlers, Session
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

# An answer from memory needs a millisecond, the first request to a store some tenths, a wait for new records more.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_AT_ONCE: Final = 1_000  # error codes, about 5 ms


class Durations:
    """A histogram: how many durations are at most each bound.

    Attributes:
        total: sum of all, in seconds.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._counts = [0] * (len(BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.total += seconds
        self._counts[bisect_left(BUCKETS, seconds)] += 1

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bound as Prometheus writes it, with the number of durations up to it; the last is `+Inf`."""
        found, so_far = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found


class RequestCounts:
    """What handlers answered.

    Attributes:
        errors: error codes in replies, by kind and error; a reply for many partitions may have many.
        fetches: times of Fetch from request to reply, with its waits.
    """

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, str]] = Counter()
        self.fetches = Durations()

    def around(self, handlers: Handlers) -> Handlers:
        """Return the handlers, each with its errors and Fetch with its times counted.

        Args:
            handlers: by kind.
        """
        return {api: self._counted(api, handler) for api, handler in handlers.items()}

    def _counted(self, api: Api, handler: Handler) -> Handler:
        async def counted(request: Request, session: Session) -> Values | None:
            begun = monotonic()
            values = await handler(request, session)
            if api is Api.FETCH:
                self.fetches.add(monotonic() - begun)
            if values is not None:
                await self._count_errors(api, values)
            return values

        return counted

    async def _count_errors(self, api: Api, values: Values) -> None:
        """Count the errors in the values of a reply, at any depth; other clients are served meanwhile."""
        for number, error in enumerate(_errors(values)):
            if error is not ErrorCode.none:
                self.errors[api.name, error.name.upper()] += 1
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)


def _errors(value: Any) -> Iterator[ErrorCode]:
    """Yield the error codes in the values of a reply, also those of no error."""
    if isinstance(value, Mapping):
        for inner in value.values():
            if isinstance(inner, ErrorCode):
                yield inner
            elif isinstance(inner, Mapping | list | tuple):
                yield from _errors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _errors(inner)
