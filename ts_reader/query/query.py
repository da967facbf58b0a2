"""What a query reads: a value that every reader makes from its own options, and that the planner reads.

Its wording has the names that messages give to its options: arguments of the Python reader, or another side's aliases.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Final, TypeVar

from ts_common.archive.layout import keys_of
from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.options import BY_ENVIRONMENT, Connection, Endpoint, StorageOptions
from ts_reader.reading.incarnation_option import NEWEST

Locations = tuple[tuple[Endpoint, tuple[str, ...]], ...]

_T = TypeVar("_T")

_ARGUMENTS: Final = {
    "pattern": "topic",
    "starting_timestamps": "starting_timestamp",
    "ending_timestamps": "ending_timestamp",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """How a user writes what a message names. The defaults are those of the Python reader.

    Attributes:
        names: the aliases of options, by the argument of the Python reader; other options have the argument's name.
        has_texts: whether values are texts, as of an option of Spark, and not Python values.
        earliest: how a partition's first offset is written.
        latest: how a partition's end is written.
        by_partition: how values of partitions are written, a format of two of them.
        without_match: what returns no rows of a partition without a record at or after the starting timestamp.
        as_pattern: how a pattern of topics is written.
        stream: what follows a topic.
        instead_of_stream: what reads a topic to an end.
        despite_loss: a sentence: how to read what is left, although offsets are lost.
        despite_corruption: a sentence: how to read what is intact.
        schema_source: how to name the schemas of a codec.
        despite_undecoded: a sentence: how to read the rows whose key or value does not decode.
        exact_times: how to get the time as stored, where a column cannot hold it.
        despite_unproven: a sentence: how to read what is shipped, although a cut is not proven to be complete.
    """

    names: Mapping[str, str] = field(default_factory=_ARGUMENTS.copy, hash=False)
    has_texts: bool = False
    earliest: str = '"earliest"'
    latest: str = '"latest"'
    by_partition: str = '{{0: {0}, 1: {1}}}, with several topics {{"orders": {{0: {0}}}}}'
    without_match: str = 'starting_without_match="latest"'
    as_pattern: str = "re.compile(...)"
    stream: str = "follow()"
    instead_of_stream: str = "read the scan itself"
    despite_loss: str = "To read what is left, pass fail_on_data_loss=False"
    despite_corruption: str = 'To read what is intact, pass mode="DROPMALFORMED"'
    schema_source: str = "pass registry=... to Archive, or schema.file=... here"
    despite_undecoded: str = 'To have null and the reason instead, pass undecoded="null"'
    exact_times: str = "include_timestamp_ms=True adds the time as stored"
    despite_unproven: str = 'To read what is shipped, pass unproven="warn" to at()'

    def name(self, argument: str) -> str:
        """Return the name of an option."""
        return self.names.get(argument, argument)

    def sign(self, argument: str) -> str:
        """Return the name of an option, with the sign before its value."""
        return f"{self.name(argument)}="


PYTHON: Final = Wording()


class CorruptionMode(Enum):
    """What a corrupt batch does, in the words of Spark's CSV and JSON sources."""

    FAILFAST = "FAILFAST"  # the query fails; the error names the object and the position
    DROPMALFORMED = "DROPMALFORMED"  # its rows are left out; a warning names object, position and offsets
    PERMISSIVE = "PERMISSIVE"  # as DROPMALFORMED, and one row in their place has the raw bytes in a column of its own


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a query does with corrupt batches.

    Attributes:
        column: with PERMISSIVE, the name of the column with the raw bytes; else None.
    """

    mode: CorruptionMode = CorruptionMode.FAILFAST
    column: str | None = None

    @property
    def fails(self) -> bool:
        """Whether a corrupt batch ends the query."""
        return self.mode is CorruptionMode.FAILFAST


STRICT: Final = Tolerance()


class OnHole(StrEnum):
    """What a reader does at offsets that the archive lacks; each reader has two of the three."""

    WAIT = "wait"  # nothing above them is read until they are there
    FAIL = "fail"  # an error
    PASS = "pass"  # noqa: S105  # continue behind them, and report them


class Undecoded(Enum):
    """What a key or a value does that its codec refuses."""

    ERROR = "error"  # the scan ends with an error that names topic, partition, offset and reason
    NULL = "null"  # the column is null, and a column of its own has the reason


class View(Enum):
    """Which records of the ranges are rows."""

    LOG = "log"  # all
    LATEST = "latest"  # the newest of each key, unless that is a tombstone


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
        entropy_bits: of the store's keys; 0 for none; None: as the store's layout has it, see `settled`.
        start: the first offset of each partition.
        end: the offset after the last one of each partition.
        start_without_match: where a partition starts that has no record at or after the starting timestamp; None makes
            that an error.
        fail_on_data_loss: whether lost offsets end the query.
        read_committed: whether records of aborted and open transactions are left out.
        incarnation: of each topic, as `ts_reader.reading.incarnation_option.parse_incarnation` returns it.
        topics_elsewhere: other endpoints and their topics; see `by_location`.
        connection: of `location`.
        wording: the names in messages.
        cut: the moment that the query shows; then `read_committed` is true. None for no moment.
        tail: whether the query reads live tails.
        key_equals: the keys of its rows, any of them; None for all rows, also those without a key.
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
    tail: bool = False
    key_equals: frozenset[bytes] | None = None

    @property
    def keys(self) -> ClusterKeys:
        """The cluster's keys; of a `settled` query."""
        return ClusterKeys(self.cluster, self.entropy_bits or 0)


def settled(store: ObjectStore, query: Query) -> Query:
    """Return the query with its number of entropy bits; read the store's layout if the query lacks it.

    Args:
        store: of the query's topics.

    Raises:
        CorruptData, NewerFormat: of the store's layout.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    if query.entropy_bits is not None:
        return query
    return replace(query, entropy_bits=keys_of(store, query.cluster, None).entropy_bits)


def lowest_read(query: Query, partition: TopicPartition) -> int | None:
    """Return the lowest offset of a partition that decides what a query shows; None if it can be any.

    Transactions, the newest record of a key and a cut can depend on records below those that are shown.
    """
    if query.read_committed or query.view is not View.LOG or query.cut is not None or query.key_equals is not None:
        return None
    match query.start:
        case Offset(offset):
            return offset
        case Offsets(by_topic):
            found = by_topic.get(partition.topic, {}).get(partition.partition)
            return found if isinstance(found, int) else None
        case _:
            return None


def by_location(query: Query) -> Iterator[Query]:
    """Yield a query for each location, of its topics. The first location gets all topics that no other one has."""
    elsewhere = {topic for _, topics in query.topics_elsewhere for topic in topics}
    first = Endpoint(query.location, StorageOptions(query.connection))
    for endpoint, topics in ((first, None), *query.topics_elsewhere):

        def is_here(topic: str, _: int = 0, topics: tuple[str, ...] | None = topics) -> bool:
            return topic not in elsewhere if topics is None else topic in topics

        asked = query.subscription
        assigned = None if asked.assigned is None else {one: of for one, of in asked.assigned.items() if is_here(one)}
        here = replace(asked, topics=tuple(filter(is_here, asked.topics)), assigned=assigned)
        yield _restricted(query, endpoint.location, endpoint.options.connection, here, is_here)


def of_partition(query: Query, partition: TopicPartition, location: str, connection: Connection) -> Query:
    """Return the query of one of its partitions, whose topic is in a location."""
    only = Subscription(assigned={partition.topic: (partition.partition,)})
    return _restricted(query, location, connection, only, lambda *place: TopicPartition(*place) == partition)


def _restricted(
    query: Query,
    location: str,
    connection: Connection,
    subscription: Subscription,
    is_read: Callable[[str, int], bool],
) -> Query:
    """Return a query of a part of the partitions, all in one location."""

    def of(by_topic: Mapping[str, Mapping[int, _T]]) -> dict[str, dict[int, _T]]:
        found = {
            topic: {number: value for number, value in values.items() if is_read(topic, number)}
            for topic, values in by_topic.items()
        }
        return {topic: values for topic, values in found.items() if values}

    def bound(whole: Bound) -> Bound:
        match whole:
            case Offsets(by_topic):
                return Offsets(of(by_topic))
            case Timestamps(times):
                return Timestamps(of(times))
            case _:
                return whole

    return replace(
        query,
        location=location,
        connection=connection,
        topics_elsewhere=(),
        subscription=subscription,
        start=bound(query.start),
        end=bound(query.end),
    )
