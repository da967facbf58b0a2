"""A segment of a topic whose message format was upgraded: magics 0, 1 and 2."""

from tests.common.log_format.build import LOG_APPEND_TIME, batch, message, record
from tests.common.log_format.legacy_messages import GZIP, LZ4, SNAPPY, wrapper
from tests.reader.decode.decoded_rows import Row

UPGRADED = (
    message(0, 0, b"a", b"k"),
    message(0, 1, None, None),
    wrapper(0, SNAPPY, [(2, 0, None, b"b"), (4, 0, b"", b"")], 4),
    message(1, 5, b"", b"", timestamp=10),
    wrapper(1, LZ4, [(0, 11, b"k", None), (2, 12, b"l", b"c")], 8, timestamp=12),
    batch(9, [record(0), record(1)]),
    wrapper(1, GZIP, [(0, 13, b"k", b"d"), (1, 14, b"l", b"e")], 12, attributes=LOG_APPEND_TIME),
    batch(13, [record(0), record(3)], last_offset_delta=5),
    message(0, 19, b"f", b"m"),
)


UPGRADED_ROWS: list[Row] = [
    (0, -1, -1, b"k", b"a", ()), (1, -1, -1, None, None, ()), (2, -1, -1, None, b"b", ()), (4, -1, -1, b"", b"", ()),
    (5, 10, 0, b"", b"", ()), (6, 11, 0, b"k", None, ()), (8, 12, 0, b"l", b"c", ()),
    (9, 1000, 0, b"k", b"v", ()), (10, 1000, 0, b"k", b"v", ()),
    (11, 5555, 1, b"k", b"d", ()), (12, 5555, 1, b"l", b"e", ()),
    (13, 1000, 0, b"k", b"v", ()), (16, 1000, 0, b"k", b"v", ()), (19, -1, -1, b"m", b"f", ()),
]  # fmt: skip
