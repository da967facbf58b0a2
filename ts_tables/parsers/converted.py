"""Columns that were converted value by value or at once, with a reason for each value that does not fit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ts_common.errors import BatchTooLarge
from ts_common.printable import printable
from ts_reader.decode.arrow_schema import batch_of
from ts_tables.parsers.contract import REASON_CHARACTERS, Parsed

NO_FIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
_SHOWN = 60  # characters of a value in a reason


@dataclass(frozen=True, slots=True)
class Converted:
    """A column.

    Attributes:
        array: of its type; null where the value is missing or refused.
        reasons: by row, of the refused values.
    """

    array: pa.Array
    reasons: Mapping[int, str] = field(default_factory=dict)


def shown(value: object) -> str:
    """Return the begin of a value, for a reason."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def halving(
    convert: Callable[[int, int], pa.Array],
    start: int,
    end: int,
    kind: pa.DataType,
    reasons: dict[int, str],
    why: Callable[[int], str],
) -> list[pa.Array]:
    """Return arrays of values; halve them until each value that does not fit is alone.

    Args:
        convert: returns the array of the values of a range; raises one of `NO_FIT`.
        start: first row.
        end: the row after the last.
        reasons: by row, of the values that do not fit; some are added.
        why: returns the reason for a row.
    """
    try:
        found = convert(start, end)
    except NO_FIT:
        if end - start == 1:
            reasons[start] = why(start)
            return [pa.nulls(1, kind)]
        middle = (start + end) // 2
        return [
            *halving(convert, start, middle, kind, reasons, why),
            *halving(convert, middle, end, kind, reasons, why),
        ]
    if isinstance(found, pa.ChunkedArray):
        raise BatchTooLarge(f"{end - start} rows of a column have more than 2 GiB; parse fewer records at once")
    return [found]


def parsed_of(
    columns: pa.Schema,
    found: Sequence[Converted],
    rows: Iterable[int],
    refused: Mapping[int, str],
    names: Sequence[str],
) -> Parsed:
    """Return what a parser made of a batch.

    Args:
        found: each column, of all rows.
        rows: the number of the record of each row; it never falls.
        refused: by record, why it has no rows.
        names: of the columns, for reasons.
    """
    of_row = np.fromiter(rows, np.int32)
    refused = dict(refused)
    for name, column in zip(names, found, strict=True):
        for row, reason in column.reasons.items():
            refused.setdefault(int(of_row[row]), f"{name}: {reason}")
    arrays = [column.array for column in found]
    batch = batch_of(arrays, columns, len(of_row))
    if refused:
        stays = ~np.isin(of_row, np.fromiter(refused, np.int32, len(refused)))
        of_row = of_row[stays]
        batch = batch.filter(pa.array(stays))
    numbers = sorted(refused)
    reasons = [printable(refused[number][:REASON_CHARACTERS]) for number in numbers]
    return Parsed(batch, pa.array(of_row, pa.int32()), pa.array(numbers, pa.int32()), pa.array(reasons, pa.string()))
