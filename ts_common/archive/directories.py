"""What the names of directories tell: which topics a store holds of a cluster, and under which entropy width."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectStore

_ENTROPY = re.compile(r"[01]+")


@dataclass(frozen=True, slots=True)
class TopicDirectories:
    """What the names of a cluster's directories tell of a topic.

    Attributes:
        partitions: that any incarnation has; none where there is only the list of incarnations.
        later: the directories of later incarnations, without `-<partition>`.
    """

    partitions: frozenset[int] = frozenset()
    later: frozenset[str] = frozenset()

    def check_all_listed(self, incarnations: Incarnations, key: str) -> None:
        """Refuse a list of incarnations that lacks one which the store holds: which is the newest, nobody can tell.

        An incarnation is listed before anything of it is written, so this list was removed, or an old one put back.

        Args:
            incarnations: read after the names of the directories.
            key: of the list, for the message.

        Raises:
            CorruptData: it lacks one.
        """
        lacking = sorted(self.later - {entry.directory for entry in incarnations.entries})
        if lacking:
            raise CorruptData(
                f"{key} does not name {', '.join(lacking)}, of which the store holds objects: it was removed, or an "
                f"old one put back, and nobody can tell which life of {incarnations.topic} is the newest. Put back its "
                "last version"
            )


NO_DIRECTORIES = TopicDirectories()


def list_topics(store: ObjectStore, keys: ClusterKeys) -> dict[str, TopicDirectories]:
    """Every topic of a cluster that the store knows under this entropy width.

    Later incarnations count for their topic. What Kafka would not let a topic be called is none. Where a topic that
    has only its incarnations object is called `t-1`, its directory cannot be told from partition 1 of `t` by name: read
    both before believing it.
    """
    topics: dict[str, tuple[set[int], set[str]]] = {}
    for prefix in _cluster_prefixes(store, keys.cluster, keys.entropy_bits):
        for directory in store.list_directories(prefix):
            name = directory.rstrip("/")
            topic, tilde, later = name.partition("~")
            partition = TopicPartition.parse(f"{topic}-{later.rpartition('-')[2]}" if tilde else name)
            if partition is not None and keys.partition(partition).prefix.startswith(prefix):
                partitions, directories = topics.setdefault(partition.topic, (set(), set()))
                partitions.add(partition.partition)
                if tilde:
                    directories.add(name.rpartition("-")[0])
            elif is_topic_name(name) and keys.incarnations(name).startswith(prefix):
                topics.setdefault(name, (set(), set()))
    return {
        topic: TopicDirectories(frozenset(partitions), frozenset(later))
        for topic, (partitions, later) in topics.items()
    }


def entropy_widths(store: ObjectStore, cluster: str) -> frozenset[int]:
    """The entropy widths under which the store holds anything of a cluster; 0 means no entropy part."""
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
