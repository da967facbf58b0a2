"""`tsctl tables`: tables made of archived topics, as a file describes them."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ts_common.errors import ConfigurationError
from ts_common.wording import counted
from tsctl.commands import table_changes
from tsctl.exit_codes import ExitCode
from tsctl.output import NOTHING, Output
from tsctl.repeats import EveryOption, interval_of, seconds_of, stopping
from tsctl.run_metrics import MetricsFileOption
from tsctl.table_arguments import FileOption, JsonOption, NamesArgument, SetOption, WorkersOption, end, open_tables
from tsctl.table_runs import compact_all, for_each, needing, recording, run_all, warn_of

if TYPE_CHECKING:
    from ts_tables import Tables
    from ts_tables.status import TableStatus


tables = typer.Typer(no_args_is_help=True, help="Tables made of archived topics: each record once.")


@tables.command("create")
def create(
    names: NamesArgument = None, file: FileOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Create tables that do not exist. They have no rows before their first run."""
    found, output = open_tables(file, settings, names), Output(as_json)
    created: dict[str, bool] = {}

    def make(name: str) -> None:
        created[name] = found.create(name)
        output.text(f"{name}: {'created' if created[name] else 'exists'}")

    failed = for_each(names or found.names, make, output)
    if as_json:
        output.document({"tables": [{"name": name, "created": is_new} for name, is_new in created.items()]})
    end(failed)


@tables.command("run")
def run(
    names: NamesArgument = None,
    file: FileOption = None,
    settings: SetOption = None,
    every: EveryOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what a run would add, and add nothing.")] = False,
    workers: WorkersOption = None,
    metrics_file: MetricsFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add to tables what the archive has for them. Exit code 1: a table waits at a hole."""
    output = Output(as_json)
    seconds = interval_of(every)
    if seconds is not None and dry_run:
        raise ConfigurationError("command line", ["--every and --dry-run: give one of the two"])
    found = open_tables(file, settings, names, workers, output)
    chosen = names or found.names
    if dry_run:
        end(for_each(chosen, lambda name: _print_plan(found, name, output), output))
        return
    record = recording(metrics_file, output)
    with stopping(seconds is not None) as stopped:
        while True:
            began = monotonic()
            waiting, failed = run_all(found, chosen, record, output, repeats=seconds is not None)
            if seconds is None or stopped(max(0.0, seconds - (monotonic() - began))):
                break
    if seconds is None:
        end(failed, is_finding=waiting)


tables.command("replay-quarantine")(table_changes.replay_quarantine)
tables.command("forget")(table_changes.forget)
tables.command("generations")(table_changes.generations)
tables.command("switch")(table_changes.switch)


@tables.command("status")
def status(
    names: NamesArgument = None, file: FileOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Print how far tables are. Exit code 1: a table waits at a hole, or fails because of the archive."""
    found, output = open_tables(file, settings, names), Output(as_json)
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
        for sentence in (*each.findings, *each.notes):
            output.warn(f"{each.name}: {sentence}")
    if as_json:
        output.document(
            {
                "tables": [
                    {
                        "name": each.name,
                        "lag": dict(each.lag),
                        "findings": list(each.findings),
                        "notes": list(each.notes),
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
    end(failed, is_finding=any(each.findings for each in all_found))


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
            help="Parse the records again, and compare all values. For raw tables, all bytes are compared anyway.",
        ),
    ] = False,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare tables with the archive, row by row. Exit code 1: a row differs, or a claim cannot be compared."""
    from tsctl.results import complete_file  # noqa: PLC0415  (pyarrow)

    output = Output(as_json)
    found = open_tables(file, settings, names, workers, output)
    documents: list[dict[str, Any]] = []

    def compare(name: str) -> None:
        result = found.verify(name, deep=deep)
        document = {"table": name, **result.document()}
        documents.append(document)
        output.text(f"{name}: {counted(result.rows, 'row')}, {counted(len(result.differences), 'difference')}")
        for sentence in (*map(str, result.differences), *result.notes, *found.beginning(name)):
            output.warn(f"{name}: {sentence}")
        if as_json:
            output.line({"table": name, "rows": result.rows, "differences": document["differences"]})

    with nullcontext() if evidence is None else complete_file(evidence, "--evidence") as temporary:
        end(for_each(names or found.names, compare, output))  # no evidence of some of the tables
        if temporary is not None:
            whole = {"version": 1, "tables": documents}
            temporary.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    end(None, is_finding=any(each["differences"] or each["notes"] for each in documents))


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

    For tables of plain files, merge and show the files that are held.
    """
    age = seconds_of(expire_after, "--expire-after")
    found, output = open_tables(file, settings, names), Output(as_json)
    end(compact_all(found, names or found.names, age, retain_last, output))


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
    result = open_tables(file, settings, [name], workers, output).adopt(name)
    for sentence in (*map(str, result.differences), *result.notes):
        output.warn(f"{name}: {sentence}")
    if result.differences:
        output.text(
            f"{name}: {counted(result.rows, 'row')}, {counted(len(result.differences), 'difference')}; "
            "nothing was changed"
        )
        raise typer.Exit(ExitCode.FOUND)
    output.text(f"{name}: {counted(result.rows, 'row')}, as its claims; runs continue from there")


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
    found = open_tables(file, settings, [name])
    has = found.contents(name)
    files = f"{counted(has.files, 'file')}, {counted(has.bytes, 'byte')}, in {has.location}"
    shown = f"{name}: {counted(has.rows, 'row')} in {files}"
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


def _print_plan(found: "Tables", name: str, output: Output) -> None:
    plan = found.plan(name)
    offsets = sum(work.offsets for work in plan.work)
    output.text(f"{name}: {counted(offsets, 'offset')} in {counted(len(plan.work), 'part')}; nothing was added")
    if output.as_json:
        output.line({"table": name, "offsets": offsets, "parts": len(plan.work), "waits": list(plan.waits)})
    warn_of(name, plan.lag, (*plan.waits, *plan.notes), output)
