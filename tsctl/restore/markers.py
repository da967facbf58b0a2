"""The markers of a plan's partitions, and by them the ends of the transactions that are open at the end of each."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Ended, Outcome
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.log_format.markers import ABORT, COMMIT, read_markers
from ts_common.model import TopicPartition
from tsctl.restore.planning import Planned, batches_of
from tsctl.restore.transactions import Coordinated, OpenTransaction

_OUTCOMES: Final = {ABORT: Outcome.ABORT, COMMIT: Outcome.COMMIT}


def end_transactions(
    parts: Sequence[Planned], coordinated: Iterable[Coordinated] = (), *, aborts: bool = True
) -> dict[TopicPartition, list[Ended]]:
    """Return the ends of the transactions that are open at the end of each partition.

    A transaction has its true end if another partition has a marker of it below its cut, or its coordinator describes
    it. Else it is aborted, or left open for its coordinator. A marker is of the same transaction if it is of the same
    producer and not older than the transaction's newest record: the next transaction of a producer begins after all
    markers of this one.

    Args:
        coordinated: what the coordinators of a running cluster describe.
        aborts: whether a transaction without an outcome is aborted, and not left open.
    """
    wanted = {one.producer_id for part in parts for one in part.still_open}
    if not wanted:
        return {part.keys.partition: [] for part in parts}
    since = min(one.time for part in parts for one in part.still_open)
    markers = [marker for part in parts for marker in markers_of(part, since, wanted)]
    known = {each.producer_id: each for each in coordinated}
    found: dict[TopicPartition, list[Ended]] = {}
    for part in parts:
        found[part.keys.partition] = ended = []
        for one in part.still_open:
            outcome, why = _end_of(one, part.keys.partition, markers, known)
            if outcome is None and aborts:
                outcome = Outcome.ABORT
            if outcome is not None:
                ended.append(Ended(one.producer_id, one.producer_epoch, one.first_offset, outcome))
            part.notes.append(
                f"the transaction of producer {one.producer_id} from offset {one.first_offset} on is open at "
                f"{part.end}: {outcome or 'left open'} ({why})"
            )
    return found


def _end_of(
    one: OpenTransaction,
    partition: TopicPartition,
    markers: Iterable["Marker"],
    known: Mapping[int, Coordinated],
) -> tuple[Outcome | None, str]:
    """Return the end of a transaction, and why; None if it is unknown."""
    if (marker := _true_end(one, partition, markers)) is not None:
        return marker.outcome, f"as in {marker.partition}"
    coordinated = known.get(one.producer_id)
    if coordinated is not None and (outcome := coordinated.outcome_of(one)) is not None:
        return outcome, f"as its coordinator has of {coordinated.transactional_id}"
    return None, "no restored partition has its marker" + (", nor its coordinator its outcome" if known else "")


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker that ends a transaction.

    Attributes:
        begun: producer epoch of the transaction's batches in its partition; None if unknown.
        time: ms since the epoch, the leader's clock.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    begun: int | None
    time: int
    outcome: Outcome


def _true_end(one: OpenTransaction, partition: TopicPartition, markers: Iterable[Marker]) -> Marker | None:
    # With transaction.version 2 a marker has the next epoch of its producer.
    epochs = {one.producer_epoch, one.producer_epoch + 1}
    same = [
        each
        for each in markers
        if each.producer_id == one.producer_id
        and each.producer_epoch in epochs
        and each.begun in {None, one.producer_epoch}
    ]
    # Producers choose the times of records, brokers those of markers. Markers of the partition itself are earlier.
    earlier = max((each.time + 1 for each in same if each.partition == partition), default=one.time)
    after = [each for each in same if each.partition != partition and each.time >= max(one.time, earlier)]
    return min(after, key=lambda marker: marker.time, default=None)


def markers_of(
    part: Planned, since: int, producers: Collection[int] | None = None, *, with_last: bool = False
) -> Iterator[Marker]:
    """Yield the markers in a partition that are not older than a time.

    Args:
        since: ms since the epoch.
        producers: whose markers; None for all.
        with_last: whether to read the last segments with markers too, however old they are.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    begun: dict[int, int] = {}  # epoch of the newest batch, by producer
    last = max((at for at, step in enumerate(part.ranges) if has_markers(step)), default=-1) if with_last else -1
    for number, step in enumerate(part.ranges):
        is_old = all(each.metadata.time_max is not None and each.metadata.time_max < since for each in step.copies)
        if number != last and (is_old or not has_markers(step)):
            begun.clear()
            continue
        for header, data in batches_of(part, step):
            if header.is_transactional and not header.is_control:
                begun[header.producer_id] = header.producer_epoch
            if not header.is_control or not (with_last or header.max_timestamp >= since):
                continue
            if producers is not None and header.producer_id not in producers:
                continue
            for _, kind in read_markers(header, bytes(data[HEADER_SIZE:])):
                if kind in _OUTCOMES:
                    yield Marker(
                        part.keys.partition,
                        header.producer_id,
                        header.producer_epoch,
                        begun.pop(header.producer_id, None),
                        header.max_timestamp,
                        _OUTCOMES[kind],
                    )


def has_markers(step: ReadRange) -> bool:
    """Return whether a range may have markers."""
    return any(copy.metadata.control != 0 for copy in step.copies)
