"""What `tsctl repair` repairs: the findings of `tsctl verify` that an object with the right bytes removes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.archive.gap_records import merged
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.repair_requests import Damage
from ts_common.model import TopicPartition
from tsctl.verify.coverage import Coverage
from tsctl.verify.finding_kinds import (
    COMMIT_NAMES_MISSING,
    GAP,
    HOLE,
    INDEX_MISSING,
    METADATA_MISSING,
    METADATA_WRONG,
    SEGMENT_DAMAGED,
    SHIPPED_CORRUPT,
    Severity,
)
from tsctl.verify.findings import Finding

_DAMAGED: Final = {SEGMENT_DAMAGED, METADATA_WRONG, SHIPPED_CORRUPT}


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """One range of a partition, or one index, to repair.

    Attributes:
        start: first offset.
        end: the offset after the last; None if the damaged object does not show it.
        damage: whether an object is damaged, or missing.
        key: of the damaged `.log`, of the missing `.log` that the commit names, or of the missing index; else None.
        lacks_metadata: whether the `.log` is damaged only in that it has no metadata.
    """

    start: int
    end: int | None
    damage: Damage
    key: str | None
    lacks_metadata: bool = False

    @property
    def index(self) -> str | None:
        """The suffix of a missing index; None for a range."""
        return next((suffix for suffix in INDEX_SUFFIXES if (self.key or "").endswith(suffix)), None)


@dataclass(frozen=True, slots=True)
class PartitionNeeds:
    """What to repair in one partition.

    Attributes:
        needs: those of metadata, then the others, by offset.
    """

    keys: PartitionKeys
    needs: tuple[Need, ...]


def needs_of(coverages: Iterable[Coverage], *, gaps: bool) -> list[PartitionNeeds]:
    """Return what to repair, sorted by topic and partition.

    Args:
        gaps: whether recorded gaps are included: a broker can have their offsets again.
    """
    found = []
    for coverage in coverages:
        keys = PartitionKeys(TopicPartition(coverage.topic, coverage.partition), coverage.prefix)
        needs = {need for finding in coverage.findings if (need := _need(keys, finding, gaps=gaps)) is not None}
        one_each: dict[tuple[Damage, str | None, int | None], Need] = {}
        # Metadata is first: a hole can be the end of a compacted segment without metadata.
        in_order = sorted(needs, key=lambda each: (not each.lacks_metadata, each.start, each.end or 0, each.key or ""))
        for need in in_order:
            # Two findings about one object can show different ends.
            one_each[need.damage, need.key, None if need.key else need.start] = need
        if one_each:
            found.append(PartitionNeeds(keys, tuple(one_each.values())))
    return sorted(
        found, key=lambda each: (each.keys.partition.topic, each.keys.directory, each.keys.partition.partition)
    )


def rest_of(start: int, end: int, done: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of `[start, end)` that no range contains, ascending."""
    rest = []
    for low, high in merged(done):
        if low > start:
            rest.append((start, min(low, end)))
        start = max(start, high)
    return [(low, high) for low, high in (*rest, (start, end)) if low < high]


def by_hand(findings: Sequence[Finding], *, gaps: bool) -> list[Finding]:
    """Return the findings of damage and data loss that no repair removes."""
    keys = PartitionKeys(TopicPartition("t", 0), "")
    left = [finding for finding in findings if finding.severity >= Severity.DAMAGED]
    # An index of a `.log` that was cut short points beyond its end.
    damaged = {_stem(finding) for finding in left if finding.kind in _DAMAGED}
    return [finding for finding in left if _need(keys, finding, gaps=gaps) is None and _stem(finding) not in damaged]


def _stem(finding: Finding) -> str:
    """Return the key of a finding's object without its suffix."""
    return (finding.key or "").rpartition(".")[0]


def _need(keys: PartitionKeys, finding: Finding, *, gaps: bool) -> Need | None:
    start = finding.start
    if start is None:
        return None
    if finding.kind is HOLE or (gaps and finding.kind is GAP):
        return None if finding.end is None else Need(start, finding.end, Damage.MISSING, None)
    if finding.kind is METADATA_MISSING:
        return Need(start, finding.end, Damage.DAMAGED, finding.key, lacks_metadata=True)
    if finding.kind in _DAMAGED:
        return Need(start, finding.end, Damage.DAMAGED, finding.key)
    if finding.kind is COMMIT_NAMES_MISSING:
        return Need(start, start + 1, Damage.MISSING, keys.segment(SegmentName(start), LOG_SUFFIX))
    if finding.kind is INDEX_MISSING:
        return Need(start, finding.end, Damage.MISSING, finding.key)
    return None
