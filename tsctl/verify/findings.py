"""Findings of `tsctl verify`: of a kind each, in their order, and all of frozen segments as one."""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ts_common.archive.catalog import PartitionCatalog
from ts_common.wording import counted
from ts_reader.query.frozen import bytes_text
from tsctl.verify.finding_kinds import FROZEN, FindingKind, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        where: the subject: `<topic>-<partition>` as in the keys, a topic, or a directory.
        detail: one line: what was found, and what was expected.
        key: of the object or directory, relative to the store's location; None for no object.
        start: the first offset concerned; None for no offsets.
        end: the offset after the last.
    """

    kind: FindingKind
    where: str
    detail: str
    key: str | None = None
    start: int | None = None
    end: int | None = None

    @property
    def severity(self) -> Severity:
        """The severity of its kind."""
        return self.kind.severity

    def as_json(self) -> dict[str, Any]:
        """Return the finding as fields of a JSON document."""
        return {
            "code": self.kind.code,
            "severity": self.severity.label,
            "where": self.where,
            "key": self.key,
            "from": self.start,
            "to": self.end,
            "detail": self.detail,
            "advice": self.kind.advice,
        }


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, then by subject and position."""
    return sorted(
        findings, key=lambda found: (-found.severity, found.where, found.start or 0, found.kind.code, found.key or "")
    )


def joined_frozen(findings: Sequence[Finding], catalog: PartitionCatalog, where: str) -> list[Finding]:
    """Return the findings with one finding in place of all of frozen segments: their number, bytes and classes."""
    frozen = [finding for finding in findings if finding.kind is FROZEN]
    if not frozen:
        return list(findings)
    start = min((finding.start for finding in frozen if finding.start is not None), default=None)
    end = max((finding.end for finding in frozen if finding.end is not None), default=None)
    others = [finding for finding in findings if finding.kind is not FROZEN]
    detail = _frozen_detail({finding.key for finding in frozen}, catalog)
    return [*others, Finding(FROZEN, where, detail, frozen[0].key, start, end)]


def _frozen_detail(keys: Set[str | None], catalog: PartitionCatalog) -> str:
    segments = [segment for segment in catalog.segments if catalog.keys.segment(segment.name) in keys]
    classes = Counter(segment.storage_class or "an archive tier" for segment in segments)
    named = ", ".join(f"{count:,} in {name}" for name, count in sorted(classes.items()))
    size = sum(segment.size for segment in segments)
    return (
        f"{counted(len(segments), 'segment')} of {len(catalog.segments):,}, {bytes_text(size)} ({named}): their bytes "
        "were not checked"
    )
