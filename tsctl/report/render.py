"""The report: one HTML file that needs no network, made of what verify found.

A map of each topic's offsets and one of its time, a bar for each partition, holes in red; sizes and growth; every
finding. plotly draws, and its script stands in the file. A topic's maps are drawn when it is opened, so that a file of
hundreds of partitions opens at once. Whatever comes from outside (names, keys, reasons) is text to the browser: escaped
where it stands in HTML, and in the charts' JSON without a character that could end a script.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from html import escape
from itertools import groupby, pairwise
from typing import Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from ts_common.printable import printable, printable_json
from ts_common.wording import counted
from tsctl.output import iso, size
from tsctl.report.page import PAGE
from tsctl.verify.coverage import Coverage, Ranges
from tsctl.verify.findings import Finding, Severity, worst_first

FINDINGS_SHOWN: Final = 2_000  # in the table; the counts are of all
_RANGES_DRAWN: Final = 400  # of one kind in one partition; more lie too close together to be told apart
_ROW_PIXELS: Final = 26
_MILLISECONDS: Final = 1000
_DAY_MS: Final = 86_400_000
_FEW_DAYS: Final = 7  # up to which each day has its own label
_TOP: Final = 44  # pixels above a chart, for its legend and the library's buttons


@dataclass(frozen=True, slots=True)
class _Layer:
    """One kind of range in a map: its colour, and how wide its bar is of a row."""

    name: str
    colour: str
    width: float


_HELD: Final = _Layer("in the store", "#4c9a6a", 0.72)
_OVERLAP: Final = _Layer("twice in the store", "#2f6f8f", 0.3)
_DEAD: Final = _Layer("dead tail", "#8a8a8a", 0.18)
_GAP: Final = _Layer("recorded gap", "#e0a030", 0.72)
_HOLE: Final = _Layer("hole", "#d00000", 0.72)


@dataclass(frozen=True, slots=True)
class _Mark:
    """One kind of mark in a map."""

    name: str
    colour: str
    symbol: str


_HOLE_MARK: Final = _Mark("hole begins", _HOLE.colour, "triangle-down")
_DAMAGE_MARK: Final = _Mark("damaged", "#b4500f", "x")
_LAYERS: Final = (_HELD, _OVERLAP, _DEAD, _GAP, _HOLE)


def render(
    title: str, coverages: Sequence[Coverage], findings: Iterable[Finding], facts: Mapping[str, str], made: float
) -> str:
    """The whole report as HTML.

    Args:
        title: in one line.
        coverages: of every partition, in the order of the report.
        findings: all of them, those of partitions too.
        facts: further lines at its head, by their name.
        made: seconds since the epoch.
    """
    found = worst_first(findings)
    # The charts show names as they are in their data.
    coverages = [replace(row, topic=printable(row.topic), where=printable(row.where)) for row in coverages]
    by_topic = {topic: list(rows) for topic, rows in groupby(sorted(coverages, key=_order), key=lambda row: row.topic)}
    # The first one stands open: what has most trouble.
    topics = dict(sorted(by_topic.items(), key=lambda entry: -max(_worst(entry[1]), Severity.INFORMATION)))
    charts: dict[str, Any] = {"growth": _growth(coverages), "sizes": _sizes(topics)}
    sections = []
    for number, (topic, rows) in enumerate(topics.items()):
        charts[f"offsets-{number}"] = _offset_map(rows)
        charts[f"times-{number}"] = _time_map(rows)
        sections.append(_topic_section(number, topic, rows))
    head = {
        "made": iso(int(made * _MILLISECONDS)) or "",
        "partitions": str(len(coverages)),
        "segments": f"{sum(row.segments for row in coverages):,}",
        "size": size(sum(row.bytes for row in coverages)),
        **facts,
    }
    return PAGE.format(
        title=_escape(title),
        verdict=_verdict(found, coverages),
        facts="".join(f"<dt>{_escape(name)}</dt><dd>{_escape(value)}</dd>" for name, value in head.items()),
        findings=_findings_table(found),
        topics="".join(sections),
        charts=_as_script(charts),
        plotly=get_plotlyjs(),
    )


def _escape(text: str) -> str:
    """Text of others for the page: no markup, no character that reorders or breaks a line."""
    return escape(printable(text))


def _order(row: Coverage) -> tuple[str, str, int]:
    return row.topic, row.where.rpartition("-")[0], row.partition


def _worst(rows: Sequence[Coverage]) -> int:
    """The worst severity among a topic's findings; less than any where there is none."""
    return max((finding.severity for row in rows for finding in row.findings), default=Severity.INFORMATION - 1)


def _as_script(value: object) -> str:
    """JSON that cannot end the script it stands in, nor begin a comment in it."""
    text = printable_json(json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":")))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _verdict(findings: Sequence[Finding], coverages: Sequence[Coverage]) -> str:
    missing = sum(end - start for row in coverages for start, end in row.holes)
    recorded = sum(end - start for row in coverages for start, end in row.gaps)
    worst = findings[0].severity if findings else None
    said = {
        None: "Everything is there.",
        Severity.INFORMATION: "Everything is there.",
        Severity.SUSPICIOUS: "No record is missing; some things should be looked at.",
        Severity.DAMAGED: "Something is damaged.",
        Severity.DATA_LOSS: "Records are missing.",
    }[worst]
    offsets = f" {counted(missing, 'offset')} in holes, {recorded:,} in recorded gaps." if missing or recorded else ""
    label = worst.label if worst else "fine"
    return f'<p id="verdict" class="verdict {label}">{said}{offsets}</p>'


def _findings_table(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>No findings.</p>"
    counts = " ".join(
        f'<span class="chip {severity.label}">{severity.label}: {count:,}</span>'
        for severity in reversed(Severity)
        if (count := sum(finding.severity is severity for finding in findings))
    )
    rows = []
    for finding in findings[:FINDINGS_SHOWN]:
        offsets = (
            "" if finding.start is None else f"{finding.start}" + ("" if finding.end is None else f" to {finding.end}")
        )
        rows.append(
            f'<tr data-code="{_escape(finding.kind.code)}"><td><span class="chip {finding.severity.label}">'
            f"{_escape(finding.kind.code)}</span></td><td>{_escape(finding.where)}</td><td>{_escape(offsets)}</td>"
            f"<td>{_escape(finding.detail)}<details><summary>what to do</summary>{_escape(finding.kind.meaning)} "
            f"{_escape(finding.kind.advice)}</details></td><td class=key>{_escape(finding.key or '')}</td></tr>"
        )
    left = len(findings) - FINDINGS_SHOWN
    more = f"<p>{left:,} more are not shown; tsctl verify --json has them all.</p>" if left > 0 else ""
    return (
        f"<p>{counts}</p><div class='wide tall'><table id=findings-table><thead><tr><th>code<th>where<th>offsets"
        f"<th>found<th>key</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{more}"
    )


def _topic_section(number: int, topic: str, rows: Sequence[Coverage]) -> str:
    worst = _worst(rows)
    label = Severity(worst).label if worst >= Severity.INFORMATION else "fine"
    newest = max((row.times[-1][1] for row in rows if row.times), default=None)
    partitions = "".join(
        f"<tr><td>{_escape(row.where)}</td><td>{row.start}</td><td>{row.end}</td><td>{row.segments:,}</td>"
        f"<td>{size(row.bytes)}</td><td>{sum(end - start for start, end in row.holes):,}</td>"
        f"<td>{sum(end - start for start, end in row.gaps):,}</td>"
        f"<td>{_escape(iso(row.times[-1][1] if row.times else None) or '')}</td></tr>"
        for row in rows
    )
    return (
        f'<details class=topic data-number="{number}" data-name="{_escape(topic)}"{" open" if number == 0 else ""}>'
        f'<summary><span class="dot {label}"></span>{_escape(topic)} <small>{counted(len(rows), "partition")}, '
        f"{size(sum(row.bytes for row in rows))}, newest record {_escape(iso(newest) or 'unknown')}</small></summary>"
        f'<h4>By offset</h4><div class=chart id="offsets-{number}"></div>'
        f'<h4>By time of records</h4><div class=chart id="times-{number}"></div>'
        "<div class=wide><table><thead><tr><th>partition<th>from<th>next offset<th>segments<th>size<th>in holes"
        f"<th>in gaps<th>newest record</tr></thead><tbody>{partitions}</tbody></table></div></details>"
    )


def _ranges(row: Coverage) -> dict[str, Ranges]:
    ranges = (row.held, row.overlaps, row.dead, row.gaps, row.holes)
    return {layer.name: found for layer, found in zip(_LAYERS, ranges, strict=True)}


def _offset_map(rows: Sequence[Coverage]) -> dict[str, Any]:
    figure = go.Figure()
    for layer in _LAYERS:
        bars = [(row.where, start, end) for row in rows for start, end in _drawn(_ranges(row)[layer.name])]
        _add_bars(figure, layer, [(where, start, end, f"[{start}, {end})") for where, start, end in bars])
    _mark(
        figure, _HOLE_MARK, [(row.where, start, f"hole [{start}, {end})") for row in rows for start, end in row.holes]
    )
    _mark(figure, _DAMAGE_MARK, [(row.where, start, text) for row in rows for start, text in _damages(row)])
    return _laid_out(figure, rows, "offset", kind="linear")


def _time_map(rows: Sequence[Coverage]) -> dict[str, Any]:
    """As the map of offsets, each offset at the time of the records around it."""
    figure = go.Figure()
    for layer in _LAYERS:
        bars = []
        for row in rows:
            for start, end in _drawn(_ranges(row)[layer.name]) if row.times else ():
                begin, stop = _time_at(row, start), _time_at(row, end)
                bars.append((row.where, begin, stop, f"[{start}, {end}) {iso(int(begin))} to {iso(int(stop))}"))
        _add_bars(figure, layer, bars)
    marks = [
        (row.where, _time_at(row, start), f"hole [{start}, {end})")
        for row in rows
        if row.times
        for start, end in row.holes
    ]
    _mark(figure, _HOLE_MARK, marks)
    damaged = [(row.where, _time_at(row, start), text) for row in rows if row.times for start, text in _damages(row)]
    _mark(figure, _DAMAGE_MARK, damaged)
    return _laid_out(figure, rows, "", kind="date")


def _damages(row: Coverage) -> list[tuple[int, str]]:
    """Where a partition is damaged; what names no offset stands at its start."""
    return [
        (row.start if finding.start is None else finding.start, finding.kind.code)
        for finding in row.findings
        if finding.severity is Severity.DAMAGED
    ]


def _drawn(ranges: Ranges) -> Ranges:
    """The longest of very many ranges, in order."""
    if len(ranges) <= _RANGES_DRAWN:
        return ranges
    return tuple(sorted(sorted(ranges, key=lambda one: one[0] - one[1])[:_RANGES_DRAWN]))


def _time_at(row: Coverage, offset: int) -> float:
    """When the records around an offset were written, by lines between the ends of segments; ms."""
    knots = row.times
    if offset <= knots[0][0]:
        return knots[0][1]
    for (low, earlier), (high, later) in pairwise(knots):
        if offset <= high:
            return earlier + (later - earlier) * (offset - low) / (high - low)
    return knots[-1][1]


def _add_bars(figure: go.Figure, layer: _Layer, bars: Sequence[tuple[str, float, float, str]]) -> None:
    figure.add_trace(
        go.Bar(
            name=layer.name,
            orientation="h",
            y=[where for where, *_ in bars],
            base=[start for _, start, _, _ in bars],
            x=[end - start for _, start, end, _ in bars],
            width=layer.width,
            marker={"color": layer.colour, "line": {"width": 0}},
            hovertext=[f"{_escape(where)} {layer.name} {_escape(text)}" for where, _, _, text in bars],
            hoverinfo="text",
        )
    )


def _mark(figure: go.Figure, kind: _Mark, marks: Sequence[tuple[str, float, str]]) -> None:
    """A hole of ten offsets in a billion is no pixel wide; its mark always is."""
    figure.add_trace(
        go.Scatter(
            name=kind.name,
            mode="markers",
            y=[where for where, _, _ in marks],
            x=[place for _, place, _ in marks],
            marker={
                "color": kind.colour,
                "symbol": kind.symbol,
                "size": 11,
                "line": {"color": "#fff", "width": 1},
            },
            hovertext=[f"{_escape(where)} {_escape(text)}" for where, _, text in marks],
            hoverinfo="text",
        )
    )


def _laid_out(figure: go.Figure, rows: Sequence[Coverage], title: str, kind: str) -> dict[str, Any]:
    names = [row.where for row in rows]
    figure.update_layout(
        barmode="overlay",
        bargap=0.1,
        height=110 + _ROW_PIXELS * max(1, len(rows)),
        margin={"l": 8, "r": 8, "t": _TOP, "b": 32},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={"title": {"text": title}, "type": kind, "automargin": True},
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            "autorange": "reversed",
            "automargin": True,
            "fixedrange": True,
        },
        template="none",
    )
    return dict(figure.to_dict())


def _growth(coverages: Sequence[Coverage]) -> dict[str, Any]:
    """Bytes of segments by the day of their newest record, added up."""
    by_day: dict[str, int] = {}
    for row in coverages:
        for day, count in row.bytes_by_day.items():
            by_day[day] = by_day.get(day, 0) + count
    days = sorted(by_day)
    total, sums = 0, []
    for day in days:
        total += by_day[day]
        sums.append(total)
    figure = go.Figure(
        [
            go.Bar(
                name="of the day",
                x=days,
                y=[by_day[day] for day in days],
                width=0.8 * _DAY_MS,
                marker={"color": "#9cc4ad"},
            ),
            go.Scatter(name="in all", x=days, y=sums, mode="lines+markers", line={"color": "#2f6f8f", "shape": "hv"}),
        ]
    )
    return _small(figure, _days_axis(days), {"title": {"text": "bytes"}, "rangemode": "tozero"})


def _days_axis(days: Sequence[str]) -> dict[str, Any]:
    """An axis of whole days: by itself the library cuts one day into milliseconds."""
    axis: dict[str, Any] = {"type": "date", "tickformat": "%Y-%m-%d"}
    if 0 < len(days) <= _FEW_DAYS:
        first, last = date.fromisoformat(days[0]), date.fromisoformat(days[-1])
        if (last - first).days < _FEW_DAYS:
            around = timedelta(days=1)
            axis |= {"dtick": _DAY_MS, "range": [(first - around).isoformat(), (last + around).isoformat()]}
    return axis


def _sizes(topics: Mapping[str, Sequence[Coverage]]) -> dict[str, Any]:
    """The largest topics."""
    sums = {topic: sum(row.bytes for row in rows) for topic, rows in topics.items()}
    largest = sorted(sums.items(), key=lambda entry: -entry[1])[:30]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[topic for topic, _ in largest],
            x=[count for _, count in largest],
            marker={"color": "#4c9a6a"},
        )
    )
    figure.update_layout(height=110 + _ROW_PIXELS * max(1, len(largest)))
    return _small(
        figure, {"title": {"text": "bytes"}}, {"type": "category", "autorange": "reversed", "automargin": True}
    )


def _small(figure: go.Figure, xaxis: Mapping[str, Any], yaxis: Mapping[str, Any]) -> dict[str, Any]:
    figure.update_layout(
        margin={"l": 48, "r": 8, "t": _TOP, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=dict(xaxis),
        yaxis={**yaxis, "fixedrange": True},
        template="none",
    )
    return dict(figure.to_dict())
