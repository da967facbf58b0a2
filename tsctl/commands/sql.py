"""`tsctl sql`: DuckDB over an archive, with topics as tables."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.option_groups import with_groups
from ts_common.suggestions import nearest
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.query import Undecoded
from tsctl.archive_options import (
    ArchiveOptions,
    PartitionsOption,
    parse_partitions,
)
from tsctl.output import Output, size
from tsctl.scan_options import (
    KeyCodecsOption,
    RegistryOptions,
    ScanOptions,
    UndecodedOption,
    ValueCodecsOption,
    codec_of,
    held_partitions,
    parse_bounds,
    parse_codecs,
    parse_time,
)

if TYPE_CHECKING:
    from ts_reader import Archive, Scan
    from tsctl.results import ResultFormat
    from tsctl.sql.read_progress import ReadProgress
    from tsctl.sql.session import Session


@dataclass(frozen=True, slots=True)
class _ResultOptions:
    """Where a result is written, and how."""

    form: Annotated[str, typer.Option("--format", help="Format of the result: table, csv, json, parquet or arrow.")] = (
        "table"
    )
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as --format json.")] = False
    to: Annotated[Path | None, typer.Option("--output", help="File for the result; it must not exist.")] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what the statement reads of each topic; read no record.")
    ] = False

    def format(self, problems: list[str]) -> "ResultFormat":
        """Return the format of the result; append a sentence for each mistake."""
        from tsctl.results import FILES, ResultFormat  # noqa: PLC0415  (pyarrow and DuckDB, 0.2 s)

        form, to = self.form, self.to
        if self.as_json and form not in {ResultFormat.TABLE, ResultFormat.JSON}:
            problems.append(f"--json and --format={form}: give one of the two")
        if self.as_json:
            return ResultFormat.JSON
        if form not in list(ResultFormat):
            problems.append(f"--format={form}: accepted are {', '.join(ResultFormat)}")
            return ResultFormat.TABLE
        named = "" if to is None else to.suffix.lstrip(".")
        if form == ResultFormat.TABLE and named in {*FILES, ResultFormat.JSON}:
            problems.append(f"--output={to} with --format=table: add --format {named}")
        if form in FILES and to is None and not self.explain:
            problems.append(f"--format={form}: --output FILE is needed")
        return ResultFormat(form)


@dataclass(frozen=True, slots=True)
class _TopicOptions:
    """What the tables of topics have."""

    start: Annotated[
        str | None, typer.Option("--from", help="All topics begin at this time: 2026-11-22T06:00:00Z, @milliseconds.")
    ] = None
    end: Annotated[str | None, typer.Option("--to", help="All topics end before this time.")] = None
    at: Annotated[
        str | None, typer.Option("--at", help="All topics as of this time, with transactions committed by then.")
    ] = None
    unproven: Annotated[
        bool, typer.Option("--unproven", help="With --at: warn if records up to then may be missing; do not fail.")
    ] = False
    partition: PartitionsOption = None
    key: KeyCodecsOption = None
    value: ValueCodecsOption = None
    undecoded: UndecodedOption = Undecoded.ERROR
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Read what is left if offsets are lost; each loss is a warning.")
    ] = False
    headers: Annotated[bool, typer.Option("--headers", help="Tables have a column of headers.")] = False
    key_equals: Annotated[
        list[str] | None,
        typer.Option(
            "--key-equals", help="Tables have the records of this key only, in UTF-8; repeatable. An index finds them."
        ),
    ] = None

    def parse(self, problems: list[str]) -> "_Topics":
        """Return the values of the options; append a sentence for each mistake."""
        bounds = parse_bounds(self.start, self.end, problems, offsets=False)
        codecs = [
            parse_codecs(option, texts or [], problems)
            for option, texts in (("--key", self.key), ("--value", self.value))
        ]
        moment = parse_time("--at", self.at, problems, rounds_up=False)
        if self.unproven and self.at is None:
            problems.append("--unproven: it needs --at")
        if moment is not None and bounds.get("starting_timestamp", 0) > moment:
            problems.append(f"--from={self.start} is after --at={self.at}")
        return _Topics(self, bounds, codecs, moment)


@dataclass(frozen=True, slots=True)
class _Topics:
    """Opens scans of topics.

    Attributes:
        bounds: arguments of a scan.
        codecs: of keys and of values, by topic.
        moment: that topics are as of, ms; None for now.
    """

    options: _TopicOptions
    bounds: Mapping[str, Any]
    codecs: Sequence[Mapping[str | None, str]]
    moment: int | None

    def scan(self, archive: "Archive", topic: str, read: ScanOptions, named: Sequence[str]) -> "Scan":
        """Return a scan of a topic.

        Args:
            read: options of all scans.
            named: topics of the statement: transactions are whole between them.
        """
        options, shown = self.options, archive
        if self.moment is not None:
            shown = archive.at(self.moment, unproven="warn" if options.unproven else "error", topics=named or None)
        return shown.scan(
            topic,
            partitions=held_partitions(archive, topic, parse_partitions(options.partition), read.incarnation),
            key=codec_of(self.codecs[0], topic),
            value=codec_of(self.codecs[1], topic),
            undecoded=options.undecoded.value,
            fail_on_data_loss=not options.allow_loss,
            include_headers=options.headers,
            key_equals=options.key_equals or None,
            include_timestamp_ms=read.timestamp_ms,
            **read.arguments(),
            **self.bounds,
        )

    def check(self, topics: Sequence[str]) -> None:
        """Check that each topic that has a codec exists.

        Raises:
            ConfigurationError: one does not.
        """
        problems = [
            f"{option}={topic}=...: no such topic{nearest(topic, topics)}"
            for option, texts in zip(("--key", "--value"), self.codecs, strict=True)
            for topic in texts
            if topic is not None and topic not in topics
        ]
        if problems:
            raise ConfigurationError(SOURCE, problems)


@with_groups
def sql(
    statement: Annotated[
        str | None, typer.Argument(help="SQL; default: a prompt, or the statements on standard input.")
    ] = None,
    files: Annotated[
        bool, typer.Option("--files", help="Let statements read and write files, and load DuckDB's extensions.")
    ] = False,
    *,
    result: _ResultOptions,
    of_topics: _TopicOptions,
    schemas: RegistryOptions,
    read: ScanOptions,
    given: ArchiveOptions,
) -> None:
    """Query topics with SQL (DuckDB): each topic is a table."""
    from tsctl.results import ResultFormat  # noqa: PLC0415  (pyarrow and DuckDB, 0.2 s)
    from tsctl.sql.read_progress import ReadProgress  # noqa: PLC0415  (as above)
    from tsctl.sql.session import Session  # noqa: PLC0415  (as above)

    problems: list[str] = []
    form, topics = result.format(problems), of_topics.parse(problems)
    registry = schemas.open(problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read()
    parse_partitions(of_topics.partition)  # a wrong one is found before a statement runs
    output = Output(as_json=False)
    archive = given.reader(warn=lambda warning: output.warn(str(warning)), registry=registry)

    def scan(topic: str) -> "Scan":
        is_now = statement is None or topics.moment is None
        return topics.scan(archive, topic, read, () if is_now else session.named(statement or ""))

    # Rows that appear on the terminal one by one would be written into the bars.
    is_quiet = form is ResultFormat.TABLE or result.to is not None or not sys.stdout.isatty()
    progress = ReadProgress(shown=sys.stderr.isatty() and is_quiet and not result.explain)
    session = Session(archive, scan, files=files, yields_rows=not result.explain, progress=progress)
    topics.check(session.topics)
    runner = _Runner(session, progress, output, form, result.to, explain=result.explain)
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
        from tsctl.results import ResultFormat, write_result, write_table  # noqa: PLC0415  (with pyarrow)

        if self._form is ResultFormat.TABLE and self._to is None:
            write_table(schema, batches, self.output, self._progress.end)
            return
        form = ResultFormat.CSV if self._form is ResultFormat.TABLE else self._form
        count = write_result(form, schema, batches, self._to)
        if count is not None:
            self.output.text(f"{self._to}: {counted(count, 'row')}")

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
