"""`tsctl gc`: retention of an archive. It hides what a policy no longer needs, and deletes it after a grace."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.archive.clusters import find_clusters
from ts_common.archive.directories import entropy_widths
from ts_common.archive.holds import Hold, check_reason
from ts_common.archive.object_keys import PartitionKeys
from ts_common.errors import (
    AccessDenied,
    ConfigurationError,
    CorruptData,
    NewerFormat,
    QueryError,
    TieredStorageError,
)
from ts_common.option_groups import with_groups
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE, ArchiveName
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    OpenArchive,
    chooser,
    open_archive,
)
from tsctl.exit_codes import ExitCode, code_of
from tsctl.gc.archive_run import (
    LocationResult,
    fields_of,
    held_retention,
    list_states,
    print_result,
    run_archive,
    show_hidden,
    survey_archive,
)
from tsctl.gc.checks import Check, Verdict, run_checks
from tsctl.gc.metrics import GAUGES, values_of
from tsctl.gc.partition import Step, Visit
from tsctl.gc.policy import Policy
from tsctl.gc.policy_source import check_policy, findings_of, read_policy_of
from tsctl.gc.report import SUFFIX, list_reports, read_report
from tsctl.gc.retention import Skipped
from tsctl.gc.run import Found
from tsctl.holds import add_hold, list_holds
from tsctl.output import Output, iso, size
from tsctl.repeats import EveryOption, interval_of, stopping
from tsctl.run_metrics import MetricsFileOption, PushGatewayOption, Recording
from tsctl.verify.run import BootstrapOption, CommandConfigOption, named_cluster

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

gc = typer.Typer(no_args_is_help=True, help="Retention: delete what a policy no longer needs, after a grace.")

PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        help="The policy, a YAML file (docs/retention.md); default: the Java uploader's keys in the file of --config.",
        metavar="FILE",
    ),
]
_NO_CLUSTER: Final = "the policy needs the running cluster: give --bootstrap-server"
_STATES: Final = ("PARTITION", "STATE", "FLOOR", "START", "SINCE", "LOCATION")
_STEPS: Final = {Step.SHOW: "show again", Step.BEGIN: "begin the grace"}
_DRY_RUN: Final = ("partition", "step", "start", "new_start", "objects", "bytes", "limit")


@gc.command("run")
@with_groups
def run(
    policy: PolicyOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what is due, and change nothing. With --objects: each object.")
    ] = False,
    objects: Annotated[
        bool, typer.Option("--objects", help="With --dry-run: print each object, as JSON lines.")
    ] = False,
    ignore_fuse: Annotated[
        bool, typer.Option("--ignore-fuse", help="Hide more than the policy's fuses allow.")
    ] = False,
    every: EveryOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    metrics_file: MetricsFileOption = None,
    push_gateway: PushGatewayOption = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Delete what an earlier run hid, if its grace is over; then hide what is due now.

    Exit code 1: a partition was left out in doubt, a reader is overdue, a delete failed, a fuse has blown, or a rule or
    hold matches no topic. A loop that a signal ends has the exit code of its last run.
    """
    output = Output(as_json or objects)
    refused = {
        "--every": every,
        "--ignore-fuse": ignore_fuse,
        "--metrics-file": metrics_file,
        "--push-gateway": push_gateway,
    }
    problems = [
        f"{each} and --dry-run: give one of the two" for each, value in refused.items() if value not in {None, False}
    ]
    if not dry_run:
        problems = ["--objects requires --dry-run"] if objects else []
    if problems:
        raise ConfigurationError(SOURCE, problems)
    name = given.name()
    seconds = interval_of(every)
    read_policy_of(policy, name)  # a wrong one starts no loop
    record = Recording(GAUGES, values_of, name.keys.cluster, metrics_file, push_gateway, seconds, output.warn)
    code = ExitCode.FINE
    kafka = named_cluster(bootstrap_server, command_config)
    with stopping(seconds is not None) as stopped:
        while True:
            began = time.monotonic()
            try:
                with ExitStack() as run_ends:
                    results = None if dry_run else run_ends.enter_context(record.run())
                    found = _policy(policy, name, kafka)  # each pass follows the file as it is then
                    archive = run_ends.enter_context(open_archive(name, output.warn))
                    findings = _compared(archive, found)
                    if results is None:
                        code = _dry_run(archive, found, kafka, findings, output, with_objects=objects)
                    else:
                        code = _run(archive, found, kafka, findings, output, results, ignore_fuse=ignore_fuse)
            except TieredStorageError as error:
                if seconds is None:
                    raise
                output.warn(str(error))
                code = code_of(error)
            if seconds is None or stopped(max(0.0, seconds - (time.monotonic() - began))):
                break
    if code is not ExitCode.FINE:
        raise typer.Exit(code)


@gc.command("ls")
@with_groups
def ls(
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """List the partitions that retention wrote: hidden, if records can be shown again, else released."""
    output = Output(as_json)
    rows: list[dict[str, Any]] = []
    with open_archive(given.name(), output.warn) as archive:
        _check_cluster(archive)
        for store in archive.stores:
            rows += [{**each, "location": store.location} for each in list_states(store, archive.keys)]
    for row in rows:
        row["since"] = iso(row["since"])
    if as_json:
        output.document({"cluster": archive.keys.cluster, "partitions": rows})
    elif rows:
        output.table(_STATES, [[row[column.lower()] for column in _STATES] for row in rows])
    else:
        output.text("retention has hidden and released nothing")


@gc.command("undo")
@with_groups
def undo(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC|PATTERN]...", help="Names, or regular expressions.")
    ] = None,
    every_topic: Annotated[bool, typer.Option("--all", help="All topics of the cluster.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why: the hold keeps it.")] = "",
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Set a hold on topics, and show again at once what retention hid of them and has not begun to delete."""
    output = Output(as_json)
    if every_topic is bool(topics):
        raise ConfigurationError(SOURCE, ["give topics or patterns, or --all"])
    if not reason.strip():
        raise ConfigurationError(SOURCE, ["--reason is missing: the hold has it, for others"])
    chosen, now = tuple(topics or [".*"]), int(time.time() * 1000)
    wants, results = chooser(chosen), []
    try:
        hold = Hold(name=f"undo-{now}", topics=chosen, reason=check_reason(reason), time=now)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [str(error)]) from error
    with open_archive(given.name(), output.warn) as archive:
        _check_cluster(archive)
        if not any(map(wants, archive.known_names())):
            raise QueryError(f"the archive has no topic {', '.join(chosen)}; tsctl ls lists them")
        add_hold(archive.stores, archive.keys, hold, output.warn)
        for found in show_hidden(archive, held_retention(archive, now), wants):
            results.append(found)
            for skipped in found.report.skipped:
                if skipped.why.is_finding:
                    output.warn(f"{skipped.where}: {skipped.reason}")
            shown = counted(found.report.did["shown"], "partition")
            none = "" if found.report.did["shown"] else "; nothing was hidden, and what is released stays so"
            output.text(f"{found.location}: hold {hold.name} is set, {shown} shown again{none}")
            output.text(f"{found.location}: report: tsctl gc log {found.report.run}")
    output.text(f"retention keeps these topics until: tsctl hold rm {hold.name} --reason ...")
    if as_json:
        locations = [{"location": each.location, **fields_of(each)} for each in results]
        output.document({"hold": hold.name, "locations": locations})
    if any(each.is_finding for each in results):
        raise typer.Exit(ExitCode.FOUND)


@gc.command("check")
@with_groups
def check(
    policy: PolicyOption = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Check rights, conditional deletes, object lock, versions, lifecycle rules and clocks before a first run."""
    output, name = Output(as_json), given.name()
    found: list[tuple[str, Check]] = []
    with open_archive(name, output.warn) as archive:
        try:
            _check_cluster(archive)
        except QueryError as error:  # before the first agent of the first cluster it is no mistake
            is_wrong = any(find_clusters(store).ids for store in archive.stores)
            one = Check(Verdict.ERROR if is_wrong else Verdict.WARNING, "cluster", str(error))
            found.append((", ".join(store.location for store in archive.stores), one))
        except (AccessDenied, CorruptData, NewerFormat):
            pass  # the checks name the right, and read the layout
        else:
            if policy is not None:
                check_policy(read_policy_of(policy, name), archive.keys.cluster, archive.known_names())
        for location in archive.locations:
            tags = frozenset(location.options.storing.tags)
            found += [(location.store.location, each) for each in run_checks(location.store, archive.keys, tags)]
    if as_json:
        output.document(
            {
                "checks": [
                    {"location": at, "check": each.name, "verdict": str(each.verdict), "text": each.text}
                    for at, each in found
                ]
            }
        )
    else:
        rows = [[str(each.verdict), each.name, each.text, at] for at, each in found]
        output.table(("VERDICT", "CHECK", "FOUND", "LOCATION"), rows)
    if any(each.verdict is Verdict.ERROR for _, each in found):
        raise typer.Exit(ExitCode.REFUSED)


@gc.command("log")
@with_groups
def log(
    run_name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the run, as the run printed it; default: list them.")
    ] = None,
    *,
    given: ArchiveOptions,
) -> None:
    """Print the report of a run, as JSON lines: what it hid, showed, deleted and left out, and why."""
    output, count = Output(True), 0
    with open_archive(given.name(), output.warn) as archive:
        _check_cluster(archive)
        for store in archive.stores:
            reports = list_reports(store, archive.keys) if run_name is None else ()
            for info in sorted(reports, key=lambda info: info.modified, reverse=True):
                name = info.key.removeprefix(archive.keys.gc).removesuffix(SUFFIX)
                output.row({"run": name, "bytes": info.size, "location": store.location})
            for line in read_report(store, archive.keys, run_name) if run_name is not None else ():
                output.row(line)
                count += 1
    if run_name is not None and not count:
        raise QueryError(f"{run_name}: there is no report of such a run; own.reports of the policy removes old ones")


def _policy(path: Path | None, name: ArchiveName, kafka: "KafkaCluster | None") -> Policy:
    found = read_policy_of(path, name)
    if kafka is None and found.needs_kafka:
        raise ConfigurationError(SOURCE, [_NO_CLUSTER])
    return found


def _compared(archive: OpenArchive, policy: Policy) -> list[Skipped]:
    """Return what a policy and the holds name, and the archive lacks."""
    _check_cluster(archive)
    _check_widths(archive)
    topics, now = archive.known_names(), int(time.time() * 1000)
    check_policy(policy, archive.keys.cluster, topics)
    holds = [each.hold for each in list_holds(archive.stores, archive.keys, now, damaged=lambda _: None)]
    return [Skipped("policy", each) for each in findings_of(policy, topics, holds)]


def _run(
    archive: OpenArchive,
    policy: Policy,
    kafka: "KafkaCluster | None",
    findings: Sequence[Skipped],
    output: Output,
    results: list[LocationResult],
    *,
    ignore_fuse: bool,
) -> ExitCode:
    begun = results.append
    for found in run_archive(archive, policy, kafka, findings, output.warn, ignore_fuse=ignore_fuse, begun=begun):
        print_result(found, policy.grace, output)
    return ExitCode.FOUND if any(each.is_finding for each in results) else ExitCode.FINE


def _dry_run(
    archive: OpenArchive,
    policy: Policy,
    kafka: "KafkaCluster | None",
    findings: Sequence[Skipped],
    output: Output,
    *,
    with_objects: bool,
) -> ExitCode:
    """Print what a run would do at this moment."""
    rows: list[dict[str, Any]] = []

    def show_one(keys: PartitionKeys, visit: Visit) -> None:
        if not with_objects:
            rows.extend({**dict.fromkeys(_DRY_RUN), "partition": keys.directory, **row} for row in _dry_rows(visit))
            return
        for step, objects in (("delete", visit.removed), ("hide", visit.due)):
            for each in objects:
                output.row({"key": each.key, "bytes": each.size, "etag": each.etag, "step": step})

    results = []
    for found in survey_archive(archive, policy, kafka, findings, show_one):
        results.append(found)
        for skipped in found.report.skipped:
            output.warn(f"{skipped.where}: {skipped.reason}")
        if found.found.fuse is not None:
            output.warn(f"the fuse would blow: {found.found.fuse}")
        output.text(f"{found.location}: {_would(found.found)}")
    if output.as_json and not with_objects:
        output.document(
            {"locations": [{"location": each.location, **fields_of(each)} for each in results], "due": rows}
        )
    elif rows:
        columns = [each.replace("_", " ").upper() for each in _DRY_RUN]
        sizes = ({**row, "bytes": None if row["bytes"] is None else size(row["bytes"])} for row in rows)
        output.table(columns, [list(row.values()) for row in sizes])
    return ExitCode.FOUND if any(each.is_finding for each in results) else ExitCode.FINE


def _would(due: Found) -> str:
    if not (due.objects or due.going):
        return f"nothing is due to hide or to delete; partitions checked, of topics with a rule: {due.partitions}"
    return (
        f"a run would hide {counted(due.objects, 'object')} of {size(due.due_bytes)} and delete {due.going:,} of "
        f"{size(due.going_bytes)}, in {counted(due.partitions, 'partition')} of topics with a rule"
    )


def _dry_rows(visit: Visit) -> Iterator[dict[str, Any]]:
    """Yield what a run would do in a partition."""
    start, new_start = visit.moves or (None, None)
    if visit.step in _STEPS:
        yield {"step": _STEPS[visit.step], "start": start, "new_start": new_start}
    if visit.removed:
        yield {"step": "delete", "objects": len(visit.removed), "bytes": sum(info.size for info in visit.removed)}
    if (due := visit.candidate) is not None:
        limit = "it is over" if due.limit is None else str(due.limit)
        moves = {"step": "hide", "start": due.start, "new_start": due.target}
        yield {**moves, "objects": due.objects, "bytes": due.bytes, "limit": limit}


def _check_cluster(archive: OpenArchive) -> None:
    """Refuse a cluster that no store has an object of. Topics that were all collected leave the cluster's own objects.

    Raises:
        QueryError: the archive has no objects.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    if not any(any(True for _ in store.list(archive.keys.cluster_prefix)) for store in archive.stores):
        archive.names()


def _check_widths(archive: OpenArchive) -> None:
    """Refuse a cluster with keys of several widths: agents write the layout, and copies of `log.start` have no width.

    Raises:
        QueryError: a store has keys of another width.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    own = max(archive.keys.entropy_bits, 0)
    for store in archive.stores:
        if others := sorted(entropy_widths(store, archive.keys.cluster) - {own}):
            raise QueryError(
                f"{store.location} has keys of cluster {archive.keys.cluster} with "
                f"{', '.join(counted(bits, 'entropy bit') for bits in others)}, and {archive.keys.layout} has {own}; "
                "find out which are right before anything is deleted"
            )
