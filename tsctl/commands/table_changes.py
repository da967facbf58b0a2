"""Commands of `tsctl tables` that change what a table has: mended parsers, deletions, generations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ts_common.errors import ConfigurationError
from ts_common.wording import counted
from tsctl.output import NOTHING, Output
from tsctl.table_arguments import (
    FileOption,
    JsonOption,
    NamesArgument,
    SetOption,
    WorkersOption,
    end,
    key_of,
    offsets_of,
    open_tables,
)
from tsctl.table_runs import for_each

if TYPE_CHECKING:
    from ts_tables.erasing import Obeyed


def replay_quarantine(
    names: NamesArgument = None,
    file: FileOption = None,
    settings: SetOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parse refused records again, after their parser was mended. Accepted ones move to the table.

    From then on the table has the parser of the file. Rows that the table has stay as they are.
    """
    output = Output(as_json)
    found = open_tables(file, settings, names, workers, output)

    def again(name: str) -> None:
        done = found.replay(name)
        output.text(f"{name}: {counted(done.moved, 'record')} moved to the table, {done.left:,} are refused still")
        if as_json:
            output.line({"table": name, "moved": done.moved, "refused": done.left})

    end(for_each(names or found.names, again, output))


def forget(
    name: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            help="A key, as text or as base64:...; the rows of its records are deleted.",
            metavar="KEY",
            show_default=False,
        ),
    ] = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets",
            help="Offsets of records, as in orders-0:100-199 or orders-0:100.",
            metavar="OFFSETS",
            show_default=False,
        ),
    ] = None,
    erased: Annotated[
        bool, typer.Option("--erased", help="The records that tsctl erase hides; each run does this after a request.")
    ] = False,
    file: FileOption = None,
    settings: SetOption = None,
    workers: WorkersOption = None,
) -> None:
    """Delete the rows of given keys or offsets from a table, and note it there. The archive has the records still.

    With --erased delete the rows of erased records. Exit code 1: some can be left.
    """
    output = Output(as_json=False)
    found = open_tables(file, settings, [name], workers, output)
    problems: list[str] = []
    chosen: list[str | bytes] = []
    ranges = []
    for text in keys or ():
        try:
            chosen.append(key_of(text))
        except ValueError:
            problems.append(f"--key {text}: Base64 is expected after base64:")
    for text in offsets or ():
        try:
            ranges.append(offsets_of(text))
        except ValueError as error:
            problems.append(f"--offsets {error}")
    if not problems and bool(chosen or ranges) == erased:
        problems.append("--key, --offsets or --erased: give keys and offsets, or --erased")
    if problems:
        raise ConfigurationError("command line", problems)
    if erased:
        obeyed = found.obey(name)
        output.text(f"{name}: deleted the rows of {counted(obeyed.records, 'erased record')}; {_lists(obeyed)}")
        for sentence in obeyed.notes:
            output.warn(f"{name}: {sentence}")
        end(None, is_finding=bool(obeyed.notes))
        return
    done = found.forget(name, chosen, ranges)
    for sentence in done.notes:
        output.text(f"{name}: {sentence}")
    if done.records or not done.notes:
        output.text(f"{name}: deleted the rows of {counted(done.records, 'record')}; the archive still has them")


def _lists(obeyed: "Obeyed") -> str:
    return f"{counted(obeyed.partitions, 'partition')} had a greater list"


def generations(
    name: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    file: FileOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the generations of a table: which one is in use, and how far each is."""
    output = Output(as_json)
    found = open_tables(file, settings, [name]).generations(name)
    if as_json:
        output.document(
            {
                "table": name,
                "generations": [
                    {
                        "number": each.number,
                        "in_use": each.is_in_use,
                        "location": None if each.contents is None else each.contents.location,
                        "rows": None if each.contents is None else each.contents.rows,
                        "files": None if each.contents is None else each.contents.files,
                        "bytes": None if each.contents is None else each.contents.bytes,
                        "lag": None if each.status is None else dict(each.status.lag),
                        "findings": [] if each.status is None else list(each.status.findings),
                    }
                    for each in found
                ],
            }
        )
        return
    rows: list[Sequence[Any]] = []
    for each in found:
        use = "in use" if each.is_in_use else NOTHING
        if each.contents is None or each.status is None:
            rows.append((each.number, use, NOTHING, NOTHING, NOTHING, NOTHING))
            continue
        lag = sum(each.status.lag.values())
        rows.append((each.number, use, each.contents.location, each.contents.rows, each.contents.bytes, lag))
    output.table(["generation", "use", "location", "rows", "bytes", "lag"], rows)


def switch(
    name: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    number: Annotated[int, typer.Argument(help="Number of the generation.", show_default=False)],
    compares: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare the generation with the archive first.")
    ] = True,
    file: FileOption = None,
    settings: SetOption = None,
    workers: WorkersOption = None,
) -> None:
    """Give a generation the name of an Iceberg table. The former one stays as NAME@NUMBER until it is dropped.

    A switch that was killed is completed by the same command.
    """
    output = Output(as_json=False)
    found = open_tables(file, settings, [name], workers, output)
    former = found.switch(name, number, compares=compares)
    if former == number:
        output.text(f"{name}: generation {number} is in use")
        return
    output.text(f"{name}: generation {number} is in use; {name}@{former} is the former one")
