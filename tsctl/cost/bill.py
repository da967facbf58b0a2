"""A bill: what an archive costs a month, and what a change of it would do. Pure.

Each line is a quantity times a price; docs/cost.md has the formula of each item, docs/sizing.md the requests.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tsctl.cost.object_counts import MONTH_DAYS, SEGMENT, ObjectKind, Part
from tsctl.cost.prices import Prices


class Item(StrEnum):
    """What a line is for, in the order of the output."""

    STORAGE = "storage"
    MINIMUM_SIZE = "minimum size"
    OVERHEAD = "overhead"
    MONITORING = "monitoring"
    PUT = "put"
    GET = "get"
    HEAD = "head"
    EARLY_REMOVAL = "early removal"
    DELETE = "delete"
    TRANSITION = "transition"
    COPY = "copy"


BYTES: Final = frozenset({Item.STORAGE, Item.MINIMUM_SIZE, Item.OVERHEAD})  # at the price of storage
_GB: Final = BYTES | {Item.EARLY_REMOVAL}
# Requests for each `.log`, in addition to the PUTs of its objects: the commit, half a cache object, what these need.
PER_LOG: Final = MappingProxyType({Item.PUT: 1.5, Item.HEAD: 1.0, Item.GET: 0.5})
# Requests for each pack of the live tail: a merge of 64 packs puts one object, and later deletes all.
PER_PACK: Final = MappingProxyType({Item.PUT: 1 + 1 / 64, Item.DELETE: 1 + 1 / 64})
_Charge = tuple[Item, str, str, float]  # item, storage class, topic, quantity


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill; `topic` is `OWN` for the cluster, `unit` is `GB`, `objects` or `requests`."""

    item: Item
    storage_class: str
    topic: str
    quantity: float
    unit: str
    amount: float


@dataclass(frozen=True, slots=True)
class Change:
    """A size of each `.log`, a class of segments and their retention; None leaves it as it is."""

    segment_bytes: int | None = None
    storage_class: str | None = None
    retention_days: float | None = None

    def removes(self, part: Part) -> bool:
        """Return whether the retention removes objects."""
        return self.retention_days is not None and part.kind in SEGMENT and part.days >= self.retention_days


NO_CHANGE: Final = Change()


def total(lines: Iterable[Line]) -> float:
    """Return the sum of the amounts."""
    return sum(line.amount for line in lines)


def bill(parts: Sequence[Part], prices: Prices, change: Change = NO_CHANGE) -> tuple[Line, ...]:
    """Return the lines of a month, as if a change had reached the whole archive; without lines of nothing.

    Raises:
        ConfigurationError: the price file lacks a storage class.
    """
    name, resized = change.storage_class, _resized(parts, change.segment_bytes)
    after = [replace(part, storage_class=name) if name and part.kind in SEGMENT else part for part in resized]
    return _lines((charge for part in after for charge in _monthly(part, prices, change)), prices)


def once(parts: Sequence[Part], prices: Prices, change: Change) -> tuple[Line, ...]:
    """Return what a change itself costs, by the objects of today; the error is that of `bill`."""
    return _lines((charge for part in parts for charge in _once(part, prices, change)), prices)


def _lines(charges: Iterable[_Charge], prices: Prices) -> tuple[Line, ...]:
    """Return charges with their prices. Tiers apply to all bytes of a class, at one average price."""
    sums: dict[tuple[Item, str, str], float] = defaultdict(float)
    stored: dict[str, float] = defaultdict(float)
    for item, name, topic, quantity in charges:
        sums[item, name, topic] += quantity
        stored[name] += quantity if item in BYTES else 0.0
    lines = []
    for item, name, topic in sorted(sums, key=lambda key: (list(Item).index(key[0]), *key[1:])):
        if quantity := sums[item, name, topic]:
            unit = "GB" if item in _GB else "objects" if item in {Item.MONITORING, Item.TRANSITION} else "requests"
            lines.append(Line(item, name, topic, quantity, unit, quantity * _price(item, name, stored[name], prices)))
    return tuple(lines)


def _price(item: Item, storage_class: str, stored_gb: float, prices: Prices) -> float:
    """Return the price of one GB, object or request."""
    found = prices.of(storage_class)
    if item in BYTES:
        return found.storage(stored_gb) / stored_gb
    if item is Item.EARLY_REMOVAL:
        return found.storage_per_gb_month
    per_1000 = {
        **dict.fromkeys((Item.GET, Item.HEAD), found.read_per_1000),
        Item.MONITORING: found.monitoring_per_1000,
        Item.TRANSITION: found.transition_per_1000,
        Item.DELETE: prices.delete_per_1000,
    }
    return per_1000.get(item, found.write_per_1000) / 1000


def _monthly(part: Part, prices: Prices, change: Change) -> Iterator[_Charge]:
    found, name, topic, gb = prices.of(part.storage_class), part.storage_class, part.topic, prices.bytes_per_gb
    if not change.removes(part):
        yield Item.STORAGE, name, topic, part.size / gb
        yield Item.MINIMUM_SIZE, name, topic, max(0.0, part.objects * found.minimum_bytes - part.size) / gb
        yield Item.OVERHEAD, name, topic, part.objects * found.overhead_bytes / gb
        yield Item.OVERHEAD, prices.default_class, topic, part.objects * found.overhead_default_bytes / gb
        if found.monitoring_per_1000 and part.size >= part.objects * found.monitoring_from_bytes:
            yield Item.MONITORING, name, topic, part.objects
    for item, times in PER_PACK.items() if part.monthly else ():
        yield item, name, topic, part.monthly * times
    if part.is_new:  # also what a retention removes again within the month
        yield Item.PUT, name, topic, part.objects
        for item, times in PER_LOG.items() if part.kind is ObjectKind.LOG else ():
            yield item, name if item is Item.HEAD else prices.default_class, topic, part.objects * times
        if change.retention_days is not None:
            rest = max(0.0, found.minimum_days - change.retention_days)
            yield Item.EARLY_REMOVAL, name, topic, part.size * rest / MONTH_DAYS / gb


def _once(part: Part, prices: Prices, change: Change) -> Iterator[_Charge]:
    """Yield what a part costs that is removed, or moved to another class."""
    found, name, topic = prices.of(part.storage_class), part.storage_class, part.topic
    target = change.storage_class or name
    moves = target != name and part.kind in SEGMENT
    if change.removes(part) or moves:
        rest = max(0.0, found.minimum_days * part.size - part.byte_days)  # bytes times days
        yield Item.EARLY_REMOVAL, name, topic, rest / MONTH_DAYS / prices.bytes_per_gb
    if change.removes(part):
        yield Item.DELETE, name, topic, part.objects
    elif moves:  # a lifecycle rule moves objects only to a class that stores cheaper
        cheaper = prices.of(target).storage_per_gb_month <= found.storage_per_gb_month
        yield Item.TRANSITION if cheaper else Item.COPY, target, topic, part.objects


def _resized(parts: Sequence[Part], segment_bytes: int | None) -> Iterator[Part]:
    """Yield the same bytes in `.log` objects of one size, with as many indexes for each as today."""
    logs: dict[tuple[str, bool], float] = defaultdict(float)
    sizes: dict[tuple[str, bool], float] = defaultdict(float)
    for part in parts:
        if part.kind is ObjectKind.LOG:
            logs[part.topic, part.is_new] += part.objects
            sizes[part.topic, part.is_new] += part.size
    for part in parts:
        key, objects = (part.topic, part.is_new), part.objects
        if segment_bytes is not None and part.kind is ObjectKind.LOG:
            objects = part.size / segment_bytes
        elif segment_bytes is not None and part.kind is ObjectKind.INDEX and key in logs:
            objects *= sizes[key] / segment_bytes / logs[key]
        yield replace(part, objects=objects)
