"""What the steps of a restore hand to each other: files in one directory, which all hosts see or get copies of.

::

    plan.json          what is restored; a person reads and approves it
    created.json       the topic ids of the new cluster
    mirror.properties  MirrorMaker's settings, if it copies the records
    broker-1.json      what the host of broker 1 has done

And on each host, in the directory of a partition, `restore/state.json`: which files are complete. Each file names the
plan by its id, so that no step uses a record of another plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from ts_common.archive.incarnations import is_directory_of
from ts_common.archive.object_keys import OFFSET_DIGITS
from ts_common.archive.stored_object import (
    Crc32c,
    PartitionKey,
    Presence,
    StoredObject,
    TopicName,
    between,
    limited,
)
from ts_common.errors import OperatorError
from ts_common.json_objects import MAX_INT32, shown
from ts_common.model import TopicPartition
from tsctl.durable_files import write_file
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.restore.transactions import OpenTransaction

_LARGEST: Final = 1 << 30  # ten million segments
_Text = Annotated[str, limited(1 << 20)]
_Broker = Annotated[int, between(0, MAX_INT32)]
_TopicId = Annotated[str, limited(22, r"[A-Za-z0-9_-]{22}")]
# What a fetch writes: the name is joined to the path of a partition's directory.
_FileName = Annotated[
    str, limited(64, rf"[0-9]{{{OFFSET_DIGITS}}}\.(log|index|timeindex|txnindex)|leader-epoch-checkpoint")
]


@dataclass(frozen=True, slots=True)
class TopicPlan(StoredObject, version=None, expected="the plan of a topic"):
    """What is restored of a topic.

    Attributes:
        directory: of its incarnation in the archive.
        configurations: set by the last step; until then the topic has no retention.
    """

    directory: str
    partitions: Mapping[PartitionKey, PartitionPlan]
    configurations: Mapping[Annotated[str, limited(1024)], _Text]


@dataclass(frozen=True, slots=True)
class GroupsPlan(StoredObject, version=None, expected="the groups of a plan"):
    """Committed offsets of consumer groups.

    Attributes:
        source: where they are from, for people.
        time: ms since the epoch: they are of this time.
        offsets: by group and partition; each from the start to the end of its partition.
        notes: where offsets and the output of transactions are of different times.
        metadata: the text that an application committed with an offset, as Kafka Streams does; without the empty ones.
    """

    source: str
    time: int | None
    offsets: Mapping[_Text, Mapping[TopicPartition, int]]
    notes: Annotated[tuple[_Text, ...], Presence.MAY_LACK] = ()
    metadata: Annotated[Mapping[_Text, Mapping[TopicPartition, _Text]], Presence.MAY_LACK] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seed:
    """The temporary broker that gets the files of topics while other brokers serve.

    Attributes:
        address: `host:port` where this tool reaches it, although clients do not.
    """

    broker: _Broker
    address: _Text


class Document(StoredObject):
    """A file of the directory.

    Attributes:
        plan: id of the plan.
    """

    __slots__ = ()
    plan: str

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_file(path, self.encode())

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Return the content of a file; None if it does not exist.

        Raises:
            CorruptData, NewerFormat: it is another file.
            OperatorError: it cannot be read.
        """
        try:
            with path.open("rb") as file:
                data = file.read(cls._form.most + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OperatorError(f"{path}: {error.strerror}; mend it, and repeat the command") from error
        return cls.decode(data, str(path))


@dataclass(frozen=True, slots=True)
class RestorePlan(Document, expected="a plan of tsctl restore", most=_LARGEST):
    """The plan.

    Attributes:
        plan: its id.
        time: ms since the epoch: it was made. Markers of the restore have this time.
        cluster: key of the archive.
        locations: of the archive's stores.
        at: ms since the epoch: the time of the cut; None for all that the archive has.
        commands: for ACLs, quotas and users: the operator runs them.
        absent: topics of the snapshot that the archive does not have.
        seed: gets all files, while other brokers serve; None without one.
        notes: what a person should read before approving.
    """

    plan: str
    time: int
    cluster: str
    locations: tuple[_Text, ...]
    at: int | None
    topics: Mapping[TopicName, TopicPlan]
    groups: GroupsPlan
    commands: tuple[_Text, ...]
    absent: tuple[TopicName, ...] = ()
    notes: Annotated[tuple[_Text, ...], Presence.MAY_LACK] = ()
    seed: Annotated[Seed | None, Presence.MAY_LACK] = None

    @property
    def is_served(self) -> bool:
        """Whether the cluster serves other topics meanwhile; the last step moves all partitions to their homes."""
        return self.seed is not None or any(part.homes for part in self.partitions.values())

    @property
    def restarted(self) -> tuple[int, ...]:
        """The serving brokers that are stopped for their files, one after the other; none with a seed."""
        return self.brokers if self.is_served and self.seed is None else ()

    @property
    def at_homes(self) -> "RestorePlan":
        """The plan after the partitions were moved."""
        topics = {
            name: replace(topic, partitions={n: replace(p, replicas=p.homes) for n, p in topic.partitions.items()})
            for name, topic in self.topics.items()
        }
        return replace(self, topics=topics, seed=None)

    def check(self) -> None:
        """Check the directories: each is of its topic."""
        for name, topic in self.topics.items():
            if not is_directory_of(name, topic.directory):
                raise ValueError(f"{shown(topic.directory)} is not a directory of topic {name}")

    @property
    def partitions(self) -> dict[TopicPartition, PartitionPlan]:
        """All partitions, by topic and number."""
        return {
            TopicPartition(topic, number): each
            for topic, plan in self.topics.items()
            for number, each in plan.partitions.items()
        }

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of all brokers that get files, ascending."""
        return tuple(sorted({broker for each in self.partitions.values() for broker in each.replicas}))

    def of_broker(self, broker: int) -> dict[TopicPartition, PartitionPlan]:
        """Return the partitions that a broker has a replica of."""
        return {name: each for name, each in self.partitions.items() if broker in each.replicas}


@dataclass(frozen=True, slots=True)
class Created(Document, expected="a record of created topics", most=_LARGEST):
    """The topics of the new cluster.

    Attributes:
        kafka: Kafka's cluster id, as in `meta.properties`.
        topics: topic id by name; None on a cluster without ids.
    """

    plan: str
    kafka: str
    topics: Mapping[TopicName, _TopicId | None]


class Done(StrEnum):
    """What a host has done, in this order."""

    FETCHED = "fetched"
    PLACED = "placed"


@dataclass(frozen=True, slots=True)
class Replica:
    """The files of a partition on a host.

    Attributes:
        end: of the log.
        size: bytes of all files.
        digest: CRC-32C of names, sizes and checksums of all files: replicas have the same.
    """

    end: int
    size: int
    digest: Crc32c


@dataclass(frozen=True, slots=True)
class HostRecord(Document, expected="a record of a host", most=_LARGEST):
    """What a host has done.

    Attributes:
        time: ms since the epoch, the host's clock.
    """

    plan: str
    broker: _Broker
    done: Done
    time: int
    partitions: Mapping[TopicPartition, Replica]


@dataclass(frozen=True, slots=True)
class GroupsSet(Document, expected="a record of the groups", most=_LARGEST):
    """That the offsets of all groups were set.

    Attributes:
        time: ms since the epoch, the host's clock.
    """

    plan: str
    time: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A complete file of a partition."""

    name: _FileName
    size: int
    crc32c: Crc32c


@dataclass(frozen=True, slots=True)
class Staged(Document, expected="a state of a partition's files", most=_LARGEST):
    """The files of a partition that are complete.

    Attributes:
        steps: how many steps of the partition's plan they have.
        end: of the log that they are.
        epoch_start: offset of the first batch of magic 2; None without one.
        still_open: transactions that are open at `end`.
        damaged: places that were left out.
        complete: whether all files of the partition are there.
    """

    plan: str
    steps: int = 0
    end: int = 0
    epoch_start: Annotated[int | None, Presence.MAY_LACK] = None
    files: tuple[FileEntry, ...] = ()
    still_open: Annotated[tuple[OpenTransaction, ...], "open"] = ()
    damaged: tuple[_Text, ...] = ()
    complete: bool = False

    def is_of(self, plan: PartitionPlan) -> bool:
        """Return whether a fetch of a plan can have reached this state."""
        if self.complete:
            return (self.steps, self.end) == (len(plan.steps), plan.log_end)
        return self.steps <= len(plan.steps) and self.end == (plan.steps[self.steps - 1].end if self.steps else 0)
