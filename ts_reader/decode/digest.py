"""The digest of a record, and sums of digests over rows.

::

    SHA-256 of "topic|partition|offset|ms|type|H(key)|H(value)|H(name):H(value),H(name):H(value)"

`H` is the SHA-256 of the bytes, in lower-case hexadecimal, and `N` for NULL; no header is an empty text. `ms` is the
timestamp in milliseconds, `N` without one: as stored if the rows have it, or as the column `timestamp` has it. Sums are
those of the first and of the second 64 bits, each as an unsigned number: a row that is twice in a table is found, as it
is not with XOR. The order of rows has no effect.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.decode.digest_kernel import digests_of, milliseconds_of
from ts_reader.decode.kernel_source import DIGEST_BYTES, Bytes, sha256_functions

# For a document that others check.
DIGEST: Final = (
    "SHA-256 of topic|partition|offset|ms|type|H(key)|H(value)|H(name):H(value),... in UTF-8; H: SHA-256 in "
    "hexadecimal, N for NULL; sums of the first and of the second 64 bits, in hexadecimal"
)
RAW_DIGEST: Final = "_raw_digest"  # of a parsed table: the first 128 bits of the record's digest
_DIGEST_BYTES: Final = 16
BLOCK_OFFSETS: Final = 1_000_000  # that are summed together
_ORDINAL: Final = "_ordinal"
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_NO_HEADER: Final[Mapping[str, Any]] = {"key": None, "value": None}
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestampType")  # in records


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
        first = sum(int.from_bytes(digest[:8], "big") for digest in digests)
        second = sum(int.from_bytes(digest[8:_DIGEST_BYTES], "big") for digest in digests)
        return DigestSum(len(digests), first, second)
    words = np.ascontiguousarray(_digests(rows)[:, :_DIGEST_BYTES]).view(">u8")
    low, high = (words & 0xFFFFFFFF).sum(axis=0, dtype=np.uint64), (words >> 32).sum(axis=0, dtype=np.uint64)
    first, second = ((int(high[at]) << 32) + int(low[at]) for at in range(2))
    return DigestSum(len(words), first, second)


def raw_digests(rows: pa.RecordBatch) -> pa.Array:
    """Return the column `RAW_DIGEST` of rows with the columns `COLUMNS`."""
    data = np.ascontiguousarray(_digests(rows)[:, :_DIGEST_BYTES])
    bounds = np.arange(len(data) + 1, dtype=np.int32) * _DIGEST_BYTES
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _digests(rows: pa.RecordBatch | pa.Table) -> Bytes:
    """Return the digests of rows: uint8[n, 32]."""
    functions = sha256_functions()
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    found = [
        _in_python(each) if functions is None or _has_nulls(each) else digests_of(functions, each) for each in batches
    ]
    return np.concatenate([np.empty((0, DIGEST_BYTES), np.uint8), *found])


def _has_nulls(rows: pa.RecordBatch) -> bool:
    """Return whether rows have NULL where the kernel would read 0 or an empty text: rows that were damaged."""
    return any(rows[name].null_count for name in _NEVER_NULL)


def _in_python(rows: pa.RecordBatch) -> Bytes:
    """Return what `digests_of` returns, in five times its time."""
    bytes_of = {"headers": rows["headers"].cast(_HEADERS)}  # a name that is no UTF-8 is in a file that others wrote
    columns = [bytes_of.get(name, rows[name]).to_pylist() for name in COLUMNS if name != "timestamp"]
    times = milliseconds_of(rows).to_pylist()
    columns.insert(COLUMNS.index("timestamp"), times)
    found = b"".join(digest_of(*row) for row in zip(*columns, strict=True))
    return np.frombuffer(found, np.uint8).reshape(-1, DIGEST_BYTES)


def digest_of(
    topic: str,
    partition: int,
    offset: int,
    milliseconds: int | None,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Mapping[str, Any] | None] | None,
) -> bytes:
    """Return the digest of one record, 32 bytes."""
    named = [each or _NO_HEADER for each in headers or ()]
    pairs = ",".join(f"{_hash(_bytes(each['key']))}:{_hash(each['value'])}" for each in named)
    time = "N" if milliseconds is None else milliseconds
    text = f"{topic}|{partition}|{offset}|{time}|{timestamp_type}|{_hash(key)}|{_hash(value)}|{pairs}"
    return hashlib.sha256(text.encode()).digest()


def _bytes(name: str | bytes | None) -> bytes | None:
    return name.encode() if isinstance(name, str) else name


def _hash(data: bytes | None) -> str:
    return "N" if data is None else hashlib.sha256(data).hexdigest()
