"""The options `mode`, `columnNameOfCorruptRecord` and `view`, in the words of Spark's CSV and JSON sources."""

from typing import Final

from ts_reader.query.policies import Mode, View
from ts_spark.options.schema import COLUMNS

CORRUPT_COLUMN: Final = "_corrupt_record"  # as Spark's `spark.sql.columnNameOfCorruptRecord`


def parse_mode(text: str) -> Mode:
    """Return the value of `mode`.

    Raises:
        ValueError: the text is not a mode.
    """
    if text.upper() not in Mode.__members__:
        raise ValueError(f"one of {', '.join(Mode.__members__)} is expected")
    return Mode[text.upper()]


def parse_view(text: str) -> View:
    """Return the value of `view`.

    Raises:
        ValueError: the text is not a view.
    """
    if text.upper() not in View.__members__:
        raise ValueError("log or latest is expected")
    return View[text.upper()]


def parse_corrupt_column(text: str) -> str:
    """Return the value of `columnNameOfCorruptRecord`.

    Raises:
        ValueError: another column has that name.
    """
    if not text or text.lower() in {name.lower() for name in COLUMNS}:
        raise ValueError("a name is expected that no other column has")
    return text
