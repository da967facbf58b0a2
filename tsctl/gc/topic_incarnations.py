"""The incarnations of the topics that a store has, with their partitions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest

from ts_common.archive.directories import list_topics
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.reading.topics import read_listed_incarnations
from tsctl.gc.retention import UNREADABLE, LeftOut, Skipped, TopicIncarnation


def read_topic_incarnations(
    store: ObjectStore, keys: ClusterKeys, wants: Callable[[str], bool], skip: Callable[[Skipped], None]
) -> Iterator[TopicIncarnation]:
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
                incarnations, _ = read_listed_incarnations(store, keys, topic, listed)
            except UNREADABLE as error:
                skip(Skipped(topic, str(error)))
                continue
            numbers = sorted(listed.partitions)
            for incarnation in _of(incarnations):
                found = (keys.partition(TopicPartition(topic, number), incarnation.directory) for number in numbers)
                yield replace(incarnation, partitions=tuple(found))


def find_incarnation(store: ObjectStore, keys: ClusterKeys, topic: str, directory: str) -> TopicIncarnation | None:
    """Return an incarnation without its partitions; None if the topic's list does not have it.

    Raises:
        LeftOut: the list is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        incarnations, _ = read_incarnations(store, keys, topic)
    except UNREADABLE as error:
        raise LeftOut(str(error)) from error
    return next((incarnation for incarnation in _of(incarnations) if incarnation.directory == directory), None)


def _of(incarnations: Incarnations) -> Iterator[TopicIncarnation]:
    ids: dict[str, set[str]] = {}
    first_seen: dict[str, int] = {}
    for entry in incarnations.entries:
        ids.setdefault(entry.directory, set()).add(entry.topic_id)
        first_seen.setdefault(entry.directory, entry.first_seen)
    directories = list(ids) or [incarnations.topic]
    for directory, following in zip_longest(directories, directories[1:]):
        over_since = None if following is None else first_seen[following]
        yield TopicIncarnation(incarnations.topic, directory, frozenset(ids.get(directory, ())), over_since, ())
