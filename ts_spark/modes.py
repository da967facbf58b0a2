"""What a query does with batches that are corrupt, in the words of Spark's CSV and JSON sources.

=================  =====================================================================================================
`FAILFAST`         the query fails, naming the object and the position; the default
`DROPMALFORMED`    they are not shown, and a warning names object, position and the offsets that may be missing
`PERMISSIVE`       the same, and a row stands in their place, with their bytes in a column of its own
=================  =====================================================================================================
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

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
