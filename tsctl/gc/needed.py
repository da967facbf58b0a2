"""What readers still need, as `until_read_by` of a rule names them.

Doubt keeps more. A named reader that does not exist is an error, and one that has not read a topic needs all of it. A
reader that has reached a later incarnation of a topic needs nothing of the earlier ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ts_common.archive.group_offsets import Committed, read_offsets
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.table_claims import read_claims, tables_with_claims
from ts_common.errors import BucketMissing, ConfigurationError, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import Scheme, open_store, parse_location
from ts_common.store.options import NO_OPTIONS, StorageOptions
from ts_reader.following.checkpoint import read_checkpoint
from tsctl.gc.policy import ReadBy, TopicRule
from tsctl.gc.readers import (
    CheckpointReader,
    GroupReader,
    IncarnationLists,
    KafkaGroupReader,
    Reader,
    TableReader,
)
from tsctl.gc.retention import NeededFrom

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

_SOURCE: Final = "the policy"
_PLACE: Final = "until_read_by"
_GENERATION: Final = "_g"  # before the number of a table's generation, in the name of its claims


class Needed:
    """What the readers of a rule need; `open_needed` returns it. Several threads may use it.

    Args:
        readers: of the rule.
        longest_wait: milliseconds.
    """

    def __init__(self, readers: Sequence[Reader], longest_wait: int) -> None:
        self._readers = tuple(readers)
        self._longest_wait = longest_wait

    def first_needed(self, keys: PartitionKeys, now: int) -> NeededFrom | None:
        """Return the first offset of a partition that a reader needs; None if no reader needs any.

        Args:
            keys: of the partition, in one incarnation of its topic.
            now: milliseconds since the epoch.

        Raises:
            CorruptData, NewerFormat: the list of the topic's incarnations is damaged, or lacks this one.
            ClusterAway, AccessDenied: a request to the running cluster failed.
            StoreUnavailable, BucketMissing: the store failed.
        """
        found = [each.first_needed(keys, now, self._longest_wait) for each in self._readers]
        needs = [each for each in found if each is not None]
        return min(needs, key=lambda each: (each.offset, not each.overdue), default=None)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where readers have what they have read; fields as the arguments of `open_needed`."""

    store: ObjectStore
    keys: ClusterKeys
    kafka: "KafkaCluster | None"
    options: StorageOptions
    group_stores: Sequence[ObjectStore]
    incarnations: IncarnationLists


def open_needed(
    rule: TopicRule,
    store: ObjectStore,
    cluster_keys: ClusterKeys,
    kafka: "KafkaCluster | None",
    *,
    options: StorageOptions = NO_OPTIONS,
    group_stores: Sequence[ObjectStore] = (),
    place: str = _PLACE,
) -> Needed:
    """Read what the readers of a rule have read.

    Args:
        rule: of topics of the store.
        store: of the topics.
        cluster_keys: of the cluster.
        kafka: the running cluster; None if the command line does not name it.
        options: the connection to S3, for checkpoints there.
        group_stores: the archive's other stores. The endpoint keeps groups in one of all.
        place: of the readers in the policy; each message names it.

    Raises:
        ConfigurationError: readers do not exist, or need the running cluster; it names each.
        CorruptData, NewerFormat: what a reader wrote is damaged, or of a later release.
        ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    places = _Places(store, cluster_keys, kafka, options, group_stores, IncarnationLists(store, cluster_keys))
    readers: list[Reader] = []
    problems: list[str] = []
    for number, each in enumerate(rule.until_read_by):
        kind, _, name = str(each).partition(" ")
        key = f"{place}.{number}.{kind}: {name}"
        try:
            readers += _opened(each, places)
        except _Missing as missing:
            problems.append(f"{key}: {missing}")
        except ConfigurationError as error:  # of the connection to another store
            problems += [f"{key}: {problem}" for problem in error.problems]
        except TieredStorageError as error:
            error.args = (f"{key}: {error}",)
            raise
    if problems:
        raise ConfigurationError(_SOURCE, problems)
    return Needed(readers, rule.longest_wait)


class _Missing(Exception):
    """A reader does not exist, or cannot be looked for."""


def _opened(reader: ReadBy, places: _Places) -> Iterator[Reader]:
    """Yield a reader; a table with several generations is several.

    Raises:
        _Missing: it does not exist.
        Others: as `open_needed`.
    """
    if reader.table is not None:
        yield from _table(reader.table, places)
    elif reader.checkpoint is not None:
        yield _checkpoint(reader.checkpoint, places)
    elif reader.group is not None:
        yield _group(reader.group, places)
    elif reader.kafka_group is not None:
        yield _kafka_group(reader.kafka_group, places)


def _table(table: str, places: _Places) -> Iterator[Reader]:
    base = table + _GENERATION
    names = tables_with_claims(places.store, places.keys)
    own = [name for name in names if name == table or (name.startswith(base) and name[len(base) :].isdecimal())]
    claims = [found for name in own if (found := read_claims(places.store, places.keys, name)) is not None]
    if not claims:
        raise _Missing(
            f"{places.store.location} has no claims of such a table; a run of the table writes them, and "
            f"{', '.join(names[:10]) or 'no table'} has written some"
        )
    for found in claims:
        yield TableReader(f"table {found.table}", found, places.incarnations)


def _checkpoint(url: str, places: _Places) -> Reader:
    is_s3 = parse_location(url).scheme is Scheme.S3
    with open_store(url, places.options if is_s3 else NO_OPTIONS) as store:
        try:
            found = read_checkpoint(store)
        except BucketMissing as error:
            raise _Missing(str(error)) from error
    if found is None:
        raise _Missing("there is no checkpoint of a stream")
    return CheckpointReader(f"checkpoint {url}", found, places.incarnations)


def _group(group: str, places: _Places) -> Reader:
    offsets: dict[TopicPartition, Committed] = {}
    for store in (places.store, *places.group_stores):
        for partition, committed in read_offsets(store, places.keys, group).offsets.items():
            if partition not in offsets or offsets[partition].time < committed.time:
                offsets[partition] = committed
    if not offsets:
        raise _Missing("the archive has no committed offsets of such a group of the endpoint")
    return GroupReader(f"group {group}", offsets, places.incarnations)


def _kafka_group(group: str, places: _Places) -> Reader:
    if places.kafka is None:
        raise _Missing("it needs the running cluster: name it with --bootstrap-server")
    committed = places.kafka.group_offsets(group)
    if not committed:
        raise _Missing("the running cluster has no committed offsets of such a group")
    return KafkaGroupReader(f"kafka_group {group}", committed, places.kafka, places.incarnations)
