"""The gap record: a range of offsets that exists nowhere any more, with its reason.

::

    gaps/<from>-<to>.json        {"from":100,"to":200,"reason":"...","time":1700000000000,"broker":1}

A gap is a hole with a reason, not an end: whoever still holds the range ships it, and readers prefer data. So the
record is never taken back, and a hole is one because no segment covers it, not because a record says so.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ts_common.archive.small_objects import GAP_BYTES
from ts_common.json_objects import MAX_INT32, MAX_INT64, decoding, parse_fields, text, whole_number

_NAME = re.compile(r"([0-9]{1,19})-([0-9]{1,19})\.json")


@dataclass(frozen=True, slots=True)
class Gap:
    """One gap record.

    Attributes:
        start: first offset that exists nowhere.
        end: the offset after the last.
        reason: one line, for whoever has to explain the loss.
        time: milliseconds since the epoch, the agent's clock.
        broker: id of the broker beside which the agent ran.
    """

    start: int
    end: int
    reason: str
    time: int
    broker: int

    def encode(self) -> bytes:
        """The text of the record."""
        fields = {
            "from": self.start,
            "to": self.end,
            "reason": self.reason,
            "time": self.time,
            "broker": self.broker,
        }
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


def decode_gap(data: bytes, key: str) -> Gap:
    """Read the text of a record. Fields of later versions are passed over.

    Raises:
        CorruptData: it is no record.
        NewerFormat: it is a later release's.
    """
    fields = parse_fields(data, key, "a gap record", GAP_BYTES)
    with decoding(key, "a gap record", data):
        return Gap(
            whole_number(fields["from"]),
            whole_number(fields["to"]),
            text(fields["reason"], GAP_BYTES),
            whole_number(fields["time"]),
            whole_number(fields["broker"], -1, MAX_INT32),
        )


def parse_gap_name(name: str) -> tuple[int, int] | None:
    """The range `[from, to)` that an object's name under `gaps/` says; None for what is no gap record."""
    match = _NAME.fullmatch(name)
    if match is None or not int(match[1]) < int(match[2]) <= MAX_INT64:
        return None
    return int(match[1]), int(match[2])


def merged(gaps: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same offsets in as few ranges as possible, ascending: records overlap and adjoin."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(gaps):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)
