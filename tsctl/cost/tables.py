"""A bill as rows for people and as fields of JSON. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tsctl.cost.changes import Outcome
from tsctl.cost.month import Item, Line, total
from tsctl.cost.prices import Prices
from tsctl.cost.requests import Requests
from tsctl.cost.usage import SEGMENT, Part, Usage
from tsctl.output import size

Row = tuple[str | int | None, ...]
_OWN_NAME: Final = "(cluster)"
_STORED: Final = frozenset({Item.STORAGE, Item.MINIMUM_SIZE, Item.OVERHEAD, Item.MONITORING})


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under names of columns."""

    columns: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Section:
    """A bill for people.

    Attributes:
        tables: by item and by topic; with a change also before and after, and what it costs once.
        notes: what the bill is based on, a sentence or two each.
    """

    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def section(
    usage: Usage, requests: Requests, prices: Prices, lines: Sequence[Line], outcome: Outcome | None = None
) -> Section:
    """Return a bill for people, with a change if there is one."""
    tables = [Table(_BILL_COLUMNS, bill_rows(lines)), Table(_TOPIC_COLUMNS, topic_rows(usage, lines))]
    further: tuple[str, ...] = ()
    if outcome is not None:
        tables.append(Table(_CHANGE_COLUMNS, change_rows(lines, outcome)))
        if outcome.once:
            tables.append(Table(_ONCE_COLUMNS, bill_rows(outcome.once)))
        further = outcome.notes
    return Section(tuple(tables), (*_notes(usage, requests, prices, lines), *further))


def money(amount: float) -> str:
    """Return an amount: with two decimals, or with four below 1."""
    rounded = round(amount, 4)
    return f"{rounded:,.4f}" if 0 < abs(rounded) < 1 else f"{amount if rounded else 0:,.2f}"


_BILL_COLUMNS: Final = ("ITEM", "CLASS", "QUANTITY", "UNIT", "A MONTH")


def bill_rows(lines: Iterable[Line]) -> list[Row]:
    """Return a row for each item and class, and their total."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    lines = list(lines)
    for line in lines:
        quantity, amount = found.get((line.item, line.storage_class, line.unit), (0.0, 0.0))
        found[line.item, line.storage_class, line.unit] = (quantity + line.quantity, amount + line.amount)
    rows: list[Row] = [
        (item, storage_class, _quantity(quantity), unit, money(amount))
        for (item, storage_class, unit), (quantity, amount) in found.items()
    ]
    return [*rows, ("total", None, None, None, money(total(lines)))]


_TOPIC_COLUMNS: Final = ("TOPIC", "CLASSES", "OBJECTS", "SIZE", "LIVING", "NEW", "STORAGE", "OTHER", "A MONTH")


def topic_rows(usage: Usage, lines: Sequence[Line]) -> list[Row]:
    """Return a row for each topic, the most expensive first; the cluster's own objects and requests are one too."""
    parts: dict[str, list[Part]] = {}
    of_topic: dict[str, list[Line]] = {}
    for part in usage.parts:
        parts.setdefault(part.topic, []).append(part)
    for line in lines:
        of_topic.setdefault(line.topic, []).append(line)
    amounts = {topic: total(of_topic.get(topic, ())) for topic in {*parts, *of_topic}}
    return [
        _topic_row(topic, usage, parts.get(topic, ()), of_topic.get(topic, ()))
        for topic in sorted(amounts, key=lambda topic: (-amounts[topic], topic))
    ]


def _topic_row(topic: str, usage: Usage, parts: Sequence[Part], lines: Sequence[Line]) -> Row:
    stored = total(line for line in lines if line.item in _STORED)
    return (
        topic or _OWN_NAME,
        ",".join(sorted({part.storage_class for part in parts})),
        round(sum(part.objects for part in parts)),
        size(round(sum(part.size for part in parts))),
        size(round(sum(part.living for part in parts))),
        size(round(sum(part.size for part in parts if part.kind in SEGMENT and usage.is_new(part)))),
        money(stored),
        money(total(lines) - stored),
        money(total(lines)),
    )


_CHANGE_COLUMNS: Final = ("ITEM", "TODAY", "AFTER", "DIFFERENCE")


def change_rows(today: Iterable[Line], outcome: Outcome) -> list[Row]:
    """Return a row for each item, and their total."""
    before, after = _by_item(today), _by_item(outcome.lines)
    rows = [(item, before.get(item, 0.0), after.get(item, 0.0)) for item in Item if item in before or item in after]
    rows_and_total = [*rows, ("total", sum(before.values()), sum(after.values()))]
    return [(item, money(old), money(new), money(new - old)) for item, old, new in rows_and_total]


_ONCE_COLUMNS: Final = ("ONCE", "CLASS", "QUANTITY", "UNIT", "AMOUNT")


def _by_item(lines: Iterable[Line]) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in lines:
        found[line.item] = found.get(line.item, 0.0) + line.amount
    return found


def _notes(usage: Usage, requests: Requests, prices: Prices, lines: Sequence[Line]) -> list[str]:
    """Return what a bill is based on, a sentence or two each."""
    new = usage.total(lambda part: part.size, (part for part in usage.parts if usage.is_new(part)))
    month = new * usage.to_month
    stored = total(line for line in lines if line.item is Item.STORAGE)
    whole = usage.total(lambda part: part.size)
    growth = stored * month / whole if whole else 0.0
    dated = f", {prices.as_of.isoformat()}" if prices.as_of else ""
    return [
        f"prices: {prices.name}{dated}, in {prices.currency}, for a month of 30 days",
        f"requests: {requests.source}; those of readers are not counted",
        f"growth: {size(round(month))} are new in a month; without removals the storage of each month costs about "
        f"{money(growth)} {prices.currency} more than that of the one before",
    ]


def fields(usage: Usage, requests: Requests, prices: Prices, lines: Sequence[Line]) -> dict[str, object]:
    """Return a bill as fields of a JSON document."""
    return {
        "prices": {"name": prices.name, "currency": prices.currency, "as_of": prices.as_of and str(prices.as_of)},
        "requests": {"source": requests.source, "estimated": requests.estimated, "monthly": dict(requests.monthly)},
        "usage": {
            "entropy_bits": usage.entropy_bits,
            "partitions": usage.partitions,
            "age_edges_days": list(usage.edges),
            "oldest_days": usage.days,
            "oldest_segment_days": usage.segment_days,
            "parts": [_part_fields(part) for part in usage.parts],
        },
        "lines": line_fields(lines),
        "total": total(lines),
    }


def line_fields(lines: Iterable[Line]) -> list[dict[str, object]]:
    """Return lines as fields of a JSON document; the topic of the cluster's own objects is null."""
    return [{**asdict(line), "item": line.item.value, "topic": line.topic or None} for line in lines]


def outcome_fields(outcome: Outcome) -> dict[str, object]:
    """Return a change's effect as fields of a JSON document."""
    return {
        "lines": line_fields(outcome.lines),
        "total": total(outcome.lines),
        "once": line_fields(outcome.once),
        "once_total": total(outcome.once),
        "notes": list(outcome.notes),
    }


def _part_fields(part: Part) -> dict[str, object]:
    return {
        "topic": part.topic or None,
        "storage_class": part.storage_class,
        "kind": part.kind.value,
        "age": part.age,
        "objects": part.objects,
        "bytes": part.size,
        "living_bytes": part.living if part.kind in SEGMENT else None,
    }


def _quantity(number: float) -> str:
    if 0 < number < 1:
        return f"{number:,.4f}"
    return f"{number:,.1f}" if number < 1000 else f"{number:,.0f}"
