"""What the rooms of the endpoint share: the session of a connection, handlers of requests, and permissions."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeVar

from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

_LOT: Final = 200
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Session:
    """What the endpoint remembers of one connection.

    Attributes:
        host: address of the client, for logs and DescribeGroups.
        user: who authenticated; None if the listener needs no authentication.
        software: the client library's name in its ApiVersions; empty without one.
    """

    host: str
    user: str | None = None
    software: str = ""


class ConnectionEnds(Exception):
    """The endpoint closes the connection; the message is the reason. A handler may raise it.

    Attributes:
        kind: of the end, for the counter.
    """

    def __init__(self, message: str, kind: str = "refused_request") -> None:
        super().__init__(message)
        self.kind = kind


# Returns the values of the reply, as `ts_endpoint.protocol.replies` describes them; None if the request has no reply.
# It can be cancelled at any `await`: when the client closed its connection, or at a stop.
Handler = Callable[[Request, Session], Awaitable[Values | None]]
Handlers = Mapping[Api, Handler]


class Permissions(Protocol):
    """Which topics and groups a user may use."""

    def may_read(self, user: str | None, topic: str) -> bool:
        """Return whether a user may read a topic, and see that it exists."""
        ...

    def may_use(self, user: str | None, group: str) -> bool:
        """Return whether a user may join a group, and read and commit its offsets."""
        ...


class EveryonePermitted:
    """Permissions of a listener without authentication: everything that the archive has."""

    def may_read(self, user: str | None, topic: str) -> bool:
        """Return true."""
        del user, topic
        return True

    def may_use(self, user: str | None, group: str) -> bool:
        """Return true."""
        del user, group
        return True


def permitted_first(elements: Iterable[T], is_permitted: Callable[[T], bool]) -> list[T]:
    """Return the elements of a request as a broker orders their results: those that its user may not use are last."""
    return sorted(elements, key=lambda each: not is_permitted(each))


def in_lots(elements: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield a request's elements in lots of some milliseconds; a handler lets other clients be served in between."""
    rest = iter(elements)
    while lot := tuple(islice(rest, _LOT)):
        yield lot
