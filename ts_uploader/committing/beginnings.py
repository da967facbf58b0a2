"""Archives that an agent saw empty, and that have no commit yet: theirs is not lost (protocol rule 5).

Without a commit a new one begins a lineage, and what stands above its next offset is shipped again under variant names:
nobody can tell a lost commit from one that was never written. This agent can, as long as one leadership lasts. It saw
`log.start` with neither a commit nor a segment, it wrote no commit since, and `log.start` is the same object: every
agent that takes a commit back, and every deletion, writes another one. An upload that fails before the first commit
is then no reason to begin a lineage.
"""

import threading
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart
from ts_common.model import TopicPartition
from ts_uploader.events import Leadership


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A leadership, and the object `log.start` that stood alone in it."""

    epoch: int
    topic_id: str | None
    etag: str


class Beginnings:
    """What one agent saw, by partition. Safe for concurrent use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._seen: dict[TopicPartition, _Beginning] = {}

    def saw_empty(self, partition: TopicPartition, leadership: Leadership, start: StoredLogStart) -> None:
        """Note that `log.start` stood alone; of a lineage it says that there was a commit."""
        if start.content.lineage is None:
            with self._lock:
                self._seen[partition] = _Beginning(leadership.epoch, leadership.topic_id, start.etag)

    def over(self, partition: TopicPartition) -> None:
        """Note that a commit was seen, or is about to be written."""
        with self._lock:
            self._seen.pop(partition, None)

    def never_had_a_commit(self, partition: TopicPartition, leadership: Leadership, catalog: PartitionCatalog) -> bool:
        """Whether an archive without a commit is one that this agent saw empty, in the same leadership."""
        with self._lock:
            seen = self._seen.get(partition)
        start = catalog.stored_log_start
        if seen is None or start is None or catalog.commit is not None:
            return False
        return seen == _Beginning(leadership.epoch, leadership.topic_id, start.etag)
