"""What Spark offers to Python sources in some versions only; elsewhere stand-ins that nothing is an instance of.

- Filters: from 4.1 on.
- The position and a limit with the question for the latest offset, and `Trigger.AvailableNow` in several batches
  (SPARK-55304): from 4.2 on.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
else:
    try:
        from pyspark.sql.datasource import (
            EqualNullSafe,
            EqualTo,
            Filter,
            GreaterThan,
            GreaterThanOrEqual,
            In,
            LessThan,
            LessThanOrEqual,
        )
    except ImportError:

        class Filter:
            """No filter is handed over."""

        EqualNullSafe = EqualTo = GreaterThan = GreaterThanOrEqual = In = LessThan = LessThanOrEqual = Filter

if TYPE_CHECKING:

    class ReadAllAvailable:
        """As in Spark: everything that is available."""

    class ReadMaxRows:
        """As in Spark: at most so many rows."""

        def __init__(self, max_rows: int) -> None: ...

    class SupportsTriggerAvailableNow:
        """As in Spark: the source reads up to an end that it noted, batch by batch."""

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
            """Note the end."""

else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
    except ImportError:

        class ReadAllAvailable:
            """A stand-in: this Spark passes no limit."""

        class ReadMaxRows:
            """A stand-in for the same reason."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """A stand-in: this Spark runs one batch."""


ReadLimit = Any  # of Spark's; there is no such class before 4.2

__all__ = [
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
