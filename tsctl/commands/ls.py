"""`tsctl ls`: the content of an archive, by topic, by partition or by segment.

For topics, listings are enough, with two requests for each partition that has segments above its commit. For partitions
and segments, the command also reads what each segment covers, from cache objects if they exist.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.clusters import MOST_LISTINGS, find_clusters
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import describe
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view, without_commit
from ts_common.errors import AccessDenied, ObjectNotFound, QueryError
from ts_common.option_groups import with_groups
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
from tsctl.archive_rows import (
    PARTITION_COLUMNS,
    SEGMENT_COLUMNS,
    TOPIC_COLUMNS,
    PartitionLook,
    partition_row,
    segment_rows,
    topic_fields,
    topic_row,
)
from tsctl.exit_codes import ExitCode
from tsctl.output import Output
from tsctl.scan_options import IncarnationOption, NoTailOption
from tsctl.verify.uncommitted import stuck_commit, uncommitted


class Level(StrEnum):
    """What a row describes."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    SEGMENTS = "segments"


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
    no_tail: NoTailOption = False,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """List topics, partitions or segments of the archive; with --url alone its clusters.

    Exit code 1: a partition has segments, and its commit is missing or damaged.
    """
    narrower = topics or partition or all_incarnations or (level, incarnation) != (Level.TOPICS, NEWEST)
    is_location_alone = given.url is not None and given == ArchiveOptions(url=given.url)
    if clusters or (is_location_alone and not narrower):
        # A location alone names no cluster; any valid id opens it.
        _list_clusters((given if given.url is None else replace(given, cluster="any")).name(), Output(as_json))
        return
    name, numbers = given.name(), parse_partitions(partition)
    output = Output(as_json, name.whole)
    with open_archive(name, output.warn) as archive:
        held = archive.topics(topics or (), numbers, incarnation)
        if all_incarnations:
            held = tuple(_all_lives(archive, held, numbers))
        looks = _look(held, level, output, tail=not no_tail)
        states = _states(held)
        _warn(held, states, name.stuck_after_seconds, output)
    if as_json:
        output.document(
            {"cluster": name.keys.cluster, "topics": [topic_fields(entry, looks, states) for entry in held]}
        )
    else:
        _show(held, looks, level, output)
    if any(state.is_loss for state in states.values()):
        raise typer.Exit(ExitCode.FOUND)


def _warn(held: Sequence[HeldTopic], states: Mapping[str, CommitState], stuck_after: float, output: Output) -> None:
    """Warn of partitions without a commit, and of commits that do not reach uploaded segments.

    Args:
        states: of commits, by the prefixes of partitions.
        stuck_after: seconds that a commit may need.
        output: gets the warnings.
    """
    catalogs = [catalog for entry in held for catalog in entry.topic.partitions]
    missing = [without_commit(catalog, states[catalog.keys.prefix]) for catalog in catalogs]
    stuck = in_threads(lambda one: _stuck(*one, stuck_after), _with_uncommitted(held))
    for warning in filter(None, (*missing, *stuck)):
        output.warn(warning)


def _show(held: Sequence[HeldTopic], looks: Mapping[str, PartitionLook], level: Level, output: Output) -> None:
    looked = [looks.get(catalog.keys.prefix) for entry in held for catalog in entry.topic.partitions]
    match level:
        case Level.TOPICS:
            output.table(TOPIC_COLUMNS, [topic_row(entry) for entry in held])
        case Level.PARTITIONS:
            output.table(PARTITION_COLUMNS, [partition_row(look) for look in looked if look])
        case Level.SEGMENTS:
            output.table(SEGMENT_COLUMNS, [row for look in looked if look for row in segment_rows(look)])


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
        "<cluster>/<topic>-<partition>/; check the location: bucket and base prefix are as in "
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


def _all_lives(archive: OpenArchive, held: Iterable[HeldTopic], numbers: frozenset[int] | None) -> Iterable[HeldTopic]:
    for entry in held:
        lives = max(1, len(entry.topic.incarnations.entries))
        for number in range(1, lives):
            yield from archive.topics([entry.topic.name], numbers, str(number))
        yield entry


def _look(held: Sequence[HeldTopic], level: Level, output: Output, *, tail: bool) -> dict[str, PartitionLook]:
    """Return each partition by its prefix; empty if only topics are requested."""
    if level is Level.TOPICS:
        return {}
    damaged: list[str] = []
    asked = [(entry, catalog) for entry in held for catalog in entry.topic.partitions]
    tails = {entry.store.location: TailLogs(entry.store, catalog.keys.cluster) for entry, catalog in asked if tail}
    with output.progress("partitions", len(asked)) as advance:

        def look(one: tuple[HeldTopic, PartitionCatalog]) -> PartitionLook:
            entry, catalog = one
            view = open_view(entry.store, catalog, damaged=damaged, tails=tails.get(entry.store.location))
            known = [copy for copy in (*view.copies, *view.retired) if copy.keys == catalog.keys]
            described = {copy.segment for copy in known}
            beyond = [segment for segment in catalog.segments if segment not in described]
            known += describe(entry.store, catalog.keys, beyond, catalog.cache_objects, damaged=damaged, removed=[])
            advance()
            return PartitionLook(catalog, view, tuple(sorted(known, key=lambda copy: copy.segment.name.base)))

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
