"""The four modes, and where the next offset of a partition is read: the whole decision, as a function of values."""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto


class TierMode(StrEnum):
    """Which tier a consumer reads, by the name of `tiered.storage.mode`."""

    KAFKA_ONLY = "KAFKA_ONLY"
    KAFKA_PREFERRED = "KAFKA_PREFERRED"
    TIERED_STORAGE_PREFERRED = "TIERED_STORAGE_PREFERRED"
    TIERED_STORAGE_ONLY = "TIERED_STORAGE_ONLY"

    @property
    def reads_kafka(self) -> bool:
        """Whether records are read from brokers."""
        return self is not TierMode.TIERED_STORAGE_ONLY


class Way(Enum):
    """Where the next offset of a partition is read."""

    ARCHIVE = auto()
    KAFKA = auto()
    NOWHERE_YET = auto()  # the archive ends there or below it, and Kafka's log starts above it or is not read
    BELOW = auto()  # both tiers start above it


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets `[start, end)` that a tier has of a partition.

    Attributes:
        start: the first one.
        end: the next one.
    """

    start: int
    end: int


def way_of(mode: TierMode, offset: int, archive: Extent | None, kafka: Extent | None) -> Way:
    """Return where an offset is read.

    A broker decides about an offset above the end of its log: with `read_committed` that end is not known here.

    Args:
        mode: of the consumer; not `KAFKA_ONLY`.
        offset: the next one of a partition.
        archive: what the archive has; None for nothing.
        kafka: what brokers have; None if they are not read.
    """
    in_archive = archive is not None and archive.start <= offset < archive.end
    in_kafka = kafka is not None and kafka.start <= offset
    if in_archive and (mode is not TierMode.KAFKA_PREFERRED or not in_kafka):
        return Way.ARCHIVE
    if in_kafka:
        return Way.KAFKA
    if archive is None:
        return Way.BELOW if kafka is not None else Way.NOWHERE_YET
    return Way.BELOW if offset < archive.start else Way.NOWHERE_YET


def whole(archive: Extent | None, kafka: Extent | None) -> Extent | None:
    """Return the offsets of both tiers: from the first one, to the end of Kafka if it is read; None without any."""
    known = [extent for extent in (kafka, archive) if extent is not None]
    return Extent(min(extent.start for extent in known), known[0].end) if known else None
