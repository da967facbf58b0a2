"""Two replies to one request, field by field. Names of a server itself, its address and its members, count as equal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from tests.endpoint.recorded.topics import PREFIX
from ts_endpoint.protocol.requests import Request

_NODES: Final = frozenset({"node_id", "leader_id", "controller_id", "broker_id", "replica_nodes", "isr_nodes"})
_MEMBERS: Final = frozenset({"member_id", "leader"})
_NO_NODE: Final = -1
# What names an element of a list. A broker keeps many lists in hash tables, so their order has no meaning.
_KEYS: Final = (
    "name",
    "topic",
    "topic_id",
    "partition_index",
    "partition",
    "group_id",
    "key",
    "api_key",
    "resource_name",
)
ORDER: Final = " order"  # after the path of a list whose elements are equal in another order

Pairs = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs, or a list whose length or order does.

    Attributes:
        request: that both answered, as the endpoint parses it.
        path: names of fields from the reply to this one: `topics.partitions.offset`.
        broker: value of the broker's reply.
        endpoint: value of the endpoint's reply.
        around: the entities with the field, outermost first, each as the broker's and the endpoint's.
    """

    request: Request
    path: str
    broker: Any
    endpoint: Any
    around: Pairs

    def __str__(self) -> str:
        kind = f"{self.request.api.name} {self.request.version}"
        return f"{kind} {self.path}: broker {self.broker!r:.400}, endpoint {self.endpoint!r:.400}"


@dataclass(frozen=True, slots=True)
class Names:
    """What a server calls itself.

    Attributes:
        node_id: its id.
        address: host and port that it advertises.
        cluster_id: of its cluster.
    """

    node_id: int
    address: tuple[str, int]
    cluster_id: str


def plain(entity: Any, names: Names) -> Any:
    """Return kio's entity as lists and dictionaries, without the names of the server and the topics of other tests."""
    return _Plain(names).value("", entity)


def differences(request: Request, broker: Any, endpoint: Any) -> Iterator[Difference]:
    """Yield what differs between two replies, as `plain` returns them."""
    yield from _compared(request, "", broker, endpoint, ())


class _Plain:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._members: dict[str, str] = {}

    def value(self, name: str, found: Any) -> Any:
        if isinstance(found, tuple):
            return [self.value(name, each) for each in found if _is_of_these(each)]
        if is_dataclass(found) and not isinstance(found, type):
            return {field.name: self.value(field.name, getattr(found, field.name)) for field in fields(found)}
        if name in _NODES and found != _NO_NODE:
            return "itself" if found == self._names.node_id else found
        if name in {"host", "port"} and found in self._names.address:
            return "its own"
        if name == "cluster_id" and found == self._names.cluster_id:
            return "its own"
        if name in _MEMBERS and found:
            return self._members.setdefault(found, f"member {len(self._members)}")
        return found


def _is_of_these(element: Any) -> bool:
    """Return whether an element of a list is no topic or group of another test, or of the broker itself."""
    kinds = {"MetadataResponseTopic": "name", "ListedGroup": "group_id", "DescribeConfigsResult": "resource_name"}
    kind = type(element).__name__
    name = getattr(element, kinds[kind]) if kind in kinds else None
    return name is None or name.isdecimal() or name.startswith(PREFIX)


def _compared(request: Request, path: str, broker: Any, endpoint: Any, around: Pairs) -> Iterator[Difference]:
    if isinstance(broker, Mapping) and isinstance(endpoint, Mapping):
        for name in broker:
            inner = f"{path}.{name}" if path else name
            yield from _compared(request, inner, broker[name], endpoint[name], (*around, (broker, endpoint)))
    elif isinstance(broker, list) and isinstance(endpoint, list) and len(broker) == len(endpoint):
        if list(map(_key, broker)) != list(map(_key, endpoint)):
            yield Difference(request, path + ORDER, _keys(broker), _keys(endpoint), around)
            broker, endpoint = sorted(broker, key=_key), sorted(endpoint, key=_key)
        for one, other in zip(broker, endpoint, strict=True):
            yield from _compared(request, path, one, other, around)
    elif broker != endpoint:
        yield Difference(request, path, broker, endpoint, around)


def _key(element: Any) -> str:
    """Return what names an element of a list; the same for all elements of a list without names."""
    if not isinstance(element, Mapping):
        return ""
    return next((repr(element[name]) for name in _KEYS if element.get(name) is not None), "")


def _keys(elements: list[Any]) -> list[str]:
    return [_key(each) for each in elements]
