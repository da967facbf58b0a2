"""What one partition's archive looks like as a whole: few enough values that hundreds of partitions fit one report."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.gap_records import merged
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import PartitionView
from tsctl.verify.findings import Finding

_TIME_KNOTS = 200  # of a partition, between which time is drawn as a line over offsets
_MILLISECONDS = 1000

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """One partition in one incarnation, as verify saw it.

    Attributes:
        where: `<topic>-<partition>` as in the keys.
        topic: the topic's name.
        partition: its number.
        prefix: of its keys.
        start: first offset that readers show.
        end: the next offset.
        epoch: leader epoch of the commit; None where there is none of ours.
        committed_at: milliseconds since the epoch, the agent's clock; None where the commit does not say.
        topic_id: of the commit.
        segments: `.log` objects.
        bytes: of those.
        held: ranges `[from, to)` that living copies answer for.
        holes: that nothing explains.
        gaps: that a record explains, and no copy fills.
        dead: offsets of dead tails.
        overlaps: offsets that several living copies answer for.
        bytes_by_day: bytes of segments by the UTC day of their newest record, `2024-01-31`; of those without one,
            of when they were written.
        times: (offset, newest record's time in ms) at ends of segments, thinned out, both ascending.
        findings: about it.
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


def coverage_of(
    where: str,
    catalog: PartitionCatalog,
    view: PartitionView,
    modified: dict[str, float],
    overlaps: Iterable[tuple[int, int]],
    findings: Sequence[Finding],
) -> Coverage:
    """Put together what is known of a partition.

    Args:
        where: as in findings.
        catalog: its snapshot.
        view: of that.
        modified: when each segment was written, by stem, seconds since the epoch.
        overlaps: ranges that several living copies answer for.
        findings: about it.
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
    """Where the living part of a copy ends."""
    return view.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)


def dead_ranges(view: PartitionView) -> Iterator[tuple[int, int]]:
    """The tails of copies that the commit's epochs kill, as far as they lie in the view."""
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
    """Ends of living copies with their newest record's time; those that go back (a slow clock) are left out."""
    found: list[tuple[int, int]] = []
    for copy in view.copies:
        reached, newest = live_end(view, copy), copy.metadata.time_max
        if newest is not None and (not found or (reached > found[-1][0] and newest >= found[-1][1])):
            found.append((reached, newest))
    return found


def _thinned(values: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    step = max(1, -(-len(values) // _TIME_KNOTS))
    return (*values[:-1:step], *values[-1:])
