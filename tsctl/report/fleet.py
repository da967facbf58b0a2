"""The fleet on one page, from the `/status.json` of each agent: stores first, then brokers, the worst first.

The page has no script and fetches nothing. Text of agents stays text: the template escapes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ts_common.printable import printable
from ts_common.wording import counted

if TYPE_CHECKING:
    from jinja2 import Template

COLUMNS: Final = (
    *("Agent", "Broker", "Condition", "What was observed", "Last shipped", "Waiting"),
    *("Retention left", "Partitions", "Live tail", "Release"),
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


def render_fleet(rows: Iterable[FleetRow], failing: Sequence[str], silent: int, made: str) -> str:
    """Return the page as HTML.

    Args:
        failing: what stores fail, as agents report it.
        silent: the number of agents that did not answer: what their stores do is unknown.
        made: the time of the answers.
    """
    ordered = sorted(rows, key=lambda row: (_ORDER.index(row.kind), row.cells))
    unwell = sum(row.kind != "good" for row in ordered)
    kind = "bad" if unwell else "good"
    agents = counted(len(ordered), "agent")
    need = f"{unwell:,} of {agents} {'needs' if unwell == 1 else 'need'} attention."
    text = need if unwell else f"{agents}: all is well."
    answered = len(ordered) - silent
    notes = [f"No store fails a request of the {counted(answered, 'agent')} that answered."] if answered else []
    if failing:
        notes.clear()
    if silent:
        notes.append(f"{counted(silent, 'agent')} did not answer; whether a store fails their requests is unknown.")
    return page_template("fleet.html.j2").render(
        title="ts-uploader: the fleet",
        made=made,
        verdict={"kind": kind, "text": text},
        stores=failing,
        notes=notes,
        columns=COLUMNS,
        rows=[{"cells": [*_cells(row)]} for row in ordered],
    )


def page_template(file: str) -> "Template":
    """Return a page of this folder; it escapes markup, and characters that reorder or break a line."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  (only for a page)

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    return environment.get_template(file)


_KINDS: Final = dict.fromkeys(COLUMNS, "number") | {
    "Agent": "whole",
    "Broker": "",
    "What was observed": "text",
    "Last shipped": "",
    "Waiting": "",
    "Live tail": "",
    "Release": "whole",
}


def _cells(row: FleetRow) -> Iterable[Mapping[str, str]]:
    for name, text in zip(COLUMNS, row.cells, strict=True):
        yield {"text": text, "kind": f"whole {row.kind}" if name == "Condition" else _KINDS[name]}
