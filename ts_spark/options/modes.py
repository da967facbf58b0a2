"""Which records are rows, and what a query does with corrupt batches, in the words of Spark's CSV and JSON sources.

=================  =====================================================================================================
`FAILFAST`         the query fails, naming the object and the position; the default
`DROPMALFORMED`    they are not shown, and a warning names object, position and the offsets that may be missing
`PERMISSIVE`       the same, and a row stands in their place, with their bytes in a column of its own
=================  =====================================================================================================
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ts_spark.options.schema import COLUMNS

# What a query that a corrupt object ended is told.
WAY_OUT: Final = 'To read what is whole, set option("mode", "DROPMALFORMED"), or "PERMISSIVE" to see where it is not'
CORRUPT_COLUMN: Final = "_corrupt_record"  # as Spark's `spark.sql.columnNameOfCorruptRecord`


class Mode(Enum):
    """What is done with a corrupt batch."""

    FAILFAST = "FAILFAST"
    DROPMALFORMED = "DROPMALFORMED"
    PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a query asks to be done with corrupt batches.

    Attributes:
        mode: one of the three.
        column: with PERMISSIVE, the name of the column that has their bytes; else None.
    """

    mode: Mode = Mode.FAILFAST
    column: str | None = None

    @property
    def fails(self) -> bool:
        """Whether a corrupt batch ends the query."""
        return self.mode is Mode.FAILFAST


STRICT: Final = Tolerance()


class View(Enum):
    """Which records of the ranges are rows."""

    LOG = "log"  # all
    LATEST = "latest"  # the newest of each key, unless that is a tombstone


def parse_mode(text: str) -> Mode:
    """The value of `mode`.

    Raises:
        ValueError: it is none of the three.
    """
    if text.upper() not in Mode.__members__:
        raise ValueError(f"one of {', '.join(Mode.__members__)} is expected")
    return Mode[text.upper()]


def parse_view(text: str) -> View:
    """The value of `view`.

    Raises:
        ValueError: it is neither.
    """
    if text.upper() not in View.__members__:
        raise ValueError("log or latest is expected")
    return View[text.upper()]


def parse_corrupt_column(text: str) -> str:
    """The value of `columnNameOfCorruptRecord`.

    Raises:
        ValueError: another column has that name.
    """
    if not text or text.lower() in {name.lower() for name in COLUMNS}:
        raise ValueError("a name is expected that no other column has")
    return text
