"""`Parser`: records in, columns out, and a reason for each record that it refuses.

The built-in parsers have names (`ts_tables.definition.parser_definition`). Any other is a class that extends `Parser`,
named by its dotted path `module:Class`. It is called as `Class(options)` with the options of the table's file.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import CorruptData
from ts_common.wording import counted
from ts_reader.decode.arrow_schema import batch_of
from ts_reader.schemas.contract import Codec
from ts_tables.parsers.inference import FoundColumn, Member

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
        unknown: members of the values without a column, of a parser that finds its columns. If there are some, the
            rows are not written: the records are parsed again, with `with_columns`.
    """

    rows: pa.RecordBatch
    records: pa.Array
    refused: pa.Array
    reasons: pa.Array
    unknown: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        if not self.rows.num_columns:  # a batch without columns can have lost its number of rows
            object.__setattr__(self, "rows", batch_of([], self.rows.schema, len(self.records)))


class Parser(ABC):
    """Parses the records of a table.

    What a parser promises:

    - `columns` is fixed when the parser exists, and has none of the names that the table itself has.
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

    @property
    def found(self) -> Sequence[FoundColumn]:
        """The columns that were found in values or schemas; they are the last ones of `columns`."""
        return ()

    @property
    def schemas(self) -> Sequence[str]:
        """Names of the schemas that it reads values with, the newest first: a table's state has them."""
        return ()

    @property
    def layout(self) -> str | None:
        """What a file that an option names has the parser do with the bytes; None if there is no such file.

        It is part of the parser's identity, whatever the name of the file is.
        """
        return None

    @property
    def key_schema(self) -> str | None:
        """Name of the schema that it reads keys with; None if it reads none."""
        return None

    @property
    def key_codec(self) -> Codec | None:
        """The codec of the column `_key`; None if it has bytes, or there is no such column."""
        return None

    def with_columns(self, found: Sequence[FoundColumn]) -> "Parser":
        """Return the parser with other columns that were found.

        Args:
            found: as of `found`; nothing for a parser whose columns never change.

        Raises:
            CorruptData: the parser finds no columns, and there are some.
        """
        if found:
            raise CorruptData(f"parser {type(self).__name__} finds no columns, and the table has {len(found)} of such")
        return self

    def grown(self, members: Sequence[Member], others: Sequence[str]) -> "Parser":
        """Return the parser with columns of members that have none.

        Args:
            members: as of `Parsed.unknown`.
            others: names that columns cannot have.

        Raises:
            CorruptData: the parser finds no columns.
        """
        del others
        names = ", ".join(member.name for member in members)
        raise CorruptData(f"parser {type(self).__name__} finds no columns, and returned members without one: {names}")

    @abstractmethod
    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch.

        Args:
            records: with the columns of a raw table: `topic`, `partition`, `offset`, `timestamp`, `timestampType`,
                `key`, `value` and `headers` among them; and `timestampMs`, the time as stored, where it is known.

        Raises:
            BatchTooLarge: the rows need too much memory at once.
            StoreUnavailable, AccessDenied: a schema could not be fetched: the batch can be parsed later.
            CorruptData: the topic does not have the parser's format at all.
        """


def check(parser: Parser, parsed: Parsed, count: int) -> None:
    """Check what a parser returned: each record is rows, or refused.

    Args:
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
    steps = np.diff(records, prepend=np.int64(-2))  # a number that is missing is -1
    if (steps < 0).any():
        raise CorruptData(f"parser {name}: the numbers of the records fall")
    found = np.concatenate([records[steps > 0], refused])
    if len(found) != count or not np.array_equal(np.sort(found), np.arange(count)):
        raise CorruptData(
            f"parser {name}: of {counted(count, 'record')}, {len(found)} are rows or refused; each must be one of both"
        )


def without_records(parsed: Parsed, refused: Collection[int]) -> Parsed:
    """Return what was parsed without the rows of some records.

    Args:
        refused: the numbers of these records; those that have no row among them.
    """
    return refusing(parsed, dict.fromkeys({*refused} - {*parsed.refused.to_pylist()}, ""))


def refusing(parsed: Parsed, refused: Mapping[int, str]) -> Parsed:
    """Return what was parsed with further refused records.

    Args:
        refused: the reason by the number of the record; none of these was refused before.
    """
    is_left = pa.array(~np.isin(_numbers(parsed.records), np.fromiter(refused, np.int64, len(refused))))
    reasons = {**dict(zip(parsed.refused.to_pylist(), parsed.reasons.to_pylist(), strict=True)), **refused}
    numbers = sorted(reasons)
    return replace(
        parsed,
        rows=parsed.rows.filter(is_left),
        records=parsed.records.filter(is_left),
        refused=pa.array(numbers, pa.int32()),
        reasons=pa.array([reasons[number] for number in numbers], pa.string()),
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
