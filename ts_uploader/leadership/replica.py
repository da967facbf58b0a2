"""What a broker's disk says of one of its replicas: the leader epoch that it wrote last, and the topic's id.

A broker replaces `leader-epoch-checkpoint` by a rename each time the list changes, so a look at the file's status tells
whether it has to be read again, and whether two looks saw the same one. It never moves from one directory to another,
so what is read beside it between two equal looks belongs to it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_partition_metadata
from ts_common.model import TopicPartition
from ts_uploader.local_log import local_epochs
from ts_uploader.segment_file import read_file

_EPOCHS = "leader-epoch-checkpoint"
_METADATA = "partition.metadata"

Mark = tuple[int, int, int, int]
"""Device, inode, time of modification (ns) and size of a file."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One reading.

    Attributes:
        directory: the live one.
        mark: of its `leader-epoch-checkpoint`, before and after the reading.
        epoch: the last one in there.
        topic_id: by `partition.metadata`.
    """

    directory: Path
    mark: Mark
    epoch: int
    topic_id: str

    @property
    def stands(self) -> bool:
        """Whether the broker has written no other since, nor another directory in its place."""
        return look(self.directory) == self.mark


def look(directory: Path) -> Mark | None:
    """What tells one `leader-epoch-checkpoint` from another; None where there is none, or none that can be seen."""
    try:
        status = os.stat(f"{directory}/{_EPOCHS}", follow_symlinks=False)  # noqa: PTH116  (ten thousand at a time)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def find(log_dirs: Iterable[Path], partition: TopicPartition) -> Path | None:
    """The live directory of a partition; None where no log dir that can be read holds one with a list of epochs."""
    directories = (log_dir / str(partition) for log_dir in log_dirs)
    return next((directory for directory in directories if look(directory) is not None), None)


def read(directory: Path) -> Replica | None:
    """What a directory says; None while it does not say all of it, or says it in the middle of a change."""
    mark = look(directory)
    if mark is None:
        return None
    try:
        epochs = local_epochs(directory)
        topic_id = parse_partition_metadata(read_file(directory / _METADATA))
    except (OSError, CorruptData):
        return None
    if epochs is None or not epochs.pairs or topic_id is None or look(directory) != mark:
        return None
    return Replica(directory, mark, epochs.pairs[-1][0], topic_id)
