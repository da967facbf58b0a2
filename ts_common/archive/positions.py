"""Where the archive of each partition that a broker leads ended, in `positions/<broker>.json.gz`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/positions/1.json.gz
    {"version":1,"broker":1,"time":1700000000000,
     "partitions":{"orders-0":["<offset.wm>","<its ETag>","<log.start>","<its ETag>",false,0]}}

Each agent overwrites its own object every few minutes, compressed by gzip, and reads it when it starts. Other agents
and readers never read it. The object can be old, or be written by anyone who may write there. So a row only means that
nothing is to be done now (protocol rule 8).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self

from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.packed import pack, unpack
from ts_common.archive.small_objects import COMMIT_BYTES, LOG_START_BYTES, checked, get_small
from ts_common.archive.stored_object import StoredObject, between, limited
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.json_objects import MAX_INT32
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

# Unpacked: 40,000 partitions. A small object can unpack to values that need a hundred times the memory of their text,
# and an agent that has no memory left ends at each start.
_LARGEST: Final = 16 << 20
_MOST: Final = 1 << 20  # commas, and brackets: a row has some twenty
_ETag = Annotated[str, limited(1024)]


@dataclass(frozen=True, slots=True)
class Row:
    """The position of a partition.

    Attributes:
        commit: content of `offset.wm`.
        log_start: content of `log.start`.
        has_gaps: gaps are recorded that the broker's log may contain.
        sealed: greatest end of a sealed cache object; 0 without one.
    """

    commit: Annotated[str, limited(COMMIT_BYTES)]
    etag: _ETag
    log_start: Annotated[str, limited(LOG_START_BYTES)]
    log_start_etag: _ETag
    has_gaps: bool
    sealed: int


@dataclass(frozen=True, slots=True)
class Idle:
    """A partition where nothing is to be done below an offset, with this leadership.

    Attributes:
        epoch: leader epoch of the commit.
        topic_id: of the commit.
        next_offset: of the commit.
    """

    epoch: int
    topic_id: str
    next_offset: int


@dataclass(frozen=True, slots=True)
class Positions(StoredObject, expected="the positions of a broker", most=_LARGEST):
    """The positions of the partitions that one broker leads, as its agent reports them.

    Attributes:
        time: milliseconds since the epoch, the agent's clock: the object was written.
    """

    broker: Annotated[int, between(0, MAX_INT32)]
    time: int
    partitions: Mapping[TopicPartition, Row]

    @classmethod
    def load(cls, store: ObjectStore, keys: ClusterKeys, broker: int) -> Self | None:
        """Read the positions that a broker's agent wrote last; None if there is no such object.

        Raises:
            CorruptData: the object is damaged, or belongs to another broker.
            NewerFormat: a later release wrote it.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = keys.positions_of(broker)
        try:
            packed, _ = get_small(store, key, _LARGEST)
        except ObjectNotFound:
            return None
        return cls.decode(_checked(unpack(packed, key, _LARGEST), key), key, broker=broker)

    def put(self, store: ObjectStore, keys: ClusterKeys) -> None:
        """Write the positions over those of before.

        Raises:
            CorruptData: they are too large.
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = keys.positions_of(self.broker)
        store.put(key, pack(_checked(checked(self.encode(), key, _LARGEST), key)))

    def idle(self) -> dict[TopicPartition, Idle]:
        """Return what counts; a row with gaps, a lineage, or a commit after a Java uploader's does not."""
        found: dict[TopicPartition, Idle] = {}
        for partition, row in self.partitions.items():
            try:
                commit = decode_commit(row.commit.encode(), str(partition))
            except (CorruptData, NewerFormat):
                continue
            is_plain = isinstance(commit, Commit) and commit.lineage is None and commit.java is None
            if is_plain and isinstance(commit, Commit) and commit.topic_id is not None and not row.has_gaps:
                found[partition] = Idle(commit.epoch, commit.topic_id, commit.next_offset)
        return found


def _checked(data: bytes, key: str) -> bytes:
    """Return the bytes of an object, unless it has too many values; raise CorruptData."""
    if data.count(b",") > _MOST or data.count(b"[") + data.count(b"{") > _MOST:
        raise CorruptData(f"{key}: it has more than {_MOST} values")
    return data
