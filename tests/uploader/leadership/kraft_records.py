"""Records for the KRaft clusters of these tests."""

from dev.local.kafka.cluster import Record
from tests.uploader.produced import records as small_records


def records(count: int, *, start: int = 0) -> list[Record]:
    """Return records; some 500 of them fill a segment."""
    return small_records(count, size=2_000, start=start)
