"""`tsctl report`: coverage and findings of an archive as charts and tables in one HTML file."""

import time
from pathlib import Path
from typing import Annotated

import typer

from ts_common.option_groups import with_groups
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
)
from tsctl.commands.verify import as_fields, summary
from tsctl.cost.bill_tables import section
from tsctl.cost.object_counts import survey
from tsctl.cost.prices import read_prices
from tsctl.output import Output, check_page, write_page
from tsctl.verify.bucket_check import hidden_line
from tsctl.verify.run import (
    CheckOptions,
    ClusterOptions,
    run_verification,
)


@with_groups
def report(
    file: Annotated[Path, typer.Option("--output", "-o", help="The file to write; an existing file is replaced.")],
    prices: Annotated[
        Path | None, typer.Option("--prices", help="A price file: adds what the archive costs a month.")
    ] = None,
    *,
    check: CheckOptions,
    beside: ClusterOptions,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Write the coverage of the archive and all findings of verify to one HTML file."""
    name = given.name()
    output = Output(as_json, name.whole)
    check_page(file, "--output")
    priced = None if prices is None else read_prices(prices)
    from tsctl.report.render import render  # noqa: PLC0415  (plotly: half a second that no other command needs)

    found = run_verification(name, check, output, beside)
    facts = {
        "cluster": name.keys.cluster,
        "location": ", ".join(endpoint.location for endpoint in name.endpoints),
        "depth": check.depth.value,
        **({} if found.hidden is None else {"hidden": hidden_line(found.hidden)}),
    }
    cost = None if priced is None else section(survey(name, check.topics or (), priced, None, output), priced)
    page = render(f"Archive of {name.keys.cluster}", found.coverages, found.findings, facts, time.time(), cost)
    write_page(file, "--output", page)
    if as_json:
        facts = {"cluster": name.keys.cluster, "depth": check.depth.value, "file": str(file)}
        output.document({**facts, **as_fields(found)})
    output.text(f"{file}: {summary(found)}")
