"""Offsets of a query that are lost, and what the query does about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.archive.view import PartitionView
from ts_common.errors import DataLoss
from ts_common.model import TopicPartition
from ts_reader.query.query import Query

_MAX_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets `[start, end)` of a partition that a query cannot read.

    Attributes:
        partition: of the offsets.
        start: the first one.
        end: the offset after the last one.
        reason: the rest of a sentence about them.
        is_open: whether more can be lost: `end` is only the lowest that the end can be.
    """

    partition: TopicPartition
    start: int
    end: int
    reason: str
    is_open: bool = False

    @property
    def text(self) -> str:
        """The sentence without the partition."""
        last = "and later" if self.is_open else f"to {self.end - 1}"
        return f"offsets {self.start} {last} {self.reason}"

    def __str__(self) -> str:
        return f"{self.partition}: {self.text}"


def loss_of(view: PartitionView) -> Loss | None:
    """Return what readers lose of a partition whose commit is missing or damaged; None if they lose nothing so."""
    if not view.state.is_loss:
        return None
    why = (view.warning or "").removeprefix(f"{view.partition}: ")
    end = max(view.start + 1, view.stored_end)
    return Loss(view.partition, view.start, end, f"are not shown: {why}", is_open=True)


def check_losses(losses: Sequence[Loss | str], query: Query) -> None:
    """Check that a query lost nothing, or allows loss.

    Raises:
        DataLoss: otherwise, with the losses.
    """
    if losses and query.fail_on_data_loss:
        listed = "; ".join(map(str, losses[:_MAX_LISTED]))
        more = f"; and {len(losses) - _MAX_LISTED} more" if len(losses) > _MAX_LISTED else ""
        raise DataLoss(f"{listed}{more}. {query.wording.despite_loss}")
