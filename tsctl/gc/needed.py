"""What readers still need of the topics of a rule: those of `until_read_by`, and each table that has read a topic.

Doubt keeps more. A named reader that does not exist is an error, and one that has not read a topic needs all of it. A
reader that has reached a later incarnation of a topic needs nothing of the earlier ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ts_common.archive.group_offsets import Committed, read_offsets
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.table_claims import TableClaims, read_claims, tables_with_claims
from ts_common.errors import BucketMissing, ConfigurationError, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import Scheme, open_store, parse_location
from ts_common.store.options import NO_OPTIONS, StorageOptions
from ts_reader.following.checkpoint import read_checkpoint
from ts_reader.reading.parallel import in_threads
from tsctl.gc.policy import TopicRule, is_of_table
from tsctl.gc.readers import (
    CheckpointReader,
    GroupReader,
    IncarnationLists,
    KafkaGroupReader,
    Reader,
    TableReader,
)
from tsctl.gc.retention import UNREADABLE, NeededFrom

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

_SOURCE: Final = "the policy"


@dataclass(frozen=True, slots=True)
class Needed:
    """What the readers of a rule need; `Readers` returns it. Several threads may use it."""

    readers: Sequence[Reader]
    longest_wait: int

    def first_needed(self, keys: PartitionKeys, now: int) -> NeededFrom | None:
        """Return the first offset of a partition that a reader needs; None if no reader needs any.

        Args:
            keys: of the partition, in one incarnation of its topic.
            now: milliseconds since the epoch.

        Raises:
            CorruptData, NewerFormat: the list of the topic's incarnations is damaged, or lacks this one; or the claims
                of a table cannot be read.
            ClusterAway, AccessDenied: a request to the running cluster failed.
            StoreUnavailable, BucketMissing: the store failed.
        """
        found = [each.first_needed(keys, now, self.longest_wait) for each in self.readers]
        needs = [each for each in found if each is not None]
        return min(needs, key=lambda each: (each.offset, not each.overdue), default=None)


@dataclass(frozen=True)
class Readers:
    """Reads what the readers of rules have read; it reads each object once.

    Attributes:
        kafka: the running cluster; None if the command line does not name it.
        options: the connection to S3, for checkpoints there.
        group_stores: the archive's other stores. The endpoint keeps groups in one of all.
    """

    store: ObjectStore
    keys: ClusterKeys
    kafka: "KafkaCluster | None" = None
    options: StorageOptions = NO_OPTIONS
    group_stores: Sequence[ObjectStore] = ()

    @cached_property
    def incarnations(self) -> IncarnationLists:
        """The incarnations of the topics."""
        return IncarnationLists(self.store, self.keys)

    @cached_property
    def claims(self) -> Mapping[str, TableClaims | str]:
        """The claims of all tables by name, each generation by its own; a message for claims that cannot be read."""

        def read(table: str) -> TableClaims | str | None:
            try:
                return read_claims(self.store, self.keys, table)
            except UNREADABLE as error:
                return f"{error}; a run of the table writes it again; or set ignore_tables: [{table}] in the rule"

        names = tables_with_claims(self.store, self.keys)
        found = zip(names, in_threads(read, names), strict=True)
        return {name: claims for name, claims in found if claims is not None}  # None: its table was dropped since

    def needed(self, rule: TopicRule, place: str = "until_read_by") -> Needed:
        """Read what the readers of a rule have read.

        Args:
            rule: of topics of the store.
            place: of the readers in the policy; each message names it.

        Raises:
            ConfigurationError: readers do not exist, or need the running cluster; it names each.
            CorruptData, NewerFormat: what a reader wrote is damaged, or of a later release.
            ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        readers: list[Reader] = [
            TableReader(f"table {name}", claims, self.incarnations, is_named=rule.names(name))
            for name, claims in self.claims.items()
            if rule.names(name) or not rule.ignores(name)
        ]
        problems: list[str] = []
        for number, each in enumerate(rule.until_read_by):
            kind, _, name = str(each).partition(" ")
            key = f"{place}.{number}.{kind}: {name}"
            try:
                readers += _OPENING[kind](name, self)
            except ConfigurationError as error:
                problems += [f"{key}: {problem}" for problem in error.problems]
            except TieredStorageError as error:
                error.args = (f"{key}: {error}",)
                raise
        if problems:
            raise ConfigurationError(_SOURCE, problems)
        return Needed(readers, rule.longest_wait)


def _missing(reason: str) -> ConfigurationError:
    return ConfigurationError(_SOURCE, [reason])


def _check_table(table: str, readers: Readers) -> Sequence[Reader]:
    """Check that a table has claims; each one with claims is a reader already."""
    if not any(is_of_table(name, table) for name in readers.claims):
        others = f"{', '.join([*readers.claims][:10]) or 'no table'} has written some"
        raise _missing(f"{readers.store.location} has no claims of such a table; its runs write them, and {others}")
    return ()


def _checkpoint(url: str, readers: Readers) -> Sequence[Reader]:
    is_s3 = parse_location(url).scheme is Scheme.S3
    with open_store(url, readers.options if is_s3 else NO_OPTIONS) as store:
        try:
            found = read_checkpoint(store)
        except BucketMissing as error:
            raise _missing(str(error)) from error
    if found is None:
        raise _missing("there is no checkpoint of a stream")
    return [CheckpointReader(f"checkpoint {url}", found, readers.incarnations)]


def _group(group: str, readers: Readers) -> Sequence[Reader]:
    offsets: dict[TopicPartition, Committed] = {}
    for store in (readers.store, *readers.group_stores):
        for partition, committed in read_offsets(store, readers.keys, group).offsets.items():
            if partition not in offsets or offsets[partition].time < committed.time:
                offsets[partition] = committed
    if not offsets:
        raise _missing("the archive has no committed offsets of such a group of the endpoint")
    return [GroupReader(f"group {group}", offsets, readers.incarnations)]


def _kafka_group(group: str, readers: Readers) -> Sequence[Reader]:
    if readers.kafka is None:
        raise _missing("it needs the running cluster: name it with --bootstrap-server")
    committed = readers.kafka.group_offsets(group)
    if not committed:
        raise _missing("the running cluster has no committed offsets of such a group")
    topics = readers.kafka.topics()
    return [KafkaGroupReader(f"kafka_group {group}", committed, readers.kafka, topics, readers.incarnations)]


_OPENING: Final[Mapping[str, Callable[[str, Readers], Sequence[Reader]]]] = {
    "table": _check_table,
    "checkpoint": _checkpoint,
    "group": _group,
    "kafka_group": _kafka_group,
}
