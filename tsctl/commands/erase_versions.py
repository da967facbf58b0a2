"""`tsctl erase versions`: deletes earlier versions of objects that had erased records, in a bucket with versions."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ts_common.log_format.limits import MAX_BATCH_BYTES
from tsctl.archive_options import ArchiveOptions, JsonOption, open_archive
from tsctl.commands.erase_run import GRACE
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, iso
from tsctl.repeats import seconds_of
from tsctl.scan_options import MaxBatchBytesOption

if TYPE_CHECKING:
    from tsctl.erase.erased_copies import Outcome
    from tsctl.erase.versions_run import Found

_COLUMNS: Final = ("PARTITION", "VERSIONS", "DID", "UNTIL", "REASON", "LOCATION")


def versions(
    grace: Annotated[
        str,
        typer.Option(
            "--grace",
            help="Delete a version so long after it was replaced or deleted: a repair can need it until then.",
            metavar="TIME",
        ),
    ] = GRACE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what a run would delete, and delete nothing.")
    ] = False,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,  # noqa: ARG001  (its callback keeps it)
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Delete earlier versions with erased records, in buckets that keep versions. It needs an identity of its own.

    A version is deleted only if copies have its other records. Exit code 1: a person must act, because a version is
    the only copy of other records, or a partition failed.
    """
    output, seconds = Output(as_json), seconds_of(grace, "--grace")
    from tsctl.erase.versions_run import remove_in_archive  # noqa: PLC0415  (pyarrow and kernels, only for this command)

    results = list["Found"]()
    with open_archive(given.name(), output.warn) as archive:
        for found in remove_in_archive(archive, seconds, output.warn, writes=not dry_run):
            results.append(found)
            for each in found.partitions:
                if each.problem is not None:
                    output.warn(f"{each.place.name}: {each.problem}")
    if as_json:
        rows = [_fields(found.location, *row) for found in results for row in found.outcomes()]
        output.document({"dry_run": dry_run, "versions": rows})
    else:
        _print(results, output)
    if any(found.is_finding for found in results):
        raise typer.Exit(ExitCode.FOUND)


def _print(results: "list[Found]", output: Output) -> None:
    for found in results:
        counts = Counter((name, each.did, each.until, each.reason) for name, each in found.outcomes())
        if not found.has_versions:
            output.text(f"{found.location}: the bucket keeps no versions")
        elif not counts:
            output.text(f"{found.location}: no versions with erased records")
        else:
            output.table(
                _COLUMNS,
                [
                    [name or "index of keys", count, did.value, iso(until), reason, found.location]
                    for (name, did, until, reason), count in counts.items()
                ],
            )


def _fields(location: str, name: str, outcome: "Outcome") -> dict[str, object]:
    return {
        "location": location,
        "partition": name or None,
        "key": outcome.key,
        "version": outcome.version,
        "did": outcome.did.value,
        "reason": outcome.reason,
        "until": iso(outcome.until),
    }
