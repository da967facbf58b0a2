"""What a query reads: a value that every reader makes from its own options, and that the planner reads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ts_common.archive.layout import keys_of
from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.options import BY_ENVIRONMENT, Connection, Endpoint
from ts_reader.query.policies import STRICT, Tolerance, View
from ts_reader.query.wording import PYTHON, Wording
from ts_reader.reading.incarnation_option import NEWEST

Locations = tuple[tuple[Endpoint, tuple[str, ...]], ...]


class Edge(Enum):
    """An end of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset or an edge for each partition of the query."""

    by_topic: Mapping[str, Mapping[int, int | Edge]]


@dataclass(frozen=True, slots=True)
class Offset:
    """The same offset in each partition of the query."""

    offset: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record with this timestamp (ms) or a later one."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Timestamps:
    """As `Timestamp`, for each partition of the query."""

    by_topic: Mapping[str, Mapping[int, int]]


Bound = Edge | Offset | Offsets | Timestamp | Timestamps


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics and partitions of a query; exactly one of the three is given.

    Attributes:
        topics: whole topics by name.
        pattern: whole topics by a regular expression that matches any part of the name.
        assigned: single partitions by topic.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """The size of splits.

    Attributes:
        least: the minimum number of splits, if there are enough offsets; None for no minimum.
        most_offsets: the maximum number of offsets of one split; None for no maximum.
        packed_bytes: small segments are packed into splits of so many bytes; None for the size of other splits.
    """

    least: int | None = None
    most_offsets: int | None = None
    packed_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment: the query shows its partitions as of it, see `ts_reader.query.cut`.

    Attributes:
        milliseconds: since 1970.
        fails_unproven: whether the query fails if nothing proves that all records up to the moment are shipped;
            otherwise it warns.
        topics: topics whose transactions are whole with those of the query, although it does not read them.
    """

    milliseconds: int
    fails_unproven: bool = True
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A query, validated.

    Attributes:
        location: of the store, a URL.
        cluster: the cluster of the topics.
        entropy_bits: of the store's keys; 0 for none; None: as the store's layout has it, see `settled`.
        subscription: topics and partitions.
        start: the first offset of each partition.
        end: the offset after the last one of each partition.
        start_without_match: where a partition starts that has no record at or after the starting timestamp; None makes
            that an error.
        fail_on_data_loss: whether lost offsets end the query.
        read_committed: whether records of aborted and open transactions are left out.
        limits: the size of splits.
        incarnation: of each topic, as `ts_reader.reading.incarnation_option.parse_incarnation` returns it.
        topics_elsewhere: other endpoints and their topics; see `ts_reader.query.locations`.
        connection: of `location`.
        tolerance: what corrupt batches do.
        view: which records are rows.
        limit: of the memory that one record batch may use.
        wording: the names in messages.
        cut: the moment that the query shows; then `read_committed` is true. None for no moment.
    """

    location: str
    cluster: str
    entropy_bits: int | None
    subscription: Subscription
    start: Bound = Edge.EARLIEST
    end: Bound = Edge.LATEST
    start_without_match: Edge | None = None
    fail_on_data_loss: bool = True
    read_committed: bool = False
    limits: SplitLimits = SplitLimits()
    incarnation: str = NEWEST
    topics_elsewhere: Locations = ()
    connection: Connection = BY_ENVIRONMENT
    tolerance: Tolerance = STRICT
    view: View = View.LOG
    limit: BatchLimit = DEFAULT_LIMIT
    wording: Wording = PYTHON
    cut: Cut | None = None

    @property
    def keys(self) -> ClusterKeys:
        """The cluster's keys; of a `settled` query."""
        return ClusterKeys(self.cluster, self.entropy_bits or 0)


def settled(store: ObjectStore, query: Query) -> Query:
    """Return the query with its number of entropy bits; read the store's layout if the query lacks it.

    Args:
        store: of the query's topics.
        query: any.

    Raises:
        CorruptData, NewerFormat: of the store's layout.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    if query.entropy_bits is not None:
        return query
    return replace(query, entropy_bits=keys_of(store, query.cluster, None).entropy_bits)


def of_partition(query: Query, partition: TopicPartition, location: str, connection: Connection) -> Query:
    """Return the query of one of its partitions.

    Args:
        query: any.
        partition: of it.
        location: of the partition's topic.
        connection: of the location.
    """

    def bound(whole: Bound) -> Bound:
        match whole:
            case Offsets(by_topic):
                return Offsets({partition.topic: {partition.partition: by_topic[partition.topic][partition.partition]}})
            case Timestamps(by_topic):
                times = {partition.partition: by_topic[partition.topic][partition.partition]}
                return Timestamps({partition.topic: times})
            case _:
                return whole

    return replace(
        query,
        location=location,
        connection=connection,
        topics_elsewhere=(),
        subscription=Subscription(assigned={partition.topic: (partition.partition,)}),
        start=bound(query.start),
        end=bound(query.end),
    )
