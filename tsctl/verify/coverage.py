"""The coverage of one partition, in few enough values that a report can contain hundreds of partitions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.gap_records import merged
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from tsctl.verify.findings import Finding

_TIME_KNOTS = 200  # points of a partition; time is a line between them
_MILLISECONDS = 1000

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage of one partition in one incarnation.

    Attributes:
        where: `<topic>-<partition>` as in the keys.
        start: the first offset that readers return.
        end: the next offset.
        epoch: leader epoch of the commit; None without a commit of an agent.
        committed_at: milliseconds since the epoch, by the agent's clock; None if the commit has no time.
        topic_id: the topic id in the commit.
        segments: number of `.log` objects.
        held: ranges `[from, to)` that live copies contain.
        holes: ranges without a copy or a gap record.
        gaps: ranges with a gap record and without a copy.
        dead: ranges of dead tails.
        overlaps: ranges that several live copies contain.
        bytes_by_day: bytes of segments by the UTC day of their newest record, as `2024-01-31`. A segment without that
            time counts for the day when it was written.
        times: (offset, newest record's time in ms) at ends of segments; a subset, both ascending.
        tail_end: the end of the live tail; None without one.
        tail_time: ms since the epoch, when the leader's agent requested the high watermarks of its newest pack; None
            without one.
        erased: number of its erased offsets.
    """

    where: str
    topic: str
    partition: int
    prefix: str
    start: int
    end: int
    epoch: int | None = None
    committed_at: int | None = None
    topic_id: str | None = None
    segments: int = 0
    bytes: int = 0
    held: Ranges = ()
    holes: Ranges = ()
    gaps: Ranges = ()
    dead: Ranges = ()
    overlaps: Ranges = ()
    bytes_by_day: dict[str, int] = field(default_factory=dict)
    times: tuple[tuple[int, int], ...] = ()
    findings: tuple[Finding, ...] = ()
    tail_end: int | None = None
    tail_time: int | None = None
    erased: int = 0

    @property
    def directory(self) -> str:
        """The name of its topic's incarnation in keys."""
        return self.where.rpartition("-")[0]


def coverage_of(
    where: str,
    catalog: PartitionCatalog,
    view: PartitionView,
    modified: dict[str, float],
    overlaps: Iterable[tuple[int, int]],
    findings: Sequence[Finding],
) -> Coverage:
    """Return the coverage of a partition.

    Args:
        where: as in findings.
        view: the view of the snapshot.
        modified: when each segment was written, by stem, seconds since the epoch.
        overlaps: ranges that several live copies contain.
        findings: the findings about the partition.
    """
    steps = view.plan(view.start, view.end)
    ours = catalog.commit if isinstance(catalog.commit, Commit) else None
    return Coverage(
        where=where,
        topic=catalog.keys.partition.topic,
        partition=catalog.keys.partition.partition,
        prefix=catalog.keys.prefix,
        start=view.start,
        end=view.end,
        epoch=ours.epoch if ours else None,
        committed_at=ours.time if ours else None,
        topic_id=ours.topic_id if ours else None,
        segments=len(catalog.segments),
        bytes=sum(segment.size for segment in catalog.segments),
        held=merged((step.start, step.end) for step in steps if isinstance(step, ReadRange)),
        holes=merged((step.start, step.end) for step in steps if isinstance(step, Hole) and not step.recorded),
        gaps=merged((step.start, step.end) for step in steps if isinstance(step, Hole) and step.recorded),
        dead=merged(dead_ranges(view)),
        overlaps=merged(overlaps),
        bytes_by_day=_by_day(catalog, view.copies, modified),
        times=_thinned(_times(view)),
        findings=tuple(findings),
    )


def live_end(view: PartitionView, copy: SegmentCopy) -> int:
    """Return the end of the live part of a copy."""
    return view.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)


def dead_ranges(view: PartitionView) -> Iterator[tuple[int, int]]:
    """Yield the tails of copies that the commit's epochs exclude, within the view."""
    for copy in view.copies:
        alive = live_end(view, copy)
        if alive < copy.end and alive < view.end:
            yield max(alive, copy.base), copy.end


def _by_day(catalog: PartitionCatalog, copies: Sequence[SegmentCopy], modified: dict[str, float]) -> dict[str, int]:
    newest = {copy.segment: copy.metadata.time_max for copy in copies}
    days: dict[str, int] = {}
    for segment in catalog.segments:
        milliseconds = newest.get(segment)
        if milliseconds is None or milliseconds < 0:
            milliseconds = int(modified.get(segment.name.stem, 0) * _MILLISECONDS)
        day = _day(milliseconds)
        days[day] = days.get(day, 0) + segment.size
    return days


def _day(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / _MILLISECONDS, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):  # a producer may write any timestamp
        return "9999-12-31"


def _times(view: PartitionView) -> list[tuple[int, int]]:
    """Return the ends of live copies with their newest record's time; omit times that go back (a slow clock)."""
    found: list[tuple[int, int]] = []
    for copy in view.copies:
        reached, newest = live_end(view, copy), copy.metadata.time_max
        if newest is not None and (not found or (reached > found[-1][0] and newest >= found[-1][1])):
            found.append((reached, newest))
    return found


def _thinned(values: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    step = max(1, -(-len(values) // _TIME_KNOTS))
    return (*values[:-1:step], *values[-1:])
