"""`tsctl drill`: proves that the archive can be restored, by restoring a sample of it (docs/restore.md)."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from ts_common.option_groups import with_groups
from tsctl.archive_options import ArchiveOptions, JsonOption, TopicsArgument, open_archive
from tsctl.commands.restore import AtOption, EndOption
from tsctl.drill.broker import BROKER, check_kafka, throwaway_directory
from tsctl.drill.metrics import GAUGES, values_of
from tsctl.drill.report import DrillReport
from tsctl.drill.sample import newest
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, check_page, iso, write_page
from tsctl.repeats import seconds_of
from tsctl.restore.archive_plan import plan_archive, wanted_of
from tsctl.restore.documents import RestorePlan
from tsctl.run_metrics import MetricsFileOption, PushGatewayOption

_MEGABYTE: Final = 1_000_000


@with_groups
def drill(
    topics: TopicsArgument = None,
    *,
    kafka: Annotated[
        Path, typer.Option("--kafka", help="Directory of Kafka 3.9 or 4.x, with bin and libs.", metavar="DIR")
    ],
    last: Annotated[
        str,
        typer.Option(
            "--last",
            help="Restore the end of each partition: its last segment, and those with records of so long before.",
        ),
    ] = "1h",
    whole: Annotated[bool, typer.Option("--whole", help="Restore whole partitions.")] = False,
    at: AtOption = None,
    end: EndOption = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", help="For the data of the drill; default: the host's for temporary files."),
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Megabytes per second; default: no limit.")] = None,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the report as an HTML page.", metavar="FILE")
    ] = None,
    metrics_file: MetricsFileOption = None,
    push_gateway: PushGatewayOption = None,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Restore a sample into a throw-away broker on this host, read it back, and compare it with the archive.

    The broker listens on loopback only. It is ended and its data removed at the end. Exit code 1: records are lost,
    damaged or different.
    """
    output = Output(as_json)
    check_kafka(kafka)
    if file is not None:
        check_page(file, "--output")
    milliseconds = seconds_of(last, "--last") * 1000
    wanted = wanted_of(str(BROKER), 1, at, end or (), None)
    name, chosen = given.name(), topics or ()
    locations = [endpoint.location for endpoint in name.endpoints]
    report = DrillReport(name.keys.cluster, locations, str(kafka), int(time.time() * 1000))
    if metrics_file is not None:
        GAUGES.check_path(metrics_file)
    from tsctl.drill.run import Drill  # noqa: PLC0415  (librdkafka and pyarrow)

    with (
        _recorded(report, metrics_file, push_gateway, output),
        throwaway_directory(directory) as made,
        open_archive(name, output.warn) as archive,
    ):
        plan = plan_archive(given, archive, chosen, wanted, output)
        for note in plan.notes:
            output.warn(note)
        sample = plan if whole else newest(plan, milliseconds)
        report.scope = _scope(chosen, plan, last=None if whole else last)
        report.count(plan, sample)
        reader = given.reader(warn=lambda warning: output.warn(str(warning)))
        Drill(archive, reader, sample, kafka, made, report).run(None if rate is None else rate * _MEGABYTE, output)
    if file is not None:
        write_page(file, "--output", report.page())
    if as_json:
        output.document(report.fields())
    for line in report.lines():
        output.text(line)
    if report.findings:
        raise typer.Exit(ExitCode.FOUND)


@contextmanager
def _recorded(report: DrillReport, path: Path | None, gateway: str | None, output: Output) -> Iterator[None]:
    """Write the metrics of the drill at its end, whatever ends it."""
    ended = False
    try:
        yield
        ended = True
    finally:
        values = values_of(report, failed=not ended or bool(report.findings))
        if path is not None:
            GAUGES.write(path, report.cluster, values, output.warn)
        if gateway is not None:
            GAUGES.push(gateway, report.cluster, values, output.warn)


def _scope(topics: Sequence[str], plan: RestorePlan, last: str | None) -> str:
    chosen = ", ".join(topics) or "all topics"
    cut = "" if plan.at is None else f" as of {iso(plan.at)}"
    return f"{chosen}{cut}, {'whole' if last is None else f'the last {last} of each partition'}"
