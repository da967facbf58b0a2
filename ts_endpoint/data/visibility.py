"""What a `read_committed` client leaves out of an answer, and where an answer must end so that it is right.

A client hides a producer's batches from the first offset of an aborted transaction up to the producer's next abort
marker in the same answer. For the reader, a marker that compaction removed, or that a hole may contain, ends a
transaction too. So an answer ends before the first batch that the client would judge otherwise than the reader. The
next answer begins there, with the transactions that count from there on.

Source of what clients do: Java's `CompletedFetch.nextFetchedRecord` and librdkafka's `rd_kafka_msgset_reader_v2`.
"""

import struct
from collections.abc import Sequence

from ts_common.errors import CorruptData
from ts_common.log_format.framing import (
    CONTROL_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    batch_field_position,
    parse_header,
)
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.markers import ABORT, read_markers
from ts_endpoint.data.chunks import Chunk

_AT_ATTRIBUTES = batch_field_position("attributes")
_AT_MAGIC = batch_field_position("magic")
_PRODUCER = struct.Struct(">q")
_AT_PRODUCER = batch_field_position("producer_id")


class Visibility:
    """Follows an answer batch by batch.

    Args:
        hidden: transactions whose records are not shown, by first offset.
        first: base offset of the answer's first batch.
    """

    def __init__(self, hidden: Sequence[AbortedTransaction], first: int) -> None:
        self._hidden = [each for each in hidden if each.last_offset >= first]
        self._next = 0
        self._hiding: set[int] = set()  # producers whose batches the client leaves out
        self._begun = 0  # the number of transactions that begin at or below the current batch
        self._ends: dict[int, int] = {}  # of these, the greatest last offset of each producer

    @property
    def entries(self) -> list[AbortedTransaction]:
        """The transactions that the client gets with the answer: those that begin in it or before.

        They are in the order of their abort markers, which is that of a `.txnindex`. kafkajs relies on it: it activates
        one transaction a record, in the order of the list.
        """
        return sorted(self._hidden[: self._next], key=lambda each: (each.last_offset, each.first_offset))

    def fitting(self, chunk: Chunk, start: int, end: int) -> int:
        """Return the number after the last batch of `[start, end)` that the client judges as the reader does.

        Args:
            chunk: of the next batches of the answer.
            start: number of the first one.
            end: number after the last one.

        Raises:
            CorruptData: a marker cannot be read.
        """
        if not self._hidden:
            return end
        for number in range(start, end):
            if not self._judges(chunk, number):
                return number
        return end

    def _judges(self, chunk: Chunk, number: int) -> bool:
        position = int(chunk.starts[number])
        if chunk.data[position + _AT_MAGIC] < 2:
            return True
        base, last = int(chunk.bases[number]), int(chunk.lasts[number])
        attributes = chunk.data[position + _AT_ATTRIBUTES + 1]
        if not attributes & TRANSACTIONAL_MASK:
            self._pass(last)
            return True
        (producer,) = _PRODUCER.unpack_from(chunk.data, position + _AT_PRODUCER)
        if attributes & CONTROL_MASK:
            self._pass(last)
            if _is_abort(chunk, number):
                self._hiding.discard(producer)
            return True
        begun = self._next
        self._pass(last)
        is_hidden = self._end_of(producer, base) >= base
        if (producer in self._hiding) != is_hidden:
            self._next = begun
            return False
        return True

    def _end_of(self, producer: int, base: int) -> int:
        """Return the greatest last offset of a producer's transactions that begin at or below an offset, else -1."""
        while self._begun < len(self._hidden) and self._hidden[self._begun].first_offset <= base:
            each = self._hidden[self._begun]
            self._ends[each.producer_id] = max(each.last_offset, self._ends.get(each.producer_id, -1))
            self._begun += 1
        return self._ends.get(producer, -1)

    def _pass(self, last: int) -> None:
        """Note the transactions that begin at or below an offset."""
        while self._next < len(self._hidden) and self._hidden[self._next].first_offset <= last:
            self._hiding.add(self._hidden[self._next].producer_id)
            self._next += 1


def _is_abort(chunk: Chunk, number: int) -> bool:
    start, end = int(chunk.starts[number]), int(chunk.ends[number])
    header = parse_header(chunk.data[start:end], 0, end - start, start)
    if not isinstance(header, BatchHeader):
        raise CorruptData(f"the marker at offset {int(chunk.bases[number])} cannot be read")
    records = bytes(chunk.data[start + HEADER_SIZE : end])
    return any(kind == ABORT for _, kind in read_markers(header, records))
