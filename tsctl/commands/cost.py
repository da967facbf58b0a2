"""`tsctl cost`: what an archive costs a month, and what a change of it would do.

The archive is counted by listings: one for each directory, and two small objects of each partition. Requests are those
that agents have counted, or an estimate by the age of segments.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from ts_common.config.file_values import parse_seconds, parse_size
from ts_common.errors import ConfigurationError
from ts_reader.reading.archive_name import SOURCE, name_archive
from tsctl.agents import addresses, page_urls
from tsctl.archive import ClusterOption, ConfigOption, EntropyOption, JsonOption, TopicsArgument, UrlOption
from tsctl.cost.changes import Change, what_if
from tsctl.cost.month import Reads, bill
from tsctl.cost.prices import EXAMPLE, read_prices
from tsctl.cost.readings import read_requests
from tsctl.cost.requests import estimate
from tsctl.cost.survey import check_priced, survey
from tsctl.cost.tables import fields, outcome_fields, section
from tsctl.output import Output

_DAY = 86_400
_MOST_BITS = 30  # a billion prefixes
_MOST = 1e15  # GB or queries
_WHAT_IF = "What if: "


def cost(
    topics: TopicsArgument = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="The price file; default: list prices of S3 in us-east-1.")
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", help="Address of an agent or an endpoint, whose requests count; can be repeated."),
    ] = None,
    agents: Annotated[
        Path | None, typer.Option("--agents", help="File of such addresses, one on each line; # starts a comment.")
    ] = None,
    over: Annotated[
        str | None,
        typer.Option("--over", help="Time between two readings of requests, as in 60s; default: since each start."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Timeout of one agent in seconds.")] = 10.0,
    read_gb: Annotated[
        float, typer.Option("--read-gb", min=0, max=_MOST, help="GB that readers read in a month.")
    ] = 0.0,
    plans: Annotated[
        float, typer.Option("--plans", min=0, max=_MOST, help="Queries in a month that select topics by a pattern.")
    ] = 0.0,
    segment_bytes: Annotated[
        str | None, typer.Option("--segment-bytes", help=_WHAT_IF + "each segment has this size, as in 1GiB.")
    ] = None,
    to_class: Annotated[
        str | None, typer.Option("--class", help=_WHAT_IF + "segments are in this storage class.")
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", help=_WHAT_IF + "segments are removed at this age, as in 90d.")
    ] = None,
    to_bits: Annotated[
        int | None, typer.Option("--to-entropy-bits", min=0, max=_MOST_BITS, help=_WHAT_IF + "keys have so many bits.")
    ] = None,
    example_prices: Annotated[
        bool, typer.Option("--example-prices", help="Write an example of a price file, and end.")
    ] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the archive costs a month, and what a change would do."""
    if example_prices:
        sys.stdout.write(EXAMPLE.read_text(encoding="utf-8"))
        return
    change = _change(segment_bytes, to_class, retention, to_bits)
    over_seconds = None if over is None else _parsed("--over", over, parse_seconds)
    of_file = addresses([], agents)
    if agents is not None and not of_file:
        raise ConfigurationError(SOURCE, [f"--agents={agents}: it has no address; leave it out for an estimate"])
    given = (*(agent or ()), *of_file)
    if over_seconds is not None and not (given and over_seconds):
        raise ConfigurationError(SOURCE, [f"--over={over}: it needs --agent or --agents, and at least a second"])
    if given and topics:
        raise ConfigurationError(SOURCE, ["agents count the requests of all topics: leave out the topics, or --agent"])
    urls = _each_once(page_urls(given, "metrics"))
    output, name = Output(as_json), name_archive(config, url, cluster, entropy_bits)
    if prices is None:
        check_priced(name)
    priced = read_prices(prices)
    if change.storage_class is not None:
        priced.of(change.storage_class)
    reads = Reads(read_gb, plans)
    usage = survey(name, topics or (), priced, [change.retention_days or 0], output)
    requests = read_requests(urls, over_seconds, timeout) if urls else estimate(usage)
    lines = bill(usage, requests, priced, reads)
    outcome = None if change.is_empty else what_if(usage, requests, priced, change, reads)
    if as_json:
        further = {} if outcome is None else {"after": outcome_fields(outcome)}
        output.document({"cluster": name.keys.cluster, **fields(usage, requests, priced, lines), **further})
        return
    shown = section(usage, requests, priced, lines, outcome)
    for table in shown.tables:
        output.table(table.columns, table.rows)
        output.text("")
    for note in shown.notes:
        output.text(note)


def _each_once(urls: Mapping[str, str]) -> dict[str, str]:
    """Return URLs by address, each URL once, with the first of its addresses; upper case is no difference."""
    first: dict[str, str] = {}
    for address, url in urls.items():
        first.setdefault(url.lower(), address)
    return {address: urls[address] for address in first.values()}


def _change(segment_bytes: str | None, to_class: str | None, retention: str | None, bits: int | None) -> Change:
    """Return the change that the options describe.

    Raises:
        ConfigurationError: an option has no size or time, or zero.
    """
    size = None if segment_bytes is None else _parsed("--segment-bytes", segment_bytes, parse_size)
    seconds = None if retention is None else _parsed("--retention", retention, parse_seconds)
    return Change(size, to_class, None if seconds is None else seconds / _DAY, bits)


def _parsed(option: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        found = parse(text)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [f"{option}: {error}"]) from error
    if not found:
        raise ConfigurationError(SOURCE, [f"{option}={text}: more than 0 is expected"])
    return found
