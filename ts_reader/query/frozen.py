"""Frozen segments of what a query reads: how many, how large, and the command that thaws them.

Objects in an archive class, such as Glacier, cannot be read until an operator thaws them. A listing shows the class, so
the planner finds them before any task begins. It rejects a plan only after a get has failed: some stores have such a
class and return its objects all the same, and some list no readable copies.

Without frozen segments this costs no request. Objects in an archive tier of S3's INTELLIGENT_TIERING are in no listing.
The first get of one raises `ObjectFrozen` too.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.errors import ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ByteRange, ObjectStore
from ts_common.store.retry import OPERATION_POLICY
from ts_common.wording import counted
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads

_COMMANDS: Final = 5  # in one message
# Above this number of segments the listing counts, without a HEAD for each: the message needs no exact count.
_CONFIRMED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a partition that a command names; None for no bound.

    Attributes:
        start: first offset.
        end: the offset after the last.
        since: the range begins at the first record with this timestamp, in ms, or a later one.
        until: the range ends before the first record with this timestamp, in ms, or a later one.
    """

    start: int | None = None
    end: int | None = None
    since: int | None = None
    until: int | None = None


def ranges_of(view: PartitionView, span: Span) -> tuple[ReadRange, ...]:
    """Return what a reader of a span needs, in whole segments: the metadata suffices, and no segment is read."""
    start = view.start if span.start is None else max(view.start, span.start)
    end = view.end if span.end is None else min(view.end, span.end)
    ranges = [part for part in view.plan(start, end) if not isinstance(part, Hole)]
    if span.since is not None:
        first = next((at for at, part in enumerate(ranges) if _may_reach(part, span.since)), len(ranges))
        ranges = ranges[first:]
    if span.until is not None:
        last = next((at for at, part in enumerate(ranges) if _reaches(part, span.until)), len(ranges))
        ranges = ranges[: last + 1]
    return tuple(ranges)


def _reaches(part: ReadRange, milliseconds: int) -> bool:
    """Return whether metadata shows a timestamp of a range at or after this one."""
    times = [copy.metadata.time_max for copy in part.copies]
    return any(time is not None and time >= milliseconds for time in times)


def _may_reach(part: ReadRange, milliseconds: int) -> bool:
    """Return whether a range can have a record at or after a timestamp; metadata can lack timestamps."""
    found = [copy.metadata for copy in part.copies]
    unknown = any(one.corruptions or (one.time_max is None and known_crc32c(one) is None) for one in found)
    return unknown or _reaches(part, milliseconds)


def frozen_of(ranges: Iterable[ReadRange]) -> list[ReadRange]:
    """Return the ranges with a copy that the listing shows as frozen."""
    return [part for part in ranges if any(copy.segment.is_frozen for copy in part.copies)]


def check_thawed(store: ObjectStore, ranges: Sequence[ReadRange], incarnation: str = NEWEST) -> None:
    """Check that the store returns every segment of a plan.

    Args:
        ranges: of the plan, of any partitions of one cluster.
        incarnation: of the topics, as the query names it.

    Raises:
        ObjectFrozen: some are frozen; with their number, bytes, and the command that thaws them.
        StoreUnavailable, AccessDenied: from the store.
    """
    frozen = frozen_of(ranges)
    still = _still_frozen(store, frozen) if frozen else []
    if still:
        raise ObjectFrozen(explain(store, still, ranges, incarnation))


def _still_frozen(store: ObjectStore, frozen: Sequence[ReadRange]) -> list[ReadRange]:
    """Return the ranges with a segment that the store does not return."""
    keys = list({copy.key: None for part in frozen for copy in part.copies if copy.segment.is_frozen})
    try:
        OPERATION_POLICY(lambda: store.get(keys[0], ByteRange(0, 1)))
    except (ObjectFrozen, ObjectNotFound):
        pass
    else:
        if OPERATION_POLICY(lambda: store.thaw_state(keys[0])).until is None:
            return []  # this store returns objects of the class without a thaw

    def is_frozen(key: str) -> bool:
        try:
            return OPERATION_POLICY(lambda: store.thaw_state(key)).is_frozen
        except ObjectNotFound:
            return False  # retention removed it: the read reports that

    looked = keys[:_CONFIRMED]
    confirmed = {key for key, cold in zip(looked, in_threads(is_frozen, looked), strict=True) if cold}
    if confirmed:
        confirmed.update(keys[_CONFIRMED:])
    return [part for part in frozen if any(copy.key in confirmed for copy in part.copies)]


def explain(
    store: ObjectStore, frozen: Sequence[ReadRange], ranges: Sequence[ReadRange], incarnation: str = NEWEST
) -> str:
    """Return a message about frozen segments: count, bytes, class and command; no request is sent.

    Args:
        frozen: the ranges that cannot be read; not empty.
        incarnation: of the topics, as the query names it.
    """
    copies = {copy.key: copy for part in frozen for copy in part.copies}
    cold = [copy for copy in copies.values() if copy.segment.is_frozen] or list(copies.values())[:1]
    total = len({copy.key for part in ranges for copy in part.copies})
    classes = Counter(copy.segment.storage_class or "an archive tier" for copy in cold)
    size = bytes_text(sum(copy.segment.size for copy in cold))
    named = ", ".join(f"{count:,} in {name}" for name, count in classes.most_common(3))
    partitions = len({copy.keys.prefix for copy in cold})
    where = f"{cold[0].keys.partition}" if partitions == 1 else counted(partitions, "partition")
    return (
        f"{where}: {len(cold):,} of {counted(total, 'segment')} to read, {size}, are frozen ({named}; the first is "
        f"{cold[0].key} in {store.location}), and cannot be read until they are thawed. Thaw them: "
        f"{_listed(commands_of(store, frozen, incarnation))}; "
        "then repeat the query"
    )


def _listed(commands: Sequence[str]) -> str:
    shown = "; ".join(f"`{command}`" for command in commands[:_COMMANDS])
    more = len(commands) - _COMMANDS
    return f"{shown}; and for {counted(more, 'partition')} more" if more > 0 else shown


def commands_of(store: ObjectStore, ranges: Iterable[ReadRange], incarnation: str = NEWEST) -> list[str]:
    """Return the command lines that thaw ranges, one for each partition."""
    hulls: dict[PartitionKeys, tuple[int, int]] = {}
    for part in ranges:
        keys = part.copies[0].keys
        low, high = hulls.get(keys, (part.start, part.end))
        hulls[keys] = min(low, part.start), max(high, part.end)
    return [_command(store, keys, low, high, incarnation) for keys, (low, high) in hulls.items()]


def _command(store: ObjectStore, keys: PartitionKeys, start: int, end: int, incarnation: str) -> str:
    partition, cluster = keys.partition, keys.cluster
    words = ["tsctl", "thaw", partition.topic, "-p", str(partition.partition), "--from", str(start), "--to", str(end)]
    words += [] if incarnation == NEWEST else ["--incarnation", incarnation]
    words += ["--url", store.location, "--cluster", cluster.cluster]
    return shlex.join([*words, "--entropy-bits", str(cluster.entropy_bits)] if cluster.entropy_bits else words)


def bytes_text(size: int) -> str:
    """Return a number of bytes for people, in decimal units."""
    amount, units = float(size), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 1000 and (larger := next(units, None)):
        amount, unit = amount / 1000, larger
    return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
