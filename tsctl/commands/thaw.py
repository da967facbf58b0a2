"""`tsctl thaw`: make frozen segments of a range readable, and wait until they are.

Segments in an archive class, such as S3's GLACIER, cannot be read until the store has made a readable copy. The command
requests one for each frozen object that readers of the range need, indexes included, and waits. A thaw costs money, so
`--dry-run` shows the bytes, the cost and the time, and requests nothing. An interrupted command is run again with the
same arguments, and continues.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.view import without_commit
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.store.contract import ObjectStore
from ts_common.store.thaw_prices import ThawCost
from ts_common.store.thaw_state import ThawTier
from ts_common.wording import counted
from ts_reader.query.frozen import Span
from ts_reader.reading.archive_name import SOURCE, name_archive
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import some
from tsctl.archive import (
    ClusterOption,
    ConfigOption,
    EntropyOption,
    IncarnationOption,
    JsonOption,
    PartitionsOption,
    UrlOption,
    open_archive,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, iso, size
from tsctl.scan_options import FromOption, ToOption, parse_bounds
from tsctl.thaw.objects import ColdObject, cold_objects
from tsctl.thaw.thawing import Plan, Thawed, cost_of, finish_thaw, plan_thaw, request_thaws

_PRINTED_EVERY_SECONDS: Final = 60.0
_MOST_DAYS: Final = 3_650


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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show objects, bytes, cost and time, and request nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until all objects can be read, which may need hours.")
    ] = True,
    incarnation: IncarnationOption = NEWEST,
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the frozen segments of a topic or a range of it readable, and wait for them.

    Exit code 1: an object of the range was removed during the wait, or a partition has no commit to read it by.
    """
    problems: list[str] = []
    output, span = Output(as_json), _span(parse_bounds(start, end, problems, offsets=True))
    if not is_topic_name(topic):  # a pattern that matches more than was meant costs money
        problems.append(f"topic {topic}: it is no name of a topic; one name is expected, and no pattern")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    name, numbers = name_archive(config, url, cluster, entropy_bits), parse_partitions(partition)
    with open_archive(name, output.warn) as archive:
        catalogs = [
            (entry.store, catalog)
            for entry in archive.topics([topic], numbers, incarnation)
            for catalog in entry.topic.partitions
        ]
        lost = [warning for store, each in catalogs if (warning := _lost(store, each))]
        for warning in lost:
            output.warn(warning)
        found = in_threads(lambda one: cold_objects(*one, span), catalogs, most=4)
        objects = [each for of_partition in found for each in of_partition]
        plan = plan_thaw(objects, days, tier, time.time())
        cost = cost_of(plan)
        _show(plan, cost, "list prices", output)
        ended = None if dry_run else _run(plan, output, waits=wait)
    if as_json:
        fields = _fields(plan, cost, objects, dry_run=dry_run, waited=wait)
        further = {"again": 0, "removed": 0} if ended is None else {"again": ended.again, "removed": len(ended.removed)}
        output.document({"cluster": name.keys.cluster, **fields, **further})
    if lost or (ended is not None and ended.removed):
        raise typer.Exit(ExitCode.FOUND)


def _lost(store: ObjectStore, catalog: PartitionCatalog) -> str | None:
    """Return why readers need no segment of a partition although it has some; None if its commit is there."""
    state = catalog.commit_state(store.current_time())
    return without_commit(catalog, state) if state.is_loss else None


def _span(asked: Mapping[str, Any]) -> Span:
    return Span(
        asked.get("starting_offsets"),
        asked.get("ending_offsets"),
        asked.get("starting_timestamp"),
        asked.get("ending_timestamp"),
    )


def _show(plan: Plan, cost: ThawCost | None, prices: str, output: Output) -> None:
    """Write what is frozen, and what the thaw costs by prices of this name."""
    if not plan.frozen:
        until = _until([*plan.to_extend, *plan.readable])
        output.text(f"no object of the range is frozen{'' if until is None else f'; the first expires at {until}'}")
    by_partition: dict[str, list[ColdObject]] = {}
    for each in plan.frozen:
        by_partition.setdefault(each.keys.directory, []).append(each)
    for directory, cold in by_partition.items():
        segments = sum(each.is_segment for each in cold)
        classes = Counter(each.state.storage_class for each in cold)
        named = ", ".join(f"{count:,} in {storage_class}" for storage_class, count in classes.items())
        output.text(
            f"{directory}: {counted(segments, 'segment')} and {len(cold) - segments:,} of their indexes are frozen, "
            f"{size(sum(each.size for each in cold))} ({named})"
        )
    if plan.frozen:
        price = "no price is known for this class" if cost is None else f"{cost} at {prices}"
        requested = sum(each.size for each in plan.to_request)
        output.text(
            f"{counted(len(plan.to_request), 'object')} to request, {size(requested)}, {len(plan.in_progress):,} "
            f"requested before; tier {plan.tier}: {price}"
        )
    if plan.to_extend:
        output.text(f"{counted(len(plan.to_extend), 'readable object')} to keep for {counted(plan.days, 'day')}")


def _until(objects: Sequence[ColdObject]) -> str | None:
    """Return when the first readable copy expires."""
    first = min((each.state.until for each in objects if each.state.until is not None), default=math.inf)
    return None if first == math.inf else iso(int(first * 1000))


def _run(plan: Plan, output: Output, *, waits: bool) -> Thawed | None:
    """Send the requests, and wait; None without a wait."""
    with output.progress("requests", plan.requests) as advance:
        request_thaws(plan, advance)
    if plan.requests:
        output.text(f"{counted(plan.requests, 'thaw')} requested")
    if not plan.short:
        return None
    if not waits:
        if plan.frozen:
            output.text("the thaws run without this command; run it again to wait for them")
        return None
    total, done = len(plan.frozen), 0
    printed = time.monotonic()
    with output.progress("bytes readable", sum(each.size for each in plan.frozen), in_bytes=True) as advance:

        def thawed(objects: Sequence[ColdObject]) -> None:
            nonlocal done, printed
            done += len(objects)
            advance(sum(each.size for each in objects))
            if time.monotonic() - printed >= _PRINTED_EVERY_SECONDS:
                printed = time.monotonic()
                output.note(f"{done:,} of {counted(total, 'object')} can be read")

        ended = finish_thaw(plan, thawed, lambda later: _show_again(later, output))
    if ended.removed:
        removed = some(each.key for each in ended.removed)
        output.warn(f"{counted(len(ended.removed), 'object')} of the range, removed during the wait: {removed}")
    whole = "" if ended.removed else "all "
    output.text(f"{whole}{counted(len(ended.readable), 'object')} can be read now")
    return ended


def _show_again(plan: Plan, output: Output) -> None:
    output.text(
        f"{counted(len(plan.to_extend), 'readable object')} to keep for {counted(plan.days, 'day')}, "
        f"{len(plan.frozen):,} frozen again"
    )


def _fields(
    plan: Plan, cost: ThawCost | None, objects: Sequence[ColdObject], *, dry_run: bool, waited: bool
) -> dict[str, object]:
    return {
        "tier": plan.tier.value,
        "days": plan.days,
        "dry_run": dry_run,
        "waited": waited and not dry_run,
        "objects": len(objects),
        "frozen": len(plan.frozen),
        "frozen_bytes": sum(each.size for each in plan.frozen),
        "requested": 0 if dry_run else len(plan.to_request),
        "in_progress": len(plan.in_progress),
        "extended": 0 if dry_run else len(plan.to_extend),
        "cost": None if cost is None else round(cost.amount, 2),
        "currency": None if cost is None else cost.currency,
        "hours": None if cost is None else list(cost.hours),
    }
