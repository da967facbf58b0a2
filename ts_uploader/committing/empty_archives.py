"""Remembers archives that an agent saw empty, and that have no commit yet: their commit is not lost (protocol rule 5).

Without a commit, a new one begins a lineage, and segments above its next offset are shipped again under variant names:
a lost commit looks like one that was never written. This agent can distinguish the two while one leadership lasts. It
saw `log.start` with neither a commit nor a segment, it wrote no commit since, and `log.start` is the same object: every
agent that moves a commit back, and every deletion, writes another one. An upload that fails before the first commit
then begins no lineage.
"""

import threading
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Leadership


@dataclass(frozen=True, slots=True)
class _EmptyArchive:
    """A leadership, and the object `log.start` that was the only one in it."""

    epoch: int
    topic_id: str | None
    etag: str


class EmptyArchives:
    """The empty archives that one agent saw, by partition; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards `_seen`
        self._seen: dict[TopicPartition, _EmptyArchive] = {}

    def saw_empty(self, partition: TopicPartition, leadership: Leadership, start: StoredLogStart) -> None:
        """Record that only `log.start` existed; if it has a lineage, there was a commit, and nothing is recorded."""
        if start.content.lineage is None:
            with self._lock:
                self._seen[partition] = _EmptyArchive(leadership.epoch, leadership.topic_id, start.etag)

    def over(self, partition: TopicPartition) -> None:
        """Record that a commit was seen, or is about to be written."""
        with self._lock:
            self._seen.pop(partition, None)

    def never_had_a_commit(self, partition: TopicPartition, leadership: Leadership, catalog: PartitionCatalog) -> bool:
        """Return whether an archive without a commit is one that this agent saw empty, in the same leadership."""
        with self._lock:
            seen = self._seen.get(partition)
        start = catalog.stored_log_start
        if seen is None or start is None or catalog.commit is not None:
            return False
        return seen == _EmptyArchive(leadership.epoch, leadership.topic_id, start.etag)
