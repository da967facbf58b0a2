"""What a change of an archive would do to its bill. Pure.

Changes are made in this order: retention, segment size, storage class, entropy bits. Each returns the archive as it
would be once the change has reached all of it. Costs that arise once are lines of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Final

from ts_common.wording import counted
from tsctl.cost.month import NO_READS, Item, Line, Reads, bill, merged
from tsctl.cost.prices import DAYS, Prices
from tsctl.cost.requests import MONTH_SECONDS, Requests, scaled
from tsctl.cost.usage import SEGMENT, Kind, Part, Usage

PREFIX_WRITES: Final = 3_500  # per second, of each prefix of S3; docs/sizing.md has the source
_GROWTH_BITS: Final = 2
_REMOVED: Final = frozenset({*SEGMENT, Kind.CACHE})  # by retention


@dataclass(frozen=True, slots=True)
class Change:
    """A change; None leaves a setting as it is.

    Attributes:
        segment_bytes: size of each `.log`.
        storage_class: of all objects of segments.
        retention_days: objects of segments are removed once they are so old.
        entropy_bits: of all keys.
    """

    segment_bytes: int | None = None
    storage_class: str | None = None
    retention_days: float | None = None
    entropy_bits: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self == Change()


@dataclass(frozen=True, slots=True)
class Outcome:
    """An archive after a change.

    Attributes:
        lines: its bill.
        usage: what it would hold.
        once: what the change itself costs.
        notes: what was assumed, one sentence or two each.
    """

    lines: tuple[Line, ...]
    usage: Usage
    once: tuple[Line, ...]
    notes: tuple[str, ...]


def what_if(usage: Usage, requests: Requests, prices: Prices, change: Change, reads: Reads = NO_READS) -> Outcome:
    """Return the bill after a change.

    Args:
        usage: of today. Its edges include the retention and the minimum durations of classes.
        requests: of today.
        prices: of the store.
        change: what changes.
        reads: as in `bill`; the same after the change.

    Raises:
        ConfigurationError: the price file lacks a storage class.
    """
    after, asked = usage, requests
    further: list[Line] = []
    once: list[Line] = []
    notes: list[str] = []
    if change.retention_days is not None:
        once += _early(after, prices, lambda part: _is_due(after, part, change.retention_days))
        after = _retained(after, change.retention_days, notes)
    if change.segment_bytes is not None:
        after, ratio = _resized(after, change.segment_bytes, notes)
        asked = scaled(asked, usage, ratio)
    if change.storage_class is not None:
        once += _moved(after, prices, change.storage_class)
        after = _in_class(after, prices, change.storage_class, notes)
    if change.retention_days is not None:
        further += _early_each_month(after, prices, change.retention_days)
    if change.entropy_bits is not None and change.entropy_bits != after.entropy_bits:
        once += _copied(after, prices)
        after = replace(after, entropy_bits=change.entropy_bits)
        notes.append(_about_bits(requests, change.entropy_bits))
    lines = merged([*bill(after, asked, prices, reads), *further])
    return Outcome(lines, after, merged(once), tuple(notes))


def _is_due(usage: Usage, part: Part, days: float | None) -> bool:
    return days is not None and part.kind in _REMOVED and usage.edges[part.age] >= days


def _retained(usage: Usage, days: float, notes: list[str]) -> Usage:
    """Return what stays of an archive."""
    if not any(_is_due(usage, part, days) for part in usage.parts):
        oldest = usage.segment_days or 0.0
        notes.append(
            f"retention: the oldest segment is {counted(round(oldest), 'day')} old, so nothing would be removed yet"
        )
    else:
        notes.append("retention: by the time when an object was written; a copied bucket has the times of the copy")
    return replace(usage, parts=tuple(part for part in usage.parts if not _is_due(usage, part, days)))


def _early(usage: Usage, prices: Prices, removed: Callable[[Part], bool]) -> Iterator[Line]:
    """Yield what objects cost that are removed before their class's minimum duration: the rest of that time."""
    for part in usage.parts:
        found = prices.of(part.storage_class)
        if removed(part) and usage.edges[part.age] < found.minimum_days:
            rest = found.minimum_days * part.size - part.byte_days  # bytes times days
            yield _early_line(part, prices, max(0.0, rest) / DAYS)


def _early_each_month(usage: Usage, prices: Prices, days: float) -> Iterator[Line]:
    """Yield what a retention below the minimum duration costs each month, if as much arrives as in the last one."""
    for part in usage.parts:
        found = prices.of(part.storage_class)
        if part.kind in SEGMENT and usage.is_new(part) and days < found.minimum_days:
            # Of a retention below a month, the parts that it leaves are what arrives in that time.
            arrives = part.size * DAYS / min(max(days, 1 / 24), usage.new_days)
            yield _early_line(part, prices, arrives * (found.minimum_days - days) / DAYS)


def _early_line(part: Part, prices: Prices, size: float) -> Line:
    gb = size / prices.bytes_per_gb
    amount = gb * prices.of(part.storage_class).storage_per_gb_month
    return Line(Item.EARLY_REMOVAL, part.storage_class, part.topic, gb, "GB", amount)


def _resized(usage: Usage, segment_bytes: int, notes: list[str]) -> tuple[Usage, float]:
    """Return an archive of segments of one size, and how many segments there would be for one of today."""
    before = [part for part in usage.parts if part.kind is Kind.LOG]
    sizes = _sums(before, lambda part: part.size)
    objects = _sums(before, lambda part: part.objects)
    ratios = {topic: sizes[topic] / segment_bytes / objects[topic] for topic in sizes if objects[topic]}
    parts = tuple(
        _scaled(part, ratios.get(part.topic, 1.0), usage.thresholds) if part.kind in SEGMENT else part
        for part in usage.parts
    )
    # Requests follow what agents ship now, not what they shipped years ago.
    recent = [part for part in before if usage.is_new(part)] or before
    whole = sum(part.objects for part in recent)
    mean = sum(part.size for part in recent) / whole if whole else 0.0
    ratio = mean / segment_bytes if mean else 1.0
    notes.append(
        f"segments: new .log objects have {mean:,.0f} bytes on average. All are counted with {segment_bytes:,} bytes, "
        "so segment.ms must permit that size. Objects that exist do not change"
    )
    return replace(usage, parts=parts), ratio


def _sums(parts: Iterable[Part], value: Callable[[Part], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        found[part.topic] = found.get(part.topic, 0.0) + value(part)
    return found


def _scaled(part: Part, ratio: float, thresholds: Sequence[int]) -> Part:
    """Return a part with the same bytes in `ratio` times as many objects, all of them of the mean size."""
    if ratio == 1 or not part.objects:
        return part
    objects = part.objects * ratio
    mean = part.size / objects if objects else 0.0
    small = tuple((objects, part.size) if mean < threshold else (0.0, 0.0) for threshold in thresholds)
    return replace(part, objects=objects, small=small)


def _in_class(usage: Usage, prices: Prices, name: str, notes: list[str]) -> Usage:
    """Return an archive with all objects of segments in one class."""
    found = prices.of(name)
    text = f"class: all objects of segments are in {name}, "
    if found.restores:  # agents reject such a class
        text += "where a lifecycle rule moves them; its moves of each month are not counted"
    else:
        text += "and agents write them there"
    if found.minimum_days:
        text += f"; what is removed before {found.minimum_days:g} days is billed for them"
    if found.restores:
        text += "; queries need a restore first"
    elif found.retrieval_per_gb:
        text += f"; each GB read costs {found.retrieval_per_gb:g} {prices.currency}"
    notes.append(text)
    moved: dict[tuple[str, Kind, int], Part] = {}
    others = []
    for part in usage.parts:
        if part.kind not in SEGMENT:
            others.append(part)
            continue
        key = (part.topic, part.kind, part.age)
        moved[key] = _joined(moved[key], part) if key in moved else replace(part, storage_class=name)
    return replace(usage, parts=(*others, *moved.values()))


def _joined(one: Part, other: Part) -> Part:
    return replace(
        one,
        objects=one.objects + other.objects,
        size=one.size + other.size,
        living=one.living + other.living,
        byte_days=one.byte_days + other.byte_days,
        small=tuple((a[0] + b[0], a[1] + b[1]) for a, b in zip(one.small, other.small, strict=True)),
    )


def _moved(usage: Usage, prices: Prices, name: str) -> Iterator[Line]:
    """Yield what moving the objects of segments to a class costs.

    A lifecycle rule moves objects to a class whose storage is cheaper. Otherwise they are copied, and read first.
    """
    target = prices.of(name)
    for part in usage.parts:
        if part.kind not in SEGMENT or part.storage_class == name:
            continue
        if target.storage_per_gb_month <= prices.of(part.storage_class).storage_per_gb_month:
            amount = part.objects / 1000 * target.transition_per_1000
            yield Line(Item.TRANSITION, name, part.topic, part.objects, "objects", amount)
        else:
            yield from _copy(part, prices, name)
    yield from _early(usage, prices, lambda part: part.kind in SEGMENT and part.storage_class != name)


def _copied(usage: Usage, prices: Prices) -> Iterator[Line]:
    """Yield what a copy of all objects to another place costs."""
    for part in usage.parts:
        yield from _copy(part, prices, part.storage_class)


def _copy(part: Part, prices: Prices, name: str) -> Iterator[Line]:
    """Yield the requests of a copy to a class, and the reading from the class of a part."""
    amount = part.objects / 1000 * prices.of(name).write_per_1000
    yield Line(Item.MOVE, name, part.topic, part.objects, "requests", amount)
    read = prices.restore(part.storage_class, part.objects, part.size)
    if read:
        yield Line(Item.RETRIEVAL, part.storage_class, part.topic, part.size / prices.bytes_per_gb, "GB", read)


def _about_bits(requests: Requests, bits: int) -> str:
    """Return the effect of a number of entropy bits on requests per second, by docs/sizing.md."""
    writes = sum(requests.of(operation) for operation in ("put", "copy", "list")) / MONTH_SECONDS
    wanted = max(0, ceil(log2(writes / PREFIX_WRITES))) + _GROWTH_BITS if writes > PREFIX_WRITES else 0
    return (
        f"entropy: {1 << bits:,} prefix{'es' if bits else ''} for {PREFIX_WRITES * (1 << bits):,} "
        f"writes per second; today's average is {writes:,.2f}, which needs {counted(wanted, 'bit')}. The number of an "
        "archive is final: another one needs a copy under another base prefix"
    )
