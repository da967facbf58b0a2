"""What the running cluster has of a topic while it is erased: its log ends now, and how long it keeps records.

Nothing here changes the cluster. Its own records are the producers' and operators' task.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.model import TopicPartition
from tsctl.erase.places import Places
from tsctl.output import Cell

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster


@dataclass(frozen=True, slots=True)
class LivePartition:
    """What brokers have of a partition.

    Attributes:
        start: log start offset.
        end: high watermark: what producers write from now on has at least this offset.
    """

    partition: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """What the cluster has of a topic.

    Attributes:
        retention_ms: None: without a limit by time.
        compacts: whether a tombstone removes the records of its key.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("PARTITION", "FIRST OFFSET", "END", "ARCHIVED TO")
    partitions: tuple[LivePartition, ...]
    retention_ms: int | None
    compacts: bool

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The high watermark of each partition."""
        return {each.partition: each.end for each in self.partitions}

    @property
    def with_records(self) -> frozenset[int]:
        """The partitions that have records."""
        return frozenset(each.partition.partition for each in self.partitions if each.start < each.end)

    def rows(self, archived: Mapping[TopicPartition, int]) -> list[list[Cell]]:
        """Return a row for each partition, as `COLUMNS`; `archived` has the next offset of the archive by partition."""
        return [[str(each.partition), each.start, each.end, archived.get(each.partition)] for each in self.partitions]

    def fields(self, rows: Sequence[Sequence[Cell]]) -> dict[str, object]:
        """Return its JSON fields."""
        names = [name.lower().replace(" ", "_") for name in self.COLUMNS]
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        return {"retention_ms": self.retention_ms, "compacts": self.compacts, "partitions": partitions}

    def sentence(self) -> str:
        """Return how long the cluster keeps records, and what removes one."""
        kept = "without a limit by time" if self.retention_ms is None else f"for {self.retention_ms:,} ms"
        more = "; a tombstone removes the records of its key" if self.compacts else ""
        return f"the running cluster keeps records {kept}{more}; it has:"


def archived(found: Iterable[Places]) -> dict[TopicPartition, int]:
    """Return the next offset of each partition of the newest incarnation.

    Raises:
        CorruptData, NewerFormat: a commit is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: a store failed.
    """
    commits = {
        place.keys.partition: read_commit(each.store, place.keys)[0]
        for each in found
        for place in each.places
        if place.is_newest
    }
    return {name: commit.next_offset for name, commit in commits.items() if isinstance(commit, Commit)}


def read_live_topic(
    cluster: "KafkaCluster", topic: str, places: Iterable[Places], warn: Callable[[str], None]
) -> LiveTopic | None:
    """Return what a cluster has of a topic; None if it does not have the topic of the newest incarnation.

    Args:
        warn: called with a sentence if it has another topic of that name.

    Raises:
        ClusterAway, AccessDenied: a request failed.
    """
    found = cluster.topics().get(topic)
    if found is None:
        cluster.check_unknown([topic])
        warn(f"the cluster has no topic {topic}: the end of each partition is that of the archive")
        return None
    known = frozenset[str]().union(*(each.topic_ids for each in places))
    if found.topic_id is not None and known and found.topic_id not in known:
        warn(
            f"topic {topic} of the cluster has the topic id {found.topic_id}, which the archive does not have: the end "
            "of each partition is that of the archive"
        )
        return None
    bounds = cluster.bounds(TopicPartition(topic, number) for number in found.partitions)
    keeping = cluster.keeping([topic])[topic]
    partitions = tuple(LivePartition(each, *bounds[each]) for each in sorted(bounds))
    return LiveTopic(partitions, keeping.retention_ms, keeping.compacts)
