"""What a table of newest records has, computed from the archive alone; tasks of an engine.

Their memory holds the keys of one partition, with a digest for each.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.decode.digest import RAW_DIGEST, raw_digests
from ts_tables.files.parsed_columns import TOPIC, parsed_rows
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID
from ts_tables.files.record_files import reduced
from ts_tables.latest.tasks import IDENTITY, alive, newest_of
from ts_tables.parse_tasks import Settled
from ts_tables.parsers.changes import IS_DELETED
from ts_tables.parsers.contract import Parser, without_records
from ts_tables.planning.work import Work
from ts_tables.tasks import Digests, known_of, raw_records
from ts_tables.verify.sums import PARSED, Block, Row, Sums, counted, summed
from ts_tables.verify.values import Compared, Older, counting_all, value_digests

_COLUMNS: Final = (*IDENTITY, OFFSET, ORDINAL, IS_DELETED, RAW_DIGEST)
_MOST_WAITING: Final = 1 << 20  # rows that were read and not merged yet


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """The newest record of each key of a partition, and the refused records. It can be pickled.

    With `compared` it has all rows of the newest records, each with a digest of its values, and no refused record.

    Attributes:
        work: what to read of the partition.
        forgotten: records that are left out.
        refused: the records that are in the table of refused ones; others that the parser refuses count as refused too.
        compared: the columns whose values are compared; None to compare records.
        older: rows that are older than some of these; None without such.
    """

    work: tuple[Work, ...]
    parser: Parser
    forgotten: Digests
    refused: Settled
    compared: Compared | None = None
    older: Older | None = None

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield a row for each record that one of the two tables has, or the rows with values.

        Raises:
            as `ts_tables.planning.work.Work.rows`, the parser and `Settled.digests`.
        """
        newest: pa.Table | None = None
        waiting: list[pa.RecordBatch] = []
        count = 0
        for work in self.work:
            known = self.refused.digests(work.covered)
            for records in raw_records(work, self.forgotten, self.refused.layout, exactly=True):
                in_files = reduced(records, self.refused.layout)
                parsed = without_records(self.parser.parse(records), known_of(in_files, known))
                if self.compared is None:
                    yield refused_rows(in_files.take(parsed.refused))
                waiting.append(self._of_table(parsed_rows(records, parsed)).select(_COLUMNS))
                count += waiting[-1].num_rows
                if count >= _MOST_WAITING:
                    newest, waiting, count = _merged(newest, waiting), [], 0
        if newest is not None or waiting:
            for rows in alive(_merged(newest, waiting)).select(PARSED.names).to_batches():
                yield rows if self.compared is None else counting_all(rows)

    def _of_table(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose digests are compared."""
        if self.compared is None:
            return rows.filter(pc.equal(rows[ORDINAL], 0))
        if self.older is not None:
            rows = self.older.cut(rows, self.compared.later)
        digests = value_digests(rows, self.compared.names)
        return rows.set_column(rows.schema.get_field_index(RAW_DIGEST), RAW_DIGEST, digests)


@dataclass(frozen=True, slots=True)
class NewestSums:
    """Computes the sums of the newest and the refused records of a partition. It can be pickled."""

    records: NewestRecords

    def __call__(self) -> Sums:
        """Return the sums by block; raise as `NewestRecords.rows`."""
        return summed(self.records.rows())


@dataclass(frozen=True, slots=True)
class NewestRows:
    """Returns the rows of a block of the newest and the refused records of a partition. It can be pickled."""

    records: NewestRecords
    block: Block

    def __call__(self) -> "Counter[Row]":
        """Return how often each row is there; raise as `NewestRecords.rows`."""
        return counted(self.records.rows(), self.block)


def by_partition(work: Sequence[Work]) -> list[tuple[Work, ...]]:
    """Return parts together for each partition and topic id, in the order of their offsets."""

    def partition(one: Work) -> tuple[str, int, str]:
        return one.partition.topic, one.partition.partition, one.topic_id or ""

    ordered = sorted(work, key=lambda one: (*partition(one), one.covered.start))
    return [tuple(some) for _, some in groupby(ordered, key=partition)]


def _merged(newest: pa.Table | None, waiting: Sequence[pa.RecordBatch]) -> pa.Table:
    before = [] if newest is None else newest.to_batches()
    return newest_of(pa.Table.from_batches([*before, *waiting]))


def refused_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return positions and digests of records.

    Args:
        records: with the columns of a raw table.
    """
    columns = [records["topic"], *(records[name] for name in (TOPIC_ID, PARTITION, OFFSET, ORDINAL))]
    names = [TOPIC, TOPIC_ID, PARTITION, OFFSET, ORDINAL, RAW_DIGEST]
    return pa.RecordBatch.from_arrays([*columns, raw_digests(records)], names).select(PARSED.names)
