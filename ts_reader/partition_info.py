"""What an archive has of the partitions of a topic."""

from dataclasses import dataclass
from functools import partial

from ts_common.archive.view import open_view
from ts_common.store.shared_stores import shared_store
from ts_reader.query.plan_query import tails_of
from ts_reader.query.query import Query, settled
from ts_reader.query.subscription import find_topics
from ts_reader.reading.parallel import in_threads


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What an archive holds of a partition.

    Attributes:
        start: the first offset that readers see.
        end: the offset after the last one.
        segments: the number of committed `.log` objects.
        bytes: of these objects.
        topic_id: of the incarnation; None if no topic id was ever seen.
        problem: why readers see nothing or not all of it, as a missing commit; None without a problem.
    """

    topic: str
    partition: int
    start: int
    end: int
    segments: int
    bytes: int
    topic_id: str | None
    problem: str | None = None


def partitions_of(query: Query) -> list[PartitionInfo]:
    """Return the partitions of a query of one topic, by number.

    Raises:
        QueryError: the archive has no such topic or incarnation.
        AccessDenied, BucketMissing, CorruptData, ObjectNotFound, StoreUnavailable: from the store.
    """
    store = shared_store(query.location, query.connection)
    infos = []
    query = settled(store, query)
    for found in find_topics(store, query):
        tails = tails_of(store, query)
        entry = next((each for each in found.incarnations.entries if each.directory == found.directory), None)
        views = in_threads(partial(open_view, store, tails=tails), found.partitions)
        infos += [
            PartitionInfo(
                found.name,
                view.partition.partition,
                view.start,
                view.end,
                len(catalog.committed),
                sum(segment.size for segment in catalog.committed),
                None if entry is None else entry.topic_id,
                view.warning,
            )
            for catalog, view in zip(found.partitions, views, strict=True)
        ]
    return sorted(infos, key=lambda info: info.partition)
