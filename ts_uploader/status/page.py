"""The page at `/`: how the agent does, trouble first, for a person with a browser, on a phone too.

No scripts and nothing from elsewhere; whatever is not written here is escaped. With ten thousand partitions it shows
the worst and the totals, and stays as small as with fifty.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from html import escape

from ts_common.model import TopicPartition
from ts_common.printable import printable
from ts_common.wording import counted
from ts_uploader.status.snapshot import PartitionStatus, Status, StatusSnapshot, Totals
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import WAIT_REASONS

WORST = 50  # partitions on the page
_ERRORS = 10
_WORKS = 20
_MESSAGE = 400  # characters
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_MISSING = {
    "store": "an object store has not answered yet, or refuses this agent (then the last error says why)",
    "log_dirs": "the log dirs have not been read yet",
    "leadership": "the source of leadership has not answered yet",
}
_WAITING = {"uploads": "upload", "commits": "commit", "lookups": "store request"}
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5a6370;--ground:#fff;--line:#d8dde3;--bad:#b3261e;--warn:#8a5a00;
--good:#1a6b3a;--tint:#f5f7f9}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#a3acb8;--ground:#14171a;--line:#343a42;--bad:#ff8a80;
--warn:#ffca66;--good:#7bd99b;--tint:#1d2125}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:70rem;font:1rem/1.45 system-ui,sans-serif;color:var(--ink);
background:var(--ground)}
h1{font-size:1.3rem;margin:0 0 .2rem}h2{font-size:1.05rem;margin:1.6rem 0 .5rem}
p{margin:.3rem 0}.soft{color:var(--soft)}.bad{color:var(--bad)}.warn{color:var(--warn)}.good{color:var(--good)}
.verdict{font-size:1.15rem;font-weight:600}
ul{margin:.4rem 0;padding-left:1.2rem}li{overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.5rem;margin:.5rem 0}
dl div{background:var(--tint);border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem}
dt{color:var(--soft);font-size:.85rem}dd{margin:0;font-size:1.1rem;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:.35rem .6rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere}td.short{overflow-wrap:break-word}
th{color:var(--soft);font-weight:500;white-space:nowrap}td:first-child{min-width:8rem}td.number{font-variant-numeric:tabular-nums;white-space:nowrap}
@media(max-width:44rem){thead{display:none}table,tbody,tr,td{display:block}
tr{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem;margin:.5rem 0;background:var(--tint)}
td{border:0;padding:.1rem 0;display:flex;gap:.6rem}
td::before{content:attr(data-name);color:var(--soft);flex:0 0 7.5rem}td:first-child::before{content:none}
td:first-child{font-weight:600}td.number{white-space:normal}}
a{color:inherit}
"""


def status_page(status: Status) -> Iterator[bytes]:
    """The page as HTML in UTF-8, in pieces."""
    backlog, look = status.backlog(), status.look()
    totals, worst = status.worst(backlog, WORST)
    # Errors of a moment ago that stand in nobody's way come last.
    in_the_way = any(True for _ in _troubles(look, totals))
    yield "".join(
        [*_head(look), *_verdict(look, totals), *(_errors(look, "Last errors") if in_the_way else ())]
    ).encode()
    yield "".join([*_totals(look, totals), *_partitions(worst, totals), *_works(look)]).encode()
    if not in_the_way:
        yield "".join(_errors(look, "Earlier errors")).encode()
    yield "".join(_foot(look, backlog)).encode()


def _head(look: StatusSnapshot) -> Iterable[str]:
    name = f"Broker {look.broker} of {look.cluster}"
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield '<meta http-equiv="refresh" content="60">'
    yield f"<title>{_escape(name)}: ts-uploader</title><style>{_STYLE}</style></head>\n<body>"
    yield f"<h1>{_escape(name)}</h1>\n"
    yield f'<p class="soft">as of {_clock(look.now)}, refreshed every 60 s. <a href="/">Refresh</a></p>\n'


def _verdict(look: StatusSnapshot, totals: Totals) -> Iterable[str]:
    troubles = list(_troubles(look, totals))
    bad = not look.healthy or totals.holes or totals.urgent or look.stuck_partitions
    if not troubles:
        yield '<p class="verdict good">All is well.</p>\n'
        return
    yield f'<p class="verdict {"bad" if bad else "warn"}">{"Somebody should look." if bad else "Something waits."}</p>'
    yield f"<ul>{''.join(f'<li>{_escape(trouble)}</li>' for trouble in troubles)}</ul>\n"


def _troubles(look: StatusSnapshot, totals: Totals) -> Iterator[str]:
    """One sentence each, the worst first."""
    if not look.answering:
        yield "The agent's main thread does not come round: it should be started again."
    for name in look.dead:
        yield f"Thread {name} is dead: the agent ends."
    for work in look.stuck:
        since = _span(time.monotonic() - work.moved_at)
        yield f"Thread {work.thread} has stood still for {since} ({work.operation}{_whose(work.partition)})."
    if totals.holes:
        yield f"{counted(totals.holes, 'partition')}: nothing that the broker still holds continues what is shipped."
    if totals.urgent:
        yield f"{counted(totals.urgent, 'partition')}: less than half of the retention is left for what is not shipped."
    for reason, (partition, stuck) in look.stuck_partitions.longest_by_reason().items():
        count = counted(look.stuck_partitions.counts()[reason], "partition")
        yield (
            f"{count} stuck: {WAIT_REASONS[reason]}. The agent has committed nothing of {partition} for "
            f"{_span(stuck.seconds)}."
        )
    for name, answered in look.answered.items():
        if not answered:
            yield f"Not ready: {_MISSING.get(name, name)}."
    if look.answered["leadership"] and not look.leadership_connected:
        yield "Leadership is unknown: its source is away, and no new partition is taken up."
    if look.leadership_trouble:
        yield f"Leadership: {look.leadership_trouble}."
    if totals.waiting:
        yield f"{counted(totals.waiting, 'partition')}: something has to be known before anything can go (see below)."
    if look.request_limit is not None:
        yield f"A store asks for fewer requests: {look.request_limit:.0f} in a second are made."


def _errors(look: StatusSnapshot, heading: str) -> Iterable[str]:
    if not look.errors:
        return
    yield f"<h2>{heading}</h2>\n<table><thead><tr><th>Partition</th><th>When</th><th>What</th><th>Message</th></tr>"
    yield "</thead><tbody>\n"
    for error in look.errors[:_ERRORS]:
        times = f", {error.times} times" if error.times > 1 else ""
        ago = _span(max(0.0, look.now - error.time))
        message = error.message if len(error.message) <= _MESSAGE else f"{error.message[:_MESSAGE]} ..."
        yield f"<tr>{_cell('Partition', error.partition)}{_cell('When', f'{ago} ago', 'number')}"
        yield f"{_cell('What', error.operation + times, 'short')}{_cell('Message', message)}</tr>\n"
    yield "</tbody></table>\n"


def _totals(look: StatusSnapshot, totals: Totals) -> Iterable[str]:
    queues = ", ".join(counted(count, _WAITING.get(kind, kind)) for kind, count in look.queues.items() if count)
    limit = "none" if look.upload_limit is None else f"{_bytes(look.upload_limit)}/s"
    facts = {
        "Partitions led": f"{totals.partitions:,}",
        "Not shipped yet": _bytes(totals.unshipped_bytes),
        "Closed segments not shipped": f"{totals.unshipped_segments:,}",
        "Offsets behind": f"{totals.lag_offsets:,}",
        "Tasks that wait": queues or "none",
        "Upload limit": limit,
    }
    items = "".join(f"<div><dt>{_escape(name)}</dt><dd>{_escape(value)}</dd></div>" for name, value in facts.items())
    yield f"<h2>Totals</h2>\n<dl>{items}</dl>\n"


def _partitions(worst: list[PartitionStatus], totals: Totals) -> Iterable[str]:
    shown = f"the worst {len(worst)} of {totals.partitions:,}" if totals.partitions > len(worst) else "all"
    yield f'<h2>Partitions <span class="soft">({shown})</span></h2>\n'
    if not worst:
        yield '<p class="soft">None is led here.</p>\n'
        return
    names = ("Partition", "Trouble", "Retention left", "Oldest", "Not shipped", "Offsets behind", "Next offset")
    yield f"<table><thead><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr></thead><tbody>\n"
    for one in worst:
        kind, trouble = _trouble(one)
        waits = one.unshipped_segments > 0
        segments = counted(one.unshipped_segments, "segment")
        cells = (
            _cell(names[0], f"{one.topic}-{one.partition}"),
            _cell(names[1], trouble, kind),
            _cell(names[2], f"{one.retention_left_ratio:.0%}", "number"),
            _cell(names[3], _span(one.oldest_unshipped_age_seconds) if waits else "\N{EN DASH}", "number"),
            _cell(names[4], f"{_bytes(one.unshipped_bytes)}, {segments}" if waits else "nothing", "number"),
            _cell(names[5], _number(one.lag_offsets), "number"),
            _cell(names[6], "unknown" if one.next_offset is None else str(one.next_offset), "number"),
        )
        yield f"<tr>{''.join(cells)}</tr>\n"
    yield "</tbody></table>\n"


def _trouble(one: PartitionStatus) -> tuple[str, str]:
    """The class of the cell, and its words."""
    if one.hole:
        return "bad", "nothing here continues what is shipped"
    if one.urgent:
        return "bad", "Kafka may delete it soon" + (f"; {_waits(one)}" if one.waits_for else "")
    if one.stuck_seconds is not None:
        return "bad", _waits(one)
    if one.waits_for is not None:
        return "warn", _waits(one)
    return "good", "none"


def _waits(one: PartitionStatus) -> str:
    stuck = "" if one.stuck_seconds is None else f"stuck for {_span(one.stuck_seconds)}; "
    return f"{stuck}waits for {one.waits_for}"


def _works(look: StatusSnapshot) -> Iterable[str]:
    yield "<h2>Work under way</h2>\n<ul>"
    for work in look.works[:_WORKS]:
        seconds = _span(time.monotonic() - work.began_at)
        what = _escape(f"{work.thread}: {work.operation}{_whose(work.partition)}")
        yield f"<li>{what} for {seconds}</li>"
    if len(look.works) > _WORKS:
        yield f"<li>and {len(look.works) - _WORKS} more</li>"
    yield "</ul>\n" if look.works else "<li>none</li></ul>\n"


def _foot(look: StatusSnapshot, backlog: Mapping[TopicPartition, Backlog]) -> Iterable[str]:
    yield f'<p class="soft">ts-uploader {_escape(look.version)}, started {_clock(look.started)}, {len(backlog):,} '
    yield 'partitions. <a href="/status.json">status.json</a> <a href="/metrics">metrics</a> '
    yield '<a href="/healthz">healthz</a> <a href="/readyz">readyz</a></p>\n</body></html>\n'


def _escape(text: str) -> str:
    """Text of others for the page: no markup, no character that reorders or breaks a line."""
    return escape(printable(text))


def _cell(name: str, text: str, kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<td{shown} data-name="{_escape(name)}">{_escape(text)}</td>'


def _whose(partition: TopicPartition) -> str:
    return f" {partition}" if partition.topic else ""


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _bytes(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _span(seconds: float) -> str:
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 72 else f"{days:.0f} days"


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
