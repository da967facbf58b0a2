"""`tsctl repair`: puts back what an archive has lost, from earlier versions or by the agents."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ts_common.archive.repair_requests import Damage
from ts_common.durations import duration_milliseconds
from ts_common.errors import ConfigurationError
from ts_common.option_groups import with_groups
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    open_archive,
)
from tsctl.exit_codes import ExitCode
from tsctl.output import Output
from tsctl.repair.needs import by_hand, needs_of
from tsctl.repair.run import How, Repaired, Repairs, RepairStatus
from tsctl.verify.findings import Finding, worst_first
from tsctl.verify.run import CheckOptions, run_verification

_COLUMNS: Final = ("STATUS", "PARTITION", "KIND", "FROM", "TO", "DETAIL", "OBJECTS")


@with_groups
def repair(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be repaired; write nothing.")] = False,
    from_versions: Annotated[
        bool,
        typer.Option("--from-versions/--no-versions", help="Whether earlier versions in the bucket are used first."),
    ] = True,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Repair recorded gaps too, if a broker has their offsets again.")
    ] = False,
    wait: Annotated[
        str, typer.Option("--wait", help="How long to wait for the agents, as in 90s or 2m; then the code is 75.")
    ] = "2m",
    *,
    check: CheckOptions,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Repair the archive: put back deleted objects, and good copies of damaged ones, from versions or by the agents."""
    how = How(from_versions, dry_run, _seconds(wait))
    name = given.name()
    output = Output(as_json, name.whole)
    found = run_verification(name, check, output)
    needs = needs_of(found.coverages, gaps=gaps)
    others = by_hand(found.findings, gaps=gaps)
    results: list[Repaired] = []
    if needs:
        with open_archive(name, output.warn) as archive:
            results = Repairs(archive.keys, archive.store_of, how, output).run(needs)
    if as_json:
        output.document(
            {
                "cluster": name.keys.cluster,
                "depth": check.depth.value,
                "repairs": [_fields(result) for result in results],
                "by_hand": [finding.as_json() for finding in worst_first(others)],
            }
        )
    else:
        _show(output, results, others)
    code = _code(results, others)
    if code is not ExitCode.FINE:
        raise typer.Exit(code)


def _seconds(text: str) -> float:
    found = duration_milliseconds(text, {"s", "m", "h"})
    if found is None:
        raise ConfigurationError(SOURCE, [f"--wait={text}: expected a number with s, m or h, as in 90s or 2m"])
    return found / 1000


def _code(results: Sequence[Repaired], others: Sequence[Finding]) -> ExitCode:
    statuses = {result.status for result in results}
    if RepairStatus.WAITING in statuses:
        return ExitCode.TRY_AGAIN
    left = {RepairStatus.IMPOSSIBLE, RepairStatus.IN_PART, RepairStatus.PLANNED}
    # The agent found the object whole, and verification did not: readers may still lose its records.
    stays = any(each.status is RepairStatus.NOTHING_TO_DO and each.need.damage is Damage.DAMAGED for each in results)
    return ExitCode.FOUND if statuses & left or stays or others else ExitCode.FINE


def _show(output: Output, results: Sequence[Repaired], others: Sequence[Finding]) -> None:
    if results:
        output.table(_COLUMNS, [_row(result) for result in results])
        output.text("")
    for finding in worst_first(others):
        key = "" if finding.key is None else f"; object: {finding.key}"
        output.text(f"{finding.kind.code} of {finding.where} needs a repair by hand: {finding.detail}{key}")
    for kind in dict.fromkeys(finding.kind for finding in worst_first(others)):
        output.text(f"{kind.code}: {kind.advice}")
    counts = [
        f"{count} {status.value}"
        for status in RepairStatus
        if (count := sum(result.status is status for result in results))
    ]
    repairs = f"{counted(len(results), 'repair')}: {', '.join(counts)}" if counts else "nothing to repair"
    if others:
        repairs = repairs if counts else "nothing that tsctl repair can repair"
        verb = "needs" if len(others) == 1 else "need"
        repairs += f"; {counted(len(others), 'finding')} {verb} a repair by hand"
    output.text(repairs)


def _row(result: Repaired) -> tuple[str | int | None, ...]:
    return (
        result.status.value,
        result.keys.directory,
        result.need.damage.value,
        result.need.start,
        result.need.end,
        result.detail,
        " ".join(result.objects) or result.need.key,
    )


def _fields(result: Repaired) -> dict[str, object]:
    return {
        "status": result.status.value,
        "partition": result.keys.directory,
        "kind": result.need.damage.value,
        "from": result.need.start,
        "to": result.need.end,
        "object": result.need.key,
        "detail": result.detail,
        "objects": list(result.objects),
        "request": result.request,
    }
