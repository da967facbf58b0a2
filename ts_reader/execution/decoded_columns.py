"""The columns of a scan: as segments have them, the bytes of corrupt places, and decoded keys and values."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import CONSTANT, HEADERS, arrow_schema, batch_of, constant_column
from ts_reader.query.query import Undecoded
from ts_reader.schemas.contract import Codec, Part

_OFFSET: Final = "offset"
_BUILT_IN: Final = "ts_reader."


def error_column(part: Part) -> str:
    """Return the name of the column with the reasons of refused keys or values."""
    return f"{part}_error"


class Columns:
    """Which columns a scan returns, their types, and what is read for them. It can be pickled.

    Args:
        names: of the columns, in their order.
        corrupt_column: the one with the bytes of corrupt places; None without one.
        codecs: of keys and values, by topic; all codecs of a part have the same Arrow type.
        way_out: a sentence for the error of a refused one.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        corrupt_column: str | None = None,
        codecs: Mapping[Part, Mapping[str, Codec]] | None = None,
        undecoded: Undecoded = Undecoded.ERROR,
        way_out: str = "",
    ) -> None:
        self.names = tuple(names)
        self._corrupt_column = corrupt_column
        self._codecs = {part: dict(by_topic) for part, by_topic in (codecs or {}).items() if by_topic}
        self._undecoded = undecoded
        self._way_out = way_out
        self._decoded = [part for part in self._codecs if {part.value, error_column(part)} & {*names}]
        self.schema: pa.Schema = pa.schema([(name, self._type(name)) for name in names])

    def choose(self, names: Sequence[str]) -> "Columns":
        """Return some of the columns.

        Args:
            names: in their order.
        """
        return Columns(
            names,
            corrupt_column=self._corrupt_column,
            codecs=self._codecs,
            undecoded=self._undecoded,
            way_out=self._way_out,
        )

    @property
    def sent(self) -> "Columns":
        """The columns without those that have one value for all rows of a partition."""
        return self.choose([name for name in self.names if name not in CONSTANT])

    @property
    def raw(self) -> "Columns":
        """The columns that are read, without a codec."""
        return Columns(self.read, corrupt_column=self._corrupt_column)

    @property
    def travels(self) -> bool:
        """Whether a worker process can decode them: it may not find a module that only this process can import."""
        used = [codec for part in self._decoded for codec in self._codecs[part].values()]
        return all(type(codec).__module__.startswith(_BUILT_IN) for codec in used)

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the columns of segments, and of corrupt bytes, that the columns need."""
        codecs = [codec for part in self._decoded for codec in self._codecs[part].values()]
        errors = {error_column(part) for part in self._codecs}
        needed = [
            *(name for name in self.names if name not in errors),
            *(part.value for part in self._decoded),
            *([_OFFSET] if codecs and self._undecoded is Undecoded.ERROR else []),
            *([HEADERS] if any(codec.uses_headers for codec in codecs) else []),
        ]
        return tuple(dict.fromkeys(needed))

    def decode(self, rows: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        """Return the columns of rows.

        Args:
            rows: with the columns of `read`, of one partition.

        Raises:
            CorruptData: a key or a value was refused, and that is an error.
            StoreUnavailable, AccessDenied: from the source of schemas.
        """
        if not self._decoded:
            return rows
        found = dict(zip(rows.schema.names, rows.columns, strict=True))
        headers = found.get(HEADERS)
        for part in self._decoded:
            decoded = self._codecs[part][partition.topic].decode(found[part.value], headers)
            if self._undecoded is Undecoded.ERROR and decoded.refused.null_count < len(decoded.refused):
                row = next(row for row, reason in enumerate(decoded.refused) if reason.is_valid)
                raise CorruptData(
                    f"{partition}, offset {found[_OFFSET][row]}: {part}: {decoded.refused[row]}. {self._way_out}"
                )
            found[part.value], found[error_column(part)] = decoded.column, decoded.refused
        return batch_of([found[name] for name in self.names], self.schema, rows.num_rows)

    def with_constants(self, sent: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        """Return rows with the columns that all rows of a partition share.

        Args:
            sent: with the columns of `sent`.
        """
        found = dict(zip(sent.schema.names, sent.columns, strict=True))
        arrays = [
            found[name] if name in found else constant_column(name, partition.topic, partition.partition, sent.num_rows)
            for name in self.names
        ]
        return batch_of(arrays, self.schema, sent.num_rows)

    def _type(self, name: str) -> pa.DataType:
        if name == self._corrupt_column:
            return pa.binary()
        for part, by_topic in self._codecs.items():
            if name == part.value:
                return next(iter(by_topic.values())).arrow_type
            if name == error_column(part):
                return pa.string()
        return arrow_schema([name]).field(0).type
