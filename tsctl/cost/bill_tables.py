"""A bill as rows for people and as fields of JSON. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, TypeVar

from tsctl.cost.bill import BYTES, NO_CHANGE, Change, Item, Line, bill, once, total
from tsctl.cost.object_counts import SEGMENT, Part
from tsctl.cost.prices import Prices, Restore
from tsctl.output import size

Row = tuple[str | int | None, ...]
Table = tuple[Sequence[str], Sequence[Row]]  # names of columns, and rows
_Key = TypeVar("_Key")


class Section(NamedTuple):
    """A bill for people: tables, and what it is based on in notes of a sentence or two."""

    tables: list[Table]
    notes: list[str]


def section(parts: Sequence[Part], prices: Prices, change: Change = NO_CHANGE) -> Section:
    """Return a bill by item and by topic; with a change also the month after it, and what the change costs once."""
    bills = {"A MONTH": bill(parts, prices)}
    if change != NO_CHANGE:
        bills |= {"AFTER": bill(parts, prices, change), "ONCE": once(parts, prices, change)}
    dated = f", {prices.as_of.isoformat()}" if prices.as_of else ""
    notes = [
        f"prices: {prices.name}{dated}, in {prices.currency}, for a month of 30 days",
        "requests: an estimate by segments of the last 30 days; readers' requests are not counted",
        *(["live tail: an estimate by the packs that are stored now"] if any(part.monthly for part in parts) else []),
    ]
    target = change.storage_class
    moved = (replace(part, storage_class=target) for part in parts if target and part.kind in SEGMENT)
    reads = {**_reads(parts, prices), **_reads([*moved], prices)}
    return Section([_by_item(bills), _by_topic(parts, bills)], [*notes, *reads.values()])


def fields(parts: Sequence[Part], prices: Prices, change: Change = NO_CHANGE) -> dict[str, object]:
    """Return the same as fields of a JSON document; a topic is null for the cluster's own objects."""
    today, after, paid = bill(parts, prices), bill(parts, prices, change), once(parts, prices, change)
    changed = {"lines": _fields(after), "total": total(after), "once": _fields(paid), "once_total": total(paid)}
    return {
        "prices": {"name": prices.name, "currency": prices.currency, "as_of": prices.as_of and str(prices.as_of)},
        "usage": _fields(parts),
        "lines": _fields(today),
        "total": total(today),
        **({} if change == NO_CHANGE else {"after": changed}),
    }


def _fields(found: Iterable[Line | Part]) -> list[dict[str, object]]:
    return [{**asdict(each), "topic": each.topic or None} for each in found]


def _groups(lists: Sequence[Iterable[Any]], key: Callable[[Any], _Key]) -> dict[_Key, list[list[Any]]]:
    """Return what each list has of each key."""
    found: dict[_Key, list[list[Any]]] = {}
    for place, values in enumerate(lists):
        for value in values:
            found.setdefault(key(value), [[] for _ in lists])[place].append(value)
    return found


def _by_item(bills: Mapping[str, Sequence[Line]]) -> Table:
    rows: list[Row] = []
    groups = _groups([*bills.values()], lambda line: (list(Item).index(line.item), line.storage_class))
    for _, own in sorted(groups.items()):
        one, quantity = next(line for lines in own for line in lines), sum(line.quantity for line in own[0])
        shown = f"{quantity:,.{4 if quantity < 1 else 1}f}" if quantity else None
        rows.append((one.item, one.storage_class, shown, one.unit, *_amounts(own)))
    totals = ("total", None, None, None, *_amounts(bills.values()))
    return ("ITEM", "CLASS", "QUANTITY", "UNIT", *bills), [*rows, totals]


def _by_topic(parts: Iterable[Part], bills: Mapping[str, Sequence[Line]]) -> Table:
    """Return a row for each topic, the most expensive first; the cluster's own objects are one too."""
    rows: list[Row] = []
    groups = _groups([parts, *bills.values()], lambda value: value.topic)
    for topic, (held, *own) in sorted(groups.items(), key=lambda entry: (-total(entry[1][1]), entry[0])):
        classes, objects = {part.storage_class for part in held}, sum(part.objects for part in held)
        sizes = (_size(held), _size(part for part in held if part.is_new))
        amounts = _amounts([[line for line in own[0] if line.item in BYTES], *own])
        rows.append((topic or "(cluster)", ",".join(sorted(classes)), round(objects), *sizes, *amounts))
    return ("TOPIC", "CLASSES", "OBJECTS", "SIZE", "NEW", "STORAGE", *bills), rows


def _reads(parts: Sequence[Part], prices: Prices) -> dict[str, str]:
    """Return what one read of all objects of a class costs, by each speed if they need a restore; by class."""
    found = {}
    for name in sorted({part.storage_class for part in parts}):
        own, priced = [part for part in parts if part.storage_class == name], prices.of(name)
        gb, objects = sum(part.size for part in own) / prices.bytes_per_gb, sum(part.objects for part in own)
        ways = priced.restores or {"retrieval": Restore(per_gb=priced.retrieval_per_gb)}
        amounts = [(speed, gb * way.per_gb + objects / 1000 * way.per_1000) for speed, way in ways.items()]
        shown = ", ".join(f"{speed} {_money(amount)}" for speed, amount in amounts)
        if any(amount for _, amount in amounts):
            found[name] = f"one read of all {_size(own)} in {name}: {shown}"
    return found


def _amounts(bills: Iterable[Iterable[Line]]) -> list[str]:
    return [_money(total(lines)) for lines in bills]


def _size(parts: Iterable[Part]) -> str:
    return size(round(sum(part.size for part in parts)))


def _money(amount: float) -> str:
    """Return an amount: with two decimals, or with four below 1."""
    rounded = round(amount, 4)
    return f"{rounded:,.4f}" if 0 < abs(rounded) < 1 else f"{amount if rounded else 0:,.2f}"
