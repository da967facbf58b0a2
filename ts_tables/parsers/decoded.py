"""Values that a codec decodes: Avro, Protobuf and JSON Schema. The fields of a struct are the columns.

The columns of a table only grow. A field that a later schema adds is a further column. A field whose type gets wider,
as from int to long, widens its column. A field whose type changes otherwise has a column of its own, `<name>_<type>`. A
field that a later schema removes or narrows keeps its column: the values are decoded with the last schema that has it
too. What that schema refuses, or has no value for, is NULL in these columns. A value that only a former schema accepts,
as after a change of a type, is a row with the columns of that one.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import CorruptData
from ts_reader.schemas.contract import Codec
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import Converted, parsed_of
from ts_tables.parsers.inference import FoundColumn, free_name
from ts_tables.parsers.table_types import fitted, label_of, table_type, text_type, type_text, widens

VALUE: Final = "value"  # the column of a codec whose type is no struct


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """A codec, and the place of the schema that it reads with.

    Attributes:
        schema: names the schema, so that the codec can be opened again with it; None if it has none.
    """

    codec: Codec
    schema: str | None = None

    @property
    def fields(self) -> Mapping[str, str]:
        """The texts of the types of its columns, by their names."""
        kind = self.codec.arrow_type
        fields = [*kind] if pa.types.is_struct(kind) else [pa.field(VALUE, kind)]
        return {field.name: type_text(table_type(field.type)) for field in fields}


class DecodedParser(Parser):
    """Parses values with codecs. A record without a value is a row of nulls.

    Args:
        readings: the newest first. Others are for columns that it lacks, and for values that it refuses.

    Raises:
        CorruptData: no codec has one of the columns.
        OperatorError: a column of a table has no such type.
    """

    def __init__(self, readings: Sequence[SchemaReading], found: Sequence[FoundColumn]) -> None:
        self._found = tuple(found)
        fields = [reading.fields for reading in readings]
        # For each column: the codecs that have it, the newest first, each with the place of its field there. Those with
        # a narrower type are the last: they would round a value, or refuse it.
        sources: list[list[tuple[int, int]]] = []
        for column in found:
            some = [(of, [*each].index(column.member)) for of, each in enumerate(fields) if _has(each, column)]
            if not some:
                raise CorruptData(f"no schema has column {column.name} of type {column.kind}")
            sources.append(sorted(some, key=lambda each: fields[each[0]][column.member] != column.kind))
        used = {0, *(some[0][0] for some in sources)}
        self._readings = {at: reading for at, reading in enumerate(readings) if at in used}
        self._sources = [[each for each in some if each[0] in used] for some in sources]

    @staticmethod
    def lacks(readings: Sequence[SchemaReading], found: Sequence[FoundColumn]) -> bool:
        """Return whether a column is in none of the schemas.

        Args:
            readings: as of the constructor, like the next one.
        """
        fields = [reading.fields for reading in readings]
        return any(all(each.get(column.member) != column.kind for each in fields) for column in found)

    @property
    def readings(self) -> Sequence[SchemaReading]:
        """Those of `readings` that the columns need."""
        return [*self._readings.values()]

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([(each.name, text_type(each.kind)) for each in self._found])

    @property
    def found(self) -> Sequence[FoundColumn]:
        """All columns."""
        return self._found

    @property
    def schemas(self) -> Sequence[str]:
        """The schemas that it reads with."""
        return [each.schema for each in self._readings.values() if each.schema is not None]

    def with_columns(self, found: Sequence[FoundColumn]) -> Parser:
        """Return the parser with other columns; raise as the constructor."""
        return DecodedParser([*self._readings.values()], found)

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise as `Codec.decode`."""
        values, columns = records["value"], self.columns
        decoded: dict[int, list[pa.Array]] = {}
        accepted: dict[int, pa.Array] = {}
        reasons: pa.Array | None = None
        for at, reading in self._readings.items():
            found = reading.codec.decode(values, records["headers"] if reading.codec.uses_headers else None)
            decoded[at] = found.column.flatten() if pa.types.is_struct(found.column.type) else [found.column]
            accepted[at] = found.refused.is_null()
            reasons = found.refused if reasons is None else reasons
        assert reasons is not None  # noqa: S101  (of the newest)
        is_refused = pc.invert(functools.reduce(pc.or_, accepted.values()))
        refused = {row: reasons[row].as_py() for row in pc.indices_nonzero(is_refused).to_pylist()}
        is_whole = all(pc.all(each).as_py() for each in accepted.values())
        arrays = []
        for sources, kind in zip(self._sources, columns.types, strict=True):
            of, field = sources[0]
            column = fitted(decoded[of][field], kind)
            array, wrong = column.array, column.reasons if of == 0 else {}
            for other, place in () if is_whole else sources[1:]:
                array = pc.if_else(accepted[of], array, fitted(decoded[other][place], kind).array)
            arrays.append(Converted(array, wrong))
        return parsed_of(columns, arrays, np.arange(len(values)), refused, columns.names)


def _has(fields: Mapping[str, str], column: FoundColumn) -> bool:
    """Return whether a schema has the values of a column, by the texts of the types of its fields."""
    kind = fields.get(column.member)
    return kind is not None and (kind == column.kind or widens(kind, column.kind))


def columns_of(reading: SchemaReading, before: Sequence[FoundColumn], others: Sequence[str]) -> list[FoundColumn]:
    """Return the columns of a table with those of a schema that it lacks.

    Args:
        before: the columns of the table.
        others: names of other columns.

    Raises:
        OperatorError: a column of a table has no such type.
    """
    columns = [*before]
    known = {(each.member, each.kind) for each in before}
    names = {name.lower() for name in (*others, *(each.name for each in before))}
    for member, kind in reading.fields.items():
        own = [at for at, each in enumerate(columns) if each.member == member]
        if (member, kind) in known or any(widens(kind, columns[at].kind) for at in own):
            continue
        wider = next((at for at in own if widens(columns[at].kind, kind)), None)
        if wider is not None:
            columns[wider] = columns[wider]._replace(kind=kind)
        else:
            name = free_name(member, label_of(kind), names)
            names.add(name.lower())
            columns.append(FoundColumn(name, member, kind))
    return columns
