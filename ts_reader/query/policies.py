"""Which records of a query's ranges are rows, and what corrupt batches do to a query."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Mode(Enum):
    """What a corrupt batch does, in the words of Spark's CSV and JSON sources."""

    FAILFAST = "FAILFAST"  # the query fails; the error names the object and the position
    DROPMALFORMED = "DROPMALFORMED"  # its rows are left out; a warning names object, position and offsets
    PERMISSIVE = "PERMISSIVE"  # as DROPMALFORMED, and one row in their place has the raw bytes in a column of its own


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a query does with corrupt batches.

    Attributes:
        mode: one of the three.
        column: with PERMISSIVE, the name of the column with the raw bytes; else None.
    """

    mode: Mode = Mode.FAILFAST
    column: str | None = None

    @property
    def fails(self) -> bool:
        """Whether a corrupt batch ends the query."""
        return self.mode is Mode.FAILFAST


STRICT: Final = Tolerance()


class OnHole(StrEnum):
    """What a reader does at offsets that the archive lacks; each reader has two of the three."""

    WAIT = "wait"  # nothing above them is read until they are there
    FAIL = "fail"  # an error
    PASS = "pass"  # noqa: S105  # continue behind them, and report them


class Undecoded(Enum):
    """What a key or a value does that its codec refuses."""

    ERROR = "error"  # the scan ends with an error that names topic, partition, offset and reason
    NULL = "null"  # the column is null, and a column of its own has the reason


class View(Enum):
    """Which records of the ranges are rows."""

    LOG = "log"  # all
    LATEST = "latest"  # the newest of each key, unless that is a tombstone
