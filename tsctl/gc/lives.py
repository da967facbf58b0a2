"""The incarnations of the topics that a store has, with their partitions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition
from ts_common.reading.topics import read_listed_incarnations
from ts_common.store.contract import ObjectStore
from tsctl.gc.retention import Skipped


@dataclass(frozen=True, slots=True)
class Life:
    """One incarnation of a topic.

    Attributes:
        topic: its name.
        directory: as `Incarnation.directory`.
        topic_id: its newest topic id; None if the topic has no list of incarnations.
        over_since: when the next incarnation was first seen, ms since the epoch; None for the newest incarnation.
        partitions: keys of each partition that can have objects.
    """

    topic: str
    directory: str
    topic_id: str | None
    over_since: int | None
    partitions: tuple[PartitionKeys, ...]


def read_lives(
    store: ObjectStore, keys: ClusterKeys, wants: Callable[[str], bool], skip: Callable[[Skipped], None]
) -> Iterator[Life]:
    """Yield the incarnations of each topic, oldest first, in the order of the topics' names.

    Args:
        store: of the topics.
        keys: of the cluster.
        wants: chooses topics.
        skip: is called with each topic whose list of incarnations is in doubt; it is left out.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for topic, listed in sorted(list_topics(store, keys).items()):
        if wants(topic):
            try:
                yield from _lives(store, keys, topic, listed)
            except (CorruptData, NewerFormat) as error:
                skip(Skipped(topic, str(error), is_expected=False))


def _lives(store: ObjectStore, keys: ClusterKeys, topic: str, listed: TopicDirectories) -> Iterator[Life]:
    incarnations, _ = read_listed_incarnations(store, keys, topic, listed)
    ids = {entry.directory: entry.topic_id for entry in incarnations.entries}
    seen = {entry.directory: entry.first_seen for entry in reversed(incarnations.entries)}
    directories = list(seen)[::-1] or [topic]
    for place, directory in enumerate(directories):
        following = seen[directories[place + 1]] if place + 1 < len(directories) else None
        partitions = tuple(
            keys.partition(TopicPartition(topic, number), directory) for number in sorted(listed.partitions)
        )
        yield Life(topic, directory, ids.get(directory), following, partitions)
