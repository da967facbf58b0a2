"""The transactions of a partition at a moment: those that a cut does not show, and those that it may show in part.

A cut shows a transaction if its commit marker has the moment's time or an earlier one. A leader writes the time of a
marker, by its own clock. Aborted transactions are the subject of `ts_reader.reading.transactions`. This module finds
the transactions with a later commit marker, and the open ones.

Markers later than the moment are only in segments whose greatest timestamp is later. So headers are read from the first
such segment to the end of the view, and from the last stable offset if that is lower: below it no transaction is open.
A transaction without a marker below the last stable offset was decided, and compaction removed its marker; it is shown,
as `read_committed` shows it.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.markers import COMMIT
from ts_common.store.contract import ObjectStore
from ts_reader.reading.transaction_events import Event, Events

# Covers the difference of two hosts' clocks, and a record's way from its producer to the high watermark: by Kafka's
# defaults up to two minutes in the producer (`delivery.timeout.ms`), and 45 seconds until a slow follower leaves the
# in-sync replicas.
CLOCK_MARGIN_MS: Final = 5 * 60_000


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in one partition that was committed, or is open at the end of the view.

    Attributes:
        epoch: the producer's, in its first batch.
        first: its first offset.
        last: offset of its marker, or the view's last offset.
        begun: ms since the epoch, the greatest timestamp of its first batch.
        marker_epoch: the producer's, in the marker; None without a marker.
        time: ms since the epoch, of the marker; None without one.
        not_before: ms since the epoch, the time of a marker below its first batch, whichever producer's: it began
            later by the clock of the leader. None if no such marker was read.
    """

    producer_id: int
    epoch: int
    first: int
    last: int
    begun: int
    marker_epoch: int | None = None
    time: int | None = None
    not_before: int | None = field(default=None, compare=False)

    @property
    def is_unique(self) -> bool:
        """Whether producer id and epoch name no other transaction: `transaction.version` 2 raised the epoch."""
        return self.marker_epoch is not None and self.marker_epoch != self.epoch

    @property
    def is_certain(self) -> bool:
        """Whether its epochs name what belongs to it elsewhere, without times; an open one may be unique."""
        return self.marker_epoch is None or self.is_unique


class TransactionsAt:
    """The transactions of a view at a moment.

    Attributes:
        hidden: those whose records the cut does not show, without the aborted ones: later and open ones. Adjoining
            transactions of a producer are one entry.
        late: of these, the ones that may have begun before the moment. No marker below the first batch is more than
            `CLOCK_MARGIN_MS` later. Unless the transaction is certain, neither is the first batch's timestamp.

    Args:
        moment: ms since the epoch.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments; so does `committed`.
    """

    def __init__(self, store: ObjectStore, view: PartitionView, moment: int) -> None:
        self._moment = moment
        self._steps = view.ranges(view.start, view.end)
        self._events = Events(store, self._steps, ended=view.ended)
        self.hidden: tuple[AbortedTransaction, ...] = ()
        self.late: tuple[Transaction, ...] = ()
        self._find(view)

    def committed(self, producers: Collection[int], since: int) -> Iterator[Transaction]:
        """Yield the transactions of producers with a commit marker from `since` (ms) up to the moment, by offset."""
        number = self._first_reaching(since)
        for begun, marker, is_certain in self._walk(number, {}):
            if marker.kind == COMMIT and since <= marker.time <= self._moment and marker.producer_id in producers:
                yield from self._transaction(number, begun, marker, is_certain=is_certain)

    def _find(self, view: PartitionView) -> None:
        stable, number = view.last_stable_offset, self._first_reaching(self._moment + 1)
        if stable is None:
            number = 0
        elif stable < view.end:
            number = min(number, sum(step.end <= stable for step in self._steps))
        hidden: list[AbortedTransaction] = []
        late: list[Transaction] = []
        spans: dict[int, Transaction] = {}  # by producer: of late transactions that follow one another
        markers: list[Event] = []
        latest = self._moment + CLOCK_MARGIN_MS

        def add(found: Transaction) -> None:
            # Leaders write the times of markers. Those of records can be of a producer whose clock is ahead.
            below = bisect_left(markers, found.first, key=lambda marker: marker.offset)
            not_before = markers[below - 1].time if below else None
            before = spans.get(found.producer_id)
            spans[found.producer_id] = found if before is None else replace(before, last=found.last)
            may_have_begun = not_before is None or not_before <= latest
            if may_have_begun and (found.is_certain or found.begun <= latest):
                late.append(replace(found, not_before=not_before))

        undecided: dict[int, Event] = {}
        for begun, marker, is_certain in self._walk(number, undecided):
            markers.append(marker)
            if marker.kind != COMMIT:
                continue
            if marker.time > self._moment:
                for found in self._transaction(number, begun, marker, is_certain=is_certain):
                    add(found)
            elif (before := spans.pop(marker.producer_id, None)) is not None:
                hidden += spans_of([before])
        for producer_id, event in undecided.items():
            first = max(event.offset, stable or 0)
            if first < view.end:
                add(Transaction(producer_id, event.epoch, first, view.end - 1, event.time))
        self.hidden = (*hidden, *spans_of(spans.values()))
        self.late = tuple(late)

    def _walk(self, number: int, undecided: dict[int, Event]) -> Iterator[tuple[Event | None, Event, bool]]:
        """Yield the markers from a range on, each with the first batch of its transaction that was read.

        The flag is true if that is the transaction's first batch, and no batch before the range is. Transactions
        without a marker are kept in `undecided`.
        """
        with_marker: set[int] = set()
        for place in range(number, len(self._steps)):
            for event in self._events.of(place):
                if event.kind is None:
                    undecided.setdefault(event.producer_id, event)
                    continue
                begun = undecided.pop(event.producer_id, None)
                is_first = begun is not None and begun.sequence == 0
                yield begun, event, is_first or event.producer_id in with_marker
                with_marker.add(event.producer_id)

    def _transaction(
        self, number: int, begun: Event | None, marker: Event, *, is_certain: bool
    ) -> Iterator[Transaction]:
        """Yield the transaction of a marker; none if it has no batch in the view, because then it has no records."""
        if not is_certain:
            begun = self._events.open_at(number, marker.producer_id) or begun
        if begun is not None:
            yield Transaction(
                marker.producer_id, begun.epoch, begun.offset, marker.offset, begun.time, marker.epoch, marker.time
            )

    def _first_reaching(self, milliseconds: int) -> int:
        """Return the number of the first range that may have a timestamp or a later one."""
        return next((at for at, step in enumerate(self._steps) if _may_reach(step, milliseconds)), len(self._steps))


def _may_reach(step: ReadRange, milliseconds: int) -> bool:
    for copy in step.copies:
        metadata = copy.metadata
        if metadata.records is None or metadata.corruptions:
            return True  # the agent could not scan all of it, or a Java uploader shipped it
        if metadata.time_max is not None and metadata.time_max >= milliseconds:
            return True
    return False


def spans_of(transactions: Iterable[Transaction]) -> tuple[AbortedTransaction, ...]:
    """Return transactions as what readers leave out."""
    return tuple(AbortedTransaction(each.producer_id, each.first, each.last, -1) for each in transactions)
