"""`tsctl cost`: what an archive costs a month, and what a change of it would do."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ts_common.config.file_values import parse_seconds, parse_size
from ts_common.errors import ConfigurationError
from ts_common.option_groups import with_groups
from ts_common.store.factory import Scheme, parse_location
from ts_common.wording import some
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import ArchiveOptions, JsonOption, TopicsArgument
from tsctl.cost.bill import Change
from tsctl.cost.bill_tables import fields, section
from tsctl.cost.object_counts import survey
from tsctl.cost.prices import EXAMPLE, read_prices
from tsctl.output import Output


@with_groups
def cost(
    topics: TopicsArgument = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="The price file; default: list prices of S3 in us-east-1.")
    ] = None,
    segment_bytes: Annotated[
        str | None, typer.Option("--segment-bytes", help="What if: each segment has this size, as in 1GiB.")
    ] = None,
    to_class: Annotated[
        str | None, typer.Option("--class", help="What if: segments are in this storage class.")
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", help="What if: segments are removed at this age, as in 90d.")
    ] = None,
    example_prices: Annotated[
        bool, typer.Option("--example-prices", help="Write an example of a price file, and end.")
    ] = False,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Show what the archive costs a month, and what a change would do."""
    if example_prices:
        sys.stdout.write(EXAMPLE.read_text(encoding="utf-8"))
        return
    size = None if segment_bytes is None else _parsed("--segment-bytes", segment_bytes, parse_size)
    days = None if retention is None else _parsed("--retention", retention, parse_seconds) / 86_400
    output, name = Output(as_json), given.name()
    others = [each.location for each in name.endpoints if parse_location(each.location).scheme is not Scheme.S3]
    if prices is None and others:
        problem = f"--prices is missing: {some(sorted(others))} is not S3; edit a copy of what --example-prices writes"
        raise ConfigurationError(SOURCE, [problem])
    change, priced = Change(size, to_class, days), read_prices(prices)
    priced.of(to_class or priced.default_class)
    parts = survey(name, topics or (), priced, days, output)
    if as_json:
        output.document({"cluster": name.keys.cluster, **fields(parts, priced, change)})
        return
    shown = section(parts, priced, change)
    for columns, rows in shown.tables:
        output.table(columns, rows)
        output.text("")
    for note in shown.notes:
        output.text(note)


def _parsed(option: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        found = parse(text)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [f"{option}: {error}"]) from error
    if not found:
        raise ConfigurationError(SOURCE, [f"{option}={text}: more than 0 is expected"])
    return found
