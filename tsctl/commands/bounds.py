"""The range of `cat` and `get`: `--from` and `--to`, as offsets or times, within what readers see.

A time means the first record, in order of offsets, with that timestamp or a later one. Requested offsets outside the
view are missing. Below its start, retention removed them. Beyond its end, they were never shipped, or an election lost
them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from ts_common.archive.plan import Hole
from ts_common.archive.view import PartitionView
from ts_common.store.contract import ObjectStore
from tsctl.limits import batch_limit

FromOption = Annotated[
    str | None,
    typer.Option("--from", help="First offset, or a time: 2026-11-22T06:00:00Z (UTC by default), @milliseconds."),
]
ToOption = Annotated[str | None, typer.Option("--to", help="The offset after the last one, or a time.")]


@dataclass(frozen=True, slots=True)
class Time:
    """A time in milliseconds since 1970."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class RequestedRange:
    """A range as given on the command line; None for a bound that was not given."""

    start: int | Time | None = None
    end: int | Time | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """Requested offsets `[start, end)` that no segment contains; `reason` completes a sentence."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range within a view.

    Attributes:
        start: first offset.
        end: the offset after the last, at least `start`.
        missing: requested offsets outside the view.
    """

    start: int
    end: int
    missing: tuple[Missing, ...] = ()


def parse_range(start: str | None, end: str | None, problems: list[str]) -> RequestedRange:
    """Parse `--from` and `--to`; append to `problems` what is neither offset nor time, or an end before the start."""
    asked = RequestedRange(_parse("--from", start, problems), _parse("--to", end, problems))
    match asked:
        case RequestedRange(int(low), int(high)) | RequestedRange(Time(low), Time(high)) if low > high:
            problems.append(f"--from={start} is after --to={end}")
    return asked


def find_bounds(store: ObjectStore, view: PartitionView, asked: RequestedRange) -> Bounds:
    """Return the requested range of a view.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from reading timestamps.
    """
    start = _offset(store, view, asked.start, after_hole=True)
    end = _offset(store, view, asked.end, after_hole=False)
    start = view.start if asked.start is None else (view.end if start is None else start)
    end = view.end if end is None else end
    missing = []
    if start < (below := min(view.start, end)):
        missing.append(Missing(start, below, f"below the log's start {view.start}"))
    if (beyond := max(view.end, start)) < end:
        missing.append(Missing(beyond, end, f"not in the store, which ends at {view.end} for this reader"))
    elif start > view.end:
        missing.append(Missing(view.end, start, f"not in the store, which ends at {view.end} for this reader"))
    start = min(max(start, view.start), view.end)
    return Bounds(start, max(start, min(end, view.end)), tuple(missing))


def missing_of(hole: Hole) -> Missing:
    """Return a hole of a plan as missing offsets."""
    why = "lost; `tsctl gaps` has the reason" if hole.recorded else "lost: no object in the store contains them"
    return Missing(hole.start, hole.end, why)


def _offset(store: ObjectStore, view: PartitionView, bound: int | Time | None, *, after_hole: bool) -> int | None:
    match bound:
        case Time(milliseconds) if view.start < view.end:
            from ts_common.reading.first_offset import first_offset_at, search_for  # noqa: PLC0415  (numba takes 0.4 s)

            return first_offset_at(view, search_for(store, milliseconds, limit=batch_limit()), after_hole=after_hole)
        case int():
            return bound
        case _:
            return None


def _parse(option: str, text: str | None, problems: list[str]) -> int | Time | None:
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    if text.startswith("@") and text[1:].isascii() and text[1:].isdecimal():
        return Time(int(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problems.append(f"{option}={text}: expected an offset, a time such as 2026-11-22T06:00:00Z, or @milliseconds")
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Time(round(moment.timestamp() * 1000))
