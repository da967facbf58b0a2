"""Reads the visible content of a page of the report."""

import re


def part_of(document: str, identity: str) -> str:
    """Return the chart of that id, up to the next one."""
    begin = document.index(f'id="{identity}"')
    end = re.compile(r'<div class="chart|<div class="wide|<script').search(document, begin)
    return document[begin : end.start() if end else None]


def bars(chart: str, colour: str) -> int:
    """Return how many bars of a colour are drawn."""
    return len(re.findall(rf'<g class="point"><path[^>]*fill: {re.escape(colour)}', chart))
