"""The unit of work of a table: a split whose rows one task writes to files."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.decode.memory import HEAP, Memory
from ts_reader.query.read_split import read_split
from ts_reader.query.splits import Split
from ts_reader.reading.transactions import apart

_OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Covered:
    """Offsets of one partition whose rows a file can have.

    Attributes:
        topic_id: of the rows; None if the cluster has no topic ids.
        start: first offset.
        end: the offset after the last.
    """

    partition: TopicPartition
    topic_id: str | None
    start: int
    end: int


def joined(covered: Iterable[Covered]) -> tuple[Covered, ...]:
    """Return offsets with adjoining and overlapping ranges of a partition as one, by partition and offset."""
    found: list[Covered] = []
    for each in sorted(covered, key=lambda one: (one.partition, one.topic_id or "", one.start)):
        last = found[-1] if found else None
        if last and (last.partition, last.topic_id) == (each.partition, each.topic_id) and each.start <= last.end:
            found[-1] = replace(last, end=max(last.end, each.end))
        else:
            found.append(each)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Work:
    """A split of a plan. It can be pickled.

    Attributes:
        topic_id: of its rows; None if the cluster has no topic ids.
        shown_before: for a late claim, the transactions that hid its rows when the table passed the hole; rows that
            they do not hide are in the table already. Empty for other claims.
    """

    split: Split
    topic_id: str | None
    shown_before: tuple[AbortedTransaction, ...] = ()

    @property
    def partition(self) -> TopicPartition:
        """The partition of its rows."""
        return self.split.ranges[0].copies[0].keys.partition

    @property
    def offsets(self) -> int:
        """The number of its offsets; records are fewer where compaction removed some."""
        return sum(part.end - part.start for part in self.split.ranges)

    @property
    def covered(self) -> Covered:
        """Offsets that contain those of its rows."""
        ranges = self.split.ranges
        return Covered(self.partition, self.topic_id, ranges[0].start, ranges[-1].end)

    def rows(self, store: ObjectStore, names: Sequence[str], memory: Memory = HEAP) -> Iterator[pa.RecordBatch]:
        """Yield its rows with the named columns, `offset` among them, in the order of offsets.

        Args:
            memory: as of `ts_reader.query.read_split.read_split`, which also describes what it raises.
        """
        if not self.shown_before:
            yield from read_split(store, self.split, names, memory)
            return
        hidden = apart((*self.split.aborted, *self.shown_before))
        before = [rows[_OFFSET] for rows in read_split(store, replace(self.split, aborted=hidden), [_OFFSET])]
        known = pa.chunked_array(before, pa.int64()).to_numpy()
        for rows in read_split(store, self.split, names, memory):
            is_new = ~np.isin(rows[_OFFSET].to_numpy(), known, assume_unique=True)
            if is_new.any():
                yield rows.filter(pa.array(is_new))
