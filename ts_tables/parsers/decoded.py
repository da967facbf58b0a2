"""Values that a codec decodes: Avro, Protobuf and JSON Schema. The fields of a struct are the columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.schemas.contract import Codec
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import Converted, parsed_of

VALUE = "value"


class DecodedParser(Parser):
    """Parses values with a codec. A record without a value is a row of nulls.

    Args:
        codec: of the values. If its type is no struct, the table has the column `value`.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        kind = self._codec.arrow_type
        fields = list(kind) if pa.types.is_struct(kind) else [pa.field(VALUE, kind)]
        return pa.schema([field.with_nullable(True) for field in fields])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise as `Codec.decode`."""
        decoded = self._codec.decode(records["value"], records["headers"] if self._codec.uses_headers else None)
        column, columns = decoded.column, self.columns
        arrays = column.flatten() if pa.types.is_struct(column.type) else [column]
        is_refused = pc.indices_nonzero(decoded.refused.is_valid()).to_pylist()
        refused = {row: decoded.refused[row].as_py() for row in is_refused}
        found = [Converted(array) for array in arrays]
        return parsed_of(columns, found, np.arange(len(column)), refused, columns.names)
