"""The newest record of each key of a partition: that with the highest offset, as Kafka's compaction defines it.

A key of two partitions has a row for each: offsets of different partitions have no order. Kafka's producers put a key
into one partition, as long as the topic gets no further partitions.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_tables.files.parsed_columns import TOPIC
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID
from ts_tables.parsers.changes import IS_DELETED, KEY

IDENTITY: Final = (TOPIC, TOPIC_ID, PARTITION, KEY)


def newest_of(rows: pa.Table) -> pa.Table:
    """Return the rows of the newest record of each key, sorted by partition, key and ordinal.

    Args:
        rows: with the columns of `IDENTITY`, `_offset` and `_ordinal`; a record can have several rows. One that is
            there twice, as after an election, is returned once.
    """
    if not rows.num_rows:
        return rows
    order = pc.sort_indices(rows, [(name, "ascending") for name in (*IDENTITY, OFFSET, ORDINAL)])
    rows = rows.take(order).combine_chunks()
    is_other_key = np.zeros(rows.num_rows - 1, bool)  # than the row before
    for name in IDENTITY:
        is_other_key |= _differs(rows[name])
    is_other_record = is_other_key | _differs(rows[OFFSET])
    record = np.concatenate([[0], np.cumsum(is_other_record)])
    lasts = np.flatnonzero(np.append(is_other_key, True))
    newest = np.repeat(record[lasts], np.diff(lasts, prepend=-1))
    is_first = np.concatenate([[True], is_other_record | _differs(rows[ORDINAL])])
    return rows.filter(pa.array((record == newest) & is_first))


def alive(rows: pa.Table) -> pa.Table:
    """Return rows whose record does not delete its key, without the column for that."""
    return rows.filter(pc.invert(rows[IS_DELETED])).drop_columns([IS_DELETED])


def _differs(column: pa.ChunkedArray) -> "np.typing.NDArray[np.bool_]":
    """Return whether each value but the first is another one than that before; NULL equals NULL."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    is_other = pc.fill_null(pc.not_equal(before, after), False)
    is_one_null = pc.xor(before.is_null(), after.is_null())
    found: np.typing.NDArray[np.bool_] = pc.or_(is_other, is_one_null).to_numpy()
    return found
