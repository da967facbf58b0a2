"""The size of a stream's batches, by the options and rules of Spark's Kafka source.

Source of the rules: `KafkaMicroBatchStream.delayBatch` in Spark; `rateLimit` is `ts_reader.following.follower`.
"""

from dataclasses import dataclass
from typing import Final

from ts_common.durations import duration_milliseconds

_UNITS: Final = ("", "ms", "s", "m", "min", "h", "d")
_LONGEST_WAIT_MILLISECONDS: Final = 15 * 60_000  # Spark's


@dataclass(frozen=True, slots=True)
class Rates:
    """The options of a stream that bound its batches.

    Attributes:
        most_offsets: of one batch over all partitions; None for no bound.
        least_offsets: for which a batch waits; None for no wait.
        longest_wait_milliseconds: after which a batch starts with fewer.
    """

    most_offsets: int | None = None
    least_offsets: int | None = None
    longest_wait_milliseconds: int = _LONGEST_WAIT_MILLISECONDS


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration as Spark writes it: `500ms`, `30s`, `15m`, `2h`, `1d`, or a bare number.

    Raises:
        ValueError: the text is not a duration.
    """
    found = duration_milliseconds(text.lower(), _UNITS, limit=1 << 63)  # Spark accepts a long
    if found is None:
        raise ValueError("a time like 500ms, 30s, 15m or 2h is expected")
    return found


class MinOffsetsDelay:
    """Decides whether a batch waits for more offsets; a stream's first batch does not.

    Args:
        rates: the stream's.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._last_milliseconds: float | None = None

    def waits(self, available: int, now_milliseconds: float) -> bool:
        """Return whether so many offsets are still too few; if not, restart the wait."""
        least, last = self._rates.least_offsets, self._last_milliseconds
        if least is None:
            return False
        waited = last is None or now_milliseconds - last >= self._rates.longest_wait_milliseconds
        if not waited and available < least:
            return True
        self._last_milliseconds = now_milliseconds
        return False
