"""Durations as people write them: a number with a unit, as in `500ms`, `90s`, `15m`, `1h` or `7d`."""

import re
from collections.abc import Container
from typing import Final

DAY: Final = 86_400_000  # milliseconds
_MILLISECONDS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": DAY}
_FORM: Final = re.compile(r"\s*([0-9]{1,19})\s*([a-z]*)\s*")
_LONGEST: Final = 1_000_000_000 * DAY


def duration_milliseconds(text: str, units: Container[str], limit: int = _LONGEST) -> int | None:
    """Return a duration in milliseconds; None if the text is not a number with one of these units, or too large.

    Args:
        units: of `ms`, `s`, `m`, `min`, `h` and `d`; the empty one is a bare number of milliseconds.
        limit: in milliseconds; a duration is below it.
    """
    match = _FORM.fullmatch(text)
    if match is None or match[2] not in units or match[2] not in _MILLISECONDS:
        return None
    found = int(match[1]) * _MILLISECONDS[match[2]]
    return found if found < limit else None
