"""`tsctl status`: the state of agents, read from all of them at once, a row for each.

An agent serves `GET /status.json` on its HTTP address. The command sends no request to the store.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import urllib3

from ts_common.errors import ConfigurationError, CorruptData
from ts_common.json_objects import parse_json
from ts_common.query.moments import time_text
from ts_common.reading.archive_name import SOURCE
from ts_common.reading.parallel import in_threads
from ts_common.wording import counted
from tsctl.agents import LONGEST_BYTES, NoPage, addresses, get_page, page_urls
from tsctl.archive import JsonOption
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, size, write_page
from tsctl.report.fleet import COLUMNS, FleetRow, render_fleet

_LONGEST_MESSAGE: Final = 300
_HUGE: Final = 1e18  # greater than any count of an agent
_WELL: Final = "well"
_OF_STORES: Final = "store_"  # the beginning of the conditions that a store causes


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of one agent.

    Attributes:
        address: as it was given.
        fields: its status; None if the request failed.
        problem: why the request failed.
    """

    address: str
    fields: Mapping[str, Any] | None
    problem: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether it is healthy and ready, and by its own judgement no operator needs to look.

        Only `true` counts: a value that no agent serves is no sign of health.
        """
        fields = self.fields
        if fields is None or fields.get("healthy") is not True or fields.get("ready") is not True:
            return False
        if fields.get("stuck") or not isinstance(fields.get("state", {}), dict):
            return False
        if "well" in self.state:
            return self.state["well"] is True
        return bool(self.state.get("condition", _WELL) == _WELL)

    @property
    def state(self) -> Mapping[str, Any]:
        """Its condition as a whole; empty without one: an earlier release has no `state`."""
        found = None if self.fields is None else self.fields.get("state")
        return found if isinstance(found, dict) else {}

    @property
    def stuck(self) -> int | None:
        """The number of its stuck partitions; None if the status has none."""
        found = None if self.fields is None else _number(self.fields, "stuck")
        return None if found is None else int(found)


def status(
    agents: Annotated[list[str] | None, typer.Argument(help="Addresses: host, host:port or http://host:port.")] = None,
    file: Annotated[
        Path | None, typer.Option("--agents", help="File of addresses, one on each line; # starts a comment.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Timeout of one agent in seconds.")] = 10.0,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Rows of partitions that lag, have a hole or wait, instead of agents.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the fleet as a page to this file, instead of the table.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of agents: health, lag, what waits and why."""
    given = addresses(agents or [], file)
    if not given:
        raise ConfigurationError(SOURCE, ["no agent is named: give addresses, or --agents FILE"])
    urls = page_urls(given, "status.json")
    output = Output(as_json)
    with (
        output.progress("agents", len(urls)) as advance,
        urllib3.PoolManager(timeout=timeout, retries=False, num_pools=len(urls)) as pool,
    ):

        def ask(one: tuple[str, str]) -> Answer:
            answer = _ask(pool, *one, timeout)
            advance()
            return answer

        answers = in_threads(ask, urls.items())
    if as_json:
        output.document({"agents": [_fields(answer) for answer in answers]})
    elif html is not None:
        write_page(html, "--html", _page(answers))
    elif partitions:
        output.table(_PARTITION_COLUMNS, [row for answer in answers for row in _partition_rows(answer)])
    else:
        output.table(_COLUMNS, [_row(answer) for answer in answers])
    silent = [answer for answer in answers if answer.fields is None]
    for answer in answers:
        if answer.fields is None:
            output.warn(f"{answer.address}: {answer.problem}")
        elif not answer.is_well and (text := answer.state.get("text")):
            output.warn(f"{answer.address}: {text}")
    if silent:
        raise typer.Exit(ExitCode.TRY_AGAIN)
    if not all(answer.is_well for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


def _ask(pool: urllib3.PoolManager, address: str, url: str, timeout: float) -> Answer:
    body = get_page(pool, url, timeout)
    if isinstance(body, NoPage):
        return Answer(address, None, body.problem)
    try:
        fields = parse_json(body, "the answer", LONGEST_BYTES)
        if not isinstance(fields, dict) or "healthy" not in fields:
            raise CorruptData("it has no field `healthy`")
    except CorruptData as error:
        return Answer(address, None, f"{url} does not serve an agent's status: {error}")
    return Answer(address, fields)


_COLUMNS: Final = (
    *("AGENT", "BROKER", "CLUSTER", "VERSION", "CONDITION", "HEALTHY", "READY", "PARTITIONS", "LAG", "UNSHIPPED"),
    *("OLDEST", "LEFT"),
    *("HOLES", "STUCK", "QUEUE", "LAST ERROR"),
)


def _row(answer: Answer) -> Sequence[str | int | bool | None]:
    if answer.fields is None:
        return (answer.address, *[None] * (len(_COLUMNS) - 2), "no answer")  # the reason is on standard error
    fields = answer.fields
    partitions = _partitions(fields)
    left = [ratio for each in partitions if (ratio := _number(each, "retention_left_ratio")) is not None]
    errors = _objects(fields, "last_errors")
    return (
        answer.address,
        *(_cell(fields, name) for name in ("broker", "cluster", "version")),
        _cell(answer.state, "condition"),
        *(_cell(fields, name) for name in ("healthy", "ready")),
        len(partitions),
        int(sum(_number(each, "lag_offsets") or 0 for each in partitions)),
        size(int(sum(_number(each, "unshipped_bytes") or 0 for each in partitions))),
        _seconds(max((_number(each, "oldest_unshipped_age_seconds") or 0 for each in partitions), default=0)),
        _share(min(left, default=None)),
        sum(bool(partition.get("hole")) for partition in partitions),
        answer.stuck,
        _cell(fields, "queue_length"),
        str(errors[0].get("message")) if errors else None,
    )


def _page(answers: Sequence[Answer]) -> str:
    """Return the fleet as a page."""
    messages: dict[str, str] = {}
    agents: dict[str, set[int]] = {}
    for number, answer in enumerate(answers):
        for what, message in _failing(answer):
            messages.setdefault(what, message)
            agents.setdefault(what, set()).add(number)
    failing = [
        f"{what} ({counted(len(agents[what]), 'agent')}). {message}".rstrip()
        for what, message in sorted(messages.items())
    ]
    silent = sum(answer.fields is None for answer in answers)
    return render_fleet(map(_fleet_row, answers), failing, silent, _time(time.time()))


def _failing(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield what stores fail by an agent's status: what, for all agents the same, and a message about it.

    An agent has one failing request for each directory, and its condition can repeat one of them.
    """
    listed = []
    for each in _objects(answer.fields or {}, "failing_requests"):
        location, operation, reason = (str(each.get(name)) for name in ("location", "operation", "reason"))
        message = str(each.get("message") or "")
        listed.append(message)
        yield f"{location}: {operation} fails: {reason}", message[:_LONGEST_MESSAGE]
    condition, text = (str(answer.state.get(name) or "") for name in ("condition", "text"))
    if condition.startswith(_OF_STORES) and not any(message and message in text for message in listed):
        yield condition, text[:_LONGEST_MESSAGE]


def _fleet_row(answer: Answer) -> FleetRow:
    if answer.fields is None:
        return FleetRow("bad", (answer.address, "", "no answer", str(answer.problem), *[""] * (len(COLUMNS) - 4)))
    fields, partitions = answer.fields, _partitions(answer.fields)
    left = [ratio for each in partitions if (ratio := _number(each, "retention_left_ratio")) is not None]
    segments = int(sum(_number(each, "unshipped_segments") or 0 for each in partitions))
    waiting = size(int(sum(_number(each, "unshipped_bytes") or 0 for each in partitions)))
    oldest = _seconds(max((_number(each, "oldest_unshipped_age_seconds") or 0 for each in partitions), default=0))
    rate = _number(fields, "shipped_bytes_per_second")
    shipped = _shipped(fields["last_shipped"]) if fields.get("last_shipped") else "nothing since its start"
    cells = (
        answer.address,
        f"{fields.get('broker')} of {fields.get('cluster')}",
        str(answer.state.get("condition", "unknown")),
        str(answer.state.get("text", "")),
        f"{shipped}, {size(int(rate))}/s" if rate else shipped,
        f"{counted(segments, 'segment')}, {waiting}{f', oldest {oldest}' if oldest else ''}" if segments else "nothing",
        _share(min(left, default=None)) or "",
        f"{len(partitions):,}{f', {answer.stuck:,} stuck' if answer.stuck else ''}",
        str(fields.get("version")),
    )
    return FleetRow("good" if answer.is_well else "bad", cells)


def _time(seconds: float) -> str:
    """Return a time in the form of the page, without fractions of seconds."""
    return time_text(int(seconds) * 1000).replace(".000Z", "Z")


def _shipped(found: object) -> str:
    """Return the time of the last commit; text that is no time as it is."""
    try:
        return _time(datetime.fromisoformat(str(found)).timestamp())
    except (ValueError, OverflowError):
        return str(found)


_PARTITION_COLUMNS: Final = (
    *("AGENT", "PARTITION", "NEXT OFFSET", "LAG", "SEGMENTS", "UNSHIPPED", "OLDEST", "LEFT", "HOLE", "WAITS FOR"),
)


def _partition_rows(answer: Answer) -> list[Sequence[str | int | bool | None]]:
    """Return a row for each partition that lags, has a hole or waits."""
    return [
        (
            answer.address,
            f"{each.get('topic')}-{each.get('partition')}",
            _cell(each, "next_offset"),
            _cell(each, "lag_offsets"),
            _cell(each, "unshipped_segments"),
            size(int(_number(each, "unshipped_bytes") or 0)),
            _seconds(_number(each, "oldest_unshipped_age_seconds") or 0),
            _share(_number(each, "retention_left_ratio")),
            bool(each.get("hole")),
            _cell(each, "waits_for"),
        )
        for each in _partitions(answer.fields or {})
        if each.get("lag_offsets") or each.get("unshipped_segments") or each.get("hole") or each.get("waits_for")
    ]


def _partitions(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _objects(fields, "partitions")


# The server may be another program or a later release: check the type of each value.


def _objects(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = fields.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    found = fields.get(name)
    return found if isinstance(found, int | float) and -_HUGE < found < _HUGE else None


def _cell(fields: Mapping[str, Any], name: str) -> str | int | bool | None:
    found = fields.get(name)
    return found if found is None or isinstance(found, str | int) else str(found)


def _fields(answer: Answer) -> dict[str, object]:
    return {
        "address": answer.address,
        "answered": answer.fields is not None,
        "problem": answer.problem,
        "status": answer.fields,
    }


def _seconds(count: float) -> str | None:
    """Return a duration for people with its two largest units; None for 0."""
    if not count:
        return None
    minutes, seconds = divmod(round(count), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next((place for place, (amount, _) in enumerate(units) if amount), 3)
    return " ".join(f"{amount}{unit}" for amount, unit in units[first : first + 2] if amount) or "0s"


def _share(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.0%}"
