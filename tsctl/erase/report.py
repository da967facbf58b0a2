"""Rows and JSON fields of requests to erase, and of what a dry run found. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ts_common.archive.erasures import Erasure
from tsctl.erase.erased_copies import Did
from tsctl.erase.evidence import Progress
from tsctl.erase.remains import Remains
from tsctl.output import Cell, iso, size

if TYPE_CHECKING:
    from tsctl.erase.places import Place
    from tsctl.erase.run import Visited
    from tsctl.erase.searching import Searched

FOUND: Final = ("PARTITION", "RECORDS", "END", "NEXT OFFSET", "COPIES", "BYTES", "LEFT OUT")
NOTED: Final = ("PARTITION", "RECORDS", "END", "NEXT OFFSET", "LIST")
REQUESTS: Final = (
    "REQUEST",
    "STATE",
    "LATE",
    "TOPIC",
    "RECORDS",
    "UNREAD",
    "REMAINS",
    "DUE",
    "BY",
    "REFERENCE",
    "LOCATION",
)
REMAINING: Final = ("REQUEST", "STORED IN", "OBJECTS", "UNTIL", "REASON")
VISITED: Final = ("PARTITION", "REWRITTEN", "REMOVED", "RECORDS", "BYTES", "WAITS", "HIDDEN ONLY", "UNTIL", "LOCATION")
DUE: Final = ("PARTITION", "TO REWRITE", "TO REMOVE", "WAITS", "HIDDEN ONLY", "UNTIL", "LOCATION")


def found_row(place: "Place", found: "Searched") -> list[Cell]:
    """Return the row of a partition in a dry run, as `FOUND`."""
    bytes_read = size(found.bytes)
    return [place.name, found.offsets.count, found.end, found.following, found.copies, bytes_read, found.left_out]


def found_fields(location: str, place: "Place", found: "Searched") -> dict[str, object]:
    """Return the JSON fields of a partition in a dry run."""
    return {
        "partition": place.name,
        "location": location,
        "records": found.offsets.count,
        "end": found.end,
        "next_offset": found.following,
        "copies": found.copies,
        "bytes": found.bytes,
        "left_out": found.left_out,
        "assumed": found.assumed,
        "unread": len(found.unread),
    }


def noted_rows(request: Erasure) -> list[list[Cell]]:
    """Return the rows of a request's partitions, as `NOTED`."""
    return [[each.directory, each.offsets, each.end, each.searched, each.number or None] for each in request.partitions]


def request_row(location: str, found: Progress, now: int) -> list[Cell]:
    """Return the row of a request, as `REQUESTS`; `now` is in milliseconds since the epoch."""
    request, late = found.request, "late" if found.is_late(now) else None
    counts: list[Cell] = [request.topic, request.offsets, request.unread, len(found.remains)]
    return [request.name, found.state, late, *counts, iso(request.due), request.by, request.reference, location]


def request_fields(location: str, found: Progress, now: int) -> dict[str, object]:
    """Return the JSON fields of a request; `now` is in milliseconds since the epoch."""
    request = found.request
    return {
        "request": request.name,
        "location": location,
        "state": found.state.value,
        "late": found.is_late(now),
        "topic": request.topic,
        "records": request.offsets,
        "unread": request.unread,
        "time": iso(request.time),
        "due": iso(request.due),
        "erased": None if found.done is None else iso(found.done.time),
        "by": request.by,
        "reference": request.reference,
        "partitions": [
            {
                "partition": each.directory,
                "records": each.offsets,
                "end": each.end,
                "next_offset": each.searched,
                "list": each.number or None,
            }
            for each in request.partitions
        ],
        "run": None if found.last is None else iso(found.last.time),
        "remains": [remaining_fields(each) for each in found.remains],
    }


def remaining_fields(each: Remains) -> dict[str, object]:
    """Return the JSON fields of what is stored of a request."""
    return {
        "surface": each.surface.value,
        "where": each.where,
        "reason": each.reason,
        "until": iso(each.until),
    }


def remaining_rows(name: str, remains: Iterable[Remains]) -> list[list[Cell]]:
    """Return rows of what is stored of a request, as `REMAINING`: one for each reason."""
    counts = Counter((each.surface, each.reason, each.until) for each in remains)
    return [[name, surface.value, count, iso(until), reason] for (surface, reason, until), count in counts.items()]


def visited_row(location: str, found: "Visited", *, is_dry: bool = False) -> list[Cell]:
    """Return the row of a partition in a run, as `VISITED`, or in a dry one, as `DUE`."""
    ends = [each.until for each in found.staying if each.until is not None]
    staying: list[Cell] = [found.count(Did.WAITS), found.count(Did.HIDDEN), iso(min(ends, default=None)), location]
    if is_dry:
        return [found.place.name, found.count(Did.TO_REWRITE), found.count(Did.TO_REMOVE), *staying]
    records, written = (sum(getattr(each, name) for each in found.rewritten) for name in ("records", "bytes"))
    done = found.count(Did.REWRITTEN), found.count(Did.REMOVED), records, size(written)
    return [found.place.name, *done, *staying]


def visited_fields(location: str, found: "Visited") -> dict[str, object]:
    """Return the JSON fields of a partition in a run."""
    ends = [each.until for each in found.staying if each.until is not None]
    return {
        "partition": found.place.name,
        "location": location,
        "rewritten": found.count(Did.REWRITTEN),
        "removed": found.count(Did.REMOVED),
        "to_rewrite": found.count(Did.TO_REWRITE),
        "to_remove": found.count(Did.TO_REMOVE),
        "records": sum(each.records for each in found.rewritten),
        "bytes": sum(each.bytes for each in found.rewritten),
        "waits": found.count(Did.WAITS),
        "hidden_only": found.count(Did.HIDDEN),
        "until": iso(min(ends, default=None)),
        "problem": found.problem,
        "former_lists": found.lists,
    }
