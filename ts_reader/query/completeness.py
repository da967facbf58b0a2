"""Whether a cut is complete: whether all records of a partition up to a moment are in the store.

An agent ships closed segments. Records of the moment can still be in the active segment of a broker, or wait for their
upload. Two facts prove that the store has all of them:

1. A shipped record or marker is later, by `CLOCK_MARGIN_MS` at least. An agent ships a partition in the order of
   offsets, so the records below it are in the store. A segment that was shipped earlier than that proves nothing: the
   clock of a producer was ahead.
2. The word of an agent, in `ends/<broker>.json`: the high watermark of a partition that the broker led, when it wrote a
   checkpoint. The store must have all offsets below it, and the checkpoint must be later than the moment by
   `CLOCK_MARGIN_MS`. If several brokers have such a word, the highest watermark counts.

The margin covers clocks that differ, records on their way from a producer, and records that are not on all replicas
yet. Without it a later commit changed a cut that was proven: records of the moment followed the later one.

No proof excludes a record that a producer sends later with an earlier timestamp. A word has no topic id, so it counts
for the newest incarnation only. An agent of a broker that no controller reaches can name a low watermark; then the word
of the next leader's agent is higher.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.ends import Ends
from ts_common.archive.view import PartitionView
from ts_common.model import TopicPartition
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS


@dataclass(frozen=True, slots=True)
class Shipped:
    """What the store has of a partition, for the proof.

    Attributes:
        partition: topic and number.
        end: the offset after the last.
        has_later: whether a shipped record or marker is later than the moment, by `CLOCK_MARGIN_MS` at least.
        is_newest: whether it is of the topic's newest incarnation.
    """

    partition: TopicPartition
    end: int
    has_later: bool
    is_newest: bool = True


def unproven(shipped: Iterable[Shipped], ends: Sequence[Ends], moment: int) -> tuple[TopicPartition, ...]:
    """Return the partitions for which nothing proves that all records up to a moment are shipped, sorted.

    Args:
        shipped: the partitions of the cut.
        ends: of all brokers.
        moment: ms since the epoch.
    """
    words: dict[TopicPartition, int] = {}
    for each in ends:
        for partition, end in each.partitions.items():
            if end.time >= moment + CLOCK_MARGIN_MS:
                words[partition] = max(end.high_watermark, words.get(partition, 0))
    lacking = []
    for one in shipped:
        word = words.get(one.partition) if one.is_newest else None
        if not one.has_later and (word is None or word > one.end):
            lacking.append(one.partition)
    return tuple(sorted(lacking))


def has_later(view: PartitionView, moment: int) -> bool:
    """Return whether the metadata of segments proves a record or a marker `CLOCK_MARGIN_MS` later than a moment.

    Args:
        view: of the partition.
        moment: ms since the epoch.
    """
    proof = moment + CLOCK_MARGIN_MS
    return any(
        copy.metadata.time_max is not None and copy.metadata.time_max >= proof and _is_all_live(copy, view)
        for copy in copies_shipped_after(view, moment)
    )


def copies_shipped_after(view: PartitionView, moment: int) -> tuple[SegmentCopy, ...]:
    """Return the copies that were not shipped before `CLOCK_MARGIN_MS` after a moment, by the clock of their agent."""
    proof = moment + CLOCK_MARGIN_MS
    return tuple(copy for copy in view.copies if copy.metadata.shipped is None or copy.metadata.shipped >= proof)


def _is_all_live(copy: SegmentCopy, view: PartitionView) -> bool:
    """Return whether all batches of a copy are in the view, so that its greatest timestamp is."""
    live_end = view.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)
    return view.start <= copy.base and copy.end <= view.end and live_end == copy.end
