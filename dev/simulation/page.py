"""The page of all runs: one HTML file with plots, which needs no network."""

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dev.simulation.cloud import GET, HEAD, LIST, PUT
from dev.simulation.run import Figures, Run

_HOURS = 3600.0
_DAYS_PER_MONTH = 30
_GIGABYTE = 1e9
# As in docs/sizing.md, in any currency: 1,000 writes, 1,000 reads, a GB and month.
_WRITE_PRICE, _READ_PRICE, _STORAGE_PRICE = 0.005, 0.0004, 0.023
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A simulated fleet</title>
<style>body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; font-size: smaller }}
td, th {{ border: 1px solid #ccc; padding: .3em .6em; text-align: right }}
td:first-child, th:first-child {{ text-align: left }}</style>
<h1>A simulated fleet</h1>
<p>The agents' tracker, queues, uploader, commits and gate of requests are the real ones. Clusters, store and time are
simulated; seed {seed}.</p>{body}</html>
"""


def page(runs: Sequence[Run]) -> str:
    """Return the page as HTML."""
    everything = [each.figures for each in runs]
    parts = [_summary(runs), _plot(_prefixes(everything))]
    for figures in everything:
        parts += [f"<h2>{escape(figures.scenario.title)}</h2><p>{escape(sampling(figures))}</p>"]
        parts += [_plot(each) for each in (_requests(figures), _lags(figures), _backlog(figures), _cost(figures))]
    body = "".join(parts).replace("<div", f"<script>{get_plotlyjs()}</script><div", 1)
    return _PAGE.format(seed=everything[0].seed, body=body)


def sampling(figures: Figures) -> str:
    """Return in words what a run is, and which part of the fleet it has."""
    one = figures.scenario
    text = (
        f"{one.brokers:,} brokers lead {one.partitions:,} partitions each, and close a segment of "
        f"{one.segment_bytes / 1e6:,.0f} MB of each every {one.segment_seconds / 60:g} minutes. The store is out from "
        f"{one.outage[0] / _HOURS:.1f} h to {one.outage[1] / _HOURS:.1f} h; every second partition gets another leader "
        f"at {one.elections_at / _HOURS:g} h. "
    )
    if one.weight == 1:
        return text + "Nothing is sampled."
    text += (
        f"Simulated are {one.sampled_brokers:,} brokers with {one.sampled_partitions:,} partitions each, so that one "
        f"stands for {one.weight:g}: the store's limits are divided by that, and figures are multiplied by it. "
    )
    if one.share > 1:
        text += (
            f"Upload threads are as busy as with {one.partitions:,} partitions, so that a recovery lasts as long. Two "
            "segments of one broker at once wait longer than in the fleet, and the first minute after an outage has "
            "more requests. Threads for lookups and commits, and the gate of each agent, have only the simulated "
            "partitions."
        )
    return text


def costs(figures: Figures) -> dict[str, float]:
    """Return the cost of a month by kind: requests as in the run, and the bytes of one month, stored for a month."""
    days = figures.scenario.seconds / 24 / _HOURS
    months = _DAYS_PER_MONTH / days / 1000
    return {
        "writes": figures.total(PUT, LIST) * months * _WRITE_PRICE,
        "reads": figures.total(GET, HEAD) * months * _READ_PRICE,
        "storage": figures.scenario.bytes_per_day * _DAYS_PER_MONTH / _GIGABYTE * _STORAGE_PRICE,
    }


def _summary(runs: Sequence[Run]) -> str:
    rows: list[str] = []
    for each in runs:
        one = each.figures
        row = {
            "scenario": escape(one.scenario.title),
            "segments": f"{one.segments:,}",
            "not committed": f"{one.uncommitted:,}",
            "requests of a segment": f"{one.total() / max(1, one.segments):.2f}",
            "requests per second, busiest minute": f"{max(one.rates):,.0f}",
            "SlowDown": f"{sum(one.slow_downs) * 60 / one.total():.2%}",
            "recovery": f"{one.recovery_seconds:,.0f} s",
            "takeover, median": f"{one.takeover_seconds[0]:.1f} s",
            "takeover, greatest": f"{one.takeover_seconds[2]:.1f} s",
            "of this machine": f"{each.cpu_seconds:.0f} CPU s in {each.wall_seconds:.0f} s",
            "digest": one.digest,
        }
        rows = rows or ["".join(f"<th>{name}</th>" for name in row)]
        rows.append("".join(f"<td>{text}</td>" for text in row.values()))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _prefixes(everything: Sequence[Figures]) -> go.Figure:
    lines = []
    for figures in everything:
        for place, kind in enumerate(("PUT", "other requests")):
            rates = [busiest[place] for busiest in figures.busiest]
            lines.append((f"{figures.scenario.title}: {kind}", list(range(len(rates))), rates))
    one = everything[0].scenario
    bits = list(range(len(everything[0].busiest)))
    lines += [
        ("S3's limit: PUT", bits, [one.writes] * len(bits)),
        ("S3's limit: others", bits, [one.reads] * len(bits)),
    ]
    title = "Requests per second under the busiest prefix, in its busiest minute"
    return _chart(title, "entropy bits", lines).update_yaxes(type="log")


def _requests(figures: Figures) -> go.Figure:
    series = {**figures.operations, "SlowDown": figures.slow_downs}
    hours = [minute / 60 for minute in range(len(figures.backlog))]
    return _chart("Requests per second", "h", [(name, hours, rates) for name, rates in series.items()])


def _lags(figures: Figures) -> go.Figure:
    hours = [row[0] / _HOURS for row in figures.lags]
    names = ("median", "99 %", "greatest")
    lines = [(name, hours, [row[place] for row in figures.lags]) for place, name in enumerate(names, 1)]
    return _chart("Seconds from closing a segment to its commit, by ten minutes", "h", lines).update_yaxes(type="log")


def _backlog(figures: Figures) -> go.Figure:
    hours = [minute / 60 for minute in range(len(figures.backlog))]
    title = f"Closed segments without a commit; none of the outage {figures.recovery_seconds:,.0f} s after it"
    return _chart(title, "h", [("segments", hours, figures.backlog)])


def _cost(figures: Figures) -> go.Figure:
    parts = costs(figures)
    bars = go.Bar(
        x=list(parts.values()), y=list(parts), orientation="h", text=[f"{each:,.0f}" for each in parts.values()]
    )
    prices = f"{_WRITE_PRICE} for 1,000 writes, {_READ_PRICE} for 1,000 reads, {_STORAGE_PRICE} for a GB and month"
    layout = go.Layout(title=f"Cost of a month, at {prices}", height=260)
    return go.Figure(bars, layout)


def _chart(title: str, x: str, lines: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> go.Figure:
    traces = [go.Scatter(x=list(at), y=list(values), name=name) for name, at, values in lines]
    return go.Figure(traces, go.Layout(title=title, xaxis_title=x, height=380, showlegend=True))


def _plot(chart: go.Figure) -> str:
    text: Any = chart.to_html(full_html=False, include_plotlyjs=False)
    return str(text)
