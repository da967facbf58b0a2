"""What an archive holds: objects and bytes by topic, storage class, kind and age. Pure.

`tsctl.cost.listing` counts it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

OWN: Final = ""  # the topic of objects that belong to the whole cluster, or to no topic
NEW_DAYS: Final = 30.0  # an object is new up to this age
_EDGES: Final = (0.0, 1.0, 7.0, NEW_DAYS, 90.0, 180.0, 365.0, 730.0, 1825.0)  # days


class Kind(StrEnum):
    """What an object is."""

    LOG = "log"
    INDEX = "index"  # .index, .timeindex, .txnindex
    CACHE = "cache"  # segment metadata
    MARK = "mark"  # offset.wm, log.start, gap records, incarnations
    CLUSTER = "cluster"  # layout, ends, groups, claims
    OTHER = "other"  # no agent wrote it


SEGMENT: Final = frozenset({Kind.LOG, Kind.INDEX})  # what agents write in the storage class of their options


@dataclass(frozen=True, slots=True)
class Part:
    """Objects of one topic, storage class, kind and range of ages. Numbers can be fractions after a change.

    Attributes:
        topic: its name; `OWN` for none.
        storage_class: a name in the price file.
        kind: of the objects.
        age: which range of `Usage.edges`: from that edge to the next one.
        objects: their number.
        size: bytes.
        living: bytes of segments that readers can return; of the kinds of `SEGMENT` only.
        byte_days: the sum of size times age in days.
        small: objects and bytes below each of `Usage.thresholds`.
    """

    topic: str
    storage_class: str
    kind: Kind
    age: int
    objects: float
    size: float
    living: float
    byte_days: float
    small: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What an archive holds.

    Attributes:
        parts: each combination once.
        edges: lower ends of the ranges of ages, days, ascending from 0.
        thresholds: sizes that smaller objects are counted below, bytes, ascending.
        days: age of the oldest object, days; 0 without an object.
        segment_days: age of the oldest object of a segment, days; None without one. Objects of other kinds are kept
            when retention removes segments.
        brokers: agents that write their ends, counted for each store.
        entropy_bits: of the keys.
        partitions: directories of partitions that have segments.
    """

    parts: tuple[Part, ...]
    edges: tuple[float, ...]
    thresholds: tuple[int, ...]
    days: float = 0.0
    segment_days: float | None = None
    brokers: int = 0
    entropy_bits: int = 0
    partitions: int = 0

    def total(self, value: Callable[[Part], float], chosen: Iterable[Part] | None = None) -> float:
        """Return the sum of a number of parts."""
        return sum(map(value, self.parts if chosen is None else chosen))

    def billed(self, part: Part, minimum: int) -> float:
        """Return the bytes of a part, each object with at least `minimum` bytes, which is 0 or a threshold."""
        if not minimum:
            return part.size
        objects, size = part.small[self.thresholds.index(minimum)]
        return part.size - size + objects * minimum

    def from_size(self, part: Part, minimum: int) -> float:
        """Return the number of objects of a part with at least `minimum` bytes, which is 0 or a threshold."""
        return part.objects - (part.small[self.thresholds.index(minimum)][0] if minimum else 0)

    def is_new(self, part: Part) -> bool:
        """Return whether all objects of a part are at most `NEW_DAYS` old."""
        return self.edges[part.age] < NEW_DAYS

    @property
    def new_days(self) -> float:
        """How many days new objects needed to arrive: below a month if all segments are younger."""
        oldest = self.days if self.segment_days is None else self.segment_days
        return min(NEW_DAYS, max(oldest, 1 / 24))

    @property
    def to_month(self) -> float:
        """The factor from what is new to a month: above 1 if all segments are younger than a month."""
        return NEW_DAYS / self.new_days


def edges_of(days: Iterable[float]) -> tuple[float, ...]:
    """Return the edges of ages that a bill and a change need.

    Args:
        days: further edges: a retention, the minimum durations of classes.
    """
    return tuple(sorted({*_EDGES, *days}))


def weights(usage: Usage, kinds: Sequence[Kind]) -> dict[tuple[str, str], float]:
    """Return the number of new objects of these kinds by topic and storage class; without new ones, of all.

    It is empty if the archive has no such objects.
    """
    chosen = [part for part in usage.parts if part.kind in kinds]
    new = [part for part in chosen if usage.is_new(part)]
    found: dict[tuple[str, str], float] = {}
    for part in new or chosen:
        key = (part.topic, part.storage_class)
        found[key] = found.get(key, 0.0) + part.objects
    return found
