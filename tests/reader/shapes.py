"""One archive with every shape of batch, and the scans that show them."""

import struct
from typing import Any, Final

import pyarrow as pa
from awscrt.checksums import crc32c

from tests.common.log_format.build import LOG_APPEND_TIME, TRANSACTIONAL, batch, marker, message, record
from tests.made_archive import MadeArchive, batches, steps
from ts_common.archive.gap_records import Gap

PARTITIONS: Final = 2
_LONG: Final = 1000
ABORT, COMMIT = 0, 1
_HEADERS: Final[tuple[list[tuple[bytes, bytes | None]], ...]] = (
    [(b"h", b"1"), (b"h", None), (b"\xc3\xa9", b"")],
    [],
    [(b"", b"empty name"), (b"\xff\xfe", b"no UTF-8")],
)

# Of each shape: the topic, and the arguments of its scan.
SHAPES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "fields": ("fields", {}),
    "headers": ("fields", {"include_headers": True}),
    "headers alone": ("fields", {"include_headers": True, "columns": ["headers"]}),
    "columns in another order": ("fields", {"columns": ["offset", "partition", "value"]}),
    "a null column": ("nulls", {"include_headers": True}),
    "topic and partition alone": ("fields", {"columns": ["partition", "topic"]}),
    "no column": ("fields", {"columns": []}),
    "part of the offsets": ("fields", {"starting_offsets": {0: 7, 1: 0}, "ending_offsets": {0: 95, 1: "latest"}}),
    "old messages": ("old", {"include_headers": True}),
    "copies": ("copies", {}),
    "copies with headers": ("copies", {"include_headers": True}),
    "copies without offsets": ("copies", {"columns": ["value", "key"]}),
    "committed": ("transactions", {"isolation_level": "read_committed"}),
    "uncommitted": ("transactions", {}),
    "dropped": ("damaged", {"mode": "DROPMALFORMED", "include_headers": True}),
    "permissive": ("damaged", {"mode": "PERMISSIVE", "include_headers": True}),
    "permissive, raw bytes alone": ("damaged", {"mode": "PERMISSIVE", "columns": ["_corrupt_record"]}),
    "latest": ("keys", {"view": "latest"}),
    "latest with headers": ("keys", {"view": "latest", "include_headers": True, "columns": ["headers", "key"]}),
    "latest, no column": ("keys", {"view": "latest", "columns": []}),
    "holes": ("holes", {"fail_on_data_loss": False}),
    "large records": ("large", {"columns": ["value", "offset"]}),
    "several topics": ("", {"fail_on_data_loss": False, "include_headers": True}),
}
# One of each topic, and what the forms of batches differ in. Each engine reads all of them in `make test`.
SOME_SHAPES: Final = (
    *("headers", "columns in another order", "a null column", "no column", "old messages", "copies with headers"),
    *("committed", "permissive", "latest with headers", "holes", "large records", "several topics"),
)


def fill(archive: MadeArchive) -> None:
    """Put all topics into an archive."""
    for partition in range(PARTITIONS):
        _fill(archive, partition)


def scanned(name: str) -> tuple[Any, dict[str, Any]]:
    """Return the topics and the arguments of a shape."""
    topic, arguments = SHAPES[name]
    return topic or ["fields", "copies", "holes"], arguments


def rows_of(table: pa.Table) -> list[str]:
    """Return rows in an order that does not depend on the order of batches; long values by their CRC."""
    if not table.num_columns:
        return [str(table.num_rows)]
    return sorted(repr({name: _short(value) for name, value in row.items()}) for row in table.to_pylist())


def _short(value: object) -> object:
    return (len(value), crc32c(value)) if isinstance(value, bytes) and len(value) > _LONG else value


def txnindex_entry(producer: int, first: int, last: int, stable: int) -> bytes:
    """Return an entry of a `.txnindex`."""
    return struct.pack(">hqqqq", 0, producer, first, last, stable)


def transaction(start: int, end: int, producer: int = 5, *, epoch: int = 0) -> bytes:
    """Return the offsets `[start, end)` of a producer's transaction, a batch each."""
    return b"".join(
        batch(offset, [record(0, b"%d" % offset)], attributes=TRANSACTIONAL, producer_id=producer, epoch=epoch)
        for offset in range(start, end)
    )


def damaged_in_the_middle(log: bytes, position: int) -> bytes:
    """Return the segment with one bit changed."""
    return log[:position] + bytes([log[position] ^ 1]) + log[position + 1 :]


def _fill(archive: MadeArchive, partition: int) -> None:
    def put(topic: str, base: int, log: bytes, **more: Any) -> None:
        archive.put_segment(topic, base, log, partition=partition, **more)

    def commit(topic: str, end: int, **more: Any) -> None:
        archive.commit(topic, end, partition=partition, **more)

    for base in (0, 50):
        put("fields", base, b"".join(_odd_batch(start, start + 10) for start in range(base, base + 50, 10)))
    commit("fields", 100, highest_base=50)
    put("nulls", 0, batch(0, [record(delta, None, None) for delta in range(20)]))
    commit("nulls", 20)
    old = b"".join(message(magic, offset, b"v%d" % offset) for offset, magic in enumerate((0, 0, 1, 1)))
    put("old", 0, old + batches((4, 9), epoch=1))
    commit("old", 9, epochs=((1, 4),))
    put("copies", 0, batches((0, 20), (30, 45), (70, 100)), end=100)
    put("copies", 0, batches((10, 35), (40, 60)), end=100, variant=True)
    put("copies", 50, batches((55, 57), (90, 120)), end=120)
    commit("copies", 120, highest_base=50)
    log = transaction(0, 5) + marker(5, 5, ABORT) + transaction(6, 10) + marker(10, 5, COMMIT) + transaction(11, 15)
    put("transactions", 0, log, txnindex=txnindex_entry(5, 0, 5, 6))
    commit("transactions", 15, last_stable_offset=11)
    log = batches(*steps(0, 50))
    put("damaged", 0, log, body=damaged_in_the_middle(log, len(batches(*steps(0, 20))) + 80))
    put("damaged", 50, batches(*steps(50, 90)))
    commit("damaged", 90, highest_base=50)
    for base in (0, 60):
        keys = [record(delta, b"%d" % (delta % 20), None if delta % 7 == 0 else b"v%d" % base) for delta in range(60)]
        put("keys", base, batch(base, keys))
    commit("keys", 120, highest_base=60)
    put("holes", 0, batches(*steps(0, 20)))
    put("holes", 50, batches(*steps(50, 80)))
    archive.store.put(archive.partition("holes", partition).gap(20, 30), Gap(20, 30, "retention", 0, 1).encode())
    commit("holes", 80, highest_base=50)
    for base in range(0, 12, 3):
        put("large", base, batch(base, [record(delta, value=b"%07d" % (base + delta) * 43_000) for delta in range(3)]))
    largest = 17 << 20 if partition else 1 << 20  # more than the memory of one batch, which then grows
    put("large", 12, batch(12, [record(0, value=bytes(largest)), record(1, value=b"")]))
    commit("large", 14, highest_base=12)


def _odd_batch(start: int, end: int) -> bytes:
    """Return a batch with nulls, empty fields, headers, timestamps that decrease, and the broker's time."""
    records = [
        record(
            offset - start,
            None if offset % 5 == 0 else b"key-%d" % offset if offset % 11 else b"",
            None if offset % 7 == 0 else b"%d" % offset * (offset % 20),
            _HEADERS[offset % 3],
            timestamp_delta=-offset if offset % 4 == 0 else offset,
        )
        for offset in range(start, end)
    ]
    attributes = LOG_APPEND_TIME if start % 20 else 0
    return batch(start, records, attributes=attributes, base_timestamp=1000 + start, max_timestamp=1000 + 2 * end)
