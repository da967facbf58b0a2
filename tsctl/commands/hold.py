"""`tsctl hold`: sets, lists and removes holds, which stop retention of the topics that they name."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ts_common.archive.holds import Hold, check_reason
from ts_common.archive.topic_choice import as_pattern
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.option_groups import with_groups
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted, some
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import ArchiveOptions, JsonOption, open_archive
from tsctl.exit_codes import ExitCode
from tsctl.holds import ListedHold, add_hold, described, list_holds, named, remove_hold
from tsctl.legal_holds import check_lockable, lift_legal_holds, set_legal_holds
from tsctl.output import Output, iso
from tsctl.scan_options import parse_end

_MILLISECONDS: Final = 1000
_COLUMNS: Final = ("HOLD", "STATE", "TOPICS", "MATCHES", "UNTIL", "TWO PEOPLE", "SET BY", "REASON")

hold = typer.Typer(no_args_is_help=True, help="Holds: what retention must not remove, and why.")
NameArgument = Annotated[
    str, typer.Argument(help="Name of the hold: letters, digits, '.', '_' and '-'.", show_default=False)
]


@hold.command("add")
@with_groups
def add(
    name: NameArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; one line.", metavar="TEXT")],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="A topic, or a regular expression of whole names as in 'orders.*'; repeatable.", metavar="T"
        ),
    ] = None,
    patterns: Annotated[
        list[str] | None,
        typer.Option("--pattern", help="A regular expression of whole names, also 'a.b'; repeatable.", metavar="REGEX"),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="Beginning of the names of topics.", metavar="TEXT")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            help="When it ends: 2027-01-31 (that day's start, UTC by default), @milliseconds, or a duration as 90d or "
            "12h; default: when it is removed.",
            metavar="TIME",
        ),
    ] = None,
    two_people: Annotated[
        bool, typer.Option("--two-people", help="Only another identity may remove it, by this command.")
    ] = False,
    lock: Annotated[
        bool,
        typer.Option(
            "--lock",
            help="Also set legal holds of the store on each version of its segments and gap records: no identity can "
            "delete them. tsctl gc run repeats that for new ones, tsctl hold rm lifts it. Needs a bucket with Object "
            "Lock.",
        ),
    ] = False,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Stop retention of topics until a time, or until the hold is removed. Every store of the archive gets the hold."""
    output, now = Output(as_json), _now()
    problems: list[str] = []
    end = parse_end("--until", until, now, problems)
    chosen = tuple(dict.fromkeys([*(topics or ()), *map(as_pattern, patterns or ())]))
    wanted = None
    try:
        wanted = Hold(
            name=name,
            topics=chosen,
            prefix=prefix,
            reason=check_reason(reason),
            until=end,
            time=now,
            two_people=two_people,
            lock=lock,
        )
    except ValueError as error:
        problems.append(f"hold {name}: {error}")
    if problems or wanted is None:
        raise ConfigurationError(SOURCE, problems)
    archive_name = given.name()
    with open_archive(archive_name, output.warn) as archive:
        names = archive.names()
        if lock:
            check_lockable(archive.stores)
        if missing := sorted(topic for topic in chosen if is_topic_name(topic) and topic not in names):
            output.warn(f"the archive has no topic {some(missing)} today; the hold concerns it as soon as it has one")
        matched = sum(map(wanted.matches, names))
        if not matched:
            output.warn(
                f"hold {name}: it matches no topic of the archive today, which has {counted(len(names), 'topic')}"
            )
        written = add_hold(archive.stores, archive.keys, wanted, output.warn)
        every = [store.location for store in archive.stores]
        locked = sum(set_legal_holds(store, archive.keys, wanted.matches) for store in archive.stores if lock)
    if as_json:
        fields = {"hold": name, "until": iso(end), "matches": matched, "written": written, "stores": every}
        output.document({**fields, "legal_holds": locked})
    else:
        done = f"set in {', '.join(written)}" if written else "exists already, in all stores of the archive"
        output.text(f"{name}: {done}\n{described(wanted)}\ntopics that it matches now: {matched}")
        if lock:
            output.text(f"legal holds set now: {locked:,}")


@hold.command("ls")
@with_groups
def ls(
    every: Annotated[bool, typer.Option("--all", help="Also holds that expired or were removed.")] = False,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """List holds, with the number of topics that each matches now. Exit code 1: one of them cannot be read."""
    output, unreadable, damaged = Output(as_json), list[str](), list[str]()
    with open_archive(given.name(), output.warn) as archive:
        found = list_holds(archive.stores, archive.keys, _now(), unreadable.append if every else None, damaged.append)
        names = archive.names()
    for message in unreadable:
        output.warn(f"{message}; this removed hold is left out")
    _warn_of_differences(found, output)
    if as_json:  # the document has all warnings
        _warn_of_damaged(damaged, output)
    matched = [(entry, sum(map(entry.hold.matches, names))) for entry in found]
    if as_json:
        output.document({"cluster": archive.keys.cluster, "holds": [_fields(*each) for each in matched]})
    elif found:
        output.table(_COLUMNS, [_row(*each) for each in matched])
    elif not damaged:
        output.text("no holds")
    if not as_json:
        _warn_of_damaged(damaged, output)
    if unreadable or damaged:
        raise typer.Exit(ExitCode.FOUND)


@hold.command("rm")
@with_groups
def rm(
    name: NameArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; one line, which stays in the archive.", metavar="TEXT")
    ] = "",
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Remove a hold from every store of the archive. What it was, who removed it and why stays below holds/removed/."""
    output, now = Output(as_json), _now()
    if not reason:
        raise ConfigurationError(
            SOURCE, [f"--reason is missing, and stays in the archive: tsctl hold rm {name} --reason 'audit 17 ended'"]
        )
    try:
        Hold(name=name, reason=check_reason(reason), topics=("any",))  # the same rules for the name and for a reason
    except ValueError as error:
        raise ConfigurationError(SOURCE, [f"hold {name}: {error}"]) from error
    with open_archive(given.name(), output.warn) as archive:
        lifted = 0

        def lift(store: ObjectStore, hold: Hold) -> None:
            nonlocal lifted
            lifted += lift_legal_holds(store, archive.keys, hold)

        removed = remove_hold(archive.stores, archive.keys, name, reason, now, lift)
    if as_json:
        output.document({"hold": name, "removed": removed, "legal_holds_lifted": lifted})
    else:
        more = f"; {counted(lifted, 'legal hold')} lifted" if lifted else ""
        output.text(f"{name}: removed from {', '.join(removed)}; retention may remove what it held{more}")


def _warn_of_differences(found: Sequence[ListedHold], output: Output) -> None:
    """Warn of holds that not every store has, or that two stores have with other terms."""
    for entry in found:
        if entry.missing_in:
            output.warn(
                f"hold {entry.hold.name}: {some(sorted(entry.missing_in))} lacks it; it stops retention all the same; "
                "complete it with the same tsctl hold add"
            )
    held = Counter(entry.hold.name for entry in found if entry.removal is None)
    for name in sorted(name for name, count in held.items() if count > 1):
        output.warn(f"hold {name}: two stores have different holds of this name; both stop retention")


def _warn_of_damaged(damaged: Sequence[str], output: Output) -> None:
    for message in damaged:
        output.warn(f"{message}; if it is damaged, set it again under another name, then delete the object")


def _row(entry: ListedHold, matches: int) -> list[str | int | bool | None]:
    one = entry.hold
    by, why, removal = ", ".join(entry.set_by), one.reason, entry.removal
    if removal is not None:
        why = f"{why}; removed {iso(removal.time)} by {removal.removed_by or 'unknown'}: {removal.reason}"
    return [one.name, entry.state, named(one), matches, iso(one.until), one.two_people, by, why]


def _fields(entry: ListedHold, matches: int) -> dict[str, object]:
    one, removal = entry.hold, entry.removal
    return {
        "name": one.name,
        "state": entry.state,
        "topics": list(one.topics),
        "prefix": one.prefix,
        "matches": matches,
        "reason": one.reason,
        "until": iso(one.until),
        "set_by": entry.set_by,
        "set_at": iso(one.time),
        "two_people": one.two_people,
        "lock": one.lock,
        "purpose": one.purpose,
        "missing_in": entry.missing_in,
        "removed_by": None if removal is None else removal.removed_by,
        "removed_at": None if removal is None else iso(removal.time),
        "removal_reason": None if removal is None else removal.reason,
    }


def _now() -> int:
    return int(time.time() * _MILLISECONDS)
