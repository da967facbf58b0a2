"""The digest of a record, and sums of digests over rows.

::

    SHA-256 of "topic|partition|offset|ms|type|H(key)|H(value)|H(name):H(value),H(name):H(value)"

`H` is the SHA-256 of the bytes, in lower-case hexadecimal, and `N` for NULL; no header is an empty text. `ms` is the
timestamp in milliseconds, `N` without one. Sums are those of the first and of the second 64 bits, each as an unsigned
number: a row that is twice in a table is found, as it is not with XOR. The order of rows has no effect.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# For a document that others check.
DIGEST: Final = (
    "SHA-256 of topic|partition|offset|ms|type|H(key)|H(value)|H(name):H(value),... in UTF-8; H: SHA-256 in "
    "hexadecimal, N for NULL; sums of the first and of the second 64 bits, in hexadecimal"
)
RAW_DIGEST: Final = "_raw_digest"  # of a parsed table: the first 128 bits of the record's digest
_DIGEST_BYTES: Final = 16
BLOCK_OFFSETS: Final = 1_000_000  # that are summed together
_ORDINAL: Final = "_ordinal"
_AT_ONCE: Final = 1024  # rows
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class DigestSum:
    """The number of rows, and the sums of the two halves of their digests."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: "DigestSum") -> "DigestSum":
        return DigestSum(self.rows + other.rows, self.first + other.first, self.second + other.second)

    def __sub__(self, other: "DigestSum") -> "DigestSum":
        return DigestSum(self.rows - other.rows, self.first - other.first, self.second - other.second)

    @property
    def text(self) -> str:
        """Both sums as one text: hexadecimal, with a colon."""
        return f"{self.first:x}:{self.second:x}"


def parse_sums(rows: int, text: str) -> DigestSum:
    """Return sums.

    Args:
        rows: their number.
        text: as `DigestSum.text`.

    Raises:
        ValueError: it is not such a text.
    """
    first, _, second = text.partition(":")
    return DigestSum(rows, int(first, 16), int(second, 16))


def sum_of(rows: pa.RecordBatch | pa.Table) -> DigestSum:
    """Return the sums of records: of rows with the columns `COLUMNS`, or of the first row of each in a parsed table."""
    if RAW_DIGEST in rows.schema.names:
        firsts = rows.filter(pc.equal(rows[_ORDINAL], 0))
        digests = firsts[RAW_DIGEST].to_pylist()
    else:
        digests = _digests(rows)
    first = sum(int.from_bytes(digest[:8], "big") for digest in digests)
    second = sum(int.from_bytes(digest[8:_DIGEST_BYTES], "big") for digest in digests)
    return DigestSum(len(digests), first, second)


def raw_digests(rows: pa.RecordBatch) -> pa.Array:
    """Return the column `RAW_DIGEST` of rows with the columns `COLUMNS`."""
    return pa.array([digest[:_DIGEST_BYTES] for digest in _digests(rows)], pa.binary())


def _digests(rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    """Return what `digest_of` returns of each row; its parts are here once more, for a third of the time."""
    found: list[bytes] = []
    for start in range(0, rows.num_rows, _AT_ONCE):  # their bytes stay in the processor's cache
        found += _some_digests(rows.slice(start, _AT_ONCE))
    return found


def _some_digests(rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    sha = hashlib.sha256
    columns = [_values(rows.column(name), name) for name in COLUMNS]
    return [
        sha(
            f"{topic}|{partition}|{offset}|{'N' if time is None else time}|{kind}|"
            f"{'N' if key is None else sha(key).hexdigest()}|{'N' if value is None else sha(value).hexdigest()}|"
            f"{_pairs(headers) if headers else ''}".encode()
        ).digest()
        for topic, partition, offset, time, kind, key, value, headers in zip(*columns, strict=True)
    ]


def digest_of(
    topic: str,
    partition: int,
    offset: int,
    milliseconds: int | None,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Mapping[str, Any]] | None,
) -> bytes:
    """Return the digest of one record, 32 bytes."""
    pairs = _pairs(headers or ())
    time = "N" if milliseconds is None else milliseconds
    text = f"{topic}|{partition}|{offset}|{time}|{timestamp_type}|{_hash(key)}|{_hash(value)}|{pairs}"
    return hashlib.sha256(text.encode()).digest()


def _pairs(headers: Sequence[Mapping[str, Any]]) -> str:
    return ",".join(f"{_hash(_bytes(each['key']))}:{_hash(each['value'])}" for each in headers)


def _values(column: pa.Array | pa.ChunkedArray, name: str) -> list[Any]:
    if name == "headers" and column.null_count == len(column):
        return [None] * len(column)
    if name != "timestamp":
        found: list[Any] = column.to_pylist()
        return found
    return [None if time is None else time // 1000 for time in column.cast(pa.int64()).to_pylist()]


def _bytes(name: str | None) -> bytes | None:
    return None if name is None else name.encode()


def _hash(data: bytes | None) -> str:
    return "N" if data is None else hashlib.sha256(data).hexdigest()
