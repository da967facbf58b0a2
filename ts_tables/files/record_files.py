"""Files that have the values of records, and neither the columns of a table nor their names: text and SequenceFile.

Each is of one Kafka partition, which the ledger has. What a format lacks is NULL in the rows that are read back, and
-1 as the type of the timestamp; `reduced` makes the same of rows of the archive, so both sides have equal digests.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import MILLISECONDS, TYPES
from ts_tables.files.column_times import times_of
from ts_tables.files.layout import KEYLESS_FORMATS, RECORD_FORMATS, Layout, Runs
from ts_tables.files.raw_columns import RawColumns

_NO_TYPE: Final = -1  # of a timestamp, as Kafka's TimestampType.NO_TIMESTAMP_TYPE


@dataclass(frozen=True, slots=True)
class FileRecords:
    """What a file's records are of. It can be pickled.

    Attributes:
        partition: of all its records.
        topic_id: the same; None if the cluster has no topic ids.
        runs: their offsets in their order, of text.
        delimiter: after each value, of text.
    """

    partition: TopicPartition
    topic_id: str | None
    runs: Runs = ()
    delimiter: bytes = b"\n"

    def completed(self, offsets: pa.Array, values: pa.Array, keys: pa.Array | None = None) -> pa.RecordBatch:
        """Return rows with the columns of a raw table.

        Args:
            offsets: of the records.
            values: the same; NULL has become empty.
            keys: the same; None if the format has none.
        """
        count = len(offsets)
        read = {
            "key": pa.nulls(count, pa.binary()) if keys is None else keys,
            "value": values,
            "offset": offsets,
            "timestamp": pa.nulls(count, TYPES["timestamp"]),
            "timestampType": pa.array(np.full(count, _NO_TYPE, np.int32)),
            "headers": pa.nulls(count, TYPES["headers"]),
        }
        rows = pa.RecordBatch.from_arrays([*read.values()], [*read])
        return RawColumns(self.partition, self.topic_id).complete(rows)


def reduced(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Return rows as they are read back from the files of a raw table or of refused records.

    Args:
        rows: with the columns of a raw table, and perhaps the time as stored.
    """
    if MILLISECONDS in rows.schema.names and MILLISECONDS not in layout.schema.names:
        rows = rows.drop_columns([MILLISECONDS])
    count, changed = rows.num_rows, {}
    if layout.format in RECORD_FORMATS:
        changed = {
            "value": pc.fill_null(rows["value"], b""),
            "timestamp": pa.nulls(count, TYPES["timestamp"]),
            "timestampType": pa.array(np.full(count, _NO_TYPE, np.int32)),
            "headers": pa.nulls(count, TYPES["headers"]),
        }
        if layout.format in KEYLESS_FORMATS:
            changed["key"] = pa.nulls(count, pa.binary())
    else:
        changed = {"timestamp": times_of(layout, "timestamp").nearest(rows["timestamp"])}
    columns = [changed.get(name, rows[name]) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
