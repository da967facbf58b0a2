"""Reports committed records that an election lost: each loss once, even if it is unknown whether the commit went back.

After a commit went back, the store does not have its former offset. If a loss were reported only after an answer, a
lost answer would hide it. A rejected write is not reported: another agent decides.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from ts_common.errors import OutcomeUnknown, StoreUnavailable
from ts_common.model import TopicPartition

log = structlog.get_logger()


class Losses:
    """The losses that were reported so far.

    Args:
        lost: called with offsets `[from, to)` that an election lost, and whether their magic is 0 or 1.
    """

    def __init__(self, lost: Callable[[TopicPartition, tuple[int, int], bool], None]) -> None:
        self._lost = lost
        self._lock = threading.Lock()  # guards `_told`
        self._told: dict[TopicPartition, tuple[int, tuple[int, int]]] = {}

    @contextmanager
    def of(self, partition: TopicPartition, epoch: int, lost: tuple[int, int], *, legacy: bool) -> Iterator[None]:
        """Log and count a loss that the leader of `epoch` finds, unless the write inside is rejected.

        A retry of the same write reports nothing.

        Raises:
            Exception: any error of the block.
        """
        try:
            yield
        except (OutcomeUnknown, StoreUnavailable):
            self._tell(partition, epoch, lost, legacy)
            raise
        self._tell(partition, epoch, lost, legacy)

    def _tell(self, partition: TopicPartition, epoch: int, lost: tuple[int, int], legacy: bool) -> None:
        with self._lock:
            if self._told.get(partition) == (epoch, lost):
                return
            self._told[partition] = (epoch, lost)
        log.error(
            "committed_records_lost",
            message="an election lost committed records; the archive follows the new leader",
            partition=str(partition),
            epoch=epoch,
            next_offset=lost[0],
            lost_from=lost[0],
            lost_to=lost[1],
        )
        self._lost(partition, lost, legacy)
