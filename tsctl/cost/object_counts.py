"""Counts the objects of an archive by topic, storage class, kind, age and size; no list of objects is in memory."""

import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ts_common.archive.object_keys import (
    INCARNATIONS_NAME,
    LOG_SUFFIX,
    TAIL_DIRECTORY,
    ClusterKeys,
    SegmentName,
    pack_number,
    partition_of,
)
from ts_common.errors import QueryError
from ts_common.model import is_topic_name
from ts_common.store.contract import ObjectStore
from ts_common.suggestions import nearest
from ts_common.wording import some
from ts_reader.options.archive_name import ArchiveName
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import chooser, open_archive
from tsctl.cost.prices import Prices
from tsctl.output import Output

OWN: Final = ""  # the topic of objects that belong to the whole cluster, or to no topic
MONTH_DAYS: Final = 30.0
_ENTROPY: Final = re.compile(r"[01]+")


Directory = tuple[ObjectStore, str, str]  # store, prefix of the keys with the final slash, topic or `OWN`


class ObjectKind(StrEnum):
    """What an object is."""

    LOG = "log"
    INDEX = "index"  # .index, .timeindex, .txnindex
    PACK = "pack"  # of the live tail, merged ones too
    OTHER = "other"


SEGMENT: Final = frozenset({ObjectKind.LOG, ObjectKind.INDEX})  # agents write these in the class of their options


@dataclass(frozen=True, slots=True)
class Part:
    """Objects of one topic, class and kind, in one range of ages and one of sizes.

    A range ends at each limit: a size or an age in the price file, 30 days, a retention.

    Attributes:
        topic: `OWN` for none.
        days: lower end of the range of ages.
        size: bytes of all objects.
        byte_days: the sum of size times age in days.
        monthly: packs of the live tail that agents put in a month, at the rate since the oldest that is stored.
    """

    topic: str
    storage_class: str
    kind: ObjectKind
    days: float
    objects: float
    size: float
    byte_days: float
    monthly: float = 0.0

    @property
    def is_new(self) -> bool:
        """Whether they are objects of segments of the last 30 days."""
        return self.kind in SEGMENT and self.days < MONTH_DAYS


def survey(
    name: ArchiveName, topics: Sequence[str], prices: Prices, retention_days: float | None, output: Output
) -> list[Part]:
    """Return what topics hold, chosen by names and regular expressions; without one all, and the cluster's own objects.

    Raises:
        QueryError: the archive has no topic, or no such topic.
        ConfigurationError: a topic is no regular expression.
    """
    choose = chooser(topics)
    with open_archive(name, output.warn) as archive:
        known = archive.names()
        for text in topics:
            if not any(map(chooser([text]), known)):
                hint = nearest(text, known) or f"; it contains {some(sorted(known))}"
                raise QueryError(f"topic {text}: cluster {archive.keys.cluster} has no such topic{hint}")
        found = [each for store in archive.stores for each in find_directories(store, archive.keys)]
        chosen = [each for each in found if not topics or (each[2] != OWN and choose(each[2]))]
        return count(chosen, prices, retention_days, time.time())


def find_directories(store: ObjectStore, keys: ClusterKeys) -> Iterator[Directory]:
    """Yield every directory of a cluster, under any number of entropy bits, with that of the cluster's own objects."""
    yield store, keys.cluster_prefix, OWN
    for first in store.list_directories(""):
        nested = f"{first}{keys.cluster}/"
        is_entropy = _ENTROPY.fullmatch(first.rstrip("/")) is not None
        below = [nested + name for name in store.list_directories(nested)] if is_entropy else []
        if first == f"{keys.cluster}/":  # a name such as `1` can be both; a topic `1` has no directories below its own
            below += [first + name for name in store.list_directories(first) if not below or first + name != nested]
        for prefix in below:
            name = prefix.rstrip("/").rpartition("/")[2]
            partition = partition_of(name)
            topic = name if is_topic_name(name) else OWN
            yield store, prefix, topic if partition is None else partition.topic


_Key = tuple[str, str, ObjectKind, int, int]  # topic, storage class, kind, range of ages, range of sizes


def count(found: Sequence[Directory], prices: Prices, retention_days: float | None, now: float) -> list[Part]:
    """Return what directories hold, in parts by the limits of prices and of a retention; `now` in seconds."""
    classes = prices.classes.values()
    edges = sorted({0.0, MONTH_DAYS, retention_days or 0.0, *(each.minimum_days for each in classes)})
    limits = sorted({size for each in classes for size in (each.minimum_bytes, each.monitoring_from_bytes)})

    def one(directory: Directory) -> dict[_Key, list[float]]:
        store, prefix, topic = directory
        sums: dict[_Key, list[float]] = {}
        packs: dict[str, list[tuple[int, float]]] = {}
        for info in store.list(prefix):
            own, kind, name = topic, ObjectKind.OTHER, info.key[len(prefix) :]
            if (parsed := SegmentName.parse(name)) is not None:
                kind = ObjectKind.LOG if parsed[1] == LOG_SUFFIX else ObjectKind.INDEX
            elif name == INCARNATIONS_NAME:  # `t-0/incarnations.json` is the list of a topic `t-0`
                own = prefix.rstrip("/").rpartition("/")[2]
            elif own == OWN and name.startswith(TAIL_DIRECTORY):
                kind = ObjectKind.PACK
                log, _, rest = name.removeprefix(TAIL_DIRECTORY).partition("/")
                if (number := pack_number(rest)) is not None:
                    packs.setdefault(log, []).append((number, info.modified))
            age = max(0.0, now - info.modified) / 86_400
            places = (bisect_right(edges, age) - 1, bisect_right(limits, info.size))
            key = (own, info.storage_class or prices.default_class, kind, *places)
            _add(sums, key, 1, info.size, info.size * age, 0)
        monthly = sum(_monthly(of_log, now) for of_log in packs.values())
        if monthly:
            _add(sums, (OWN, prices.default_class, ObjectKind.PACK, 0, 0), 0, 0, 0, monthly)
        return sums

    whole: dict[_Key, list[float]] = {}
    for sums in in_threads(one, found):
        for key, numbers in sums.items():
            _add(whole, key, *numbers)
    return [Part(*key[:3], edges[key[3]], *numbers) for key, numbers in sorted(whole.items())]


def _monthly(packs: Sequence[tuple[int, float]], now: float) -> float:
    """Return how many packs of a log are put in a month: numbers follow each other, and merges remove old packs.

    Args:
        packs: number and time of those that are stored.
    """
    (first, begun), (last, _) = min(packs), max(packs)
    return (last - first + 1) / max(1.0, now - begun) * MONTH_DAYS * 86_400


def _add(sums: dict[_Key, list[float]], key: _Key, *numbers: float) -> None:
    sums[key] = [one + other for one, other in zip(sums.get(key, (0.0,) * len(numbers)), numbers, strict=True)]
