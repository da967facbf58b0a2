"""Partition keys of rows: by day or hour of a time, by a column, by bucket.

The transforms, their results and the names of partition fields are those of Iceberg's specification (Partition
Transforms, and the names that Spark gives them), for plain files too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TERM: Final = re.compile(r"\s*(?P<name>[a-z]+)\s*\(\s*(?:(?P<count>[0-9]{1,6})\s*,\s*)?(?P<column>\w+)\s*\)\s*")
_MICROSECONDS: Final = {"hour": 3_600_000_000, "day": 86_400_000_000}
_INT32: Final = range(-(1 << 31), 1 << 31)
MOST_BUCKETS: Final = 1 << 16

Key = tuple[Any, ...]


class Transform(StrEnum):
    """How a partition value is computed."""

    IDENTITY = "identity"
    HOUR = "hour"
    DAY = "day"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Term:
    """One field of a partition key.

    Attributes:
        column: its source.
        buckets: their number, of `BUCKET`; else 0.
    """

    transform: Transform
    column: str
    buckets: int = 0

    @property
    def name(self) -> str:
        """The name of the partition field."""
        match self.transform:
            case Transform.IDENTITY:
                return self.column
            case Transform.BUCKET:
                return f"{self.column}_bucket"
            case _:
                return f"{self.column}_{self.transform.value}"

    def __str__(self) -> str:
        match self.transform:
            case Transform.IDENTITY:
                return self.column
            case Transform.BUCKET:
                return f"bucket({self.buckets}, {self.column})"
            case _:
                return f"{self.transform.value}({self.column})"

    def values(self, column: pa.Array) -> pa.Array:
        """Return the partition value of each row: int32 for a time or a bucket; NULL for NULL.

        Args:
            column: the source; a time is within `times`.

        Raises:
            pa.ArrowInvalid: a time is not.
        """
        match self.transform:
            case Transform.IDENTITY:
                return column
            case Transform.BUCKET:
                from pyiceberg_core.transform import bucket  # noqa: PLC0415  (only tables with buckets)

                return bucket(column, self.buckets)
            case _:
                times = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
                numbers = pa.array(times // _MICROSECONDS[self.transform.value]).cast(pa.int32())
                return pc.if_else(column.is_valid(), numbers, pa.scalar(None, pa.int32()))

    @property
    def times(self) -> range | None:
        """The times in microseconds that have a partition value; None if all have, or no value is one of a time.

        Iceberg's hours are numbers of 32 bits: they end in the year 246,953, before a column of microseconds does.
        """
        if self.transform is not Transform.HOUR:
            return None
        return range(_INT32.start * _MICROSECONDS["hour"], _INT32.stop * _MICROSECONDS["hour"])

    def accepts(self, value: Any) -> bool:
        """Return whether a value can be one of `values`, and be shown.

        Args:
            value: of a stored partition key.
        """
        match self.transform:
            case Transform.IDENTITY:
                return value is None or isinstance(value, str | int)
            case Transform.BUCKET:
                return value is None or (isinstance(value, int) and 0 <= value < self.buckets)
            case _:
                return value is None or (isinstance(value, int) and value in _INT32)

    def shown(self, value: Any) -> str:
        """Return a partition value as text, for the name of a directory.

        Args:
            value: as `values` has it.
        """
        if value is None:
            return "__HIVE_DEFAULT_PARTITION__"
        match self.transform:
            case Transform.DAY:
                return shown_day(value)
            case Transform.HOUR:
                return shown_hour(value)
            case _:
                return str(value)


def shown_day(number: int) -> str:
    """Return a day as Iceberg shows it (`TransformUtil.humanDay`): years have four digits, or more after 9999.

    Args:
        number: days since 1970.
    """
    day = np.datetime64(number, "D")
    month = day.astype("datetime64[M]")
    year = int(month.astype("datetime64[Y]").astype(int)) + 1970
    return f"{year:04d}-{int(month.astype(int)) % 12 + 1:02d}-{int((day - month).astype(int)) + 1:02d}"


def shown_hour(number: int) -> str:
    """Return an hour as Iceberg shows it.

    Args:
        number: hours since 1970.
    """
    day, hour = divmod(number, 24)
    return f"{shown_day(day)}-{hour:02d}"


def parse_term(text: str, columns: pa.Schema) -> Term:
    """Return a term: a column's name, `day(timestamp)`, `hour(timestamp)` or `bucket(16, key)`.

    Raises:
        ValueError: it has another form, or the column does not exist or has another type; with what is accepted.
    """
    match = _TERM.fullmatch(text)
    if match is None:
        name, transform, buckets = text.strip(), Transform.IDENTITY, 0
    else:
        name, buckets = match["column"], int(match["count"] or 0)
        transforms = {each.value: each for each in Transform if each is not Transform.IDENTITY}
        if match["name"] not in transforms:
            raise ValueError(f"{text!r}: {match['name']} is unknown; accepted are {', '.join(transforms)}, or a column")
        transform = transforms[match["name"]]
    if name not in columns.names:
        raise ValueError(f"{text!r}: the table has no column {name}; it has {', '.join(columns.names)}")
    _check_transform(text, transform, name, buckets, columns.field(name).type)
    return Term(transform, name, buckets)


def _check_transform(text: str, transform: Transform, name: str, buckets: int, kind: pa.DataType) -> None:
    """Check that a column has a transform.

    Raises:
        ValueError: it has not.
    """
    if transform is Transform.BUCKET and not 0 < buckets <= MOST_BUCKETS:
        raise ValueError(f"{text!r}: a number of buckets from 1 to {MOST_BUCKETS} is expected, as in bucket(16, key)")
    if transform is not Transform.BUCKET and buckets:
        raise ValueError(f"{text!r}: {transform.value} has no number of buckets")
    if transform in {Transform.DAY, Transform.HOUR} and not pa.types.is_timestamp(kind):
        raise ValueError(f"{text!r}: {name} is no time")
    is_plain = pa.types.is_string(kind) or pa.types.is_integer(kind)
    if transform is Transform.IDENTITY and not is_plain:
        raise ValueError(
            f"{text!r}: a column of text or integers is expected, or a transform such as bucket(16, {name})"
        )
    if transform is Transform.BUCKET and not (is_plain or pa.types.is_binary(kind) or pa.types.is_timestamp(kind)):
        raise ValueError(f"{text!r}: {name} has no buckets")


def groups(rows: pa.RecordBatch, terms: Sequence[Term]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each partition key, in their order.

    Args:
        rows: with the columns of the terms.
    """
    if not rows.num_rows:
        return
    columns = [term.values(rows[term.column]).dictionary_encode("encode") for term in terms]
    firsts, inverse = np.zeros(1, np.int64), np.zeros(rows.num_rows, np.int64)
    for column in columns:  # new numbers each time, which are less than the rows: a product of all could exceed 64 bits
        numbers = inverse * len(column.dictionary) + column.indices.to_numpy()
        _, firsts, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    for group in np.argsort(firsts):
        key = tuple(column[int(firsts[group])].as_py() for column in columns)
        if len(firsts) == 1:
            yield key, rows
        else:
            yield key, rows.take(pa.array(np.flatnonzero(inverse == group)))
