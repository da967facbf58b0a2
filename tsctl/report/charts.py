"""The charts of the report: maps of offsets and of time, growth, and the largest topics, as plotly's JSON values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from itertools import pairwise
from typing import Any, Final

import plotly.graph_objects as go

from ts_common.printable import printable
from ts_common.wording import counted
from tsctl.output import iso
from tsctl.verify.coverage import Coverage, Ranges
from tsctl.verify.finding_kinds import COMMIT_DAMAGED, NO_COMMIT, Severity

RANGES_DRAWN: Final = 400  # of one kind in one partition; more cannot be distinguished
_ROW_PIXELS: Final = 26
_LABEL: Final = 24  # characters of a name on an axis
_FEW_OFFSETS: Final = 10  # the most offsets that each have a label
_NARROWEST: Final = 200  # bars side by side on the axis of time: records may have equal times
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
# By the distance between two labels. plotly's own formats omit the year, and switch to milliseconds early.
_TIME_FORMATS: Final = (
    {"dtickrange": [None, 999], "value": "%H:%M:%S.%L\n%Y-%m-%d"},
    {"dtickrange": [1000, 59_999], "value": "%H:%M:%S\n%Y-%m-%d"},
    {"dtickrange": [60_000, _DAY_MS - 1], "value": "%H:%M\n%Y-%m-%d"},
    {"dtickrange": [_DAY_MS, "M1"], "value": "%Y-%m-%d"},
    {"dtickrange": ["M1", "M12"], "value": "%Y-%m"},
    {"dtickrange": ["M12", None], "value": "%Y"},
)
_FEW_DAYS: Final = 7  # the most days that each have a label
_BYTES_AXIS: Final = {"title": {"text": "bytes"}, "exponentformat": "SI"}  # "2G", not "2B"
_TOP: Final = 44  # pixels above a chart, for its legend and the library's buttons


@dataclass(frozen=True, slots=True)
class _Layer:
    """One kind of range in a map: its colour, and the width of its bar as a share of the row."""

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


def _escape(text: str) -> str:
    """Escape text for plotly, which renders some markup itself."""
    return escape(printable(text))


def _ranges(row: Coverage) -> dict[str, Ranges]:
    ranges = (row.held, row.overlaps, row.dead, row.gaps, row.holes)
    return {layer.name: found for layer, found in zip(_LAYERS, ranges, strict=True)}


def offset_map(rows: Sequence[Coverage]) -> dict[str, Any]:
    """Return the map of offsets: a bar for each range of each partition, marks at holes and damage."""
    figure = _map(rows, lambda _, start, end: (start, end, f"[{start}, {end})"), lambda _, offset: offset)
    return _laid_out(figure, rows, {"type": "linear", "title": {"text": "offset"}, **_offset_ticks(rows)})


def time_map(rows: Sequence[Coverage]) -> dict[str, Any]:
    """Return the map of offsets with each offset at the time of the records around it."""
    timed = [row for row in rows if row.times]
    first = min((row.times[0][1] for row in timed), default=0)
    last = max((row.times[-1][1] for row in timed), default=0)
    narrowest = max(_HOUR_MS, last - first) / _NARROWEST

    def bar(row: Coverage, start: int, end: int) -> tuple[float, float, str]:
        begin, stop = _time_at(row, start), _time_at(row, end)
        return begin, max(stop, begin + narrowest), f"[{start}, {end}) {iso(int(begin))} to {iso(int(stop))}"

    figure = _map(timed, bar, _time_at)
    axis: dict[str, Any] = {"type": "date", "tickformatstops": list(_TIME_FORMATS)}
    if last - first < _HOUR_MS:  # plotly's own range is two milliseconds if all times are equal
        around = (_HOUR_MS - (last - first)) / 2
        axis["range"] = [first - around, last + around]
    return _laid_out(figure, rows, axis)


def _map(
    rows: Sequence[Coverage],
    bar: Callable[[Coverage, int, int], tuple[float, float, str]],
    place: Callable[[Coverage, int], float],
) -> go.Figure:
    """Return a map: `bar` returns from, to and text of a range, `place` where an offset is on the axis."""
    figure = go.Figure()
    for layer in _LAYERS:
        ranges = ((row, start, end) for row in rows for start, end in _drawn(_ranges(row)[layer.name]))
        _add_bars(figure, layer, [(row.where, *bar(row, start, end)) for row, start, end in ranges])
    holes = [(row.where, place(row, start), f"hole [{start}, {end})") for row in rows for start, end in row.holes]
    _mark(figure, _HOLE_MARK, holes)
    damaged = [(row.where, place(row, start), text) for row in rows for start, text in _damages(row)]
    _mark(figure, _DAMAGE_MARK, damaged)
    return figure


def count_left_out(rows: Sequence[Coverage]) -> int:
    """Return the number of ranges that the maps omit because a partition has too many."""
    return sum(max(0, len(ranges) - RANGES_DRAWN) for row in rows for ranges in _ranges(row).values())


def _offset_ticks(rows: Sequence[Coverage]) -> dict[str, Any]:
    """Return the settings of labels that are whole offsets, without the default's "1.2M"."""
    edges = [edge for row in rows for ranges in _ranges(row).values() for pair in ranges for edge in pair]
    few = not edges or max(edges) - min(edges) <= _FEW_OFFSETS
    return {"tickformat": "d", "dtick": 1} if few else {"tickformat": "d"}


def _damages(row: Coverage) -> list[tuple[int, str]]:
    """Return where a partition is damaged; findings without an offset are at its start."""
    return [
        (row.start if finding.start is None else finding.start, finding.kind.code)
        for finding in row.findings
        if finding.severity is Severity.DAMAGED or finding.kind in {NO_COMMIT, COMMIT_DAMAGED}
    ]


def _drawn(ranges: Ranges) -> Ranges:
    """Return the longest ranges, in order."""
    if len(ranges) <= RANGES_DRAWN:
        return ranges
    return tuple(sorted(sorted(ranges, key=lambda one: one[0] - one[1])[:RANGES_DRAWN]))


def _time_at(row: Coverage, offset: int) -> float:
    """Return the time (ms) of the records around an offset, interpolated between the ends of segments."""
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
    """Mark places: a hole of ten offsets in a billion is less than a pixel wide, its mark is not."""
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


def _laid_out(figure: go.Figure, rows: Sequence[Coverage], xaxis: Mapping[str, Any]) -> dict[str, Any]:
    names = [row.where for row in rows]
    figure.update_layout(
        barmode="overlay",
        bargap=0.1,
        height=110 + _ROW_PIXELS * max(1, len(rows)),
        margin={"l": 8, "r": 8, "t": _TOP, "b": 32},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={**xaxis, "automargin": True},
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            **_short_labels(names),
            "range": [len(names) - 0.5, -0.5],  # plotly's own range omits a partition at the edge that has no bar
            "automargin": True,
            "fixedrange": True,
        },
        template="none",
    )
    return dict(figure.to_dict())


def _short_labels(names: Sequence[str]) -> dict[str, Any]:
    """Shorten long names in the middle, so that bars keep their room on a phone; hovering shows the whole name."""
    short = [
        name if len(name) <= _LABEL else f"{name[: _LABEL // 2]}\N{HORIZONTAL ELLIPSIS}{name[-_LABEL // 2 :]}"
        for name in names
    ]
    return {"tickmode": "array", "tickvals": list(names), "ticktext": short}


def growth(coverages: Sequence[Coverage]) -> dict[str, Any]:
    """Return the bytes of segments by the day of their newest record, cumulated."""
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
    return _small(figure, _days_axis(days), {**_BYTES_AXIS, "rangemode": "tozero"})


def _days_axis(days: Sequence[str]) -> dict[str, Any]:
    """Return an axis of whole days: plotly's default shows milliseconds for one day."""
    axis: dict[str, Any] = {"type": "date", "tickformat": "%Y-%m-%d"}
    if 0 < len(days) <= _FEW_DAYS:
        first, last = date.fromisoformat(days[0]), date.fromisoformat(days[-1])
        if (last - first).days < _FEW_DAYS:
            around = timedelta(days=1)
            axis |= {"dtick": _DAY_MS, "range": [(first - around).isoformat(), (last + around).isoformat()]}
    return axis


def sizes(topics: Mapping[str, Sequence[Coverage]]) -> dict[str, Any]:
    """Return the chart of the largest topics."""
    sums = {topic: sum(row.bytes for row in rows) for topic, rows in topics.items()}
    largest = sorted(sums.items(), key=lambda entry: -entry[1])[:30]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[topic for topic, _ in largest],
            x=[count for _, count in largest],
            marker={"color": "#4c9a6a"},
            hovertext=[f"{_escape(topic)} {counted(count, 'byte')}" for topic, count in largest],
            hoverinfo="text",
        )
    )
    figure.update_layout(height=110 + _ROW_PIXELS * max(1, len(largest)))
    return _small(
        figure,
        _BYTES_AXIS,
        {
            "type": "category",
            "autorange": "reversed",
            "automargin": True,
            **_short_labels([name for name, _ in largest]),
        },
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
