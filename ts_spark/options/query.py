"""What a query asks for, once its options are understood."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ts_common.archive.layout import keys_of
from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.reading.incarnation_option import NEWEST
from ts_common.store.contract import ObjectStore
from ts_common.store.options import BY_ENVIRONMENT, Connection
from ts_spark.options.batch_limits import Rates
from ts_spark.options.cluster_config import Locations
from ts_spark.options.modes import STRICT, Tolerance, View


class Kind(Enum):
    """Which of a query's options mean anything: it ends, or it goes on."""

    BATCH = "batch"
    STREAM = "stream"


class Edge(Enum):
    """A place in each partition that needs no number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition that is asked for; `Edge` where -2 or -1 was written."""

    by_topic: Mapping[str, Mapping[int, int | Edge]]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record with this timestamp (ms) or a later one."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Timestamps:
    """As `Timestamp`, for each partition that is asked for."""

    by_topic: Mapping[str, Mapping[int, int]]


Bound = Edge | Offsets | Timestamp | Timestamps


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions; one of the three is given.

    Attributes:
        topics: whole topics, by name.
        pattern: whole topics, by a regular expression that finds something in the name.
        assigned: single partitions by topic.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """How large a task may be.

    Attributes:
        least: tasks that are wanted at least, as far as there are offsets for them; None for no wish.
        most_offsets: of one task; None for no bound.
    """

    least: int | None = None
    most_offsets: int | None = None


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The validated options.

    Attributes:
        location: of the store, a URL.
        cluster: whose topics.
        entropy_bits: of the store's keys; 0 means none; None: as the store's layout says.
        subscription: which partitions.
        start: the first offset of each.
        end: the offset after the last of each.
        start_without_match: where a partition begins that holds no record of the starting timestamp or later; None
            means that this is an error.
        include_headers: whether there is a column `headers`.
        fail_on_data_loss: whether offsets that are gone end the query.
        read_committed: whether records of aborted and of undecided transactions are left out.
        limits: how large a task may be.
        incarnation: which life of each topic, as `ts_common.reading.incarnation_option.parse_incarnation` says.
        push_down_predicate: whether filters may leave out what they do not want; see `ts_spark.options.filters`.
        connection: how S3 is spoken to for `location`.
        topics_elsewhere: other endpoints and the topics that lie there; see `ts_spark.planning.locations`.
        rates: how large a stream's batch may be.
        ignored: why options that are given have no effect, one sentence at most.
        tolerance: what is done with corrupt batches.
        view: which records are rows.
        limit: how much memory one record batch may take.
    """

    location: str
    cluster: str
    entropy_bits: int | None
    subscription: Subscription
    start: Bound
    end: Bound
    start_without_match: Edge | None
    include_headers: bool
    fail_on_data_loss: bool
    read_committed: bool
    limits: SplitLimits
    rates: Rates
    ignored: str | None = None
    incarnation: str = NEWEST
    push_down_predicate: bool = False
    topics_elsewhere: Locations = ()
    connection: Connection = BY_ENVIRONMENT
    tolerance: Tolerance = STRICT
    view: View = View.LOG
    limit: BatchLimit = DEFAULT_LIMIT

    @property
    def keys(self) -> ClusterKeys:
        """How the cluster's keys are made; see `settled`."""
        return ClusterKeys(self.cluster, self.entropy_bits or 0)


def settled(store: ObjectStore, options: QueryOptions) -> QueryOptions:
    """Options whose number of entropy bits is known: one request where the user did not say it, else none.

    Args:
        store: where the query's topics lie.
        options: of the query.

    Raises:
        CorruptData, NewerFormat: of the store's layout.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    if options.entropy_bits is not None:
        return options
    return replace(options, entropy_bits=keys_of(store, options.cluster, None).entropy_bits)
