"""Frozen segments as one finding of a partition: a lifecycle rule can freeze all of its segments."""

from collections import Counter
from collections.abc import Sequence

from ts_common.archive.catalog import PartitionCatalog
from ts_common.wording import counted
from ts_reader.query.frozen import bytes_text
from tsctl.verify.findings import FROZEN, Finding


def joined_frozen(findings: Sequence[Finding], catalog: PartitionCatalog, where: str) -> list[Finding]:
    """Return the findings with one finding in place of all of frozen segments: their number, bytes and classes."""
    frozen = [finding for finding in findings if finding.kind is FROZEN]
    if not frozen:
        return list(findings)
    keys = {finding.key for finding in frozen}
    segments = [segment for segment in catalog.segments if catalog.keys.segment(segment.name) in keys]
    classes = Counter(segment.storage_class or "an archive tier" for segment in segments)
    named = ", ".join(f"{count:,} in {name}" for name, count in sorted(classes.items()))
    size = sum(segment.size for segment in segments)
    detail = (
        f"{counted(len(segments), 'segment')} of {len(catalog.segments):,}, {bytes_text(size)} ({named}): their bytes "
        "were not checked"
    )
    start = min((finding.start for finding in frozen if finding.start is not None), default=None)
    end = max((finding.end for finding in frozen if finding.end is not None), default=None)
    others = [finding for finding in findings if finding.kind is not FROZEN]
    return [*others, Finding(FROZEN, where, detail, frozen[0].key, start, end)]
