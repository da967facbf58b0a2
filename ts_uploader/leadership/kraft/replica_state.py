"""The state of one replica on the broker's disk: the leader epoch that it wrote last, and the topic's id.

A broker replaces `leader-epoch-checkpoint` by a rename each time its list of epochs changes. So the file's status shows
whether it has to be read again, and whether two reads saw the same file. The file never moves to another directory. So
other files that are read between two equal statuses belong to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_partition_metadata
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark, local_epochs
from ts_uploader.log_dirs.segment_file import read_file

_METADATA = "partition.metadata"


@dataclass(frozen=True, slots=True)
class Replica:
    """One reading.

    Attributes:
        directory: the live one.
        mark: of its `leader-epoch-checkpoint`, the same before and after the reading.
        epoch: the last one in that file.
        topic_id: from `partition.metadata`.
    """

    directory: Path
    mark: EpochsMark
    epoch: int
    topic_id: str

    @property
    def is_current(self) -> bool:
        """Whether the broker has replaced neither the file nor the directory since the reading."""
        return epochs_mark(self.directory) == self.mark


def find(log_dirs: Iterable[Path], partition: TopicPartition, after: Path | None = None) -> Path | None:
    """Return a live directory of a partition; None if no readable log dir has one with a list of epochs.

    Args:
        after: if several log dirs have one, return the next after this one, in a circle; the first if this one is not
            among them. The broker writes to one of them only, so callers try them in turn.
    """
    directories = [log_dir / str(partition) for log_dir in log_dirs]
    first = directories.index(after) + 1 if after in directories else 0
    circle = directories[first:] + directories[:first]
    return next((directory for directory in circle if epochs_mark(directory) is not None), None)


def read(directory: Path) -> Replica | None:
    """Return the state in a directory; None while it is incomplete, or changes during the reading."""
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
