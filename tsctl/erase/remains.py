"""What is still stored of a request to erase, wherever it is: a request is erased once nothing remains. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ts_common.archive.erasures import ErasedPartition

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
        obeys: by directory, number of the list whose records it lacks, 0 for none; None: it can have those of any list.
        base: it has no record of a lower offset.
    """

    surface: Surface
    where: str
    reason: str
    until: int | None = None
    obeys: Mapping[str, int] | None = field(default=None, compare=False)
    base: int = field(default=0, compare=False)

    def concerns(self, partitions: Iterable[ErasedPartition]) -> bool:
        """Return whether it can have records of a request, by what the request has of partitions.

        Lists of later requests have the offsets of earlier ones, so it can be there for a later request alone.
        """
        obeys = self.obeys
        if obeys is None:
            return True
        for each in partitions:
            name = each.directory if each.directory in obeys else each.directory.rpartition("/")[2]
            if obeys.get(name, each.number) < each.number and (self.base < each.end or not each.end):
                return True
        return False
