"""`tsctl gc`: retention of an archive. It moves `log.start` first, and deletes objects after a grace."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.archive.gc_plans import PlannedObject, read_plan
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import (
    AccessDenied,
    ConfigurationError,
    CorruptData,
    NewerFormat,
    QueryError,
    TieredStorageError,
)
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from ts_reader.reading.topics import some
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    OpenArchive,
    open_archive,
)
from tsctl.exit_codes import ExitCode, code_of
from tsctl.gc.archive_run import LocationResult, run_archive, survey_archive
from tsctl.gc.checks import Verdict, run_checks
from tsctl.gc.deletion_log import read_log
from tsctl.gc.lease import leased
from tsctl.gc.listing import COLUMNS, cell, listed, without_log
from tsctl.gc.policy import Policy
from tsctl.gc.policy_source import check_cluster_given, missing_topics, read_policy_of
from tsctl.gc.reporting import Recording, Summary, show
from tsctl.gc.survey import Candidate
from tsctl.gc.undo import choose_undone, undo
from tsctl.option_groups import with_groups
from tsctl.output import Output, iso, size
from tsctl.repeats import EveryOption, interval_of, stopping
from tsctl.verify.run import BootstrapOption, CommandConfigOption

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
_CHECKS: Final = ("verdict", "check", "text", "location")


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
        bool, typer.Option("--ignore-fuse", help="Delete more than the policy's fuse allows.")
    ] = False,
    every: EveryOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            help="Write metrics for the textfile collector of Prometheus' node_exporter; the name ends in .prom.",
            metavar="FILE",
        ),
    ] = None,
    push_gateway: Annotated[
        str | None, typer.Option("--push-gateway", help="Push metrics to this Pushgateway.", metavar="URL")
    ] = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Delete what an earlier run planned, if its grace is over; then plan what is due now.

    Exit code 1: a partition was left out in doubt, a reader is overdue, a delete failed, or the fuse has blown. A loop
    that a signal ends has the exit code of its last run.
    """
    output = Output(as_json or objects)
    if objects and not dry_run:
        raise ConfigurationError(SOURCE, ["--objects requires --dry-run"])
    if dry_run:
        _refuse_with_dry_run(
            every=every is not None,
            ignore_fuse=ignore_fuse,
            metrics_file=metrics_file is not None,
            push_gateway=push_gateway is not None,
        )
    name = given.name()
    seconds = interval_of(every)
    read_policy_of(policy, name)  # a wrong one starts no loop
    record, code = Recording(name.keys.cluster, metrics_file, push_gateway, seconds, output), ExitCode.FINE
    kafka = _kafka(bootstrap_server, command_config)
    with stopping(seconds is not None) as stopped:
        while True:
            began = time.monotonic()
            try:
                with ExitStack() as run_ends:
                    summary = None if dry_run else run_ends.enter_context(record.run())
                    found = read_policy_of(policy, name)  # each pass follows the file as it is then
                    check_cluster_given(found, kafka)
                    archive = run_ends.enter_context(open_archive(name, output.warn))
                    if summary is None:
                        code = _dry_run(archive, found, kafka, output, with_objects=objects)
                    else:
                        code = _run(archive, found, kafka, output, summary, ignore_fuse=ignore_fuse)
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
    """List the runs that retention keeps: what they planned, and whether it was deleted or undone."""
    output = Output(as_json)
    rows: list[dict[str, Any]] = []
    with open_archive(given.name(), output.warn) as archive:
        _check_cluster(archive)
        for store in archive.stores:
            rows += [listed(store, archive.keys, found) for found in list_runs(store, archive.keys)]
    if as_json:
        output.document({"cluster": archive.keys.cluster, "runs": rows})
    elif rows:
        output.table(COLUMNS, [[cell(column, row) for column in COLUMNS] for row in rows])
    else:
        output.text("no runs")


@gc.command("undo")
@with_groups
def undo_run(
    run_name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the newest run, as `tsctl gc ls` shows it.")
    ] = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Move log.start back to where it was before the newest run, as long as nothing of its plan was deleted."""
    output = Output(as_json)
    now, done = int(time.time() * 1000), []
    with open_archive(given.name(), output.warn) as archive:
        _check_cluster(archive)
        stores = [store for store in archive.stores if run_name is None or _has_run(store, archive.keys, run_name)]
        if not stores:
            raise QueryError(f"{run_name}: there is no such run; `tsctl gc ls` lists them")
        chosen = [
            (store, choose_undone(store, archive.keys, list_runs(store, archive.keys), run_name)) for store in stores
        ]
        for store, found in chosen:
            with leased(store, archive.keys) as held:
                undone = undo(held, archive.keys, found, now)
            for skipped in undone.skipped:
                output.warn(f"{skipped.where}: left out: {skipped.reason}")
            output.text(
                f"{store.location}: {found.run}: log.start of {counted(undone.lowered, 'partition')} was moved back; "
                f"{counted(undone.unchanged, 'partition')} did not need it. The same policy moves it again: change the "
                "policy, or set a hold"
            )
            done.append((store.location, found.run, undone))
    if as_json:
        runs = [
            {"location": at, "run": name, "lowered": each.lowered, "unchanged": each.unchanged}
            for at, name, each in done
        ]
        output.document({"runs": runs})
    if any(each.skipped for _, _, each in done):
        raise typer.Exit(ExitCode.FOUND)


@gc.command("check")
@with_groups
def check(
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Check rights, conditional deletes, object lock, versions, lifecycle rules and clocks before a first run."""
    output = Output(as_json)
    name = given.name()
    rows: list[dict[str, str]] = []
    with open_archive(name, output.warn) as archive:
        try:
            _check_cluster(archive)
        except QueryError as error:  # before the first agent it is no mistake
            places = ", ".join(store.location for store in archive.stores)
            rows.append({"location": places, "check": "cluster", "verdict": str(Verdict.WARNING), "text": str(error)})
        except (AccessDenied, CorruptData, NewerFormat):
            pass  # the checks name the right, and read the layout
        for location in archive.locations:
            at = location.store.location
            rows += [
                {"location": at, "check": each.name, "verdict": str(each.verdict), "text": each.text}
                for each in run_checks(location.store, archive.keys, frozenset(location.options.storing.tags))
            ]
    if as_json:
        output.document({"checks": rows})
    else:
        output.table(("VERDICT", "CHECK", "FOUND", "LOCATION"), [[row[key] for key in _CHECKS] for row in rows])
    if any(row["verdict"] == Verdict.ERROR for row in rows):
        raise typer.Exit(ExitCode.REFUSED)


@gc.command("log")
@with_groups
def log(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="Name of the run, as `tsctl gc ls` shows it.")],
    *,
    given: ArchiveOptions,
) -> None:
    """Print what became of each object of a plan, as JSON lines: partition, name, bytes, etag, outcome."""
    output = Output(True)
    count = 0
    silent: list[str] = []
    with open_archive(given.name(), output.warn) as archive:
        _check_cluster(archive)
        for store in archive.stores:
            for found in list_runs(store, archive.keys):
                if found.run == run_name:
                    count += 1
                    lines = 0
                    for line in read_log(store, found):
                        output.line(line)
                        lines += 1
                    if not lines:
                        silent.append(f"{store.location}: {run_name}: {without_log(store, archive.keys, found)}")
    if not count:
        raise QueryError(f"{run_name}: there is no such run; `tsctl gc ls` lists them")
    for message in silent:
        output.warn(message)


def _run(
    archive: OpenArchive,
    policy: Policy,
    kafka: "KafkaCluster | None",
    output: Output,
    summary: Summary,
    *,
    ignore_fuse: bool,
) -> ExitCode:
    _check_cluster(archive)
    _warn_of_missing(archive, policy, output)
    for found in run_archive(archive, policy, kafka, ignore_fuse=ignore_fuse, begun=summary.results.append):
        _follow_store(archive, found)
        show(found, output)
    return ExitCode.FOUND if summary.is_finding else ExitCode.FINE


def _follow_store(archive: OpenArchive, found: LocationResult) -> None:
    """Give a new plan the times that later runs read: the store's clock can be ahead of this host's."""
    planned = found.result.planned
    if planned is None or planned.plan is None:
        return
    store = next(each for each in archive.stores if each.location == found.location)
    with suppress(TieredStorageError):  # the run is over, and the times by this host's clock are nearly right
        planned.plan = read_plan(store, archive.keys, planned.plan.run)


def _dry_run(
    archive: OpenArchive, policy: Policy, kafka: "KafkaCluster | None", output: Output, *, with_objects: bool
) -> ExitCode:
    """Print what is due, with the same objects that a plan would have."""
    _check_cluster(archive)
    _warn_of_missing(archive, policy, output)
    rows: list[tuple[str, int, int, int, int, str]] = []

    def show_one(candidate: Candidate, objects: Sequence[PlannedObject]) -> None:
        limit = "it is over" if candidate.over else str(candidate.limit)
        rows.append(
            (
                candidate.keys.directory,
                candidate.start,
                candidate.target,
                candidate.objects,
                candidate.bytes,
                limit,
            )
        )
        if with_objects:
            for each in objects:
                output.line({"key": candidate.keys.prefix + each.name, "bytes": each.size, "etag": each.etag})

    code, documents = ExitCode.FINE, []
    for at, found, skipped, fuse, waiting in survey_archive(archive, policy, kafka, show_one):
        for each in (*skipped, *found.skipped):
            output.warn(f"{each.where}: left out: {each.reason}")
        if fuse is not None:
            output.warn(f"the fuse would blow: {fuse}")
        if fuse is not None or any(each.why.is_finding for each in (*skipped, *found.skipped)):
            code = ExitCode.FOUND
        documents.append(
            {
                "location": at,
                "partitions": found.partitions,
                "due_partitions": len(found.candidates),
                "objects": found.objects,
                "bytes": found.bytes,
                "fuse": fuse,
                "waits": [
                    {"run": plan.run, "until": iso(plan.until), "objects": plan.objects, "bytes": plan.bytes}
                    for plan in waiting
                ],
            }
        )
        output.text(
            f"{at}: {counted(found.objects, 'object')} of {size(found.bytes)} would be planned, in "
            f"{len(found.candidates):,} of {counted(found.partitions, 'partition')} of topics with a rule"
        )
        for plan in waiting:
            output.text(
                f"{at}: plan {plan.run} waits until {iso(plan.until)}; {plan.objects:,} of these objects are in it"
            )
    if with_objects:
        return code
    if output.as_json:
        due = [dict(zip(("partition", "from", "to", "objects", "bytes", "limit"), row, strict=True)) for row in rows]
        output.document({"locations": documents, "due": due})
    elif rows:
        output.table(
            ("PARTITION", "FROM", "TO", "OBJECTS", "SIZE", "NEXT LIMIT"),
            [[*row[:4], size(row[4]), row[5]] for row in rows],
        )
    return code


def _refuse_with_dry_run(**given: bool) -> None:
    """Refuse options that a dry run would ignore.

    Raises:
        ConfigurationError: some are given; it names each.
    """
    if problems := [
        f"--{name.replace('_', '-')} and --dry-run: give one of the two" for name, is_given in given.items() if is_given
    ]:
        raise ConfigurationError(SOURCE, problems)


def _kafka(bootstrap: str | None, command_config: Path | None) -> "KafkaCluster | None":
    """Return a client of the running cluster; None if the command line does not name it.

    Raises:
        ConfigurationError: an option lacks it.
    """
    if bootstrap is None:
        if command_config is not None:
            raise ConfigurationError(SOURCE, ["--command-config requires --bootstrap-server"])
        return None
    from tsctl.verify.kafka_cluster import KafkaCluster, read_client_properties  # noqa: PLC0415  (librdkafka)

    return KafkaCluster(bootstrap, {} if command_config is None else read_client_properties(command_config))


def _warn_of_missing(archive: OpenArchive, policy: Policy, output: Output) -> None:
    """Warn of topics of the policy that the archive lacks: a misspelt rule would have no effect without a message."""
    if missing := missing_topics(policy, archive.known_names()):
        output.warn(
            f"the archive has no topic {some(missing)} today, which the policy names; its rule concerns it as soon as "
            "the archive has it"
        )


def _check_cluster(archive: OpenArchive) -> None:
    """Refuse a cluster that no store has an object of. Topics that were all collected leave the cluster's own objects.

    Raises:
        QueryError: the archive has no objects.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    if not any(any(True for _ in store.list(archive.keys.cluster_prefix)) for store in archive.stores):
        archive.names()


def _has_run(store: ObjectStore, keys: ClusterKeys, name: str) -> bool:
    return name in {run.run for run in list_runs(store, keys)}
