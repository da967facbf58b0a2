"""Arguments that commands of tables have: names, the file, settings, keys and offsets; and how a command ends."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.model import is_topic_name
from tsctl.exit_codes import ExitCode, code_of
from tsctl.output import Output
from tsctl.table_runs import needing, with_progress

if TYPE_CHECKING:
    from ts_tables import Tables
    from ts_tables.forget import Offsets

_FILE: Final = Path("tables.yaml")
_OFFSETS: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>[0-9]{1,10}):(?P<start>[0-9]{1,19})(?:-(?P<end>[0-9]{1,19}))?"
)

NamesArgument = Annotated[
    list[str] | None, typer.Argument(help="Names of tables; default: all of the file.", show_default=False)
]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="The file that describes the tables; default: tables.yaml.", metavar="FILE"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set a value, with or without a file: archive.KEY=VALUE, catalog.KEY=VALUE, spark.KEY=VALUE, or "
        "KEY=VALUE of the named table; VALUE is YAML.",
        metavar="KEY=VALUE",
        show_default=False,
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of worker processes; default: one for each processor.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def open_tables(
    file: Path | None,
    settings: Sequence[str] | None,
    names: Sequence[str] | None,
    workers: int | None = None,
    output: Output | None = None,
) -> "Tables":
    """Return the tables of a file, of settings, or of both.

    Args:
        file: path of the file; None for `tables.yaml`.
        settings: values of `--set`.
        names: of tables that are named.
        workers: the number of processes; None for the number of processors.
        output: of progress; None for a command without tasks.

    Raises:
        ConfigurationError: the file or a setting is wrong, or a table is unknown.
    """
    with needing("tables"):
        from ts_common.config.yaml_files import read_yaml  # noqa: PLC0415  (ruamel.yaml, of the same extra)
        from ts_tables import Tables  # noqa: PLC0415  (pyiceberg and pyarrow, only for these commands)
        from ts_tables.definition.tables_file import with_settings  # noqa: PLC0415  (the same)
    path = file or _FILE
    has_file = not settings or file is not None or path.exists()
    content: Any = read_yaml(path) if has_file else {}
    source = str(path) if has_file else "--set"
    if settings and isinstance(content, Mapping):
        content = with_settings(content, settings, _only(names), "--set")
    engine = None if output is None else with_progress(output, workers)
    found = Tables(content, engine=engine, source=source)
    if unknown := [name for name in names or () if name.partition("@")[0] not in found.names]:
        raise ConfigurationError(
            source, [f"{name}: the file has no such table; it has {', '.join(found.names)}" for name in unknown]
        )
    return found


def _only(names: Sequence[str] | None) -> str | None:
    """Return the one table that is named, without a generation; None for none or several."""
    return names[0].partition("@")[0] if names and len(names) == 1 else None


def end(failed: TieredStorageError | None, *, is_finding: bool = False) -> None:
    """End the command if a table failed, which was printed, or if there are findings.

    Raises:
        typer.Exit: with the exit code.
    """
    if failed is not None:
        raise typer.Exit(code_of(failed))
    if is_finding:
        raise typer.Exit(ExitCode.FOUND)


def key_of(text: str) -> str | bytes:
    """Return a key as text; as bytes, if it is Base64 after `base64:`.

    Raises:
        ValueError: it is no Base64.
    """
    prefix = "base64:"
    return base64.b64decode(text.removeprefix(prefix), validate=True) if text.startswith(prefix) else text


def offsets_of(text: str) -> "Offsets":
    """Return the offsets of a text such as `orders-0:100-199`.

    Args:
        text: of the command line: topic, partition, and the first and the last offset, or one offset.

    Raises:
        ValueError: it has another form.
    """
    match = _OFFSETS.fullmatch(text)
    if match is None or not is_topic_name(match["topic"]):
        raise ValueError(f"{text!r}: topic, partition and offsets are expected, as in orders-0:100-199")
    start = int(match["start"])
    end = int(match["end"] or start) + 1
    if end > 1 << 63:
        raise ValueError(f"{text!r}: no offset is above {(1 << 63) - 1}")
    if end <= start:
        raise ValueError(f"{text!r}: the last offset is below the first")
    return match["topic"], int(match["partition"]), start, end
