"""Runs and compactions of several tables: one line for each, and metrics of runs; on a terminal, progress."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ts_common.errors import ConfigurationError, OperatorError, TieredStorageError
from ts_common.installed import missing_package
from ts_common.wording import counted
from tsctl.output import Output, iso

if TYPE_CHECKING:
    from ts_tables import Tables
    from ts_tables.run import RunSummary
    from ts_tables.tasks import Engine

Recording = Callable[[str], AbstractContextManager["RunSummary"]]  # of a run of the named table


def with_progress(output: Output, workers: int | None) -> "Engine":
    """Return worker processes that show on a terminal how many tasks have ended.

    Args:
        workers: the number of processes; None for the number of processors.
    """
    from ts_tables.engines.processes import run_in_processes  # noqa: PLC0415  (pyiceberg, as of all tables)

    def engine(tasks: Sequence[Callable[[], Any]]) -> Sequence[Any]:
        if output.as_json or not tasks:
            return run_in_processes(tasks, workers=workers)
        with output.progress("tasks", len(tasks)) as advance:
            return run_in_processes(tasks, lambda _: advance(), workers)

    return engine


def recording(path: Path | None, output: Output) -> Recording:
    """Return what records a run in a file of metrics; without a path, it only yields a summary.

    Raises:
        OperatorError: the file cannot be written, or the Prometheus client is not installed.
    """
    from ts_tables.run import RunSummary  # noqa: PLC0415  (numpy)

    if path is None:
        return lambda _: nullcontext(RunSummary())
    with needing("tables"):
        from ts_tables.run_metrics import MetricsFile  # noqa: PLC0415  (only for this option)
    return MetricsFile(path, output.warn).recording


def for_each(
    names: Sequence[str], work: Callable[[str], None], output: Output, *, repeats: bool = False
) -> TieredStorageError | None:
    """Do something with each table, and return the first error. An error of one table does not stop the others.

    Args:
        work: called with each name.
        output: of the command; errors are warnings there.
        repeats: whether the command continues after an error.

    Raises:
        TieredStorageError: there is only one table, and the command does not continue.
    """
    if len(names) == 1 and not repeats:
        work(names[0])
        return None
    failed: TieredStorageError | None = None
    for name in names:
        try:
            work(name)
        except TieredStorageError as error:
            output.warn(f"{name}: {_line(error)}")
            failed = failed or error
    return failed


def _line(error: TieredStorageError) -> str:
    """Return the message of an error on one line."""
    return f"{error.source}: {'; '.join(error.problems)}" if isinstance(error, ConfigurationError) else str(error)


def run_all(
    found: "Tables", names: Sequence[str], record: Recording, output: Output, *, repeats: bool
) -> tuple[bool, TieredStorageError | None]:
    """Run tables; return whether one waits, and the first error; raise as `for_each`.

    Args:
        names: of those to run.
        record: records each run.
        repeats: whether the command continues after an error.
    """
    waiting: list[str] = []

    def run(name: str) -> None:
        with record(name) as summary:
            found.run(name, summary)
        _print(name, summary, output)
        warn_of(name, summary.lag, (*summary.waits, *summary.notes, *summary.erasing), output)
        waiting.extend(summary.waits)

    failed = for_each(names, run, output, repeats=repeats)
    return bool(waiting), failed


def compact_all(
    found: "Tables", names: Sequence[str], expire_after: float, retain_last: int, output: Output
) -> TieredStorageError | None:
    """Compact tables; of plain files show the held. Return the first error; raise as `for_each`.

    Args:
        names: of those to compact.
        expire_after: age in seconds of the snapshots that expire.
        retain_last: so many snapshots stay, however old they are.

    Raises:
        OperatorError: pyspark is missing.
    """

    def compact(name: str) -> None:
        if found.is_plain(name):
            _print(name, found.show_held(name), output)
            return
        with needing("pyspark"):
            done = found.compact(name, expire_after=expire_after, retain_last=retain_last)
        output.text(
            f"{name}: {counted(done.rewritten.files, 'file')} became {done.rewritten.written:,}, "
            f"{counted(done.rewritten.manifests, 'manifest')} rewritten, "
            f"{counted(done.expired.files, 'file')} deleted; {counted(done.files, 'data file')}, "
            f"{counted(done.bytes, 'byte')}"
        )
        if output.as_json:
            output.line({"table": name, **asdict(done)})

    return for_each(names, compact, output)


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Raise an error with the way out if a package is missing.

    Args:
        extra: name of the extra that has it.

    Raises:
        OperatorError: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (message := missing_package(error, extra)) is None:
            raise
        raise OperatorError(message) from error


def _print(name: str, done: "RunSummary", output: Output) -> None:
    refused = f"{counted(done.refused, 'record')} refused, " if done.refused else ""
    rewritten = f"{counted(done.rewritten, 'byte')} of touched buckets written again, " if done.rewritten else ""
    late = f"{counted(done.late, 'row')} of marked partitions, " if done.late else ""
    held = f"; held until max_age: {counted(done.held, 'row')}" if done.held else ""
    output.text(
        f"{name}: {counted(done.records, 'record')} in {counted(done.files, 'file')}, {counted(done.bytes, 'byte')}, "
        f"{counted(done.commits, 'commit')}, {refused}{rewritten}{late}"
        f"{done.seconds:.1f} s; {counted(sum(done.lag.values()), 'offset')} behind{held}"
    )
    if done.erased:
        output.text(f"{name}: deleted the rows of {counted(done.erased, 'erased record')}")
    if done.changed_times:
        output.warn(
            f"{name}: {counted(done.changed_times, 'row')} with a timestamp that its column does not hold: the "
            "column has the nearest one that it does; `timestamp_ms: true` in a new table adds the timestamp as stored"
        )
    if done.marked:
        output.text(f"{name}: marked {', '.join(done.marked)}")
    if output.as_json:
        output.line(
            {
                "table": name,
                "records": done.records,
                "refused": done.refused,
                "files": done.files,
                "bytes": done.bytes,
                "changed_times": done.changed_times,
                "late_rows": done.late,
                "marked": list(done.marked),
                "rewritten_bytes": done.rewritten,
                "commits": done.commits,
                "conflicts": done.conflicts,
                "held_rows": done.held,
                "erased_records": done.erased,
                "removed_files": done.removed,
                "valid_through": iso(done.valid_through),
                "seconds": round(done.seconds, 3),
                "lag": done.lag,
                "waits": list(done.waits),
                "notes": list(done.notes),
            }
        )


def warn_of(name: str, lag: Mapping[str, int], waits: Sequence[str], output: Output) -> None:
    """Warn of what the result of a run, or of a plan, has.

    Args:
        lag: by topic; empty if the table has no topic.
        waits: sentences about holes, and about partitions at their beginning.
    """
    if not lag:
        output.warn(f"{name}: the archive has no topic whose name matches `pattern`")
    for sentence in waits:
        output.warn(f"{name}: {sentence}")
