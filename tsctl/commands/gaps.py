"""`tsctl gaps`: offsets that the store does not contain, with the reason if a gap record has one.

A gap record explains a hole but does not end it: a broker that still has the offsets ships them, and readers prefer
data. So the command reports offsets that no segment contains. `--all` adds records whose offsets were shipped later.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit_state import CommitState
from ts_common.archive.gap_records import Gap, parse_gap_name
from ts_common.archive.object_keys import GAPS_DIRECTORY
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.option_groups import with_groups
from ts_common.store.contract import ObjectStore
from ts_reader.query.bounds import loss_of
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    PartitionsOption,
    TopicsArgument,
    open_archive,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, iso
from tsctl.scan_options import IncarnationOption


class GapState(StrEnum):
    """The state of a range."""

    RECORDED = "recorded"  # no segment contains it, and a record has the reason
    UNRECORDED = "unrecorded"  # no segment contains it, and no record has the reason
    FILLED = "filled"  # a record exists, but the range was shipped later
    EXPIRED = "expired"  # a record exists, but the range is now below log start
    NO_COMMIT = CommitState.MISSING.value  # readers return no record of the partition, as in the next state
    COMMIT_DAMAGED = CommitState.DAMAGED.value


_LOST: Final = {GapState.UNRECORDED, GapState.NO_COMMIT, GapState.COMMIT_DAMAGED}
_BAD: Final = {GapState.RECORDED, *_LOST}


class FailOn(StrEnum):
    """States that make the exit code 1."""

    ANY = "any"
    UNRECORDED = "unrecorded"
    NEVER = "never"


_FAILING: Final = {FailOn.ANY: _BAD, FailOn.UNRECORDED: _LOST, FailOn.NEVER: frozenset[GapState]()}


@with_groups
def gaps(
    topics: TopicsArgument = None,
    partition: PartitionsOption = None,
    fail_on: Annotated[FailOn, typer.Option(help="Which gaps end with code 1.")] = FailOn.ANY,
    every: Annotated[
        bool, typer.Option("--all", help="Also gap records whose range was shipped or expired since.")
    ] = False,
    incarnation: IncarnationOption = NEWEST,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """List the offsets between log start and next offset that the store does not hold, and why."""
    name, numbers = given.name(), parse_partitions(partition)
    output = Output(as_json, name.whole)
    damaged: list[str] = []
    with open_archive(name, output.warn) as archive:
        held = archive.topics(topics or (), numbers, incarnation)
        asked = [(entry.store, catalog) for entry in held for catalog in entry.topic.partitions]
        states, warnings = _look(asked, damaged, output)
    for warning in (*warnings, *sorted(damaged)):
        output.warn(warning)
    found = [gap for gap in states if every or gap.state in _BAD]
    if as_json:
        fields = {"cluster": name.keys.cluster, "partitions": len(asked)}
        output.document({**fields, "gaps": list(map(_fields, found))})
    elif found:
        output.table(_COLUMNS, [_row(gap) for gap in found])
    else:
        output.text(f"no gaps; partitions checked: {len(asked)}")
    bad = {gap.state for gap in found} & _BAD
    if bad & _LOST:
        output.text("tsctl repair puts back what an earlier version in the bucket or the leader's broker has")
    if damaged or bad & _FAILING[fail_on]:
        raise typer.Exit(ExitCode.FOUND)


def _look(
    asked: Sequence[tuple[ObjectStore, PartitionCatalog]], damaged: list[str], output: Output
) -> "tuple[list[FoundGap], list[str]]":
    """Return what `find_gaps` finds in all partitions, and its warnings."""
    with output.progress("partitions", len(asked)) as advance:

        def look(one: tuple[ObjectStore, PartitionCatalog]) -> tuple[list[FoundGap], str | None]:
            found = find_gaps(*one, damaged)
            advance()
            return found

        looks = in_threads(look, asked)
    return [gap for found, _ in looks for gap in found], [warning for _, warning in looks if warning is not None]


@dataclass(frozen=True, slots=True)
class FoundGap:
    """Offsets `[start, end)` of a partition in one state.

    Attributes:
        start: first offset.
        end: the offset after the last; None if it is unknown, because the partition has no commit.
        record: the gap record with the reason, if there is one; its own range may be wider.
        problem: the reason without a record: what is wrong with the partition's commit.
    """

    partition: TopicPartition
    start: int
    end: int | None
    state: GapState
    record: Gap | None
    problem: str | None = None


def find_gaps(
    store: ObjectStore, catalog: PartitionCatalog, damaged: list[str] | None = None
) -> tuple[list[FoundGap], str | None]:
    """Return a partition's holes and gap records in order of offsets, and a warning about its view or None.

    Args:
        catalog: a snapshot of it.
        damaged: receives a message for each segment that cannot be read; None: raise instead.

    Raises:
        CorruptData: a gap record or a segment's metadata is malformed.
        ObjectNotFound: retention removed a segment after the snapshot.
        StoreUnavailable, AccessDenied: a request failed.
    """
    view = open_view(store, catalog, damaged=damaged)
    if (loss := loss_of(view)) is not None:
        end = None if loss.is_open else loss.end
        return [FoundGap(view.partition, loss.start, end, GapState(view.state.value), None, loss.reason)], None
    holes = [part for part in view.plan(view.start, view.end) if isinstance(part, Hole)]
    places = [catalog, *(place.catalog for place in catalog.former)]
    by_keys = {place.keys: _read_records(store, place) if place.gaps else [] for place in places}
    found = [
        gap
        for part in view.parts
        for hole in holes
        if part.start <= hole.start < part.end
        for gap in _parts(view.partition, hole, by_keys[part.keys])
    ]
    found += _without_hole(view, holes, by_keys[catalog.keys])
    return sorted(found, key=lambda gap: (gap.start, gap.end or 0)), view.warning


def _without_hole(view: PartitionView, holes: Sequence[Hole], records: Sequence[Gap]) -> Iterator[FoundGap]:
    """Yield the gap records whose offsets were shipped later, or have expired."""
    for record in records:
        if not any(hole.start < record.end and record.start < hole.end for hole in holes):
            state = GapState.EXPIRED if record.end <= view.start else GapState.FILLED
            yield FoundGap(view.partition, record.start, record.end, state, record)


def _parts(partition: TopicPartition, hole: Hole, records: Sequence[Gap]) -> Iterator[FoundGap]:
    """Yield the parts of a hole that a gap record explains, and those between them."""
    position = hole.start
    for record in records:
        low, high = max(position, record.start), min(hole.end, record.end)
        if low < high:
            if position < low:
                yield FoundGap(partition, position, low, GapState.UNRECORDED, None)
            yield FoundGap(partition, low, high, GapState.RECORDED, record)
            position = high
    if position < hole.end:
        yield FoundGap(partition, position, hole.end, GapState.UNRECORDED, None)


def _read_records(store: ObjectStore, catalog: PartitionCatalog) -> list[Gap]:
    """Return the gap records by offset; of two with the same start, the wider first."""
    prefix = catalog.keys.prefix + GAPS_DIRECTORY
    read = (Gap.read(store, info.key) for info in store.list(prefix) if parse_gap_name(info.key[len(prefix) :]))
    # `read` returns None for one that was removed after the listing.
    return sorted((record for record in read if record is not None), key=lambda gap: (gap.start, -gap.end))


_COLUMNS: Final = ("PARTITION", "FROM", "TO", "OFFSETS", "STATE", "TIME", "BROKER", "REASON")


def _row(gap: FoundGap) -> Sequence[str | int | None]:
    record = gap.record
    count = None if gap.end is None else gap.end - gap.start
    return (
        *(str(gap.partition), gap.start, gap.end, count, gap.state.value),
        *((iso(record.time), record.broker, record.reason) if record else (None, None, gap.problem)),
    )


def _fields(gap: FoundGap) -> dict[str, object]:
    record = gap.record
    return {
        "topic": gap.partition.topic,
        "partition": gap.partition.partition,
        "from": gap.start,
        "to": gap.end,
        "state": gap.state.value,
        "reason": record.reason if record else gap.problem,
        "time": iso(record.time) if record else None,
        "broker": record.broker if record else None,
    }
