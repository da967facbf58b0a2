"""`Parser`: records in, columns out, and a reason for each record that it refuses.

The built-in parsers have names (`ts_tables.parsers.choice`). Any other is a class that extends `Parser`, named by its
dotted path `module:Class`. It is called as `Class(options)` with the options of the table's file.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import CorruptData

RESERVED: Final = "_"  # columns of this project begin with it
REASON_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a parser made of a batch of records.

    Attributes:
        rows: of the parser's `columns`.
        records: int32; for each row the number of its record in the batch. It never falls, and each record that is not
            refused has a row at least.
        refused: int32; the numbers of the records without a row, rising.
        reasons: strings, one for each refused record, in one line.
    """

    rows: pa.RecordBatch
    records: pa.Array
    refused: pa.Array
    reasons: pa.Array


class Parser(ABC):
    """Parses the records of a table.

    What a parser promises:

    - `columns` is fixed when the parser exists, and no name begins with an underscore.
    - Each record is rows, or refused; a record that is dropped is neither, and ends the run. One record may have
      several rows. Their ordinals are 0, 1, ... in the order of `rows`.
    - Equal records have equal rows or equal reasons, in any batch, order and process. So no time, no random number and
      no state that outlives a batch.
    - There is no I/O for a record.
    - It can be pickled.
    - `parse` raises only errors of `ts_common.errors`. Whatever else it raises ends the run, and nothing is committed.
    """

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns of its rows."""

    @abstractmethod
    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch.

        Args:
            records: with the columns of a raw table: `topic`, `partition`, `offset`, `timestamp`, `timestampType`,
                `key`, `value` and `headers` among them.

        Raises:
            BatchTooLarge: the rows need too much memory at once.
            StoreUnavailable, AccessDenied: a schema could not be fetched: the batch can be parsed later.
            CorruptData: the topic does not have the parser's format at all.
        """


def check(parser: Parser, parsed: Parsed, count: int) -> None:
    """Check what a parser returned: each record is rows, or refused.

    Args:
        parser: which returned it.
        parsed: of a batch.
        count: the number of its records.

    Raises:
        CorruptData: a record is neither, or both, or the columns are others; the text names the parser.
    """
    name = type(parser).__name__
    if not parsed.rows.schema.equals(parser.columns):
        raise CorruptData(f"parser {name}: rows have the columns {parsed.rows.schema.names}; expected `columns`")
    sizes = (parsed.rows.num_rows, len(parsed.refused))
    if sizes != (len(parsed.records), len(parsed.reasons)) or parsed.reasons.null_count:
        raise CorruptData(f"parser {name}: each row has one record, and each refused record one reason")
    records, refused = _numbers(parsed.records), _numbers(parsed.refused)
    if (np.diff(records) < 0).any():
        raise CorruptData(f"parser {name}: the numbers of the records fall")
    found = np.concatenate([np.unique(records), refused])
    if len(found) != count or not np.array_equal(np.sort(found), np.arange(count)):
        raise CorruptData(
            f"parser {name}: of {count} records, {len(found)} are rows or refused; each must be one of both"
        )


def ordinals_of(records: pa.Array) -> pa.Array:
    """Return int32 ordinals: for each row its place among the rows of its record.

    Args:
        records: as of `Parsed`.
    """
    numbers = _numbers(records)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    lengths = np.diff(np.append(starts, len(numbers)))
    return pa.array((np.arange(len(numbers)) - np.repeat(starts, lengths)).astype(np.int32))


def _numbers(column: pa.Array) -> "np.typing.NDArray[np.int64]":
    found: np.typing.NDArray[np.int64] = pc.fill_null(column, -1).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found
