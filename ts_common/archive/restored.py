"""The record of restored topics, in `restored.json` of the archive that continues them.

::

    <base prefix>/ts-uploader~cluster~<cluster>/restored.json
    {"version":1,"time":1700000000000,"by":"operator@host","topics":{"orders~5fWnyHqTQDqQDqQDqQDqQA":{
     "url":null,"cluster":"prod","entropyBits":5,"directory":"orders",
     "partitions":{"0":{"end":1000,"lineage":null,"epochs":[[5,0]],"ended":[[2001,0,990,"abort"]]}}}}}

A restored topic has another topic id, so its objects are in another directory, the key of `topics`. The record names
the directory of the old log, and its end: the new log has the same records below it. `ended` are transactions that the
restore ended with markers from `end` on. `tsctl restore create` writes the record before an agent starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

from ts_common.archive.commit import StoredLineage
from ts_common.archive.epoch_history import StoredEpochs
from ts_common.archive.incarnations import is_directory_of
from ts_common.archive.object_keys import MAX_ENTROPY_BITS, ClusterKeys, PartitionKeys
from ts_common.archive.small_objects import checked
from ts_common.archive.stored_object import FieldKind, PartitionKey, StoredObject, between, limited
from ts_common.json_objects import MAX_INT32, shown, text
from ts_common.model import TopicPartition, is_cluster_id, is_topic_name
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore

_LARGEST: Final = 64 << 20  # half a million partitions
_Text = Annotated[str, limited(4096)]


class Outcome(StrEnum):
    """How a restore ended a transaction."""

    ABORT = "abort"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction that was open at the end of the old log, and its marker in the new one."""

    producer_id: int
    producer_epoch: Annotated[int, between(-1, MAX_INT32)]
    first_offset: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RestoredPartition(StoredObject, version=None, expected="a restored partition", knows_all=True):
    """The log that a partition continues.

    Attributes:
        end: the offset after the last that was restored.
        lineage: of the old commit.
        epochs: of the old commit, below `end`; the new log has epoch 0 there.
        ended: in the order of their markers, which begin at `end`.
    """

    end: int
    lineage: StoredLineage | None
    epochs: StoredEpochs
    ended: tuple[Ended, ...]


def _cluster_id(value: object) -> str:
    found = text(value)
    if not is_cluster_id(found):
        raise ValueError(f"{shown(found)} is not the id of a cluster")
    return found


@dataclass(frozen=True, slots=True)
class RestoredTopic(StoredObject, version=None, expected="a restored topic", knows_all=True):
    """The topic that a topic continues.

    Attributes:
        url: of the store; None for the store of the record.
        cluster: key of the old archive.
        directory: of the old incarnation.
    """

    url: _Text | None
    cluster: Annotated[str, FieldKind(_cluster_id)]
    entropy_bits: Annotated[int, between(0, MAX_ENTROPY_BITS)]
    directory: str
    partitions: Mapping[PartitionKey, RestoredPartition]

    def keys_of(self, partition: TopicPartition) -> PartitionKeys:
        """Return the keys of a partition in the old archive."""
        return ClusterKeys(self.cluster, self.entropy_bits).partition(partition, self.directory)


@dataclass(frozen=True, slots=True)
class Restored(StoredObject, expected="a record of restored topics", most=_LARGEST, knows_all=True):
    """All restored topics of an archive.

    Attributes:
        time: ms since the epoch: the newest of them was added.
        by: who added it.
        topics: by their directory in this archive.
    """

    time: int
    by: _Text
    topics: Mapping[Annotated[str, limited(300)], RestoredTopic]

    def find(self, keys: PartitionKeys) -> tuple[RestoredTopic, RestoredPartition] | None:
        """Return what a partition's directory of this archive continues; None if it began without a restore."""
        topic = self.topics.get(keys.incarnation)
        partition = None if topic is None else topic.partitions.get(keys.partition.partition)
        return None if topic is None or partition is None else (topic, partition)

    def check(self) -> None:
        """Check the directories: both are of the same topic."""
        for directory, topic in self.topics.items():
            name = directory.partition("~")[0]
            if not is_topic_name(name) or not all(is_directory_of(name, each) for each in (directory, topic.directory)):
                raise ValueError(f"{shown(directory)} and {shown(topic.directory)} are not directories of one topic")


def record_restored(store: ObjectStore, keys: ClusterKeys, added: Restored, check: Callable[[str], None]) -> bool:
    """Add topics to the record of an archive, on its ETag; return False if it has exactly these already.

    Args:
        check: is called with the directory of each topic that the record has with other content; it may raise.

    Raises:
        CorruptData, NewerFormat: the record cannot be read.
        PreconditionFailed: another process wrote it meanwhile.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = Restored.read_with_etag(store, keys.restored)
    former = {} if found is None else dict(found[0].topics)
    new = {name: topic for name, topic in added.topics.items() if former.get(name) != topic}
    for name in new.keys() & former.keys():
        check(name)
    if not new:
        return False
    record = replace(added, topics=former | new)
    condition = IfAbsent() if found is None else IfMatch(found[1])
    store.put(keys.restored, checked(record.encode(), keys.restored, _LARGEST), condition=condition)
    return True
