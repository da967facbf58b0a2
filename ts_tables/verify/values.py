"""The digest of each row's values: equal for what a parser made, and for what is read back from a file.

::

    SHA-256 of the encoded topic, topic id, partition, offset and ordinal, then of each column by its name

=========================================  ==========================================================================
value                                      encoding
=========================================  ==========================================================================
NULL                                       `N`; all others begin with `V`
boolean, integer, decimal                  decimal digits
float, double                              the shortest text that has the value; all NaN are equal, 0 and -0 differ
date, time, timestamp                      days, or microseconds
string, binary                             the bytes
list                                       each element with its length before it
map, struct                                the same of name and value, by name
=========================================  ==========================================================================
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.decode.digest import BLOCK_OFFSETS, RAW_DIGEST
from ts_tables.files.parsed_columns import TOPIC
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID

_NULL: Final = b"N"
_ORDINALS: Final = 1 << 32
_BYTES: Final = 16  # of a digest
_POSITION: Final = (TOPIC, TOPIC_ID, PARTITION, OFFSET, ORDINAL)


def value_digests(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Return the first 128 bits of the digest of each row.

    Args:
        rows: of a parsed table.
        names: of the columns that are compared together with the position.
    """
    columns = [*_POSITION, *sorted({*names} - {*_POSITION})]
    parts = [_encoded(rows[name]) for name in columns]
    return pa.array([hashlib.sha256(_joined(row)).digest()[:_BYTES] for row in zip(*parts, strict=True)], pa.binary())


def valued(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return positions of rows with the digest of their values instead of that of their record.

    Args:
        rows: as of `value_digests`.
        names: as of `value_digests`.
    """
    position = rows.select([*_POSITION])
    return pa.RecordBatch.from_arrays([*position.columns, value_digests(rows, names)], names=[*_POSITION, RAW_DIGEST])


@dataclass(frozen=True, slots=True)
class Compared:
    """The columns whose values are compared.

    A codec can have a value for a column that its schema got after a row was written, as a default. The row has NULL
    there, and in all later columns.

    Attributes:
        later: names of those that the table got after it was created, in their order; of a table whose values have a
            schema.
    """

    names: tuple[str, ...]
    later: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Older:
    """Rows of a block that can be older than some columns. It can be pickled.

    Attributes:
        keys: of the rows, ascending: offset and ordinal as one number.
        counts: for each, how many of the later columns it can have.
    """

    keys: "np.typing.NDArray[np.int64]"
    counts: "np.typing.NDArray[np.int64]"

    @staticmethod
    def of(parts: Iterable["Older"]) -> "Older":
        """Return rows of several files together."""
        some = [*parts]
        keys = np.concatenate([np.empty(0, np.int64), *(each.keys for each in some)])
        counts = np.concatenate([np.empty(0, np.int64), *(each.counts for each in some)])
        order = np.argsort(keys, kind="stable")
        return Older(keys[order], counts[order])

    def cut(self, rows: pa.RecordBatch, later: Sequence[str]) -> pa.RecordBatch:
        """Return rows with NULL in the columns that they are older than.

        Args:
            rows: as the parser makes them now, of the partition of the block.
            later: as of `Compared`.
        """
        if not len(self.keys):
            return rows
        keys = keys_of(rows)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        counts = np.where(self.keys[at] == keys, self.counts[at], len(later))
        for number, name in enumerate(later):
            column = rows[name]
            array = pc.if_else(pa.array(counts > number), column, pa.nulls(len(column), column.type))
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), array)
        return rows


def older_rows(rows: pa.RecordBatch, later: Sequence[str]) -> Older:
    """Return those of a table's rows that have no value in the last ones of these columns.

    Args:
        rows: of one partition.
        later: as of `Compared`.
    """
    counts = np.zeros(rows.num_rows, np.int64)
    for number, name in enumerate(later):
        counts = np.where(rows[name].is_valid().to_numpy(zero_copy_only=False), number + 1, counts)
    is_older = counts < len(later)
    return Older(keys_of(rows)[is_older], counts[is_older])


def keys_of(rows: pa.RecordBatch) -> "np.typing.NDArray[np.int64]":
    """Return offset and ordinal of rows as one number, which is another one for each row of a block."""
    found: np.typing.NDArray[np.int64] = (rows[OFFSET].to_numpy() % BLOCK_OFFSETS) * _ORDINALS + rows[
        ORDINAL
    ].to_numpy()
    return found


def counting_all(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as first ones of their records: sums are over those, and the digests have the ordinals.

    Args:
        rows: as `valued` returns them.
    """
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    return rows.set_column(rows.schema.get_field_index(ORDINAL), ORDINAL, zeros)


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(b"%d:%b" % (len(each), each) for each in parts)


def _encoded(array: pa.Array) -> list[bytes]:
    """Return the encoding of each value."""
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        return _encoded(array.dictionary_decode())
    if types.is_struct(kind):
        members = sorted((field.name, at) for at, field in enumerate(kind))
        inner = [_encoded(array.field(at)) for _, at in members]
        names = [name.encode() for name, _ in members]
        rows = [
            _joined(part for pair in zip(names, row, strict=True) for part in pair) for row in zip(*inner, strict=True)
        ]
        return _with_nulls(rows, array)
    if types.is_map(kind):
        lists = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        pairs = lists.flatten()
        both = [_joined(pair) for pair in zip(_encoded(pairs.field(0)), _encoded(pairs.field(1)), strict=True)]
        return _with_nulls([_joined(sorted(some)) for some in _split(both, lists)], array)
    if types.is_list(kind) or types.is_large_list(kind):
        return _with_nulls([_joined(some) for some in _split(_encoded(array.flatten()), array)], array)
    return _simple(array)


def _simple(array: pa.Array) -> list[bytes]:
    types, kind = pa.types, array.type
    if types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif types.is_time(kind):
        array = array.cast(pa.time64("us")).cast(pa.int64())
    elif types.is_date32(kind):
        array = array.cast(pa.int32())
    return [_NULL if value is None else b"V" + _bytes(value) for value in array.to_pylist()]


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (
        value.encode()
        if isinstance(value, str)
        else repr(value).encode()
        if isinstance(value, float)
        else (str(value).encode())
    )


def _split(values: Sequence[bytes], lists: pa.Array) -> list[Sequence[bytes]]:
    """Return the encoded elements of each list."""
    ends = [0, *accumulate(pc.fill_null(lists.value_lengths(), 0).to_pylist())]
    return [values[start:end] for start, end in pairwise(ends)]


def _with_nulls(rows: Sequence[bytes], array: pa.Array) -> list[bytes]:
    return [b"V" + row if valid else _NULL for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
