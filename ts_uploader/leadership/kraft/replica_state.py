"""What a broker's disk says of one of its replicas: the leader epoch that it wrote last, and the topic's id.

A broker replaces `leader-epoch-checkpoint` by a rename each time the list changes, so a look at the file's status tells
whether it has to be read again, and whether two looks saw the same one. It never moves from one directory to another,
so what is read beside it between two equal looks belongs to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.checkpoints import parse_partition_metadata
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark, local_epochs
from ts_uploader.log_dirs.segment_file import read_file

_METADATA = "partition.metadata"


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
    mark: EpochsMark
    epoch: int
    topic_id: str

    @property
    def stands(self) -> bool:
        """Whether the broker has written no other since, nor another directory in its place."""
        return epochs_mark(self.directory) == self.mark


def find(log_dirs: Iterable[Path], partition: TopicPartition, after: Path | None = None) -> Path | None:
    """A live directory of a partition; None where no log dir that can be read holds one with a list of epochs.

    Args:
        log_dirs: of the broker.
        partition: whose.
        after: where several log dirs hold one, the next behind this one, in a circle; the first where it is not among
            them. Only one of several is the one that the broker writes to, and a reader of this finds out which.
    """
    directories = [log_dir / str(partition) for log_dir in log_dirs]
    first = directories.index(after) + 1 if after in directories else 0
    circle = directories[first:] + directories[:first]
    return next((directory for directory in circle if epochs_mark(directory) is not None), None)


def read(directory: Path) -> Replica | None:
    """What a directory says; None while it does not say all of it, or says it in the middle of a change."""
    mark = epochs_mark(directory)
    if mark is None:
        return None
    try:
        epochs = local_epochs(directory)
        topic_id = parse_partition_metadata(read_file(directory / _METADATA))
    except (OSError, CorruptData):
        return None
    if epochs is None or not epochs.pairs or topic_id is None or epochs_mark(directory) != mark:
        return None
    return Replica(directory, mark, epochs.pairs[-1][0], topic_id)
