"""The arrays that kernels share, because they get no structs: the table of batches, and the cursor of records.

`Column` names the columns of the table, `CursorField` the fields of the cursor.
"""

from enum import IntEnum
from typing import Final


class Column(IntEnum):
    """The columns of the table: a row is a v2 batch, a compressed message of magic 0 or 1, or a run of plain ones."""

    POSITION = 0  # of the batch in the source
    END = 1
    CRC = 2
    CODEC = 3  # `UNWANTED` or `PASSED` if no record of it is wanted
    MAGIC = 4
    DATA_START = 5  # of the records, in the source or in the decompressed bytes
    DATA_END = 6
    BASE_OFFSET = 7  # as in `framing.BatchHeader`, but above the last offset of the batch before
    LAST_OFFSET = 8
    RECORDS_BASE = 9  # added to the records' offsets
    BASE_TIMESTAMP = 10
    MAX_TIMESTAMP = 11
    HAS_ONE_TIMESTAMP = 12  # whether all its records have MAX_TIMESTAMP
    TIMESTAMP_TYPE = 13
    RECORD_COUNT = 14
    HIDDEN = 15  # whether its records are checked and not shown: a control batch
    LEADER_EPOCH = 16
    ERASED = 17  # whether some of its records can be erased


class CursorField(IntEnum):
    """The cursor of `decode_records`, over batches and in the columns."""

    BATCH = 0  # the next batch in the table
    RECORD = 1  # the number of its records that are done
    POSITION = 2  # of the next record, if any is done
    LAST_OFFSET = 3  # of the record before in the batch, if any is done
    ROWS = 4
    KEY_BYTES = 5
    VALUE_BYTES = 6
    HEADERS = 7
    NAME_BYTES = 8
    HEADER_BYTES = 9
    KEY_NULLS = 10
    VALUE_NULLS = 11
    HEADER_NULLS = 12
    NEXT_OFFSET = 13  # the least one that is shown: the range's first, then one above the record before
    END_OFFSET = 14
    MAX_ROWS = 15
    MAX_BYTES = 16
    WANT_KEY = 17
    WANT_VALUE = 18
    WANT_HEADERS = 19
    NEED_KEY_BYTES = 20  # with NO_ROOM: the bytes that the next record alone needs
    NEED_VALUE_BYTES = 21
    NEED_HEADERS = 22
    NEED_HEADER_BYTES = 23  # of names and of values, each
    CONTRADICTED = 24  # number of batches whose records do not have the offsets of their headers


class DecodeStatus(IntEnum):
    """The status that `decode_records` returns; negative for damage."""

    DONE = 0
    FULL = 1  # pass the columns on, then call again
    NO_ROOM = 2  # one record is larger than empty columns
    BAD_LENGTH = -1
    BAD_FIELD = -2
    BAD_HEADERS = -3
    BAD_MESSAGE = -4
    BYTES_LEFT = -5


UNWANTED: Final = -1
PASSED: Final = -2  # aborted, or counted by its header: a consumer's position is behind such a batch
TABLE_WIDTH: Final = len(Column)
CURSOR_SIZE: Final = len(CursorField)
