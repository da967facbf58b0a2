"""The columns of a raw table: those of the reader, and the position of each record.

Each table has position columns: without them no row can be deleted after an election, or verified.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS, MILLISECONDS, TYPES

TOPIC_ID: Final = "_topic_id"
PARTITION: Final = "_partition_id"
OFFSET: Final = "_offset"
ORDINAL: Final = "_ordinal"
POSITION_TYPES: Final = {TOPIC_ID: pa.string(), PARTITION: pa.int32(), OFFSET: pa.int64(), ORDINAL: pa.int32()}
# Read from segments; the other columns have one value for all rows of a partition, or repeat these.
_READ: Final = tuple(name for name in COLUMNS_WITH_HEADERS if name not in {"topic", "partition"})
READ: Final = (*_READ, MILLISECONDS)
REQUIRED: Final = ("topic", "partition", "offset", PARTITION, OFFSET, ORDINAL)  # never NULL
RAW_SCHEMA: Final = pa.schema([*TYPES.items(), *POSITION_TYPES.items()])
# A record of the archive, with its time as stored, which `timestamp` may not hold.
RECORD_SCHEMA: Final = RAW_SCHEMA.append(pa.field(MILLISECONDS, pa.int64()))
# The columns of a table of refused records: each as it is, with the reason, and the parser that refused it.
REASON: Final = "_reason"
PARSER: Final = "_parser"
REFUSED_SCHEMA: Final = pa.schema([*RAW_SCHEMA, (REASON, pa.string()), (PARSER, pa.string())])


class RawColumns:
    """Adds the columns of a raw table to the rows of one partition.

    Args:
        topic_id: of the rows; None if the cluster has no topic ids.
    """

    def __init__(self, partition: TopicPartition, topic_id: str | None) -> None:
        self._partition = partition
        self._topic_id = topic_id
        self._rows = -1
        self._constants: dict[str, pa.Array] = {}

    def complete(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of `RECORD_SCHEMA`, or of `RAW_SCHEMA` where the time as stored is missing.

        Args:
            rows: with the columns `READ`; the last one can be missing.
        """
        count = rows.num_rows
        if count > self._rows:
            self._rows = count
            number = pa.array(np.full(count, self._partition.partition, np.int32))
            topic_id = pa.scalar(self._topic_id, pa.string())
            self._constants = {
                "topic": pa.repeat(pa.scalar(self._partition.topic, pa.string()), count),
                "partition": number,
                TOPIC_ID: pa.repeat(topic_id, count),
                PARTITION: number,
                ORDINAL: pa.array(np.zeros(count, np.int32)),
            }
        found = {name: column.slice(0, count) for name, column in self._constants.items()}
        schema = RECORD_SCHEMA if MILLISECONDS in rows.schema.names else RAW_SCHEMA
        found |= {name: rows[name] for name in READ if name in schema.names}
        found[OFFSET] = rows["offset"]
        return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)
