"""Times as people write them, and in milliseconds since 1970."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MILLISECONDS: Final = re.compile(r"@?\d{1,19}", re.ASCII)
EXPECTED: Final = "a time such as 2026-11-22T06:00:00Z (UTC unless it has an offset), or @milliseconds"


def milliseconds_of(moment: date | str | int, *, rounds_up: bool = True) -> int:
    """Return the first millisecond since 1970 at or after a moment, because Kafka's timestamps have milliseconds.

    Args:
        moment: a `datetime` or its ISO 8601 text, UTC if it has no offset; a `date`, at its midnight; or milliseconds,
            as a text `@1700000000000`.
        rounds_up: False for the last millisecond at or before the moment.

    Raises:
        ValueError: naming what is expected.
    """
    if isinstance(moment, bool) or not isinstance(moment, date | str | int):
        raise ValueError(f"expected {EXPECTED}")  # noqa: TRY004  (a wrong value, whatever its type)
    if isinstance(moment, int):
        if moment < 0:
            raise ValueError("milliseconds since 1970 are not negative")
        return moment
    if isinstance(moment, str):
        if moment.startswith("@") and _MILLISECONDS.fullmatch(moment):
            return int(moment[1:])
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise ValueError(f"expected {EXPECTED}") from None
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return max(0, -(-since // _MILLISECOND) if rounds_up else since // _MILLISECOND)


def time_text(milliseconds: int) -> str:
    """Return a moment as ISO 8601 in UTC; beyond the years 1 to 9999 as `@milliseconds`."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"@{milliseconds}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
