"""`tsctl tables`: tables made of archived topics, as a file describes them."""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError, TieredStorageError
from tsctl.exit_codes import ExitCode, code_of
from tsctl.output import NOTHING, Output
from tsctl.table_runs import compact_all, for_each, needing, recording, run_all, warn_of, with_progress

if TYPE_CHECKING:
    from ts_tables import Tables
    from ts_tables.status import TableStatus

_FILE: Final = Path("tables.yaml")

tables = typer.Typer(no_args_is_help=True, help="Tables made of archived topics: each record once.")

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


@tables.command("create")
def create(
    names: NamesArgument = None, file: FileOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Create tables that do not exist. They have no rows before their first run."""
    found, output = _open(file, settings, names), Output(as_json)
    created: dict[str, bool] = {}

    def make(name: str) -> None:
        created[name] = found.create(name)
        output.text(f"{name}: {'created' if created[name] else 'exists'}")

    failed = for_each(names or found.names, make, output)
    if as_json:
        output.document({"tables": [{"name": name, "created": is_new} for name, is_new in created.items()]})
    _end(failed)


@tables.command("run")
def run(
    names: NamesArgument = None,
    file: FileOption = None,
    settings: SetOption = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="Run again after so long, as in 1m, until SIGTERM or Ctrl-C; default: run once."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what a run would add, and add nothing.")] = False,
    workers: WorkersOption = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            help="Write metrics for the textfile collector of Prometheus' node_exporter; the name ends in .prom.",
            metavar="FILE",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add to tables what the archive has for them. Exit code 1: a table waits at a hole."""
    output = Output(as_json)
    seconds = None if every is None else _seconds(every, "--every")
    if seconds is not None and (dry_run or not seconds):
        raise ConfigurationError(
            "command line",
            ["--every and --dry-run: give one of the two" if dry_run else "--every: 1s or more is expected"],
        )
    found = _open(file, settings, names, workers, output)
    chosen = names or found.names
    if dry_run:
        _end(for_each(chosen, lambda name: _print_plan(found, name, output), output))
        return
    record = recording(metrics_file, output)
    with _stopping(seconds is not None) as stopped:
        while True:
            began = monotonic()
            waiting, failed = run_all(found, chosen, record, output, repeats=seconds is not None)
            if seconds is None or stopped(max(0.0, seconds - (monotonic() - began))):
                break
    if seconds is None:
        _end(failed, is_finding=waiting)


@tables.command("replay-quarantine")
def replay_quarantine(
    names: NamesArgument = None,
    file: FileOption = None,
    settings: SetOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parse refused records again, after their parser was mended. Accepted ones move to the table.

    The parser of the file is that of the table from then on. Rows that the table has stay as they are.
    """
    output = Output(as_json)
    found = _open(file, settings, names, workers, output)

    def again(name: str) -> None:
        done = found.replay(name)
        output.text(f"{name}: {done.moved:,} records moved to the table, {done.left:,} are refused still")
        if as_json:
            output.line({"table": name, "moved": done.moved, "refused": done.left})

    _end(for_each(names or found.names, again, output))


@tables.command("forget")
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
    file: FileOption = None,
    settings: SetOption = None,
    workers: WorkersOption = None,
) -> None:
    """Delete the rows of given keys or offsets from a table, and note it there. The archive has the records still."""
    output = Output(as_json=False)
    found = _open(file, settings, [name], workers, output)
    from ts_tables.forget import key_of, offsets_of  # noqa: PLC0415  (pyarrow)

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
    if not problems and not chosen and not ranges:
        problems.append("--key or --offsets is needed")
    if problems:
        raise ConfigurationError("command line", problems)
    done = found.forget(name, chosen, ranges)
    for sentence in done.notes:
        output.text(f"{name}: {sentence}")
    if done.records or not done.notes:
        output.text(f"{name}: the rows of {done.records:,} records were deleted; the archive has the records still")


@tables.command("generations")
def generations(
    name: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    file: FileOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the generations of a table: which one is in use, and how far each is."""
    output = Output(as_json)
    found = _open(file, settings, [name]).generations(name)
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


@tables.command("switch")
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
    found = _open(file, settings, [name], workers, output)
    former = found.switch(name, number, compares=compares)
    if former == number:
        output.text(f"{name}: generation {number} is in use")
        return
    output.text(f"{name}: generation {number} is in use; {name}@{former} is the former one")


@tables.command("status")
def status(
    names: NamesArgument = None, file: FileOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Print how far tables are. Exit code 1: a table waits at a hole, or fails because of the archive."""
    found, output = _open(file, settings, names), Output(as_json)
    all_found: list[TableStatus] = []
    failed = for_each(names or found.names, lambda name: all_found.append(found.status(name)), output)
    rows: list[Sequence[Any]] = []
    for each in all_found:
        by_topic: dict[tuple[str, str | None], list[int]] = {}
        for part in each.partitions:
            sums = by_topic.setdefault((part.partition.topic, part.topic_id), [0, 0, 0])
            sums[0] += 1
            sums[1] += part.end - part.start - part.missing
            sums[2] += part.missing
        for topic in sorted({*each.lag} - {topic for topic, _ in by_topic}):
            by_topic[topic, None] = [0, 0, 0]
        rows += [
            (each.name, topic, topic_id or NOTHING, *sums, each.lag.get(topic))
            for (topic, topic_id), sums in sorted(by_topic.items(), key=str)
        ] or [(each.name, NOTHING, NOTHING, 0, 0, 0, None)]
        for sentence in each.findings:
            output.warn(f"{each.name}: {sentence}")
    if as_json:
        output.document(
            {
                "tables": [
                    {
                        "name": each.name,
                        "lag": dict(each.lag),
                        "findings": list(each.findings),
                        "partitions": [
                            {
                                "topic": part.partition.topic,
                                "partition": part.partition.partition,
                                "topic_id": part.topic_id,
                                "from": part.start,
                                "to": part.end,
                                "missing": part.missing,
                            }
                            for part in each.partitions
                        ],
                    }
                    for each in all_found
                ]
            }
        )
    elif rows:
        output.table(["table", "topic", "topic id", "partitions", "claimed", "missing", "lag"], rows)
    _end(failed, is_finding=any(each.findings for each in all_found))


@tables.command("verify")
def verify(
    names: NamesArgument = None,
    file: FileOption = None,
    settings: SetOption = None,
    evidence: Annotated[
        Path | None,
        typer.Option("--evidence", help="Write snapshots, claims and checksums to a JSON file; it must not exist."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Parse the records again, and compare all values. Of raw tables, all bytes are compared anyway.",
        ),
    ] = False,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare tables with the archive, row by row. Exit code 1: a row differs, or a claim cannot be compared."""
    from tsctl.results import complete_file  # noqa: PLC0415  (pyarrow)

    output = Output(as_json)
    found = _open(file, settings, names, workers, output)
    documents: list[dict[str, Any]] = []

    def compare(name: str) -> None:
        result = found.verify(name, deep=deep)
        document = {"table": name, **result.document()}
        documents.append(document)
        output.text(f"{name}: {result.rows:,} rows, {len(result.differences):,} differences")
        for sentence in (*map(str, result.differences), *result.notes):
            output.warn(f"{name}: {sentence}")
        if as_json:
            output.line({"table": name, "rows": result.rows, "differences": document["differences"]})

    with nullcontext() if evidence is None else complete_file(evidence, "--evidence") as temporary:
        _end(for_each(names or found.names, compare, output))  # no evidence of some of the tables
        if temporary is not None:
            whole = {"version": 1, "tables": documents}
            temporary.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    _end(None, is_finding=any(each["differences"] or each["notes"] for each in documents))


@tables.command("compact")
def compact(
    names: NamesArgument = None,
    file: FileOption = None,
    settings: SetOption = None,
    expire_after: Annotated[
        str, typer.Option("--expire-after", help="Age of the snapshots that expire, as in 12h.", metavar="AGE")
    ] = "5d",
    retain_last: Annotated[
        int, typer.Option("--retain-last", min=1, help="So many snapshots stay, however old they are.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Rewrite small files of Iceberg tables by Spark, then expire snapshots. It needs pyspark and Iceberg's jars.

    Of tables of plain files, merge and show those that are held.
    """
    age = _seconds(expire_after, "--expire-after")
    found, output = _open(file, settings, names), Output(as_json)
    _end(compact_all(found, names or found.names, age, retain_last, output))


@tables.command("adopt")
def adopt(
    name: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    file: FileOption = None,
    settings: SetOption = None,
    workers: WorkersOption = None,
) -> None:
    """Continue a table that was rolled back, or whose tag was moved. Its rows are compared with its claims first.

    Exit code 1: they differ, and nothing was changed.
    """
    output = Output(as_json=False)
    result = _open(file, settings, [name], workers, output).adopt(name)
    for sentence in (*map(str, result.differences), *result.notes):
        output.warn(f"{name}: {sentence}")
    if result.differences:
        output.text(f"{name}: {result.rows:,} rows, {len(result.differences):,} differences; nothing was changed")
        raise typer.Exit(ExitCode.FOUND)
    output.text(f"{name}: {result.rows:,} rows are as its claims; runs continue from there")


@tables.command("drop")
def drop(
    name: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    file: FileOption = None,
    settings: SetOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the table; its files stay.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="With --yes: delete its files too.")] = False,
) -> None:
    """Print what a table has. With --yes remove it."""
    output = Output(as_json=False)
    found = _open(file, settings, [name])
    has = found.contents(name)
    shown = f"{name}: {has.rows:,} rows in {has.files:,} files, {has.bytes:,} bytes, in {has.location}"
    if not yes:
        output.text(f"{shown}; nothing was removed: --yes removes the table, --yes --purge its files too")
        return
    found.drop(name, purge=purge)
    output.text(f"{shown}; the table was removed, its files {'were deleted' if purge else 'stay'}")


@tables.command("schema")
def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    with needing("tables"):
        from ts_tables.definition.tables_file import json_schema  # noqa: PLC0415  (pydantic, ruamel)
    Output(as_json=True).line(json_schema())


def _open(
    file: Path | None,
    settings: Sequence[str] | None,
    names: Sequence[str] | None,
    workers: int | None = None,
    output: Output | None = None,
) -> "Tables":
    with needing("tables"):
        from ts_tables import Tables  # noqa: PLC0415  (pyiceberg and pyarrow, only for these commands)
        from ts_tables.definition.tables_file import read_content, with_settings  # noqa: PLC0415  (the same)
    path = file or _FILE
    has_file = not settings or file is not None or path.exists()
    content: Any = read_content(path) if has_file else {}
    source = str(path) if has_file else "--set"
    if settings and isinstance(content, Mapping):
        content = with_settings(
            content, settings, names[0].partition("@")[0] if names and len(names) == 1 else None, "--set"
        )
    engine = None if output is None else with_progress(output, workers)
    found = Tables(content, engine=engine, source=source)
    if unknown := [name for name in names or () if name.partition("@")[0] not in found.names]:
        raise ConfigurationError(
            source, [f"{name}: the file has no such table; it has {', '.join(found.names)}" for name in unknown]
        )
    return found


def _print_plan(found: "Tables", name: str, output: Output) -> None:
    plan = found.plan(name)
    offsets = sum(work.offsets for work in plan.work)
    output.text(f"{name}: {offsets:,} offsets in {len(plan.work):,} parts; nothing was added")
    if output.as_json:
        output.line({"table": name, "offsets": offsets, "parts": len(plan.work), "waits": list(plan.waits)})
    warn_of(name, plan.lag, plan.waits, output)


def _end(failed: TieredStorageError | None, *, is_finding: bool = False) -> None:
    """End the command if a table failed, which was printed, or if there are findings.

    Raises:
        typer.Exit: with the exit code.
    """
    if failed is not None:
        raise typer.Exit(code_of(failed))
    if is_finding:
        raise typer.Exit(ExitCode.FOUND)


def _seconds(text: str, option: str) -> int:
    with needing("tables"):
        from ts_tables.definition.sizes import parse_seconds  # noqa: PLC0415  (pydantic)
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigurationError("command line", [f"{option}={text}: {error}"]) from error


@contextmanager
def _stopping(is_loop: bool) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds, and returns whether a signal has ended the loop."""
    event = threading.Event()
    if not is_loop:
        yield lambda _: True
        return
    former = {each: signal.signal(each, lambda *_: event.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event.wait
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
