"""`tsctl sql`: DuckDB over an archive, with topics as tables."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.suggestions import nearest
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.query import CorruptionMode, Undecoded
from ts_reader.reading.incarnation_option import NEWEST
from tsctl.archive_options import (
    ClusterOption,
    ConfigOption,
    EntropyOption,
    IncarnationOption,
    PartitionsOption,
    UrlOption,
    open_reader,
    parse_partitions,
)
from tsctl.output import Output, size
from tsctl.scan_options import (
    IsolationOption,
    KeyCodecsOption,
    MaxBatchBytesOption,
    ModeOption,
    RegistryCaOption,
    RegistryOption,
    TimestampMsOption,
    UndecodedOption,
    ValueCodecsOption,
    codec_of,
    held_partitions,
    open_registry,
    parse_bounds,
    parse_codecs,
    parse_time,
)

if TYPE_CHECKING:
    from ts_reader import Scan
    from tsctl.results import ResultFormat
    from tsctl.sql.read_progress import ReadProgress
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
    form: Annotated[
        str, typer.Option("--format", help="Format of the result: table, csv, json, parquet or arrow.")
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as --format json.")] = False,
    to: Annotated[Path | None, typer.Option("--output", help="File for the result; it must not exist.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what the statement reads of each topic; read no record.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Let statements read and write files, and load DuckDB's extensions.")
    ] = False,
    key: KeyCodecsOption = None,
    value: ValueCodecsOption = None,
    undecoded: UndecodedOption = Undecoded.ERROR,
    registry: RegistryOption = None,
    registry_ca: RegistryCaOption = None,
    isolation: IsolationOption = "read_uncommitted",
    mode: ModeOption = CorruptionMode.FAILFAST,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Read what is left if offsets are lost; each loss is a warning.")
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Tables have a column of headers.")] = False,
    timestamp_ms: TimestampMsOption = False,
    incarnation: IncarnationOption = NEWEST,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
) -> None:
    """Query topics with SQL (DuckDB): each topic is a table."""
    from tsctl.results import ResultFormat  # noqa: PLC0415  (pyarrow and DuckDB, 0.2 s)
    from tsctl.sql.read_progress import ReadProgress  # noqa: PLC0415  (as above)
    from tsctl.sql.session import Session  # noqa: PLC0415  (as above)

    problems: list[str] = []
    if as_json and form not in {ResultFormat.TABLE, ResultFormat.JSON}:
        problems.append(f"--json and --format={form}: give one of the two")
    form = ResultFormat.JSON if as_json else form
    if form not in list(ResultFormat):
        problems.append(f"--format={form}: accepted are {', '.join(ResultFormat)}")
    if (
        to is not None
        and form == ResultFormat.TABLE
        and to.suffix.lstrip(".") in {ResultFormat.PARQUET, ResultFormat.ARROW, ResultFormat.JSON}
    ):
        problems.append(f"--output={to} with --format=table: add --format {to.suffix.lstrip('.')}")
    if form in {ResultFormat.PARQUET, ResultFormat.ARROW} and to is None and not explain:
        problems.append(f"--format={form}: --output FILE is needed")
    bounds = parse_bounds(start, end, problems, offsets=False)
    codecs = [parse_codecs(option, texts or [], problems) for option, texts in (("--key", key), ("--value", value))]
    schemas = open_registry(registry, registry_ca, problems)
    moment = parse_time("--at", at, problems, rounds_up=False)
    if unproven and at is None:
        problems.append("--unproven: it needs --at")
    if moment is not None and bounds.get("starting_timestamp", 0) > moment:
        problems.append(f"--from={start} is after --at={at}")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read()
    numbers = parse_partitions(partition)
    output = Output(as_json=False)
    archive = open_reader(
        config, url, cluster, entropy_bits, warn=lambda warning: output.warn(str(warning)), registry=schemas
    )

    def scan(topic: str) -> "Scan":
        shown = archive
        if moment is not None:  # transactions are whole between the topics of a statement
            named = None if statement is None else session.named(statement)
            shown = archive.at(moment, unproven="warn" if unproven else "error", topics=named or None)
        return shown.scan(
            topic,
            partitions=held_partitions(archive, topic, numbers, incarnation),
            key=codec_of(codecs[0], topic),
            value=codec_of(codecs[1], topic),
            undecoded=undecoded.value,
            isolation_level=isolation,
            mode=mode.value,
            fail_on_data_loss=not allow_loss,
            include_headers=headers,
            include_timestamp_ms=timestamp_ms,
            incarnation=incarnation,
            max_batch_bytes=max_batch_bytes,
            **bounds,
        )

    # Rows that appear on the terminal one by one would be written into the bars.
    is_quiet = form == ResultFormat.TABLE or to is not None or not sys.stdout.isatty()
    progress = ReadProgress(shown=sys.stderr.isatty() and is_quiet and not explain)
    session = Session(archive, scan, files=files, yields_rows=not explain, progress=progress)
    for option, texts in (("--key", codecs[0]), ("--value", codecs[1])):
        if unknown := [topic for topic in texts if topic is not None and topic not in session.topics]:
            problems += [f"{option}={topic}=...: no such topic{nearest(topic, session.topics)}" for topic in unknown]
    if problems:
        raise ConfigurationError(SOURCE, problems)
    runner = _Runner(session, progress, output, ResultFormat(form), to, explain=explain)
    if statement is None:
        from tsctl.sql.prompt import converse  # noqa: PLC0415  (only for a terminal)

        converse(session.topics, runner.run_and_report, runner.output.text)
        return
    runner.run(statement)


class _Runner:
    """Runs statements and writes their results."""

    def __init__(
        self,
        session: "Session",
        progress: "ReadProgress",
        output: Output,
        form: "ResultFormat",
        to: Path | None,
        *,
        explain: bool,
    ) -> None:
        self.output = output
        self._progress = progress
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
        results = sum(statement.has_result for statement in statements)
        if self._to is not None and results > 1:
            raise ConfigurationError(SOURCE, [f"--output={self._to}: {results} statements have a result; give one"])
        for statement in statements:
            with self._progress:
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
        from tsctl.results import (  # noqa: PLC0415  (with pyarrow)
            ResultFormat,
            complete_file,
            write_file,
            write_table,
            write_text,
        )

        if self._form in {ResultFormat.PARQUET, ResultFormat.ARROW} and self._to is not None:
            count = write_file(self._form, schema, batches, self._to)
            self.output.text(f"{self._to}: {counted(count, 'row')}")
        elif self._form is ResultFormat.TABLE and self._to is None:
            write_table(schema, batches, self.output, self._progress.end)
        elif self._to is None:
            write_text(self._form, schema, batches, sys.stdout)
        else:
            form = ResultFormat.CSV if self._form is ResultFormat.TABLE else self._form
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
