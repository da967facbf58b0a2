"""A bill: what an archive costs a month, by usage, requests and prices. Pure.

Each line is a quantity times a price; docs/cost.md has the formula of each item.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tsctl.cost.prices import Prices
from tsctl.cost.requests import PUTS_BESIDE, WRITES, Requests, puts_of_ends
from tsctl.cost.usage import OWN, SEGMENT, Kind, Part, Usage, weights

_READ_BYTES: Final = 128 << 20  # of one GET of a reader


class Item(StrEnum):
    """What a line is for, in the order of the output."""

    STORAGE = "storage"
    MINIMUM_SIZE = "minimum size"
    OVERHEAD = "overhead"
    MONITORING = "monitoring"
    PUT = "put"
    COPY = "copy"
    LIST = "list"
    GET = "get"
    HEAD = "head"
    DELETE = "delete"
    RETRIEVAL = "retrieval"
    EARLY_REMOVAL = "early removal"
    TRANSITION = "transition"
    MOVE = "copy to another place"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill.

    Attributes:
        item: what it is for.
        storage_class: whose price it has.
        topic: a name; `OWN` for the cluster's own objects and requests.
        quantity: in the unit.
        unit: `GB`, `objects` or `requests`.
        amount: in the currency of the prices.
    """

    item: Item
    storage_class: str
    topic: str
    quantity: float
    unit: str
    amount: float


@dataclass(frozen=True, slots=True)
class Reads:
    """What readers do in a month, which no agent counts.

    Attributes:
        gb: GB that they read.
        plans: queries that list all directories of the cluster, as those that select topics by a pattern do.
    """

    gb: float = 0.0
    plans: float = 0.0


NO_READS: Final = Reads()


def total(lines: Iterable[Line]) -> float:
    """Return the sum of the amounts."""
    return sum(line.amount for line in lines)


def bill(usage: Usage, requests: Requests, prices: Prices, reads: Reads = NO_READS) -> tuple[Line, ...]:
    """Return the lines of a month; each combination of item, class and topic once, without lines of nothing.

    Raises:
        ConfigurationError: the archive has a storage class that the price file lacks.
    """
    lines = [*_stored(usage, prices), *_requested(usage, requests, prices), *_read(usage, prices, reads)]
    return merged(lines)


def merged(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return lines in order, those of the same item, class and topic as one."""
    found: dict[tuple[Item, str, str, str], tuple[float, float]] = {}
    for line in lines:
        key = (line.item, line.storage_class, line.topic, line.unit)
        quantity, amount = found.get(key, (0.0, 0.0))
        found[key] = (quantity + line.quantity, amount + line.amount)
    order = list(Item)
    return tuple(
        Line(item, storage_class, topic, quantity, unit, amount)
        for (item, storage_class, topic, unit), (quantity, amount) in sorted(
            found.items(), key=lambda entry: (order.index(entry[0][0]), *entry[0][1:])
        )
        if quantity
    )


def _stored(usage: Usage, prices: Prices) -> Iterator[Line]:
    """Yield the lines of bytes. The tiers of a class apply to the archive's total, at one average price for all."""
    gb = prices.bytes_per_gb
    totals: dict[str, float] = {}
    for part in usage.parts:
        for _, storage_class, _, size in _billed(usage, prices, part):
            totals[storage_class] = totals.get(storage_class, 0.0) + size
    average = {name: prices.of(name).storage(size / gb) / (size / gb) for name, size in totals.items() if size}
    for part in usage.parts:
        for item, storage_class, topic, size in _billed(usage, prices, part):
            if size:
                yield Line(item, storage_class, topic, size / gb, "GB", size / gb * average[storage_class])
        found = prices.of(part.storage_class)
        if found.monitoring_per_1000:
            watched = usage.from_size(part, found.monitoring_from_bytes)
            amount = watched / 1000 * found.monitoring_per_1000
            yield Line(Item.MONITORING, part.storage_class, part.topic, watched, "objects", amount)


def _billed(usage: Usage, prices: Prices, part: Part) -> Iterator[tuple[Item, str, str, float]]:
    """Yield the bytes that a part is billed for: item, class, topic, bytes."""
    found = prices.of(part.storage_class)
    yield Item.STORAGE, part.storage_class, part.topic, part.size
    yield Item.MINIMUM_SIZE, part.storage_class, part.topic, usage.billed(part, found.minimum_bytes) - part.size
    yield Item.OVERHEAD, part.storage_class, part.topic, part.objects * found.overhead_bytes
    yield Item.OVERHEAD, prices.default_class, part.topic, part.objects * found.overhead_default_bytes


def _requested(usage: Usage, requests: Requests, prices: Prices) -> Iterator[Line]:
    """Yield the lines of requests. An object's class is that of its requests, and marks have the default class."""
    default = prices.default_class
    logs, objects = weights(usage, [Kind.LOG]), weights(usage, [*SEGMENT])
    by_topic = _of_class(logs, default)
    whole = sum(logs.values())  # 0 of empty objects, if a change gives them another size
    each = sum(objects.values()) / whole if whole else 0.0
    in_class = each / (each + PUTS_BESIDE)  # the share of PUTs that write a segment's objects
    for operation, number in requests.monthly.items():
        if operation == "put":
            ends = min(number, puts_of_ends(usage))
            yield from _spread(prices, operation, ends, {})
            yield from _spread(prices, operation, (number - ends) * in_class, objects)
            yield from _spread(prices, operation, (number - ends) * (1 - in_class), by_topic)
        else:
            yield from _spread(prices, operation, number, logs if operation == "head" else by_topic)


def _of_class(shares: Mapping[tuple[str, str], float], storage_class: str) -> dict[tuple[str, str], float]:
    """Return the shares by topic, all in one class."""
    found: dict[tuple[str, str], float] = {}
    for (topic, _), share in shares.items():
        found[topic, storage_class] = found.get((topic, storage_class), 0.0) + share
    return found


def _spread(prices: Prices, operation: str, number: float, shares: Mapping[tuple[str, str], float]) -> Iterator[Line]:
    """Yield the requests of an operation in proportion to shares of topics and classes; without shares as the own."""
    if not any(shares.values()):
        shares = {(OWN, prices.default_class): 1.0}
    whole = sum(shares.values())
    for (topic, storage_class), share in shares.items():
        found = number * share / whole
        price = request_price(prices, operation, storage_class)
        yield Line(Item(operation), storage_class, topic, found, "requests", found / 1000 * price)


def request_price(prices: Prices, operation: str, storage_class: str) -> float:
    """Return the price of 1,000 requests of an operation on objects of a class."""
    if operation == "delete":
        return prices.delete_per_1000
    found = prices.of(storage_class)
    return found.write_per_1000 if operation in WRITES else found.read_per_1000


def _read(usage: Usage, prices: Prices, reads: Reads) -> Iterator[Line]:
    """Yield the lines of what readers read: in proportion to the bytes of `.log` objects; and of their listings."""
    held: dict[tuple[str, str], tuple[float, float]] = {}
    for part in usage.parts:
        if part.kind is Kind.LOG:
            objects, size = held.get((part.topic, part.storage_class), (0.0, 0.0))
            held[part.topic, part.storage_class] = (objects + part.objects, size + part.size)
    whole = sum(size for _, size in held.values())
    read = reads.gb * prices.bytes_per_gb
    for (topic, storage_class), (objects, size) in held.items():
        if read and whole:
            share = read * size / whole
            amount = prices.restore(storage_class, objects * read / whole, share)
            yield Line(Item.RETRIEVAL, storage_class, topic, share / prices.bytes_per_gb, "GB", amount)
            gets = share / _READ_BYTES
            price = request_price(prices, "get", storage_class)
            yield Line(Item.GET, storage_class, topic, gets, "requests", gets / 1000 * price)
    yield from _spread(prices, "list", reads.plans * lists_of_a_plan(usage), {})


def lists_of_a_plan(usage: Usage) -> int:
    """Return the listings of a query that selects topics by a pattern: of the prefixes, and one in each.

    Of the `2^N` prefixes of N entropy bits at most as many exist as the archive has partitions.
    """
    return 1 + min(1 << usage.entropy_bits, max(1, usage.partitions)) if usage.entropy_bits else 1
