"""The topics of a cluster in a store, and its entropy widths, by the names of directories alone."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys, partition_of
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectStore

_ENTROPY = re.compile(r"[01]+")


@dataclass(frozen=True, slots=True)
class TopicDirectories:
    """The directories of one topic.

    Attributes:
        partitions: partitions of any incarnation; empty if the topic has only its list of incarnations.
        later: the directories of later incarnations, without `-<partition>`.
        is_named: whether there is a directory of the topic's own name, where agents write its incarnations.
    """

    partitions: frozenset[int] = frozenset()
    later: frozenset[str] = frozenset()
    is_named: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether the directories are of no other topic; without it, they can be those of a topic `<topic>-1`."""
        return self.is_named or bool(self.later)

    def check_all_listed(self, incarnations: Incarnations, key: str) -> None:
        """Reject a list of incarnations that lacks a stored one: the newest incarnation is then unknown.

        Agents write an incarnation into the list before its first object. So the list was removed, or replaced by an
        older version.

        Args:
            incarnations: the list, read after the names of the directories.
            key: key of the list, for the message.

        Raises:
            CorruptData: an incarnation is missing.
        """
        lacking = sorted(self.later - {entry.directory for entry in incarnations.entries})
        if lacking:
            raise CorruptData(
                f"{key} does not contain {', '.join(lacking)}, but the store has objects of it; the list was removed "
                f"or replaced by an older version, so the newest incarnation of {incarnations.topic} is unknown. "
                "Restore the last version of the list"
            )


NO_DIRECTORIES = TopicDirectories()


def list_topics(store: ObjectStore, keys: ClusterKeys) -> dict[str, TopicDirectories]:
    """Return every topic of a cluster in a store under the entropy width of `keys`, with its directories.

    Directories of later incarnations count for their topic. Names that Kafka rejects are ignored. The incarnations
    object of a topic `t-1` is in a directory with the name of partition 1 of `t`; `topics_of` distinguishes them.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    topics: dict[str, tuple[set[int], set[str]]] = {}
    named: set[str] = set()
    for prefix in _cluster_prefixes(store, keys.cluster, keys.entropy_bits):
        for directory in store.list_directories(prefix):
            name = directory.rstrip("/")
            partition = partition_of(name)
            if partition is not None and keys.partition(partition).prefix.startswith(prefix):
                partitions, directories = topics.setdefault(partition.topic, (set(), set()))
                partitions.add(partition.partition)
                if "~" in name:
                    directories.add(name.rpartition("-")[0])
            elif is_topic_name(name) and keys.incarnations(name).startswith(prefix):
                topics.setdefault(name, (set(), set()))
                named.add(name)
    return {
        topic: TopicDirectories(frozenset(partitions), frozenset(later), topic in named)
        for topic, (partitions, later) in topics.items()
    }


def held_incarnations(store: ObjectStore, keys: ClusterKeys) -> frozenset[str]:
    """Return the incarnations with objects, as `PartitionKeys.incarnation`, under the entropy width of `keys`.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return frozenset(
        directory.rstrip("/").rpartition("-")[0]
        for prefix in _cluster_prefixes(store, keys.cluster, keys.entropy_bits)
        for directory in store.list_directories(prefix)
        if partition_of(directory.rstrip("/")) is not None
    )


def topics_of(store: ObjectStore, keys: ClusterKeys, topic: str, partitions: Iterable[int]) -> frozenset[str]:
    """Return the topics that have objects in the directories of a topic's partitions, as far as they were read.

    A topic with a name such as that of a partition has its incarnations object there. The directories are read up to
    the first object of the topic itself.

    Args:
        partitions: those that `list_topics` returns.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    names: set[str] = set()
    for partition in sorted(partitions):
        other = f"{topic}-{partition}"
        for info in store.list(keys.partition(TopicPartition(topic, partition)).prefix):
            if info.key != keys.incarnations(other):
                return frozenset({*names, topic})
            names.add(other)
    return frozenset(names)


def entropy_widths(store: ObjectStore, cluster: str) -> frozenset[int]:
    """Return the entropy widths of a cluster's keys in a store; 0 means keys without an entropy part.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    first = [directory.rstrip("/") for directory in store.list_directories("")]
    widths = {0} if cluster in first else set()
    for name in first:
        if _ENTROPY.fullmatch(name) and len(name) not in widths:
            held = (directory.rstrip("/") for directory in store.list_directories(f"{name}/"))
            if cluster in held:
                widths.add(len(name))
    return frozenset(widths)


def _cluster_prefixes(store: ObjectStore, cluster: str, bits: int) -> Iterator[str]:
    if bits < 1:
        yield f"{cluster}/"
        return
    for directory in store.list_directories(""):
        if len(directory) == bits + 1 and _ENTROPY.fullmatch(directory.rstrip("/")):
            yield f"{directory}{cluster}/"
