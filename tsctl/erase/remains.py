"""What is still stored of a request to erase, wherever it is: a request is erased once nothing remains. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UNLISTED: Final = (
    "the bucket keeps what is deleted, by versions or soft delete, and this driver cannot list it: it stays until the "
    "bucket's own period ends"
)


class Surface(StrEnum):
    """Where records of a list can be stored."""

    COPY = "copy"
    VERSION = "version"
    TAIL = "live tail"
    KEY_INDEX = "index of keys"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Remains:
    """Something stored that can still have records of a list.

    Attributes:
        where: key of the object, or name of the table.
        reason: a sentence: why it is still there, and what removes it.
        until: the earliest time that it can be removed, milliseconds since the epoch; None if that is unknown, or now.
    """

    surface: Surface
    where: str
    reason: str
    until: int | None = None
