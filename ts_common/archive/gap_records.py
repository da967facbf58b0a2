"""The gap record: a range of offsets that no broker holds any more, with the reason.

::

    gaps/<from>-<to>.json        {"from":100,"to":200,"reason":"...","time":1700000000000,"broker":1}

A gap is a hole with a reason, not an end: an agent that still holds the range ships it, and readers prefer data. So a
record is never deleted. A range is a hole because no segment covers it, with or without a record.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from ts_common.archive.small_objects import GAP_BYTES
from ts_common.archive.stored_object import BrokerId, StoredObject, limited
from ts_common.json_objects import MAX_INT64

_NAME = re.compile(r"([0-9]{1,19})-([0-9]{1,19})\.json")


@dataclass(frozen=True, slots=True)
class Gap(StoredObject, expected="a gap record", most=GAP_BYTES, version=None):
    """One gap record.

    Attributes:
        start: first offset of the range.
        end: end of the range, exclusive.
        reason: one line that explains the loss to an operator.
        time: milliseconds since the epoch, the agent's clock.
    """

    start: Annotated[int, "from"]
    end: Annotated[int, "to"]
    reason: Annotated[str, limited(GAP_BYTES)]
    time: int
    broker: BrokerId


def parse_gap_name(name: str) -> tuple[int, int] | None:
    """Return the range `[from, to)` in an object's name under `gaps/`; None if it is not the name of a gap record."""
    match = _NAME.fullmatch(name)
    if match is None or not int(match[1]) < int(match[2]) <= MAX_INT64:
        return None
    return int(match[1]), int(match[2])


def merged(gaps: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the same offsets in as few ranges as possible, ascending; records can overlap and adjoin."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(gaps):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)
