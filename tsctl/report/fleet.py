"""The fleet on one page, from the `/status.json` of each agent: stores first, then brokers, the worst first.

The page has no script and fetches nothing. Text of agents stays text: the template escapes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ts_common.printable import printable
from ts_common.wording import counted

COLUMNS: Final = (
    *("Agent", "Broker", "Condition", "What was observed", "Last shipped", "Throughput", "Waiting", "Oldest"),
    *("Retention left", "Stuck", "Partitions", "Release"),
)
_ORDER: Final = ("bad", "good")


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One agent.

    Attributes:
        kind: `bad` or `good`.
        cells: texts of `COLUMNS`.
    """

    kind: str
    cells: Sequence[str]


def render_fleet(rows: Iterable[FleetRow], failing: Mapping[str, int], made: str) -> str:
    """Return the page as HTML.

    Args:
        rows: of all agents.
        failing: what stores fail, each with the number of agents that report it.
        made: the time of the answers.
    """
    ordered = sorted(rows, key=lambda row: (_ORDER.index(row.kind), row.cells))
    unwell = [row for row in ordered if row.kind != "good"]
    kind = "bad" if unwell else "good"
    agents = counted(len(ordered), "agent")
    text = f"{len(unwell)} of {agents} need attention." if unwell else f"{agents}: all is well."
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    return environment.get_template("fleet.html.j2").render(
        title="ts-uploader: the fleet",
        made=made,
        verdict={"kind": kind, "text": text},
        stores=[f"{what} ({counted(number, 'agent')})" for what, number in sorted(failing.items())],
        columns=COLUMNS,
        rows=[{"cells": [*_cells(row)]} for row in ordered],
    )


def _cells(row: FleetRow) -> Iterable[Mapping[str, str]]:
    for name, text in zip(COLUMNS, row.cells, strict=True):
        kinds = {"Condition": row.kind, "What was observed": "text"}
        yield {"text": text, "kind": kinds.get(name, "number" if name not in {"Agent", "Broker"} else "")}
