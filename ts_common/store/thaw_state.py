"""Frozen objects: in an archive class, whose objects a store returns only after a thaw. Pure.

S3 calls a thaw "restore". The object keeps its class and gets a readable copy for some days. Azure calls it
"rehydrate", and moves the object to another tier permanently. A thaw needs minutes to days, and costs money by bytes
and by requests.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/restoring-objects.html
https://learn.microsoft.com/azure/storage/blobs/archive-rehydrate-overview
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WAY_OUT: Final = "thaw it with `tsctl thaw TOPIC` (docs/cold-storage.md)"


class ThawTier(StrEnum):
    """How fast a thaw is: the slowest is the cheapest."""

    BULK = "Bulk"
    STANDARD = "Standard"
    EXPEDITED = "Expedited"


@dataclass(frozen=True, slots=True)
class ThawState:
    """Whether an object can be read, by a request for this object.

    Attributes:
        storage_class: as `ObjectInfo.storage_class`; of S3's INTELLIGENT_TIERING with the tier after a dot, if the
            object is in an archive tier.
        is_frozen: whether the store rejects reads of the object now.
        is_thawing: whether a thaw is in progress.
        until: when the readable copy expires, in seconds since the epoch; None without such a copy.
    """

    storage_class: str | None = None
    is_frozen: bool = False
    is_thawing: bool = False
    until: float | None = None
