"""`tsctl status`: the state of agents, read from all of them at once, a row for each.

An agent serves `GET /status.json` on its HTTP address. The command sends no request to the store.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import urllib3

from ts_common.errors import ConfigurationError, CorruptData
from ts_common.json_objects import parse_json
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.timestamps import time_text
from ts_reader.reading.parallel import in_threads
from tsctl.agent_pages import LONGEST_BYTES, NoPage, addresses, get_page, page_urls
from tsctl.agent_status import Answer, count, flag, number, objects, seconds_of, share, words
from tsctl.archive_options import JsonOption
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, size, write_page
from tsctl.report.fleet import COLUMNS, FleetRow, render_fleet

_LONGEST_MESSAGE: Final = 300
_UNKNOWN: Final = "unknown"
_OF_STORES: Final = "store_"  # the beginning of the conditions that a store causes


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
    output = Output(as_json)
    answers = _ask_all(page_urls(given, "status.json"), timeout, output)
    if as_json:
        output.document({"agents": [_fields(answer) for answer in answers]})
    elif html is not None:
        write_page(html, "--html", _page(answers))
    elif partitions:
        output.table(_PARTITION_COLUMNS, [row for answer in answers for row in _partition_rows(answer)])
    else:
        output.table(_COLUMNS, [_row(answer) for answer in answers])
    _warn(answers, output)
    if any(answer.fields is None for answer in answers):
        raise typer.Exit(ExitCode.TRY_AGAIN)
    if not all(answer.is_well for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


def _warn(answers: Sequence[Answer], output: Output) -> None:
    for answer in answers:
        if answer.fields is None:
            output.warn(f"{answer.address}: {answer.problem}")
        elif not answer.is_well and (text := answer.state.get("text")):
            output.warn(f"{answer.address}: {text}")


def _ask_all(urls: Mapping[str, str], timeout: float, output: Output) -> Sequence[Answer]:
    """Return the responses of agents, in the order of their addresses."""
    with (
        output.progress("agents", len(urls)) as advance,
        urllib3.PoolManager(timeout=timeout, retries=False, num_pools=len(urls)) as pool,
    ):

        def ask(one: tuple[str, str]) -> Answer:
            answer = _ask(pool, *one, timeout)
            advance()
            return answer

        return in_threads(ask, urls.items(), at_once=True)


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
    *("OLDEST", "LEFT", "TAIL"),
    *("HOLES", "STUCK", "QUEUE", "LAST ERROR"),
)


def _row(answer: Answer) -> Sequence[str | int | bool | None]:
    if answer.fields is None:
        return (answer.address, *[None] * (len(_COLUMNS) - 2), "no answer")  # the reason is on standard error
    fields, partitions = answer.fields, answer.partitions
    holes = [flag(each, "hole") for each in partitions or ()]
    errors, lag = objects(fields, "last_errors"), answer.total("lag_offsets")
    return (
        answer.address,
        *(count(fields, "broker"), words(fields, "cluster"), words(fields, "version")),
        words(answer.state, "condition"),
        *(flag(fields, name) for name in ("healthy", "ready")),
        None if partitions is None else len(partitions),
        int(lag.value) if lag.is_whole and lag.value is not None else lag.shown(_whole),
        answer.total("unshipped_bytes").shown(_size),
        answer.greatest("oldest_unshipped_age_seconds").shown(_seconds),
        answer.least_share("retention_left_ratio").shown(_share, "at most"),
        _tail(fields),
        None if partitions is None or None in holes else holes.count(True),
        count(fields, "stuck"),
        count(fields, "queue_length"),
        words(errors[0], "message") if errors else None,
    )


def _page(answers: Sequence[Answer]) -> str:
    """Return the fleet as a page."""
    messages: dict[str, str] = {}
    agents: dict[str, set[int]] = {}
    for place, answer in enumerate(answers):
        for what, message in _failing(answer):
            messages.setdefault(what, message)
            agents.setdefault(what, set()).add(place)
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
    for each in objects(answer.fields or {}, "failing_requests"):
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
    fields, left = answer.fields, answer.least_share("retention_left_ratio")
    cluster, broker = words(fields, "cluster"), count(fields, "broker")
    cells = (
        answer.address,
        f"{_UNKNOWN if broker is None else broker} of {cluster or _UNKNOWN}",
        words(answer.state, "condition") or _UNKNOWN,
        words(answer.state, "text") or "",
        _shipped(fields),
        _waiting(answer),
        left.shown(_share, "at most") or ("" if left.is_whole else _UNKNOWN),
        _led(answer),
        _tail(fields) or "",
        words(fields, "version") or _UNKNOWN,
    )
    return FleetRow("good" if answer.is_well else "bad", cells)


def _shipped(fields: Mapping[str, Any]) -> str:
    """Return the time of the last segment, and the bytes per second."""
    last, rate = seconds_of(fields, "last_shipped"), number(fields, "shipped_bytes_per_second")
    if last is not None:
        shown = _time(last)
    elif "last_shipped" in fields and fields["last_shipped"] is None:
        shown = "nothing since its start"
    else:
        shown = _UNKNOWN
    if rate is None:
        return shown if shown == _UNKNOWN else f"{shown}, rate {_UNKNOWN}"
    return f"{shown}, {_size(rate)}/s" if rate else shown


def _waiting(answer: Answer) -> str:
    """Return the closed segments that are not shipped, their size, and the age of the oldest."""
    segments = answer.total("unshipped_segments")
    if segments.value is None:
        return _UNKNOWN
    if segments.is_whole and not segments.value:
        return "nothing"
    number_of = segments.shown(lambda found: counted(int(found), "segment"))
    of_size = answer.total("unshipped_bytes").shown(_size) or f"size {_UNKNOWN}"
    oldest = answer.greatest("oldest_unshipped_age_seconds").shown(_seconds) or _UNKNOWN
    return f"{number_of}, {of_size}, oldest {oldest}"


def _tail(fields: Mapping[str, Any]) -> str | None:
    """Return how far the live tail is behind what brokers acknowledged; None without one."""
    logs = objects(fields, "tail")
    if not logs:
        return None
    behind = [number(each, "lag_seconds") for each in logs]
    known = [each for each in behind if each is not None]
    shown = f"{_seconds(max(known))} behind" if known else _UNKNOWN
    failing = sum(bool(words(each, "failing")) for each in logs)
    return shown + (f", {counted(failing, 'log')} failing" if failing else "")


def _led(answer: Answer) -> str:
    """Return the number of partitions, and of the stuck ones."""
    partitions, stuck = answer.partitions, count(answer.fields or {}, "stuck")
    led = _UNKNOWN if partitions is None else f"{len(partitions):,}"
    if stuck is None:
        return f"{led}, stuck {_UNKNOWN}" if "stuck" in (answer.fields or {}) else led
    return f"{led}, {stuck:,} stuck" if stuck else led


def _time(seconds: float) -> str:
    """Return a time in the form of the page, without fractions of seconds."""
    return time_text(int(seconds) * 1000).replace(".000Z", "Z")


_PARTITION_COLUMNS: Final = (
    *("AGENT", "PARTITION", "NEXT OFFSET", "LAG", "SEGMENTS", "UNSHIPPED", "OLDEST", "LEFT", "HOLE", "WAITS FOR"),
)


def _partition_rows(answer: Answer) -> list[Sequence[str | int | bool | None]]:
    """Return a row for each partition that lags, has a hole or waits, or whose state is unknown."""
    return [
        (
            answer.address,
            f"{words(each, 'topic') or _UNKNOWN}-{_UNKNOWN if (led := count(each, 'partition')) is None else led}",
            count(each, "next_offset"),
            count(each, "lag_offsets"),
            count(each, "unshipped_segments"),
            None if (waiting := number(each, "unshipped_bytes")) is None else _size(waiting),
            None if (oldest := number(each, "oldest_unshipped_age_seconds")) is None else _seconds(oldest),
            None if (left := share(each, "retention_left_ratio")) is None else _share(left),
            flag(each, "hole"),
            words(each, "waits_for"),
        )
        for each in objects(answer.fields or {}, "partitions")
        if any(each.get(name) for name in ("lag_offsets", "hole", "waits_for")) or each.get("unshipped_segments") != 0
    ]


def _fields(answer: Answer) -> dict[str, object]:
    return {
        "address": answer.address,
        "answered": answer.fields is not None,
        "problem": answer.problem,
        "status": answer.fields,
    }


def _whole(found: float) -> str:
    return str(int(found))


def _size(found: float) -> str:
    return size(int(found))


def _seconds(count: float) -> str:
    """Return a duration for people with its two largest units."""
    minutes, seconds = divmod(round(count), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next((place for place, (amount, _) in enumerate(units) if amount), 3)
    return " ".join(f"{amount}{unit}" for amount, unit in units[first : first + 2] if amount) or "0s"


def _share(ratio: float) -> str:
    return f"{ratio:.0%}"
