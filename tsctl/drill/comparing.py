"""Compares the records of the archive's own reader with those of a consumer, by sums of digests.

Where the sums of some offsets differ, each record's digest is compared.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import MILLISECONDS, arrow_schema, constant_column
from ts_reader.decode.digest import DigestSum, raw_digests, sum_of
from tsctl.verify.kafka_cluster import KafkaRecord

NAMES: Final = ("topic", "partition", "offset", "timestampType", "key", "value", "headers", MILLISECONDS)
_OFFSET: Final = "offset"
_ROWS: Final = 10_000  # of a batch of a consumer's records
_MOST_DIFFERENCES: Final = 100  # that are named


@dataclass(frozen=True, slots=True)
class Difference:
    """An offset where the two sides differ.

    Attributes:
        what: for people.
    """

    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result.

    Attributes:
        held: the sums of the consumer's records.
        newest: their greatest timestamp in ms; None without one.
        differing: number of offsets that differ.
        differences: the first of them.
    """

    held: DigestSum
    newest: int | None
    differing: int
    differences: tuple[Difference, ...]


def rows_of(partition: TopicPartition, records: Iterable[KafkaRecord]) -> Iterator[pa.RecordBatch]:
    """Yield a consumer's records as rows with the columns `NAMES`."""
    schema, source = arrow_schema(NAMES), iter(records)
    while some := list(islice(source, _ROWS)):
        offsets, times, types, keys, values, headers = zip(*some, strict=True)
        place = (constant_column(name, partition.topic, partition.partition, len(some)) for name in NAMES[:2])
        columns = zip((offsets, types, keys, values, headers, times), schema.types[2:], strict=True)
        arrays = [*place, *(pa.array(column, type_) for column, type_ in columns)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def compare(stored: Iterable[pa.RecordBatch], held: Iterable[pa.RecordBatch]) -> Comparison:
    """Compare rows of one partition with the columns `NAMES`, each side in the order of offsets.

    Args:
        stored: of the archive's reader.
        held: of a consumer.
    """
    ours, theirs = _Rows(stored), _Rows(held)
    total, newest, differing, differences = DigestSum(), -1, 0, list[Difference]()
    while sides := [side for side in (ours, theirs) if side.fill()]:
        bound = min(side.last for side in sides)
        expected, found = ours.take(bound), theirs.take(bound)
        total += (sum_found := sum_of(found))
        newest = max(newest, pc.max(found[MILLISECONDS]).as_py() or -1)
        if sum_of(expected) != sum_found:
            some = list(_differences(expected, found))
            differing += len(some)
            differences += some[: _MOST_DIFFERENCES - len(differences)]
    return Comparison(total, newest if newest >= 0 else None, differing, tuple(differences))


class _Rows:
    """Rows of one side, which are returned up to an offset."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._left = _empty()

    def fill(self) -> bool:
        """Return whether rows are left."""
        while not self._left.num_rows and (batch := next(self._batches, None)) is not None:
            self._left = batch
        return bool(self._left.num_rows)

    @property
    def last(self) -> int:
        """The last offset of the rows that were read; there is one."""
        return int(self._left[_OFFSET][-1].as_py())

    def take(self, bound: int) -> pa.RecordBatch:
        """Return the rows that were read up to an offset."""
        count = int(np.searchsorted(self._left[_OFFSET].to_numpy(), bound, "right"))
        taken, self._left = self._left.slice(0, count), self._left.slice(count)
        return taken


def _empty() -> pa.RecordBatch:
    schema = arrow_schema(NAMES)
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _differences(expected: pa.RecordBatch, found: pa.RecordBatch) -> Iterator[Difference]:
    ours, theirs = (
        dict(zip(rows[_OFFSET].to_pylist(), raw_digests(rows).to_pylist(), strict=True)) for rows in (expected, found)
    )
    for offset in sorted(ours.keys() | theirs.keys()):
        if offset not in theirs:
            yield Difference(offset, "the archive has a record, the broker none")
        elif offset not in ours:
            yield Difference(offset, "the broker has a record, the archive none")
        elif ours[offset] != theirs[offset]:
            yield Difference(offset, "the broker has another record than the archive")
