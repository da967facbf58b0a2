"""The report: one HTML file without network access, from the findings and the coverage of `tsctl verify`.

For each topic it has a map of offsets and a map of time, with a bar for each partition and holes in red. It also has
sizes, growth, every finding and, with prices, the costs. plotly draws; its script is in the file. A topic's maps are
drawn when it is opened, so that a file of hundreds of partitions opens at once. Text from outside (names, keys,
reasons) stays text: the template escapes it in HTML, and the charts' JSON contains no character that could end a
script.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from ts_common.printable import printable, printable_json
from ts_common.wording import counted
from tsctl.cost.bill_tables import Section
from tsctl.output import iso, size
from tsctl.report.charts import RANGES_DRAWN, count_left_out, growth, offset_map, sizes, time_map
from tsctl.report.fleet import page_template
from tsctl.verify.coverage import Coverage
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.findings import Finding, worst_first

FINDINGS_SHOWN: Final = 2_000  # in the table; the counts are of all
_GAPS: Final = "gaps"  # the label of what has nothing worse than recorded gaps
_MILLISECONDS: Final = 1000


def render(
    title: str,
    coverages: Sequence[Coverage],
    findings: Iterable[Finding],
    facts: Mapping[str, str],
    made: float,
    cost: Section | None = None,
) -> str:
    """Return the whole report as HTML.

    Args:
        title: in one line.
        coverages: of every partition, in the order of the report.
        findings: all of them, those of partitions too.
        facts: more lines of its head, by name.
        made: seconds since the epoch.
        cost: what the archive costs; None leaves the section out.
    """
    found = worst_first(findings)
    # The charts show the names of their data.
    coverages = [replace(row, topic=printable(row.topic), where=printable(row.where)) for row in coverages]
    by_topic = {topic: list(rows) for topic, rows in groupby(sorted(coverages, key=_order), key=lambda row: row.topic)}
    # The topic with the worst findings is first, and open.
    topics = dict(sorted(by_topic.items(), key=lambda entry: -max(_worst(entry[1]), Severity.INFORMATION)))
    charts: dict[str, Any] = {"growth": growth(coverages), "sizes": sizes(topics)}
    for number, rows in enumerate(topics.values()):
        charts[f"offsets-{number}"] = offset_map(rows)
        charts[f"times-{number}"] = time_map(rows)
    return page_template("page.html.j2").render(
        title=title,
        verdict=_verdict(found, coverages),
        facts={
            "made": iso(int(made * _MILLISECONDS)) or "",
            "partitions": f"{len(coverages):,}",
            "segments": f"{sum(row.segments for row in coverages):,}",
            "size": size(sum(row.bytes for row in coverages)),
            **facts,
        },
        findings=_findings(found),
        topics=[_topic(topic, rows) for topic, rows in topics.items()],
        cost=cost,
        charts=_as_script(charts),
        plotly=Markup(get_plotlyjs()),  # noqa: S704  (the library's own script)
    )


def _order(row: Coverage) -> tuple[str, str, int]:
    return row.topic, row.directory, row.partition


def _worst(rows: Sequence[Coverage]) -> int:
    """Return the worst severity of a topic's findings; less than any severity if there are no findings."""
    return max((finding.severity for row in rows for finding in row.findings), default=Severity.INFORMATION - 1)


def _as_script(value: object) -> Markup:
    """Return JSON that can neither end its script nor begin a comment in it."""
    text = printable_json(json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":")))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (no character of markup is left)


def _verdict(findings: Sequence[Finding], coverages: Sequence[Coverage]) -> Mapping[str, str]:
    missing = sum(end - start for row in coverages for start, end in row.holes)
    recorded = sum(end - start for row in coverages for start, end in row.gaps)
    worst = findings[0].severity if findings else None
    if recorded and not missing and worst is Severity.INFORMATION:
        text = f"Nothing is damaged. The archive lacks {counted(recorded, 'offset')}, all of them in recorded gaps."
        return {"label": _GAPS, "text": text}
    text = {
        None: "Everything is there.",
        Severity.INFORMATION: "Everything is there.",
        Severity.SUSPICIOUS: "Some findings need attention."
        if recorded
        else "No record is missing, but some findings need attention.",
        Severity.DAMAGED: "Objects are damaged.",
        Severity.DATA_LOSS: "Readers cannot return all records.",
    }[worst]
    if missing or recorded:
        text += f" {counted(missing, 'offset')} in holes, {recorded:,} in recorded gaps."
    return {"label": worst.label if worst else "fine", "text": text}


def _findings(findings: Sequence[Finding]) -> Mapping[str, Any]:
    counts = [
        {"label": severity.label, "number": f"{count:,}"}
        for severity in reversed(Severity)
        if (count := sum(finding.severity is severity for finding in findings))
    ]
    left = len(findings) - FINDINGS_SHOWN
    return {
        "counts": counts,
        "rows": [_finding(finding) for finding in findings[:FINDINGS_SHOWN]],
        "left": f"{left:,}" if left > 0 else "",
    }


def _finding(finding: Finding) -> Mapping[str, str]:
    end = "" if finding.end is None else f" to {finding.end}"
    return {
        "code": finding.kind.code,
        "label": finding.severity.label,
        "where": finding.where,
        "offsets": "" if finding.start is None else f"{finding.start}{end}",
        "detail": finding.detail,
        "meaning": finding.kind.meaning,
        "advice": finding.kind.advice,
        "key": finding.key or "",
    }


def _topic(topic: str, rows: Sequence[Coverage]) -> Mapping[str, Any]:
    worst = _worst(rows)
    newest = max((row.times[-1][1] for row in rows if row.times), default=None)
    left_out = count_left_out(rows)
    return {
        "name": topic,
        "label": _topic_label(worst, rows),
        "partitions": counted(len(rows), "partition"),
        "size": size(sum(row.bytes for row in rows)),
        "newest": iso(newest) or "unknown",
        "drawn": f"{RANGES_DRAWN}",
        "left_out": counted(left_out, "shorter range") if left_out else "",
        "rows": [
            (
                row.where,
                row.start,
                row.end,
                "" if row.tail_end is None else row.tail_end,
                iso(row.tail_time) or "",
                f"{row.segments:,}",
                size(row.bytes),
                f"{sum(end - start for start, end in row.holes):,}",
                f"{sum(end - start for start, end in row.gaps):,}",
                f"{row.erased:,}",
                iso(row.times[-1][1] if row.times else None) or "",
            )
            for row in rows
        ],
    }


def _topic_label(worst: int, rows: Sequence[Coverage]) -> str:
    if worst < Severity.INFORMATION:
        return "fine"
    if worst == Severity.INFORMATION and any(row.gaps for row in rows):
        return _GAPS
    return Severity(worst).label
