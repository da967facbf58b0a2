"""`tsctl meta`: what a cluster had in addition to records, from the metadata snapshots in its archive."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Final

import typer

from ts_common.archive.snapshots import DEFAULTS, HOUR, Broker, ClusterSnapshot, Configs, GroupsSnapshot, Quota, User
from ts_common.durations import DAY
from ts_common.errors import ConfigurationError, CorruptData, NewerFormat, QueryError
from ts_common.option_groups import with_groups
from ts_common.printable import printable
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import ArchiveOptions, JsonOption, OpenArchive, open_archive
from tsctl.exit_codes import ExitCode
from tsctl.output import Cell, Output, iso
from tsctl.scan_options import parse_time
from tsctl.snapshots import Change, changes, entity_of, limit_text, resource_of, rule_of, snapshot_at, times_of

_MILLISECONDS: Final = 1000
_LOG_DAYS: Final = 7
_NAMED: Final = 3  # changes in a line of the log
_UNKNOWN: Final = "unknown: the agent that wrote the snapshot may not read them"

meta = typer.Typer(
    no_args_is_help=True, help="Metadata snapshots: topics, configurations, ACLs, users, quotas, groups."
)


class Part(StrEnum):
    """A part of a snapshot."""

    TOPICS = "topics"
    BROKERS = "brokers"
    QUOTAS = "quotas"
    ACLS = "acls"
    USERS = "users"
    GROUPS = "groups"


_AT: Final = "As in 2026-11-22T06:00:00Z; the newest snapshot at or before it"


@meta.command("log")
@with_groups
def log(
    since: Annotated[
        str | None,
        typer.Option("--since", help=f"From this time on; default: the last {_LOG_DAYS} days.", metavar="TIME"),
    ] = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """List the snapshots of the cluster, each with what changed since the one before. It reads each of them."""
    output = Output(as_json)
    begin = _time("--since", since, _now() - _LOG_DAYS * DAY)
    entries: list[tuple[int, ClusterSnapshot, list[Change]]] = []
    with open_archive(given.name(), output.warn) as archive:
        before: ClusterSnapshot | None = None
        with _warned(output):
            before = snapshot_at(archive.stores, archive.keys, ClusterSnapshot, begin - 1)
        for at, store in times_of(archive.stores, archive.keys, ClusterSnapshot, begin).items():
            found: ClusterSnapshot | None = None
            with _warned(output):
                found = ClusterSnapshot.load(store, archive.keys, at)
            if found is not None:  # None: retention removed it since the listing
                entries.append((at, found, [] if before is None else list(changes(before, found))))
                before = found
        cluster = archive.keys.cluster
    if as_json:
        output.document({"cluster": cluster, "snapshots": [_entry(*each) for each in entries]})
    elif entries:
        rows = [_row(*each) for each in entries]
        output.table(("SNAPSHOT", "WRITTEN BY", "KAFKA", "TOPICS", "CHANGES", "WHAT"), rows)
    else:
        output.text(f"no snapshots since {iso(begin)}")


@meta.command("show")
@with_groups
def show(
    parts: Annotated[list[Part] | None, typer.Argument(help="What to show; default: all.")] = None,
    at: Annotated[str | None, typer.Option("--at", help=f"{_AT}; default: now.", metavar="TIME")] = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Show what the cluster had at a time."""
    output, chosen = Output(as_json), frozenset(parts or Part)
    with open_archive(given.name(), output.warn) as archive:
        moment = _time("--at", at, _now())
        cluster = _snapshot(archive, moment)
        groups = snapshot_at(archive.stores, archive.keys, GroupsSnapshot, moment)
        name = archive.keys.cluster
    if as_json:
        output.document({"cluster": name, "time": iso(cluster.time), **_fields(chosen, cluster, groups)})
        return
    by = f"broker {cluster.broker}'s agent"
    kafka = printable(cluster.kafka or "unknown")
    output.text(f"cluster {name} at {iso(cluster.time)}, written by {by}; Kafka {kafka}")
    for part in Part:
        if part not in chosen:
            continue
        title, columns, rows = _table(part, cluster, groups)
        output.text(f"\n{title}")
        if rows:
            output.table(columns, rows)


@meta.command("diff")
@with_groups
def diff(
    at: Annotated[str, typer.Option("--at", help=f"{_AT}.", metavar="TIME")],
    to: Annotated[
        str | None, typer.Option("--to", help="The snapshot to compare it with; default: the newest.", metavar="TIME")
    ] = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Show what changed after a time. Exit code 1: something did."""
    output = Output(as_json)
    begin, end = _time("--at", at, _now()), _time("--to", to, _now())
    with open_archive(given.name(), output.warn) as archive:
        before, after = _snapshot(archive, begin), _snapshot(archive, end)
        name = archive.keys.cluster
    found = list(changes(before, after))
    if as_json:
        between = {"from": iso(before.time), "to": iso(after.time)}
        output.document({"cluster": name, **between, "changes": [asdict(each) for each in found]})
    else:
        output.text(f"cluster {name} from {iso(before.time)} to {iso(after.time)}: {counted(len(found), 'change')}")
        if found:
            rows = [[each.kind, each.name, each.what, each.before, each.after] for each in found]
            output.table(("KIND", "NAME", "WHAT", "BEFORE", "AFTER"), rows)
    if found:
        raise typer.Exit(ExitCode.FOUND)


@contextmanager
def _warned(output: Output) -> Iterator[None]:
    """Warn of a snapshot that cannot be read: an operator looks for the one before it."""
    try:
        yield
    except (CorruptData, NewerFormat) as error:
        output.warn(str(error))


def _snapshot(archive: OpenArchive, at: int) -> ClusterSnapshot:
    found = snapshot_at(archive.stores, archive.keys, ClusterSnapshot, at)
    if found is None:
        raise QueryError(
            f"cluster {archive.keys.cluster}: no metadata snapshot at or before {iso(at)}; agents write them hourly: "
            "tsctl meta log --since 1970-01-01 lists them"
        )
    return found


def _time(option: str, text: str | None, default: int) -> int:
    problems: list[str] = []
    found = parse_time(option, text, problems, rounds_up=False)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    return default if found is None else found


def _now() -> int:
    return int(time.time() * _MILLISECONDS)


def _row(at: int, snapshot: ClusterSnapshot, found: Sequence[Change]) -> list[Cell]:
    what = [f"{each.kind} {each.name} {each.what}".replace("  ", " ") for each in found[:_NAMED]]
    more = [f"and {len(found) - _NAMED} more"] if len(found) > _NAMED else []
    kind = "" if at % HOUR == 0 else " (change)"
    return [
        f"{iso(at)}{kind}",
        snapshot.broker,
        snapshot.kafka,
        len(snapshot.topics),
        len(found),
        ", ".join(what + more),
    ]


def _entry(at: int, snapshot: ClusterSnapshot, found: Sequence[Change]) -> dict[str, object]:
    return {
        "snapshot": iso(at),
        "time": iso(snapshot.time),
        "broker": snapshot.broker,
        "kafka": snapshot.kafka,
        "topics": len(snapshot.topics),
        "changes": [asdict(each) for each in found],
    }


def _fields(chosen: Collection[str], cluster: ClusterSnapshot, groups: GroupsSnapshot | None) -> dict[str, object]:
    """Return the chosen parts as JSON values."""
    hidden = {"version", "time", *Part} - {*chosen}
    shown = {key: value for key, value in cluster.fields().items() if key not in hidden}
    if Part.GROUPS in chosen:
        shown["groups"] = None if groups is None else groups.fields()["groups"]
        shown["groups_time"] = None if groups is None else iso(groups.time)
    return shown


def _table(
    part: Part, cluster: ClusterSnapshot, groups: GroupsSnapshot | None
) -> tuple[str, Sequence[str], list[list[Cell]]]:
    """Return the title, the columns and the rows of a part."""
    match part:
        case Part.TOPICS:
            columns: Sequence[str] = ("TOPIC", "ID", "PARTITIONS", "REPLICATION", "CONFIGURATIONS")
            some = "" if cluster.all_topics else ", without those that the agent might not describe"
            return f"topics: {len(cluster.topics)}{some}", columns, [*_topics(cluster)]
        case Part.BROKERS:
            columns = ("BROKER", "ADDRESS", "RACK", "DYNAMIC CONFIGURATIONS")
            return f"brokers: {len(cluster.brokers) - 1}", columns, [*_brokers(cluster)]
        case Part.QUOTAS:
            rows: list[list[Cell]] = [[entity_of(each), _limits(each)] for each in cluster.quotas or ()]
            return _titled("quotas", cluster.quotas), ("ENTITY", "LIMITS"), rows
        case Part.ACLS:
            rows = [[resource_of(each), rule_of(each), each.permission] for each in cluster.acls or ()]
            return _titled("ACLs", cluster.acls), ("RESOURCE", "RULE", "PERMISSION"), rows
        case Part.USERS:
            rows = [[each.name, _mechanisms(each)] for each in cluster.users or ()]
            return _titled("SCRAM users, without their secrets", cluster.users), ("USER", "MECHANISMS"), rows
        case Part.GROUPS:
            if groups is None:
                return "groups: no snapshot of them at or before this time", (), []
            title = f"groups: {len(groups.groups)} at {iso(groups.time)}"
            return title, ("GROUP", "PARTITION", "OFFSET", "METADATA"), [*_offsets(groups)]


def _topics(cluster: ClusterSnapshot) -> Iterator[list[Cell]]:
    for name, each in sorted(cluster.topics.items()):
        yield [name, each.id, len(each.partitions), each.replication_factor, _configs(each.configs)]


def _brokers(cluster: ClusterSnapshot) -> Iterator[list[Cell]]:
    for name, each in sorted(cluster.brokers.items(), key=lambda item: (item[0] == DEFAULTS, len(item[0]), item)):
        yield [name, _address(each), each.rack, _configs(each.configs)]


def _offsets(groups: GroupsSnapshot) -> Iterator[list[Cell]]:
    for group, offsets in sorted(groups.groups.items()):
        for partition, committed in sorted(offsets.items()):
            yield [group, str(partition), committed.offset, committed.metadata]


def _limits(quota: Quota) -> str:
    return _pairs({name: limit_text(limit) for name, limit in quota.limits.items()})


def _mechanisms(user: User) -> str:
    return ", ".join(f"{name} ({count} iterations)" for name, count in sorted(user.mechanisms.items()))


def _titled(what: str, values: Sequence[object] | None) -> str:
    return f"{what}: {_UNKNOWN if values is None else len(values)}"


def _configs(configs: Configs | None) -> str:
    return "unknown" if configs is None else _pairs(configs)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))


def _address(broker: Broker) -> str | None:
    return None if broker.host is None else f"{broker.host}:{broker.port}"
