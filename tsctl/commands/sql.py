"""`tsctl sql`: DuckDB over an archive, with topics as tables."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.query.moments import milliseconds_of
from ts_common.reading.incarnation_option import NEWEST
from tsctl.archive import (
    SOURCE,
    ClusterOption,
    ConfigOption,
    EntropyOption,
    IncarnationOption,
    PartitionsOption,
    UrlOption,
    open_reader,
    parse_partitions,
)
from tsctl.commands.cat import Isolation
from tsctl.limits import MaxBatchBytesOption
from tsctl.output import Output, size

if TYPE_CHECKING:
    from ts_reader import Archive, Scan
    from tsctl.sql.results import Format
    from tsctl.sql.session import Session


def sql(
    statement: Annotated[
        str | None, typer.Argument(help="SQL; default: a prompt, or the statements on standard input.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="All topics begin at this time: 2026-11-22T06:00:00Z, @milliseconds.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="All topics end before this time.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="All topics as of this time, with transactions committed by then.")
    ] = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="With --at: warn if records up to then may be missing; do not fail.")
    ] = False,
    partition: PartitionsOption = None,
    form: Annotated[str, typer.Option("--format", help="Format of the result: table, csv, json or parquet.")] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as --format json.")] = False,
    to: Annotated[Path | None, typer.Option("--output", help="File for the result; it must not exist.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what the statement reads of each topic; read no record.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Let statements read and write files, and load DuckDB's extensions.")
    ] = False,
    isolation: Annotated[
        Isolation, typer.Option(help="read_committed leaves out aborted and open transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    headers: Annotated[bool, typer.Option("--headers", help="Tables have a column of headers.")] = False,
    incarnation: IncarnationOption = NEWEST,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
) -> None:
    """Query topics with SQL (DuckDB): each topic is a table."""
    from ts_common.execution.process_pool import POOL  # noqa: PLC0415  (only commands that decode)

    if not explain:
        POOL.start()  # it loads compiled code while this process loads DuckDB and plans
    from tsctl.sql.results import Format  # noqa: PLC0415  (pyarrow and DuckDB, 0.2 s)
    from tsctl.sql.session import Session  # noqa: PLC0415  (as above)

    problems: list[str] = []
    if as_json and form not in {Format.TABLE, Format.JSON}:
        problems.append(f"--json and --format={form}: give one of the two")
    form = Format.JSON if as_json else form
    if form not in list(Format):
        problems.append(f"--format={form}: accepted are {', '.join(Format)}")
    if form == Format.PARQUET and to is None and not explain:
        problems.append("--format=parquet: --output FILE is needed")
    bounds = _bounds(start, end, problems)
    moment = _moment("--at", at, problems, rounds_up=False)
    if unproven and at is None:
        problems.append("--unproven: it needs --at")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read()
    numbers = parse_partitions(partition)
    archive = open_reader(config, url, cluster, entropy_bits)

    def scan(topic: str) -> "Scan":
        shown = archive
        if moment is not None:  # transactions are whole between the topics of a statement
            named = [name for name in session.topics if statement is not None and name.lower() in statement.lower()]
            shown = archive.at(moment, unproven="warn" if unproven else "error", topics=named or None)
        return shown.scan(
            topic,
            partitions=_held(archive, topic, numbers),
            isolation_level=isolation.value,
            include_headers=headers,
            incarnation=incarnation,
            max_batch_bytes=max_batch_bytes,
            **bounds,
        )

    session = Session(archive, scan, files=files, yields_rows=not explain)
    runner = _Runner(session, Output(as_json=False), Format(form), to, explain=explain)
    if statement is None:
        from tsctl.sql.prompt import converse  # noqa: PLC0415  (only for a terminal)

        converse(session.topics, runner.run_and_report, runner.output.text)
        return
    runner.run(statement)


class _Runner:
    """Runs statements and writes their results."""

    def __init__(self, session: "Session", output: Output, form: "Format", to: Path | None, *, explain: bool) -> None:
        self.output = output
        self._session = session
        self._form = form
        self._to = to
        self._explain = explain

    def run_and_report(self, text: str) -> None:
        """Run statements of a prompt, which continues after an error."""
        try:
            self.run(text)
        except TieredStorageError as error:
            self.output.warn(str(error))
        except KeyboardInterrupt:
            self.output.warn("interrupted")

    def run(self, text: str) -> None:
        """Run statements; write the result of each that has one."""
        statements = self._session.statements(text)
        if not statements:
            raise ConfigurationError(SOURCE, ["no statement: give SQL, as in 'select count(*) from clicks'"])
        for statement in statements:
            result = self._session.run(statement)
            if result is None:
                continue
            schema, batches = result
            with closing(batches):
                if self._explain:
                    for _ in batches:
                        pass
                    self._write_reads()
                else:
                    self._write(schema, batches)

    def _write(self, schema: Any, batches: Any) -> None:
        from tsctl.sql.results import (  # noqa: PLC0415  (with pyarrow)
            Format,
            complete_file,
            write_parquet,
            write_table,
            write_text,
        )

        if self._form is Format.PARQUET and self._to is not None:
            count = write_parquet(schema, batches, self._to)
            self.output.text(f"{self._to}: {count:,} rows")
        elif self._form is Format.TABLE and self._to is None:
            write_table(schema, batches, self.output)
        elif self._to is None:
            write_text(self._form, schema, batches, sys.stdout)
        else:
            form = Format.CSV if self._form is Format.TABLE else self._form
            with complete_file(self._to) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
                write_text(form, schema, batches, file)

    def _write_reads(self) -> None:
        rows = [
            (
                read.topic,
                read.estimate.partitions,
                f"{read.estimate.segments:,} of {read.estimate.all_segments:,}",
                f"{size(read.estimate.bytes)} of {size(read.estimate.all_bytes)}",
                read.estimate.offsets,
            )
            for read in self._session.reads()
        ]
        self.output.table(("TOPIC", "PARTITIONS", "SEGMENTS", "BYTES", "OFFSETS"), rows)


def _bounds(start: str | None, end: str | None, problems: list[str]) -> dict[str, Any]:
    """Return the arguments of a scan for `--from` and `--to`."""
    found: dict[str, Any] = {}
    for option, text, name in (("--from", start, "starting_timestamp"), ("--to", end, "ending_timestamp")):
        if (moment := _moment(option, text, problems)) is not None:
            found[name] = moment
    if "starting_timestamp" in found:
        found["starting_without_match"] = "latest"
    return found


def _moment(option: str, text: str | None, problems: list[str], *, rounds_up: bool = True) -> int | None:
    """Return the milliseconds of an option; None without a value, or if it is wrong."""
    if text is None:
        return None
    if text.isdecimal():
        problems.append(
            f"{option}={text}: a time is expected, as in 2026-11-22T06:00:00Z; "
            f'for offsets write where "offset" >= {text}'
        )
        return None
    try:
        return milliseconds_of(text, rounds_up=rounds_up)
    except ValueError as error:
        problems.append(f"{option}={text}: {error}")
        return None


def _held(archive: "Archive", topic: str, numbers: frozenset[int] | None) -> list[int] | None:
    """Return the requested partitions that a topic has; None for all."""
    if numbers is None:
        return None
    held = {info.partition for info in archive.partitions(topic)}
    if chosen := sorted(numbers & held):
        return chosen
    return sorted(numbers)  # an error that names what there is
