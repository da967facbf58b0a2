"""`tsctl verify`: checks that an archive is complete and undamaged."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import ConfigurationError
from ts_common.option_groups import with_groups
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    PublicKeysOption,
)
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, iso, size
from tsctl.verify.audit import Side
from tsctl.verify.bucket_check import hidden_line
from tsctl.verify.finding_kinds import FindingKind, Severity
from tsctl.verify.findings import Finding
from tsctl.verify.run import (
    CheckOptions,
    ClusterOptions,
    Further,
    Verification,
    Wants,
    parse_severity,
    run_verification,
)
from tsctl.verify.segment_check import Depth

_KNOWN: Final = re.compile("([1-9][0-9]{0,8}):([0-9a-f]{64})", re.ASCII)
_COLUMNS: Final = ("SEVERITY", "CODE", "WHERE", "FROM", "TO", "FOUND", "KEY")
_SIDES: Final = ("PARTITION", "CLUSTER FROM", "CLUSTER TO", "STORE FROM", "STORE TO", "BEHIND")


@with_groups
def verify(
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on", help="Lowest severity that ends with code 1: data-loss, damaged, suspicious, information."
        ),
    ] = Severity.SUSPICIOUS.label,
    severity: Annotated[
        str, typer.Option("--severity", help="Lowest severity that is shown, as of --fail-on, which sees all of them.")
    ] = Severity.INFORMATION.label,
    each: Annotated[
        bool, typer.Option("--each", help="A row for each finding; default: a row for each kind in a partition.")
    ] = False,
    remove_tokens: Annotated[
        bool,
        typer.Option(
            "--remove-tokens",
            help="Remove tokens of repairs older than --in-flight-hours from seal.json; no repair may be in progress.",
        ),
    ] = False,
    sealed: Annotated[
        bool,
        typer.Option(
            "--sealed",
            help="Also compare with the seals; with --depth full, or without versions in the store, by every byte.",
        ),
    ] = False,
    public_keys: PublicKeysOption = None,
    known: Annotated[
        list[str] | None,
        typer.Option("--known-seal", help="SHA-256 of a head, kept elsewhere; repeatable.", metavar="N:SHA256"),
    ] = None,
    *,
    check: CheckOptions,
    beside: ClusterOptions,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Verify the archive: report holes, damage, orphans, and what the cluster holds that the store does not."""
    least, shown = parse_severity("--fail-on", fail_on), parse_severity("--severity", severity)
    name = given.name()
    output = Output(as_json, name.whole)
    compare = _comparing(check, public_keys or (), known or ()) if sealed else None
    if compare is None and (public_keys or known):
        raise ConfigurationError(SOURCE, ["--public-key and --known-seal are for --sealed"])
    found = run_verification(name, check, output, beside, removes_tokens=remove_tokens, further=compare)
    selected = [finding for finding in found.findings if finding.severity >= shown]
    if as_json:
        fields = {**as_fields(found), "findings": [finding.as_json() for finding in selected]}
        output.document({"cluster": name.keys.cluster, "depth": check.depth.value, **fields})
    else:
        _say(output, found, selected, each=each)
    if any(finding.severity >= least for finding in found.findings):
        raise typer.Exit(ExitCode.FOUND)


def _comparing(check: CheckOptions, public_keys: Sequence[Path], known: Sequence[str]) -> Further:
    """Return the comparison with the seals, of each store."""
    from tsctl.seal.checking import SealedScope, check_sealed  # noqa: PLC0415  (only --sealed needs cryptography)
    from tsctl.seal.signing import read_accepted  # noqa: PLC0415

    problems = [] if public_keys else ["--public-key is missing: which seals count?"]
    matches = [_KNOWN.fullmatch(each) for each in known]
    problems += [
        f"--known-seal={text}: expected a number and a SHA-256, as in 7:0123..."
        for text, match in zip(known, matches, strict=True)
        if match is None
    ]
    if problems:
        raise ConfigurationError(SOURCE, problems)
    heads = {int(match[1]): match[2] for match in matches if match is not None}
    accepted = read_accepted(public_keys)

    def compare(store: ObjectStore, keys: ClusterKeys, wants: Wants) -> Iterator[Finding]:
        hashes, before = check.depth is Depth.FULL, store.current_time() - check.in_flight_hours * 3600
        return check_sealed(store, keys, SealedScope(accepted, heads, wants, hashes, before))

    return compare


def _say(output: Output, found: Verification, selected: Sequence[Finding], *, each: bool) -> None:
    if found.sides is not None:
        output.table(_SIDES, [_side_row(side) for side in found.sides])
        output.text("")
    if selected:
        groups = [(finding,) for finding in selected] if each else grouped(selected)
        output.table(_COLUMNS, [_row(group) for group in groups])
        output.text("")
        for kind in dict.fromkeys(finding.kind for finding in selected):
            output.text(f"{kind.code}: {kind.meaning} {kind.advice}")
        output.text("")
    left_out = len(found.findings) - len(selected)
    output.text(summary(found) + (f"; {left_out:,} not shown" if left_out else ""))
    if found.hidden is not None:
        output.text(hidden_line(found.hidden))


def grouped(findings: Sequence[Finding]) -> list[tuple[Finding, ...]]:
    """Return the findings of one kind in one partition together, in the order of the first of each group.

    A compacted topic can have hundreds of overlaps, and each is the same information.
    """
    groups: dict[tuple[FindingKind, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.where), []).append(finding)
    return [tuple(group) for group in groups.values()]


def summary(found: Verification) -> str:
    """Return one line: how much was checked, and how many findings there are."""
    segments = sum(coverage.segments for coverage in found.coverages)
    held = size(sum(coverage.bytes for coverage in found.coverages))
    lost = sum(end - start for coverage in found.coverages for start, end in coverage.holes)
    gaps = sum(end - start for coverage in found.coverages for start, end in coverage.gaps)
    counts = [
        f"{count} {severity.label}"
        for severity in reversed(Severity)
        if (count := sum(finding.severity is severity for finding in found.findings))
    ]
    said = (
        f"{counted(len(found.coverages), 'partition')}, {counted(segments, 'segment')}, {held}: "
        f"{', '.join(counts) or 'no findings'}"
    )
    return said + (f"; {counted(lost, 'offset')} in holes, {gaps:,} in recorded gaps" if lost or gaps else "")


def as_fields(found: Verification) -> dict[str, object]:
    """Return the result as fields of a JSON document."""
    fields: dict[str, object] = {
        "findings": [finding.as_json() for finding in found.findings],
        "partitions": [
            {
                "partition": coverage.where,
                "start": coverage.start,
                "end": coverage.end,
                "segments": coverage.segments,
                "bytes": coverage.bytes,
                "holes": [{"from": start, "to": end} for start, end in coverage.holes],
                "gaps": [{"from": start, "to": end} for start, end in coverage.gaps],
                "erased": coverage.erased,
                "tail_end": coverage.tail_end,
                "tail_time": iso(coverage.tail_time),
            }
            for coverage in found.coverages
        ],
    }
    if found.hidden is not None:
        fields["noncurrent_versions"] = {
            "objects": found.hidden.objects,
            "bytes": found.hidden.bytes,
            "delete_markers": found.hidden.markers,
        }
    if found.sides is not None:
        fields["cluster_sides"] = [
            {
                "partition": str(side.partition),
                "cluster_start": side.kafka_start,
                "cluster_end": side.kafka_end,
                "store_start": side.coverage.start if side.coverage else None,
                "store_end": side.coverage.end if side.coverage else None,
                "behind": side.behind,
            }
            for side in found.sides
        ]
    return fields


def _row(group: Sequence[Finding]) -> tuple[str | int | None, ...]:
    """Return the row of findings of one kind in one partition: the first, and the range and number of all."""
    first = group[0]
    more = f" (and {len(group) - 1:,} more: --each)" if len(group) > 1 else ""
    return (
        first.severity.label,
        first.kind.code,
        first.where,
        min((finding.start for finding in group if finding.start is not None), default=None),
        max((finding.end for finding in group if finding.end is not None), default=None),
        first.detail + more,
        first.key,
    )


def _side_row(side: Side) -> tuple[str | int | None, ...]:
    held = side.coverage
    return (
        str(side.partition),
        side.kafka_start,
        side.kafka_end,
        held.start if held else None,
        held.end if held else None,
        side.behind,
    )
