"""The files of simulated logs: a segment is one batch of one record, with its offset as base.

Partitions with the same leader epochs have the same files, so they share a directory. It has the files of all segments
from the start; which of them exist for a partition is a matter of its listings.
"""

import os
from pathlib import Path
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ts_common.log_format.checkpoints import encode_leader_epoch_checkpoint
from ts_uploader.log_dirs.directory_scan import PARTITION_METADATA
from ts_uploader.log_dirs.leader_epoch import last_epoch_of
from ts_uploader.log_dirs.local_log import LEADER_EPOCHS
from ts_uploader.messages.observations import LastEpoch

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
Epochs = tuple[tuple[int, int], ...]
"""(leader epoch, first offset), ascending."""


class LogDirectory(NamedTuple):
    """A directory with segments, and what its `leader-epoch-checkpoint` ends with."""

    path: Path
    last_epoch: LastEpoch


class LogFiles:
    """The directories of all logs.

    Args:
        root: an empty directory.
        segments: how many a log has at most.
    """

    def __init__(self, root: Path, segments: int) -> None:
        self._root = root
        self._segments = segments
        self._made: dict[Epochs, LogDirectory] = {}
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 12)
        builder.append(0, 0, b"key", b"value", [])
        self._batch = bytes(builder.build())

    def directory(self, epochs: Epochs) -> LogDirectory:
        """Return the directory of the logs with these leader epochs."""
        if epochs not in self._made:
            self._made[epochs] = self._make(self._root / f"t-{len(self._made)}", epochs)
        return self._made[epochs]

    def _make(self, path: Path, epochs: Epochs) -> LogDirectory:
        path.mkdir()
        for base in range(self._segments):
            epoch = max(each for each, start in epochs if start <= base)
            files = {".log": self._bytes_of(base, epoch), ".index": b"", ".timeindex": b""}
            for suffix, data in files.items():
                (path / f"{base:020d}{suffix}").write_bytes(data)
        (path / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        (path / LEADER_EPOCHS).write_bytes(encode_leader_epoch_checkpoint(epochs))
        for each in path.iterdir():
            os.utime(each, (0, 0))
        return LogDirectory(path, last_epoch_of(path))

    def _bytes_of(self, base: int, epoch: int) -> bytes:
        # Base offset and leader epoch; no CRC covers them.
        return base.to_bytes(8, "big") + self._batch[8:12] + epoch.to_bytes(4, "big") + self._batch[16:]
