"""Telling which committed records an election lost: once each, also where nobody knows whether the commit went back.

After the commit went back nothing in the store says what it went back from. Told only where the store answered, a loss
would stay untold where it took the write and the answer was lost. A refused write tells nothing: another agent decides.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from ts_common.errors import OutcomeUnknown, StoreUnavailable
from ts_common.model import TopicPartition

log = structlog.get_logger()


class Losses:
    """What was told so far.

    Args:
        lost: told of offsets `[from, to)` that an election lost, and whether their magic is 0 or 1.
    """

    def __init__(self, lost: Callable[[TopicPartition, tuple[int, int], bool], None]) -> None:
        self._lost = lost
        self._lock = threading.Lock()  # guards what follows
        self._told: dict[TopicPartition, tuple[int, tuple[int, int]]] = {}

    @contextmanager
    def of(self, partition: TopicPartition, epoch: int, lost: tuple[int, int], *, legacy: bool) -> Iterator[None]:
        """Log and count a loss that the leader of `epoch` finds, unless the write inside is refused.

        Another attempt at the same write says nothing.

        Raises:
            whatever is raised inside.
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
