"""Transactions along the batches of one log, as a broker tracks them (Kafka's `ProducerStateManager`).

A transaction begins with a producer's first transactional batch after its last marker, and ends with its next marker.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from ts_common.archive.restored import Outcome
from ts_common.archive.stored_object import between
from ts_common.log_format.framing import NO_PRODUCER, BatchHeader
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.markers import ABORT, COMMIT, read_markers

MAX_PRODUCER_EPOCH: Final = (1 << 15) - 1
_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})  # states of a coordinator


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without its marker.

    Attributes:
        producer_epoch: of its last batch.
        first_offset: base offset of its first batch.
        time: greatest timestamp of its batches, ms; -1 without one.
    """

    producer_id: int
    producer_epoch: Annotated[int, between(-1, MAX_PRODUCER_EPOCH)]
    first_offset: int
    time: Annotated[int, between(-1)]


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The last transaction of a transactional id, as its coordinator describes it.

    Attributes:
        state: Kafka's word, as `Ongoing` or `CompleteCommit`.
        start: ms since the epoch, the coordinator's clock.
        topics: of its partitions; empty once it is complete.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    start: int
    topics: frozenset[str]

    def outcome_of(self, one: OpenTransaction) -> Outcome | None:
        """Return how a transaction ended; None if this can be a later one of its producer, or has not ended.

        A later one starts after all records of this one. With transaction.version 2 its end raises the epoch.
        """
        if self.producer_epoch not in {one.producer_epoch, one.producer_epoch + 1} or self.start > one.time:
            return None
        return {"CompleteCommit": Outcome.COMMIT, "CompleteAbort": Outcome.ABORT}.get(self.state)


def naming(coordinated: Iterable[Coordinated], topics: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each transaction that has not ended and names one of some topics."""
    for each in coordinated:
        if each.state not in _ENDED and (named := sorted(each.topics & set(topics))):
            yield (
                f"the transaction of {each.transactional_id} is {each.state} and names {', '.join(named)}: let its "
                "application end it, or wait for its transaction.timeout.ms; then repeat the command"
            )


class Transactions:
    """The transactions of a log up to the last batch that was added.

    Attributes:
        open: by producer id.
    """

    def __init__(self, still_open: Iterable[OpenTransaction] = ()) -> None:
        self.open = {each.producer_id: each for each in still_open}

    @property
    def by_offset(self) -> list[OpenTransaction]:
        """The open transactions, in the order of their first offsets."""
        return sorted(self.open.values(), key=lambda each: each.first_offset)

    def add(self, header: BatchHeader, records: bytes) -> list[AbortedTransaction]:
        """Add the next batch; return the entries of its segment's `.txnindex` for transactions that it aborts.

        Args:
            records: the bytes after the header, of a control batch.

        Raises:
            CorruptData: the control batch cannot be read.
        """
        if not header.is_transactional or header.producer_id == NO_PRODUCER:
            return []
        if header.is_control:
            found = [self._end(header.producer_id, *marker) for marker in read_markers(header, records)]
            return [entry for entry in found if entry is not None]
        if not header.record_count:  # compaction left it for its sequence number, and can have removed the marker
            return []
        former = self.open.get(header.producer_id)
        first, time = (header.base_offset, -1) if former is None else (former.first_offset, former.time)
        self.open[header.producer_id] = OpenTransaction(
            header.producer_id, header.producer_epoch, first, max(time, header.max_timestamp, -1)
        )
        return []

    def _end(self, producer_id: int, offset: int, kind: int) -> AbortedTransaction | None:
        ended = self.open.pop(producer_id, None) if kind in {ABORT, COMMIT} else None
        if ended is None or kind == COMMIT:
            return None
        stable = min((each.first_offset for each in self.open.values()), default=offset + 1)
        return AbortedTransaction(producer_id, ended.first_offset, offset, stable)
