"""`tsctl erase run`: removes the bytes of hidden records."""

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import Scheme, open_store, parse_location
from ts_common.store.options import NO_OPTIONS
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE, ArchiveName
from tsctl.archive_options import ArchiveOptions, JsonOption, open_archive
from tsctl.erase.metrics import GAUGES, values_of
from tsctl.erase.report import (
    DUE,
    REMAINING,
    VISITED,
    remaining_fields,
    remaining_rows,
    request_fields,
    visited_fields,
    visited_row,
)
from tsctl.exit_codes import ExitCode, code_of
from tsctl.output import Output, iso
from tsctl.repeats import EveryOption, interval_of, seconds_of, stopping
from tsctl.run_metrics import MetricsFileOption, PushGatewayOption, Recording
from tsctl.scan_options import MaxBatchBytesOption

if TYPE_CHECKING:
    from tsctl.erase.run import Ended, Found

GRACE: Final = "20h"


def run(
    topic: Annotated[str | None, typer.Option("--topic", help="Only requests for this topic.")] = None,
    grace: Annotated[
        str,
        typer.Option(
            "--grace",
            help="Remove what a rewritten segment replaces so long after its put: planned queries read it still.",
            metavar="TIME",
        ),
    ] = GRACE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what a run would look at, and write nothing.")
    ] = False,
    former_stores: Annotated[
        list[str] | None,
        typer.Option(
            "--former-store",
            help="Another store with older records of a restored topic, as status names it; repeatable.",
            metavar="URL",
        ),
    ] = None,
    every: EveryOption = None,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,  # noqa: ARG001  (its callback keeps it)
    metrics_file: MetricsFileOption = None,
    push_gateway: PushGatewayOption = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Rewrite segments without hidden records, and remove what they replace, after a grace.

    Exit code 1: a person must act, because a segment can only be hidden, a partition failed, or a request is late. A
    loop that a signal ends has the exit code of its last run.
    """
    output = Output(as_json)
    refused = {"--every": every, "--metrics-file": metrics_file, "--push-gateway": push_gateway}
    if dry_run and (problems := [f"{each} and --dry-run: give one of the two" for each in refused if refused[each]]):
        raise ConfigurationError(SOURCE, problems)
    name, seconds, waits = given.name(), interval_of(every), seconds_of(grace, "--grace")
    from tsctl.erase.archive_run import run_archive  # noqa: PLC0415  (pyarrow and kernels, only for this command)

    record = Recording(GAUGES, values_of, name.keys.cluster, metrics_file, push_gateway, seconds, output.warn)
    code = ExitCode.FINE
    with stopping(seconds is not None) as stopped:
        while True:
            began = time.monotonic()
            try:
                with ExitStack() as run_ends:
                    results = list["Found"]() if dry_run else run_ends.enter_context(record.run())
                    archive = run_ends.enter_context(open_archive(name, output.warn))
                    others = [run_ends.enter_context(_former_store(name, url)) for url in former_stores or ()]
                    for found in run_archive(
                        archive,
                        waits,
                        output.warn,
                        topic=topic,
                        writes=not dry_run,
                        others=others,
                        begun=results.append,
                    ):
                        _print(found, output, is_dry=dry_run)
                code = ExitCode.FOUND if any(each.is_finding or each.late for each in results) else ExitCode.FINE
            except TieredStorageError as error:
                if seconds is None:
                    raise
                output.warn(str(error))
                code = code_of(error)
            if seconds is None or stopped(max(0.0, seconds - (time.monotonic() - began))):
                break
    if code is not ExitCode.FINE:
        raise typer.Exit(code)


def _former_store(name: ArchiveName, url: str) -> ObjectStore:
    """Open a store with the options of the archive's own, if both are of S3; other stores have none."""
    are_both = all(parse_location(each).scheme is Scheme.S3 for each in (url, name.endpoints[0].location))
    return open_store(url, name.endpoints[0].options if are_both else NO_OPTIONS)


def _print(found: "Found", output: Output, *, is_dry: bool) -> None:
    """Print what a run did in one location: tables and lines of text, or one JSON line."""
    for each in found.partitions:
        if each.problem is not None:
            output.warn(f"{each.place.name}: {'' if each.must_act else 'left as it is: '}{each.problem}")
    if output.as_json:
        partitions = [visited_fields(found.location, each) for each in found.partitions]
        requests = [_fields(found, ended) for ended in found.requests]
        output.line({"location": found.location, "dry_run": is_dry, "partitions": partitions, "requests": requests})
        return
    if found.partitions:
        rows = [visited_row(found.location, each, is_dry=is_dry) for each in found.partitions]
        output.table(DUE if is_dry else VISITED, rows)
    remaining = [row for ended in found.requests for row in remaining_rows(ended.progress.request.name, ended.remains)]
    if remaining:
        output.table(REMAINING, remaining)
    if is_dry:
        return
    for ended in found.requests:
        output.text(f"{found.location}: {_sentence(found, ended)}")
    if not found.requests:
        output.text(f"{found.location}: no requests")


def _fields(found: "Found", ended: "Ended") -> dict[str, object]:
    remains = [remaining_fields(each) for each in ended.remains]
    return request_fields(found.location, ended.progress, found.now) | {"news": ended.news.value, "remains": remains}


def _sentence(found: "Found", each: "Ended") -> str:
    progress = each.progress
    late = f", and late since {iso(progress.request.due)}" if progress.is_late(found.now) else ""
    remains = f"; {counted(len(each.remains), 'object')} still stored" if each.remains else ""
    news = "" if each.news == "same" else f" ({each.news})"
    return f"{progress.request.name}: {progress.state}{news}{late}{remains}"
