"""`tsctl restore`: puts a lost cluster back as files, at its original offsets (docs/restore.md).

`mirror` lets Kafka's MirrorMaker copy the records into a running cluster instead (docs/restore.md).
"""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ts_common.errors import ConfigurationError, QueryError
from ts_common.store.wrappers.bandwidth import Allowance
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE, ArchiveName, name_archive
from ts_reader.reading.incarnation_option import NEWEST
from tsctl.archive_options import ArchiveOptions, JsonOption, TopicsArgument, open_archive
from tsctl.durable_files import disk_errors, write_file
from tsctl.exit_codes import ExitCode
from tsctl.option_groups import with_groups
from tsctl.output import Output, iso, size
from tsctl.restore.archive_plan import plan_archive, wanted_of
from tsctl.restore.continuing import check_unchanged, continue_archive, hold_topics
from tsctl.restore.documents import Done, GroupsSet, HostRecord, RestorePlan, Seed
from tsctl.restore.host_run import HostRun
from tsctl.restore.hosts import Host
from tsctl.restore.loss import due_by_retention
from tsctl.restore.restore_directory import RestoreDirectory
from tsctl.restore.texts import plan_text
from tsctl.restore.transactions import Coordinated
from tsctl.scan_options import IncarnationOption, NoTailOption
from tsctl.verify.run import CommandConfigOption

if TYPE_CHECKING:
    from tsctl.restore.new_cluster import NewCluster


restore = typer.Typer(
    no_args_is_help=True,
    help="A lost cluster back as files, at its original offsets; or its records into a running cluster.",
)

DirectoryArgument = Annotated[
    Path, typer.Argument(help="Directory of the plan and of all hosts' records; shared, or copied to each host.")
]
ServerPropertiesOption = Annotated[
    Path, typer.Option("--server-properties", help="The broker's file on this host.", metavar="FILE")
]
BootstrapServerOption = Annotated[str, typer.Option("--bootstrap-server", help="Brokers of the new cluster.")]
SourceConfigOption = Annotated[
    Path | None,
    typer.Option("--source-config", help="Further settings of librdkafka for the endpoint.", metavar="FILE"),
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", help="Restore what was written up to this time (UTC), or @milliseconds.", metavar="TIME"),
]
EndOption = Annotated[
    list[str] | None,
    typer.Option("--end", help="Restore a partition below an offset, as in orders-0=4711.", metavar="PARTITION=OFFSET"),
]
_MEGABYTE: Final = 1_000_000


@restore.command("plan")
@with_groups
def plan(
    directory: DirectoryArgument,
    topics: TopicsArgument = None,
    *,
    brokers: Annotated[str, typer.Option("--brokers", help="Ids of the new cluster's brokers, as in 1,2,3.")],
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="Of all topics; default: the newest snapshot's.")
    ] = None,
    at: AtOption = None,
    end: EndOption = None,
    seed: Annotated[
        str | None,
        typer.Option(
            "--seed",
            help="A temporary broker for deleted topics of a running cluster, and its address for this host.",
            metavar="ID@HOST:PORT",
        ),
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart", help="Without a seed: running brokers that get the files, each by a restart.", metavar="IDS"
        ),
    ] = None,
    no_tail: NoTailOption = False,
    abort_open: Annotated[
        bool,
        typer.Option("--abort-open", help="With --seed or --restart: abort open transactions with unknown outcome."),
    ] = False,
    incarnation: IncarnationOption = NEWEST,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="With --seed or --restart: the running brokers.")
    ] = None,
    command_config: CommandConfigOption = None,
    configurations: Annotated[
        Path | None,
        typer.Option(
            "--configurations",
            help='JSON with configurations by topic: {"orders":{"retention.ms":"1000"}}; default: the snapshot\'s.',
            metavar="FILE",
        ),
    ] = None,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Megabytes per second of a host, for the estimate.")] = 100,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Write the plan of a restore: read it, and approve it by the next step. Exit code 1: records are lost."""
    output = Output(as_json)
    wanted = wanted_of(brokers, replication_factor, at, end or (), configurations, seed, restart)
    wanted = replace(wanted, aborts_open=abort_open or not wanted.first, incarnation=incarnation, tail=not no_tail)
    if bool(wanted.first) is (bootstrap_server is None) or (wanted.first and not topics):
        expected = "--bootstrap-server and the names of topics are expected with it"
        raise ConfigurationError(SOURCE, [f"--seed or --restart: {expected}"])
    path = RestoreDirectory.plan_file(directory)
    if path.exists():
        raise QueryError(f"{path}: exists; a plan is not changed. Use another directory, or remove this one")
    with open_archive(given.name(), output.warn) as archive:
        coordinated: tuple[Coordinated, ...] = ()
        if bootstrap_server is not None:
            from tsctl.restore.serving_cluster import read_coordinated, restart_notes  # noqa: PLC0415  (librdkafka)

            cluster = _new_cluster(bootstrap_server, command_config, wanted.seed)
            coordinated = read_coordinated(cluster, wanted.seed)
        made = plan_archive(given, archive, topics or (), wanted, output, coordinated)
        if made.restarted:
            made = replace(made, notes=(*made.notes, *restart_notes(cluster, made.restarted)))
    text = "\n".join(plan_text(made, rate, now_ms()))
    with disk_errors():
        directory.mkdir(parents=True, exist_ok=True)
        write_file(directory / "plan.txt", f"{text}\n".encode())
        made.save(path)  # the last file: a plan that exists is not made again
    if as_json:
        output.document({"file": str(path), **made.fields()})
    else:
        output.text(f"{text}\n\nwritten: {path}, and this text as plan.txt; next: tsctl restore create")
    if any(part.lost for part in made.partitions.values()):
        raise typer.Exit(ExitCode.FOUND)


@restore.command("create")
@with_groups
def create(
    directory: DirectoryArgument,
    *,
    bootstrap_server: BootstrapServerOption,
    command_config: CommandConfigOption = None,
    continued_in: Annotated[
        Path | None,
        typer.Option(
            "--continued-in",
            help="The <clusterId>.properties of the new cluster's agents: its archive gets restored.json.",
            metavar="FILE_OR_DIR",
        ),
    ] = None,
    no_archive: Annotated[bool, typer.Option("--no-archive", help="No agent will ship the new cluster.")] = False,
    given: ArchiveOptions,
) -> None:
    """Create the plan's topics without retention, and record where their archive continues."""
    output = Output(as_json=False)
    restored = RestoreDirectory(directory)
    plan, seed = restored.plan, restored.plan.seed
    if not plan.is_served and (continued_in is None) is not no_archive:
        raise ConfigurationError(SOURCE, ["one of --continued-in and --no-archive is expected"])
    if plan.is_served and continued_in is not None:
        raise ConfigurationError(SOURCE, ["--continued-in: topics of a running cluster continue in their own archive"])
    cluster = _new_cluster(bootstrap_server, command_config, seed)
    from tsctl.restore.new_cluster import UNLIMITED, create_topics  # noqa: PLC0415  (librdkafka)
    from tsctl.restore.serving_cluster import FENCED, Serving, check_serving  # noqa: PLC0415

    with ExitStack() as opened:
        old = None if no_archive else opened.enter_context(open_archive(_archive_of(plan, given), output.warn))
        if plan.is_served:
            restored.check_unplaced()
            if old is not None:
                check_unchanged(old, plan)
            check_serving(plan, Serving.read(cluster, plan))
        created = create_topics(cluster, plan, FENCED if plan.restarted else UNLIMITED)
        if seed is not None:  # groups may have members again afterwards: no client reaches the topic yet
            _set_offsets(cluster, plan, output)
        if old is not None:
            new = old
            if continued_in is not None:
                new = opened.enter_context(open_archive(name_archive(continued_in, None), output.warn))
            hold_topics(old, plan, output.warn)
            for location in continue_archive(old, new, plan, created):
                output.text(f"restored.json written in {location}; start no agent {_where_no_agent(plan)}")
    with disk_errors():
        created.save(restored.created_file)  # at the end: without it no later step runs
    output.text(f"{counted(len(created.topics), 'topic')} created, without retention: {restored.created_file}")


@restore.command("fetch")
@with_groups
def fetch(
    directory: DirectoryArgument,
    *,
    server_properties: ServerPropertiesOption,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Megabytes per second; default: no limit.")] = None,
    given: ArchiveOptions,
) -> None:
    """Fetch the files of this host's replicas, while its broker runs or not. A killed fetch continues."""
    output = Output(as_json=False)
    restored = RestoreDirectory(directory)
    run = HostRun(restored, Host.of(server_properties))
    total = sum(part.size for part in run.partitions.values())
    allowance = Allowance(None if rate is None else rate * _MEGABYTE)
    with (
        open_archive(_archive_of(restored.plan, given), output.warn) as archive,
        output.progress("fetched", total, in_bytes=True) as advance,
    ):
        record = run.fetch(archive, allowance, advance)
    for place in run.damaged:
        output.warn(f"left out, as the old broker's file was damaged there: {place}")
    _said(output, record, "fetched", _after_fetch(restored.plan))


@restore.command("place")
def place(
    directory: DirectoryArgument,
    server_properties: ServerPropertiesOption,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="With a plan of --restart: the running brokers.")
    ] = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Move the fetched files into place while the broker is stopped. It stays locked until `check`.

    With a plan of --restart: wait until the broker is stopped, and check at once.
    """
    output = Output(as_json=False)
    restored = RestoreDirectory(directory)
    run = HostRun(restored, Host.of(server_properties))
    following = "start no broker; when all hosts have placed: tsctl restore check"
    if not restored.plan.restarted:
        _said(output, run.place(), "placed", following)
        return
    if bootstrap_server is None:
        raise ConfigurationError(SOURCE, ["--bootstrap-server: expected, because the plan restarts running brokers"])
    cluster = _new_cluster(bootstrap_server, command_config, None)
    from tsctl.restore.serving_cluster import check_in_sync  # noqa: PLC0415  (librdkafka)

    run.wait_until_stopped(lambda stopped: check_in_sync(cluster, stopped), output.text)
    record = run.place()
    run.check()
    _said(output, record, "placed and checked", f"start broker {record.broker} now")


@restore.command("check")
def check(directory: DirectoryArgument, server_properties: ServerPropertiesOption) -> None:
    """Check that all hosts have placed their files, and unlock this host's broker."""
    HostRun(RestoreDirectory(directory), Host.of(server_properties)).check()
    Output(as_json=False).text("complete on all hosts; this broker is unlocked: start it")


@restore.command("move")
def move(
    directory: DirectoryArgument,
    bootstrap_server: BootstrapServerOption,
    command_config: CommandConfigOption = None,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, help="Megabytes per second that each broker copies.")
    ] = None,
) -> None:
    """Compare the offsets, and move the partitions to their brokers: clients reach them from then on."""
    output = Output(as_json=False)
    restored = RestoreDirectory(directory)
    cluster = _new_cluster(bootstrap_server, command_config, restored.plan.seed)
    from tsctl.restore.serving_cluster import move_home  # noqa: PLC0415  (librdkafka)

    restored.check_hosts(Done.PLACED)

    def set_groups() -> None:
        if restored.plan.restarted:  # with a seed, `create` has set them
            _set_offsets_once(restored, cluster, output)

    rate = None if throttle is None else throttle * _MEGABYTE
    left = move_home(cluster, restored.plan, restored.created(), rate, output.text, set_groups)
    if (seed := restored.plan.seed) is not None:
        if left:
            raise QueryError(
                f"the topics of the plan are moved, but broker {seed.broker} has other replicas: "
                f"{', '.join(left[:10])}; a topic that was created meanwhile got them: move them with "
                "kafka-reassign-partitions.sh, and repeat the command"
            )
        output.text(f"broker {seed.broker} has no replica: stop it; with KRaft then unregister it:")
        output.text(f"kafka-cluster.sh unregister --bootstrap-server {bootstrap_server} --id {seed.broker}")
    output.text("next: tsctl restore finish --configurations")


@restore.command("mirror")
def mirror(
    directory: DirectoryArgument,
    *,
    source: Annotated[str, typer.Option("--source", help="Address of a `ts-endpoint` that serves the plan's archive.")],
    target: Annotated[str, typer.Option("--target", help="Brokers of the running cluster.")],
    source_config: SourceConfigOption = None,
    command_config: CommandConfigOption = None,
    mirror_config: Annotated[
        Path | None,
        typer.Option(
            "--mirror-config",
            help="Further settings of MirrorMaker, as source.security.protocol and target.security.protocol.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Create the plan's topics on a running cluster, and write the settings of MirrorMaker, which then copies them.

    Exit code 1: records behind an open transaction cannot be copied.
    """
    output = Output(as_json=False)
    restored = RestoreDirectory(directory)
    endpoint, cluster = _new_cluster(source, source_config, None), _new_cluster(target, command_config, None)
    from tsctl.restore.mirror import mirror_properties, prepare  # noqa: PLC0415  (librdkafka)
    from tsctl.verify.kafka_cluster import read_properties  # noqa: PLC0415  (librdkafka)

    further = {} if mirror_config is None else read_properties(mirror_config)
    created = prepare(restored.plan, endpoint, cluster)
    created.save(restored.created_file)
    text = mirror_properties(restored.plan, source, target, further)
    write_file(restored.mirror_file, text.encode("iso-8859-1"), 0o600)  # it can have passwords
    output.text(f"{counted(len(created.topics), 'topic')} without retention in the target: {restored.created_file}")
    output.text(f"{counted(len(restored.plan.groups.offsets), 'group')}: offsets set at the endpoint")
    lacks = _say_not_copied(restored.plan, output)
    output.text(f"next: connect-mirror-maker.sh {restored.mirror_file}")
    if lacks:
        raise typer.Exit(ExitCode.FOUND)


@restore.command("finish")
def finish(
    directory: DirectoryArgument,
    bootstrap_server: BootstrapServerOption,
    command_config: CommandConfigOption = None,
    source_config: SourceConfigOption = None,
    configurations: Annotated[
        bool, typer.Option("--configurations", help="Set the configurations of the topics, as the last step.")
    ] = False,
    approve: Annotated[
        bool, typer.Option("--approve", help="With --configurations: Kafka may delete what the command names.")
    ] = False,
) -> None:
    """Compare the offsets of all partitions, then set those of the groups. With --configurations: the last step."""
    output = Output(as_json=False)
    restored = RestoreDirectory(directory)
    cluster = _new_cluster(bootstrap_server, command_config, restored.plan.seed)
    from tsctl.restore.new_cluster import check_offsets, configure_topics  # noqa: PLC0415  (librdkafka)

    plan, is_mirrored = restored.plan, restored.mirror_file.exists()
    if plan.is_served:
        plan = plan.at_homes
    partitions, groups = counted(len(plan.partitions), "partition"), counted(len(plan.groups.offsets), "group")
    if is_mirrored:
        _check_mirror(restored, cluster, source_config)
        output.text(f"{partitions}: MirrorMaker has copied all records")
        _say_not_copied(plan, output)
    else:
        if not configurations and not restored.plan.is_served:
            restored.check_hosts(Done.PLACED)
        check_offsets(cluster, plan, restored.created(), is_limited=configurations)
        output.text(f"{partitions}: start, end and in-sync replicas as planned")
    if not configurations:
        if is_mirrored:
            output.text(f"{groups}: offsets translated; {_begin_untranslated(plan, cluster)} set to the first offset")
        elif not restored.plan.is_served:
            _set_offsets_once(restored, cluster, output)
        for line in plan.commands:
            output.text(line)
        output.text("next: tsctl restore finish --configurations")
        return
    sets_groups = not is_mirrored and restored.plan.seed is None  # with a seed, `create` has
    if sets_groups and plan.groups.offsets and restored.groups_set() is None:
        former = "move` first" if restored.plan.restarted else "finish` without --configurations first"
        raise QueryError(f"{restored.groups_file}: missing; run `tsctl restore {former}: it sets the groups' offsets")
    deleted = False
    defaults = cluster.reading.retention_defaults(plan.brokers)
    for name, topic in plan.topics.items():
        for number, part in topic.partitions.items():
            dues = [due_by_retention(part, topic.configurations, now_ms(), defaults[each]) for each in part.replicas]
            if found := [due for due in dues if due is not None]:
                deleted, due = True, max(found, key=lambda each: each.below)
                output.text(f"{name}-{number}: Kafka deletes offsets below {due.below}, {size(due.size)}: {due.why}")
    if deleted and not approve:
        raise QueryError("nothing was changed; if Kafka may delete that, repeat the command with --approve")
    configure_topics(cluster, plan)
    output.text(f"{counted(len(plan.topics), 'topic')}: configurations set")


def _where_no_agent(plan: RestorePlan) -> str:
    if plan.seed is not None:
        return f"next to broker {plan.seed.broker}"
    if plan.restarted:
        return f"next to {' or '.join(f'broker {each}' for each in plan.restarted)} before `move` has ended"
    return "before `finish`"


def _after_fetch(plan: RestorePlan) -> str:
    if plan.seed is not None:
        return f"stop broker {plan.seed.broker} cleanly, and only this one; then tsctl restore place"
    if plan.restarted:
        return "when all hosts have fetched: tsctl restore place, for one broker at a time, while it runs"
    return "when all hosts have fetched, stop all brokers cleanly; then tsctl restore place"


def _archive_of(plan: RestorePlan, given: ArchiveOptions) -> ArchiveName:
    """Return the name of the archive, which must be of the plan's cluster."""
    name = given.name()
    if name.keys.cluster != plan.cluster:
        raise ConfigurationError(
            SOURCE, [f"the archive is of cluster {name.keys.cluster}, and the plan of {plan.cluster}; name its archive"]
        )
    return name


def _set_offsets_once(restored: RestoreDirectory, cluster: "NewCluster", output: Output) -> None:
    """Set the groups' offsets; a repeated call leaves them, because consumers have continued since."""
    if (former := restored.groups_set()) is not None:
        output.text(
            f"offsets of groups were set at {iso(former.time)}, and are left as they are; to set them again, "
            f"remove {restored.groups_file}"
        )
        return
    _set_offsets(cluster, restored.plan, output)
    with disk_errors():
        GroupsSet(restored.plan.plan, now_ms()).save(restored.groups_file)


def _set_offsets(cluster: "NewCluster", plan: RestorePlan, output: Output) -> None:
    for group, offsets in plan.groups.offsets.items():
        cluster.set_offsets(group, offsets, plan.groups.metadata.get(group))
    output.text(f"{counted(len(plan.groups.offsets), 'group')}: offsets set")


def _said(output: Output, record: HostRecord, what: str, following: str) -> None:
    held = record.partitions.values()
    output.text(f"{what}: {counted(len(held), 'replica')}, {size(sum(each.size for each in held))}; {following}")


def _check_mirror(restored: RestoreDirectory, target: "NewCluster", source_config: Path | None) -> None:
    from tsctl.restore.mirror import SOURCE_SERVERS, check_copied  # noqa: PLC0415  (librdkafka)
    from tsctl.verify.kafka_cluster import read_properties  # noqa: PLC0415

    servers = read_properties(restored.mirror_file)[SOURCE_SERVERS]
    check_copied(restored.plan, restored.created(), _new_cluster(servers, source_config, None), target)


def _begin_untranslated(plan: RestorePlan, target: "NewCluster") -> str:
    from tsctl.restore.mirror import begin_untranslated  # noqa: PLC0415  (librdkafka)

    return counted(begin_untranslated(plan, target), "partition")


def _say_not_copied(plan: RestorePlan, output: Output) -> bool:
    from tsctl.restore.mirror import stable_end  # noqa: PLC0415  (librdkafka)

    found = False
    for name, part in plan.partitions.items():
        if (stable := stable_end(part)) < part.end:
            found = True
            output.text(
                f"{name}: NOT COPIED: offsets {stable} to {part.end - 1}: a transaction is open from {stable} on"
            )
    return found


def _new_cluster(bootstrap: str, command_config: Path | None, seed: Seed | None) -> "NewCluster":
    from tsctl.restore.new_cluster import NewCluster  # noqa: PLC0415  (librdkafka)
    from tsctl.verify.kafka_cluster import read_client_properties  # noqa: PLC0415

    properties = {} if command_config is None else read_client_properties(command_config)
    return NewCluster(bootstrap, properties, None if seed is None else seed.broker)


def now_ms() -> int:
    """Return the time in ms since the epoch."""
    return int(time.time() * 1000)
