"""`tsctl thaw`: make frozen segments of a range readable, and wait until they are.

Segments in an archive class, such as S3's GLACIER, cannot be read until the store has made a readable copy. The command
requests one for each frozen object that readers of the range need, indexes included, and waits. An interrupted command
is run again with the same arguments, and continues.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain, starmap
from typing import Annotated, Final

import typer

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.view import without_commit
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.option_groups import with_groups
from ts_common.store.contract import ObjectStore
from ts_common.store.thaw_state import ThawTier
from ts_common.wording import counted, some
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.frozen import Span
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    PartitionsOption,
    open_archive,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, size
from tsctl.scan_options import FromOption, IncarnationOption, ToOption, parse_bounds
from tsctl.thaw.objects import ColdObject, cold_objects
from tsctl.thaw.thawing import Thaw, check_tier

_MOST_DAYS: Final = 3_650


@with_groups
def thaw(
    topic: Annotated[str, typer.Argument(help="Name of the topic; no pattern.")],
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=_MOST_DAYS, help="How long the objects can be read afterwards.")
    ] = 7,
    tier: Annotated[
        ThawTier, typer.Option("--tier", help="How fast: Bulk is the cheapest, Expedited the dearest.")
    ] = ThawTier.STANDARD,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show objects and bytes, and request nothing.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until all objects can be read, which may need hours.")
    ] = True,
    incarnation: IncarnationOption = NEWEST,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Make the frozen segments of a topic or a range of it readable, and wait for them.

    Exit code 1: an object of the range was removed during the wait, or a partition has no commit to read it by.
    """
    output, span = Output(as_json), _checked_span(topic, start, end)
    name, numbers = given.name(), parse_partitions(partition)
    with open_archive(name, output.warn) as archive:
        held = archive.topics([topic], numbers, incarnation)
        catalogs = [(entry.store, catalog) for entry in held for catalog in entry.topic.partitions]
        lost = [*filter(None, starmap(_lost, catalogs))]
        for warning in lost:
            output.warn(warning)
        objects = [*chain.from_iterable(in_threads(lambda one: cold_objects(*one, span), catalogs, most=4))]
        check_tier(objects, tier)
        frozen = _show(objects, output)
        work = Thaw(days, tier)
        requested = 0 if dry_run else work.request(objects)
        if requested:
            output.text(f"{counted(requested, 'thaw')} requested")
        waits = wait and not dry_run and bool(frozen or requested)
        removed = _wait(work, objects, len(frozen), output) if waits else []
    if as_json:
        asked = {"tier": tier.value, "days": days, "dry_run": dry_run, "waited": wait and not dry_run}
        done = {"objects": len(objects), **_sums(frozen), "requested": requested, "removed": len(removed)}
        output.document({"cluster": name.keys.cluster, **asked, **done})
    if lost or removed:
        raise typer.Exit(ExitCode.FOUND)


def _lost(store: ObjectStore, catalog: PartitionCatalog) -> str | None:
    """Return why readers need no segment of a partition although it has some; None if its commit is there."""
    state = catalog.commit_state(store.current_time())
    return without_commit(catalog, state) if state.is_loss else None


def _sums(frozen: Sequence[ColdObject]) -> dict[str, int]:
    return {
        "frozen": len(frozen),
        "frozen_bytes": sum(each.size for each in frozen),
        "in_progress": sum(each.state.is_thawing for each in frozen),
    }


def _checked_span(topic: str, start: str | None, end: str | None) -> Span:
    """Return the range that the options name.

    Raises:
        ConfigurationError: it is no range, or the topic is a pattern, which can match more than was meant.
    """
    problems: list[str] = []
    asked = parse_bounds(start, end, problems, offsets=True)
    if not is_topic_name(topic):
        problems.append(f"topic {topic}: it is no name of a topic; one name is expected, and no pattern")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    return Span(
        asked.get("starting_offsets"),
        asked.get("ending_offsets"),
        asked.get("starting_timestamp"),
        asked.get("ending_timestamp"),
    )


def _show(objects: Sequence[ColdObject], output: Output) -> list[ColdObject]:
    """Write a line for each partition with frozen objects, and return these."""
    frozen = [each for each in objects if each.state.is_frozen]
    if not frozen:
        output.text("no object of the range is frozen")
    by_partition: dict[str, list[ColdObject]] = {}
    for each in frozen:
        by_partition.setdefault(each.keys.directory, []).append(each)
    for directory, cold in by_partition.items():
        classes = Counter(each.state.storage_class for each in cold)
        named = ", ".join(f"{count:,} in {storage_class}" for storage_class, count in classes.items())
        running = sum(each.state.is_thawing for each in cold)
        output.text(
            f"{directory}: {counted(len(cold), 'frozen object')}, {size(sum(each.size for each in cold))} ({named}); "
            f"thaws in progress: {running:,}"
        )
    return frozen


def _wait(work: Thaw, objects: Sequence[ColdObject], frozen: int, output: Output) -> list[ColdObject]:
    """Wait for all objects, and return those that were removed meanwhile."""
    with output.progress("objects readable", frozen) as advance:
        readable = {each.place for each in work.wait(objects, advance)}
    removed = [each for each in objects if each.place not in readable]
    if removed:
        names = some(sorted(each.key for each in removed))
        output.warn(f"{counted(len(removed), 'object')} of the range, removed during the wait: {names}")
    output.text(f"{'' if removed else 'all '}{counted(len(readable), 'object')} can be read now")
    return removed
