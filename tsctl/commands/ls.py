"""`tsctl ls`: the content of an archive, by topic, by partition or by segment.

For topics, listings are enough, with two requests for each partition that has segments above its commit. For partitions
and segments, the command also reads what each segment covers, from cache objects if they exist.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

import typer

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.clusters import MOST_LISTINGS, find_clusters
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.plan import Hole
from ts_common.archive.view import PartitionView, open_view, without_commit
from ts_common.errors import AccessDenied, ObjectNotFound, QueryError
from ts_common.store.factory import open_store
from ts_reader.options.archive_name import ArchiveName
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import (
    ArchiveOptions,
    HeldTopic,
    JsonOption,
    OpenArchive,
    PartitionsOption,
    TopicsArgument,
    open_archive,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.option_groups import with_groups
from tsctl.output import Output, iso, size
from tsctl.scan_options import IncarnationOption
from tsctl.verify.uncommitted import stuck_commit, uncommitted


class Level(StrEnum):
    """What a row describes."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    SEGMENTS = "segments"


class SegmentState(StrEnum):
    """How much of a segment readers return."""

    LIVE = "live"
    PART = "part"  # its tail is dead or beyond the next offset, or its head is below log start
    DEAD = "dead"  # no offset is live
    UNCOMMITTED = "uncommitted"  # it begins at or beyond the next offset


@with_groups
def ls(
    topics: TopicsArgument = None,
    level: Annotated[Level, typer.Option("--level", "-l", help="What each row describes.")] = Level.TOPICS,
    partition: PartitionsOption = None,
    incarnation: IncarnationOption = NEWEST,
    all_incarnations: Annotated[
        bool, typer.Option("--all-incarnations", help="Every incarnation of each topic, oldest first.")
    ] = False,
    clusters: Annotated[
        bool, typer.Option("--clusters", help="List the clusters of the location; default with --url alone.")
    ] = False,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """List topics, partitions or segments of the archive; with --url alone its clusters.

    Exit code 1: a partition has segments, and its commit is missing or damaged.
    """
    output = Output(as_json)
    narrower = topics or partition or all_incarnations or (level, incarnation) != (Level.TOPICS, NEWEST)
    is_location_alone = given.url is not None and given == ArchiveOptions(url=given.url)
    if clusters or (is_location_alone and not narrower):
        # A location alone names no cluster; any valid id opens it.
        _list_clusters((given if given.url is None else replace(given, cluster="any")).name(), output)
        return
    name, numbers = given.name(), parse_partitions(partition)
    with open_archive(name, output.warn) as archive:
        held = archive.topics(topics or (), numbers, incarnation)
        if all_incarnations:
            held = tuple(_all_lives(archive, held, numbers))
        looks = _look(held, level, output)
        states = _states(held)
        for entry in held:
            for catalog in entry.topic.partitions:
                if warning := without_commit(catalog, states[catalog.keys.prefix]):
                    output.warn(warning)
        for warning in in_threads(lambda one: _stuck(*one, name.stuck_after_seconds), _with_uncommitted(held)):
            if warning:
                output.warn(warning)
    if as_json:
        output.document(
            {"cluster": name.keys.cluster, "topics": [_topic_fields(entry, looks, states) for entry in held]}
        )
    elif level is Level.TOPICS:
        output.table(_TOPIC_COLUMNS, [_topic_row(entry) for entry in held])
    elif level is Level.PARTITIONS:
        rows = [_partition_row(looks[catalog.keys.prefix]) for entry in held for catalog in entry.topic.partitions]
        output.table(_PARTITION_COLUMNS, rows)
    else:
        looked = [looks[catalog.keys.prefix] for entry in held for catalog in entry.topic.partitions]
        output.table(_SEGMENT_COLUMNS, [row for look in looked for row in _segment_rows(look)])
    if any(state.is_loss for state in states.values()):
        raise typer.Exit(ExitCode.FOUND)


def _list_clusters(name: ArchiveName, output: Output) -> None:
    found: list[tuple[str, str]] = []
    empty: list[str] = []
    for endpoint in {endpoint.location: endpoint for endpoint in name.endpoints}.values():
        with open_store(endpoint.location, endpoint.options) as store:
            store.check()
            clusters = find_clusters(store)
        found += [(store.location, each) for each in clusters.ids]
        if not clusters.is_complete:
            output.warn(
                f"{store.location}: it has more directories than this command reads ({MOST_LISTINGS}), so a cluster "
                "that only a Java uploader wrote can be missing; --cluster NAME reads it all the same"
            )
        elif not clusters.ids:
            empty.append(store.location)
    message = (
        f"{', '.join(empty)}: no cluster found: no layout.json of an agent, and no segment or commit in a directory "
        "<cluster>/<topic>-<partition>/; check the location: bucket and base prefix are those of "
        "storage.service.endpoint.url in the agents' file"
    )
    if empty and not found:
        raise QueryError(message)
    if empty:
        output.warn(message)
    if output.as_json:
        output.document({"clusters": [{"location": location, "cluster": each} for location, each in found]})
    else:
        output.table(("LOCATION", "CLUSTER"), found)


@dataclass(frozen=True, slots=True)
class _Look:
    """A snapshot of a partition, and its view.

    Attributes:
        view: what readers see.
        copies: what each of its segments covers, including segments that readers do not use.
    """

    catalog: PartitionCatalog
    view: PartitionView
    copies: tuple[SegmentCopy, ...]

    @property
    def holes(self) -> list[Hole]:
        """Offsets of the view that no segment contains."""
        return [part for part in self.view.plan(self.view.start, self.view.end) if isinstance(part, Hole)]

    def state(self, copy: SegmentCopy) -> tuple[SegmentState, int, int]:
        """Return the state of a segment and its live offsets `[from, to)`."""
        view = self.view
        live_end = view.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)
        start, end = max(copy.base, view.start), min(live_end, view.end)
        if copy.base >= view.end:
            return SegmentState.UNCOMMITTED, copy.base, copy.base
        if start >= end:
            return SegmentState.DEAD, copy.base, copy.base
        return (SegmentState.LIVE if (start, end) == (copy.base, copy.end) else SegmentState.PART), start, end


def _all_lives(archive: OpenArchive, held: Iterable[HeldTopic], numbers: frozenset[int] | None) -> Iterable[HeldTopic]:
    for entry in held:
        lives = max(1, len(entry.topic.incarnations.entries))
        for number in range(1, lives):
            yield from archive.topics([entry.topic.name], numbers, str(number))
        yield entry


def _look(held: Sequence[HeldTopic], level: Level, output: Output) -> dict[str, _Look]:
    """Return each partition by its prefix; empty if only topics are requested."""
    if level is Level.TOPICS:
        return {}
    damaged: list[str] = []
    asked = [(entry, catalog) for entry in held for catalog in entry.topic.partitions]
    with output.progress("partitions", len(asked)) as advance:

        def look(one: tuple[HeldTopic, PartitionCatalog]) -> _Look:
            entry, catalog = one
            view = open_view(entry.store, catalog, damaged=damaged)
            known = [*view.copies, *view.retired]
            described = {copy.segment for copy in known}
            beyond = [segment for segment in catalog.segments if segment not in described]
            known += describe(entry.store, catalog.keys, beyond, catalog.cache_objects, damaged=damaged, removed=[])
            advance()
            return _Look(catalog, view, tuple(sorted(known, key=lambda copy: copy.segment.name.base)))

        looks = in_threads(look, asked)
    views = [found.view for found in looks]
    warnings = [view.warning for view in views if view.warning and view.state is CommitState.COMMITTED]
    for warning in (*warnings, *sorted(set(damaged))):
        output.warn(warning)
    return {found.catalog.keys.prefix: found for found in looks}


def _states(held: Iterable[HeldTopic]) -> dict[str, CommitState]:
    """Return the state of each partition's commit by its prefix."""
    return {
        catalog.keys.prefix: catalog.commit_state(entry.store.current_time())
        for entry in held
        for catalog in entry.topic.partitions
    }


def _with_uncommitted(held: Iterable[HeldTopic]) -> list[tuple[HeldTopic, PartitionCatalog]]:
    return [(entry, catalog) for entry in held for catalog in entry.topic.partitions if uncommitted(catalog)]


def _stuck(entry: HeldTopic, catalog: PartitionCatalog, after_seconds: float) -> str | None:
    """Return a warning if the commit does not reach uploaded segments for too long; it sends two requests."""
    first = catalog.keys.segment(uncommitted(catalog)[0].name)
    try:
        written = entry.store.head(first).modified
        committed_at = entry.store.head(catalog.keys.commit).modified
    except (AccessDenied, ObjectNotFound):
        return None
    found = stuck_commit(catalog, [written], committed_at, time.time(), after_seconds)
    return f"{catalog.keys.partition}: {found}; readers do not see them (tsctl verify)" if found else None


_TOPIC_COLUMNS: Final = ("TOPIC", "INCARNATION", "PARTITIONS", "SEGMENTS", "SIZE", "OFFSETS", "GAPS", "LAST COMMIT")


def _topic_row(entry: HeldTopic) -> tuple[str | int | None, ...]:
    catalogs = entry.topic.partitions
    number, lives = _life(entry)
    return (
        entry.topic.name,
        f"{number} of {lives}" if lives > 1 else None,
        len(catalogs),
        sum(len(catalog.segments) for catalog in catalogs),
        size(sum(segment.size for catalog in catalogs for segment in catalog.segments)),
        _offsets(catalogs),
        sum(len(catalog.gaps) for catalog in catalogs),
        iso(_last_commit(catalogs)),
    )


def _topic_fields(entry: HeldTopic, looks: dict[str, _Look], states: dict[str, CommitState]) -> dict[str, object]:
    catalogs = entry.topic.partitions
    number, lives = _life(entry)
    life = entry.topic.incarnations.entries[number - 1] if entry.topic.incarnations.entries else None
    fields: dict[str, object] = {
        "topic": entry.topic.name,
        "location": entry.store.location,
        "incarnation": number,
        "incarnations": lives,
        "topic_id": life.topic_id if life else None,
        "first_seen": iso(life.first_seen) if life else None,
        "directory": entry.topic.directory,
        "segments": sum(len(catalog.segments) for catalog in catalogs),
        "bytes": sum(segment.size for catalog in catalogs for segment in catalog.segments),
        "offsets": _offsets(catalogs),
        "gap_records": sum(len(catalog.gaps) for catalog in catalogs),
        "last_commit": iso(_last_commit(catalogs)),
    }
    partitions = [
        {**_partition_fields(catalog, looks.get(catalog.keys.prefix)), "commit": states[catalog.keys.prefix].value}
        for catalog in catalogs
    ]
    return {**fields, "partitions": partitions}


_PARTITION_COLUMNS: Final = (
    *("PARTITION", "LOG START", "NEXT OFFSET", "STABLE", "EPOCH", "SEGMENTS", "SIZE", "RECORDS", "FROM", "TO"),
    *("HOLES", "LAST COMMIT"),
)


def _partition_row(look: _Look) -> tuple[str | int | None, ...]:
    catalog, view = look.catalog, look.view
    commit = catalog.commit if isinstance(catalog.commit, Commit) else None
    return (
        str(catalog.keys.partition),
        view.start if catalog.commit else catalog.log_start,
        view.end if catalog.commit else None,
        view.last_stable_offset,
        commit.epoch if commit else None,
        len(catalog.segments),
        size(sum(segment.size for segment in catalog.segments)),
        _records(view.copies),
        iso(_earliest(view.copies)),
        iso(_latest(view.copies)),
        len(look.holes),
        iso(commit.time) if commit else None,
    )


def _partition_fields(catalog: PartitionCatalog, look: _Look | None) -> dict[str, object]:
    commit = catalog.commit if isinstance(catalog.commit, Commit) else None
    fields: dict[str, object] = {
        "partition": catalog.keys.partition.partition,
        "prefix": catalog.keys.prefix,
        "log_start": catalog.log_start,
        "next_offset": commit.next_offset if commit else None,
        "last_stable_offset": commit.last_stable_offset if commit else None,
        "epoch": commit.epoch if commit else None,
        "epochs": [list(pair) for pair in commit.epochs] if commit else [],
        "committed_by": _committed_by(catalog),
        "committed_at": iso(commit.time) if commit else None,
        "broker": commit.broker if commit else None,
        "segments": len(catalog.segments),
        "bytes": sum(segment.size for segment in catalog.segments),
        "gap_records": [{"from": start, "to": end} for start, end in catalog.gaps],
    }
    if look is None:
        return fields
    return {
        **fields,
        "start": look.view.start,
        "end": look.view.end,
        "records": _records(look.view.copies),
        "time_min": iso(_earliest(look.view.copies)),
        "time_max": iso(_latest(look.view.copies)),
        "holes": [{"from": hole.start, "to": hole.end, "recorded": hole.recorded} for hole in look.holes],
        "segment_list": [_segment_fields(look, copy) for copy in look.copies],
    }


_SEGMENT_COLUMNS: Final = (
    *("PARTITION", "SEGMENT", "END", "STATE", "LIVE FROM", "LIVE TO", "SIZE", "RECORDS", "FROM", "TO", "EPOCHS"),
    "INDEXES",
)


def _segment_rows(look: _Look) -> Iterable[tuple[str | int | None, ...]]:
    for copy in look.copies:
        state, start, end = look.state(copy)
        metadata = copy.metadata
        yield (
            str(copy.keys.partition),
            copy.segment.name.stem,
            copy.end,
            state.value,
            start if start < end else None,
            end if start < end else None,
            size(copy.segment.size),
            metadata.records,
            iso(metadata.time_min),
            iso(metadata.time_max),
            ",".join(str(epoch) for epoch, _ in metadata.epochs or ()),
            ",".join(sorted(suffix.removeprefix(".") for suffix in copy.segment.suffixes)),
        )


def _segment_fields(look: _Look, copy: SegmentCopy) -> dict[str, object]:
    state, start, end = look.state(copy)
    metadata, segment = copy.metadata, copy.segment
    return {
        "key": copy.key,
        "base": copy.base,
        "end": copy.end,
        "state": state.value,
        "live": [start, end] if start < end else None,
        "bytes": segment.size,
        "records": metadata.records,
        "time_min": iso(metadata.time_min),
        "time_max": iso(metadata.time_max),
        "epochs": None if metadata.epochs is None else [list(pair) for pair in metadata.epochs],
        "variant": segment.name.epoch is not None,
        "indexes": sorted(suffix.removeprefix(".") for suffix in segment.suffixes),
        "corruptions": metadata.corruptions,
        "crc32c": None if metadata.rebuilt else f"{metadata.crc32c:08x}",
        "storage_class": segment.storage_class,
        "frozen": segment.is_frozen,
    }


def _life(entry: HeldTopic) -> tuple[int, int]:
    """Return the number of the topic's incarnation, from 1, and how many there are."""
    entries = entry.topic.incarnations.entries
    found = (number for number, life in enumerate(entries, 1) if life.directory == entry.topic.directory)
    return next(found, 1), max(1, len(entries))


def _offsets(catalogs: Iterable[PartitionCatalog]) -> int | None:
    """Return how many offsets readers see; None if a commit does not contain its end."""
    count = 0
    for catalog in catalogs:
        match catalog.commit:
            case Commit(next_offset=end):
                count += max(0, end - (catalog.start or 0))
            case ForeignCommit():
                return None
            case None:
                pass
    return count


def _last_commit(catalogs: Iterable[PartitionCatalog]) -> int | None:
    return max((catalog.commit.time for catalog in catalogs if isinstance(catalog.commit, Commit)), default=None)


def _committed_by(catalog: PartitionCatalog) -> str | None:
    match catalog.commit:
        case Commit():
            return "agent"
        case ForeignCommit():
            return "java"
        case None:
            return None


def _records(copies: Sequence[SegmentCopy]) -> int | None:
    """Return the sum of the segments' records, with control records and overlaps; None if a segment has no count."""
    return _all_known(sum, [copy.metadata.records for copy in copies])


def _earliest(copies: Sequence[SegmentCopy]) -> int | None:
    """Return the least timestamp; None unless all segments have theirs."""
    return _all_known(min, [copy.metadata.time_min for copy in copies])


def _latest(copies: Sequence[SegmentCopy]) -> int | None:
    """Return the greatest timestamp in the segments' metadata."""
    return max((copy.metadata.time_max for copy in copies if copy.metadata.time_max is not None), default=None)


def _all_known(function: Callable[[Iterable[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return function(known) if known and len(known) == len(values) else None
