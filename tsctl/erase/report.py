"""Rows and JSON fields of requests to erase, and of what a dry run found. Pure."""

from typing import TYPE_CHECKING, Final

from ts_common.archive.erasures import Erasure
from tsctl.output import Cell, iso, size

if TYPE_CHECKING:
    from tsctl.erase.places import Place
    from tsctl.erase.searching import Searched

FOUND: Final = ("PARTITION", "RECORDS", "END", "NEXT OFFSET", "COPIES", "BYTES", "LEFT OUT")
NOTED: Final = ("PARTITION", "RECORDS", "END", "NEXT OFFSET", "LIST")
REQUESTS: Final = ("REQUEST", "STATE", "LATE", "TOPIC", "RECORDS", "UNREAD", "DUE", "BY", "REFERENCE", "LOCATION")


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


def request_row(location: str, request: Erasure, now: int) -> list[Cell]:
    """Return the row of a request, as `REQUESTS`; `now` is in milliseconds since the epoch."""
    late = "late" if request.is_late(now) else None
    counts: list[Cell] = [request.topic, request.offsets, request.unread]
    return [request.name, request.state, late, *counts, iso(request.due), request.by, request.reference, location]


def request_fields(location: str, request: Erasure, now: int) -> dict[str, object]:
    """Return the JSON fields of a request; `now` is in milliseconds since the epoch."""
    return {
        "request": request.name,
        "location": location,
        "state": request.state.value,
        "late": request.is_late(now),
        "topic": request.topic,
        "records": request.offsets,
        "unread": request.unread,
        "time": iso(request.time),
        "due": iso(request.due),
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
    }
