r"""Sealed cache objects: the metadata of all segments of a range of offsets, as columns (protocol rule 16).

::

    segment-metadata/<from>-<to>.<crc32c>.seal    never changed; the CRC-32C of its bytes, 8 hex digits
        "TSSC" 01                                 magic, version
        uint32                                    length of the header
        {"of":"t-0","lineage":null,"from":0,"to":5000,"rows":2,"epochs":[[0,0]],"columns":[["base","int64",61],...]}
        ...                                       the columns, each compressed by zlib: its length is in the header
    segment-metadata/seal.json
        {"version":1,"nonce":"..","lineage":null,"sealed":[[0,5000,"0-5000.1a2b3c4d.seal"]],"open":{"<token>":[0,700]}}

All numbers are little-endian. A cache object in JSON needs the listing, which is the catalog. A sealed one replaces the
listing of its range: it has every `.log` that begins there, all with plain names. They are contiguous and have a record
at each offset, so no other copy has more. Their epochs are those of the header, cut at each segment.

Columns are read and written whole, without a loop in Python: a million segments are planned in seconds. The agent has
no NumPy.
"""

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Annotated, Any, ClassVar, Final

from awscrt.checksums import crc32c

from ts_common.archive.commit import Lineage, StoredLineage
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.packed import column_bytes, column_of, unpack_exactly
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.archive.stored_object import StoredObject, limited
from ts_common.format_version import check_version
from ts_common.json_objects import (
    MAX_INT64,
    MIN_INT64,
    decoding,
    epoch_pair,
    parse_json,
    rows,
    shown,
    text,
    whole_number,
)

SEAL_JSON_BYTES: Final = 1 << 20  # 10,000 ranges; agents seal a thousand segments at once
SEALED_BYTES: Final = 4 << 20
MAX_ROWS: Final = 1 << 14
MAX_ETAG: Final = 128  # characters; an agent seals no object with a longer one
_MAX_COLUMNS: Final = 32
_HEADER_BYTES: Final = 1 << 20
_MAGIC: Final = b"TSSC\x01"
_PREFIX: Final = len(_MAGIC) + 4
_NAME: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})\.([0-9a-f]{8})\.seal", re.ASCII)
_WAY_OUT: Final = "; readers list its range; remove it: agents write another one"
ABSENT: Final = MIN_INT64
_LONGS: Final = ("base", "end", "size", "records", "control", "time_min", "time_max", "shipped")
_CRCS: Final = ("crc32c", "txnindex", "timeindex")
_KINDS: Final = {**dict.fromkeys(_LONGS, "int64"), **dict.fromkeys(_CRCS, "uint32"), "flags": "uint8"}
# The other bits of `flags`: whether the metadata names a `.timeindex`, and which indexes are stored.
_STATES: Final = (None, *TxnIndexState)
_NAMES_TIMEINDEX: Final = 4
_STORED: Final = {".index": 8, ".timeindex": 16, ".txnindex": 32}


@dataclass(frozen=True, slots=True)
class SealedRange:
    """A range of `seal.json`: the offsets `[start, end)`, and the name of their object."""

    start: int
    end: int
    name: Annotated[str, limited(64, _NAME.pattern)]


@dataclass(frozen=True, slots=True)
class SealJson(StoredObject, expected="a list of sealed ranges", most=SEAL_JSON_BYTES, way_out=_WAY_OUT):
    """The object `seal.json`.

    Attributes:
        nonce: random text, so that no two have equal bytes: an ETag is a hash.
        lineage: of the commit that the ranges were sealed by.
        sealed: the ranges that count, ascending and disjoint.
        open: by token, the offsets `[from, to)` that stay unsealed.
    """

    nonce: str
    lineage: StoredLineage | None
    sealed: tuple[SealedRange, ...]
    open: Mapping[str, tuple[int, int]]

    def check(self) -> None:
        """Check that the ranges ascend, and have the names of their objects."""
        ends = [0, *(end for each in self.sealed for end in (each.start, each.end))]
        if ends != sorted(ends) or any(parse_sealed_name(each.name) != (each.start, each.end) for each in self.sealed):
            raise ValueError("its ranges do not ascend, or have other names")


def parse_sealed_name(name: str) -> tuple[int, int] | None:
    """Return the offsets `[from, to)` in the name of a sealed object below `segment-metadata/`; None for another."""
    match = _NAME.fullmatch(name)
    if match is None or not int(match[1]) < int(match[2]) <= MAX_INT64:
        return None
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class SealedRow:
    """One segment; its name is plain, so it has only `base`.

    Attributes:
        suffixes: of the indexes that are stored with it.
        metadata: its epochs are not stored; a reader gets them from the header.
    """

    base: int
    size: int
    etag: str
    suffixes: frozenset[str]
    metadata: SegmentMetadata


class Etags:
    """The ETags of the rows: a third of the bytes, and few readers need one. So they are unpacked for the first one.

    Args:
        packed: of all rows, of equal widths, compressed by zlib.
    """

    def __init__(self, packed: bytes, width: int) -> None:
        self._packed = packed
        self._width = width
        self._unpacked: bytes | None = None

    def __getitem__(self, number: int) -> str:
        if self._unpacked is None:
            self._unpacked = zlib.decompress(self._packed)
        return self._unpacked[number * self._width : (number + 1) * self._width].rstrip(b"\0").decode()

    def __reduce__(self) -> tuple[type["Etags"], tuple[bytes, int]]:
        return Etags, (self._packed, self._width)

    def part(self, first: int, stop: int) -> "Etags":
        """Return those of the rows from one to before another."""
        unpacked = zlib.decompress(self._packed)[first * self._width : stop * self._width]
        return Etags(zlib.compress(unpacked), self._width)


@dataclass(frozen=True, slots=True)
class SealedObject:
    """The rows of a sealed object, as columns.

    Attributes:
        name: below `segment-metadata/`; it has the CRC-32C of the object.
        start: first offset of the range.
        end: the offset after the last.
        epochs: of the range.
    """

    name: str
    start: int
    end: int
    lineage: Lineage | None
    epochs: EpochHistory
    columns: Mapping[str, Sequence[int]] = field(repr=False)
    etags: "Etags" = field(repr=False, compare=False)

    STATE_BITS: ClassVar[int] = 3  # of `flags`: the state of the `.txnindex`; 0 without one

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.columns["base"])

    def part(self, first: int, stop: int) -> "SealedObject":
        """Return the object with rows from one to before another only."""
        columns = {name: column[first:stop] for name, column in self.columns.items()}
        start, end = columns["base"][0], columns["end"][-1]
        epochs = self.epochs.from_offset(start).below(end)
        etags = self.etags.part(first, stop)
        return SealedObject(self.name, start, end, self.lineage, epochs, columns, etags)

    @property
    def states(self) -> set[TxnIndexState | None]:
        """The states of the rows' `.txnindex`; None of a row without one."""
        return {_STATES[flags & self.STATE_BITS] for flags in set(self.columns["flags"])}

    def row(self, number: int) -> SealedRow:
        """Return a row, with its epochs."""
        columns = self.columns
        base, end, size, records, control, time_min, time_max, shipped = (columns[name][number] for name in _LONGS)
        crc, txnindex, timeindex = (columns[name][number] for name in _CRCS)
        flags = columns["flags"][number]
        state = _STATES[flags & self.STATE_BITS]
        metadata = SegmentMetadata(
            end,
            self.epochs.from_offset(base).below(end).pairs,
            records,
            _number(time_max),
            _number(time_min),
            crc,
            None if state is None else (txnindex, state),
            timeindex=timeindex if flags & _NAMES_TIMEINDEX else None,
            shipped=_number(shipped),
            control=_number(control),
        )
        return SealedRow(base, size, self.etags[number], _SUFFIXES[flags >> 3], metadata)


_SUFFIXES: Final = tuple(frozenset(suffix for suffix, bit in _STORED.items() if flags << 3 & bit) for flags in range(8))


def _number(stored: int) -> int | None:
    return None if stored == ABSENT else stored


def is_regular(row: SealedRow, epochs: EpochHistory) -> bool:
    """Return whether a segment with a plain name can be sealed under the commit's epochs: dense and live as a whole."""
    metadata = row.metadata
    return (
        metadata.records == metadata.end - row.base
        and metadata.records > 0
        and not metadata.corruptions
        and metadata.replaces is None
        and metadata.epochs == epochs.from_offset(row.base).below(metadata.end).pairs
        and row.etag.isascii()
        and len(row.etag) <= MAX_ETAG
    )


def encode_sealed(
    keys: PartitionKeys, lineage: Lineage | None, epochs: EpochHistory, sealed: Sequence[SealedRow]
) -> tuple[str, bytes]:
    """Return the name below `segment-metadata/` and the content of a sealed object.

    Args:
        epochs: the commit's.
        sealed: contiguous rows, at most `MAX_ROWS`, each `is_regular`.
    """
    start, end = sealed[0].base, sealed[-1].metadata.end
    width = max(len(row.etag) for row in sealed)
    columns: list[tuple[str, str, bytes]] = [
        (name, "int64", column_bytes("q", [ABSENT if (found := get(row)) is None else found for row in sealed]))
        for name, get in _LONG_OF.items()
    ]
    crcs = [_crcs(row.metadata) for row in sealed]
    columns += [(name, "uint32", column_bytes("I", [each[at] for each in crcs])) for at, name in enumerate(_CRCS)]
    columns += [
        ("flags", "uint8", bytes(map(_flags, sealed))),
        ("etag", f"char{width}", b"".join(row.etag.encode().ljust(width, b"\0") for row in sealed)),
    ]
    packed = [(name, kind, zlib.compress(data)) for name, kind, data in columns]
    header = json.dumps(
        {
            "of": keys.directory,
            "lineage": None if lineage is None else lineage.encode(),
            "from": start,
            "to": end,
            "rows": len(sealed),
            "epochs": epochs.from_offset(start).below(end).pairs,
            "columns": [(name, kind, len(data)) for name, kind, data in packed],
        },
        separators=(",", ":"),
    ).encode()
    data = b"".join([_MAGIC, len(header).to_bytes(4, "little"), header, *(data for _, _, data in packed)])
    return f"{start}-{end}.{crc32c(data):08x}.seal", data


def decode_sealed(data: bytes, keys: PartitionKeys, name: str) -> SealedObject:
    """Parse a sealed object.

    Args:
        name: its name below `segment-metadata/`.

    Raises:
        CorruptData: it is damaged, has another name, belongs to another partition, or has rows that no agent seals.
        NewerFormat: a later release wrote it.
    """
    key = keys.cache_objects + name
    with decoding(key, "a sealed cache object", way_out=_WAY_OUT):
        match = _NAME.fullmatch(name)
        if match is None or len(data) > SEALED_BYTES or int(match[3], 16) != crc32c(data):
            raise ValueError("its CRC-32C is not that of its name")
        if data[:4] != _MAGIC[:4]:
            raise ValueError(f"it begins with {shown(data[:4])}")
        check_version({"version": data[4]}, key)
        length = int.from_bytes(data[len(_MAGIC) : _PREFIX], "little")
        header = parse_json(data[_PREFIX : _PREFIX + length], key, _HEADER_BYTES)
        if not isinstance(header, dict) or length > _HEADER_BYTES:
            raise ValueError("it has no header")
        if header["of"] != keys.directory:
            raise ValueError(f"it belongs to {text(header['of'])}")
        found = _decode(header, data, _PREFIX + length, name)
        if (found.start, found.end) != parse_sealed_name(name):
            raise ValueError("it has other offsets than its name")
        return found


def _decode(header: dict[str, Any], data: bytes, position: int, name: str) -> SealedObject:
    count = whole_number(header["rows"], 1, MAX_ROWS)
    columns: dict[str, Sequence[int]] = {}
    etags: Etags | None = None
    described = rows(header["columns"])
    if len(described) > _MAX_COLUMNS:
        raise ValueError(f"it has {len(described)} columns")
    for column, kind, packed in described:
        size = whole_number(packed, 0, len(data) - position)
        code, width = _kind(text(kind))
        if kind != _KINDS.get(text(column), kind):
            raise ValueError(f"the column {column} is of {kind}")
        unpacked = unpack_exactly(data[position : position + size], count * width)
        position += size
        if column == "etag":
            if not unpacked.isascii():
                raise ValueError("an ETag is not ASCII")
            etags = Etags(data[position - size : position], width)
        elif code:
            columns[text(column)] = column_of(code, unpacked)
    if etags is None:
        raise ValueError("it has no ETags")
    found = SealedObject(
        name,
        whole_number(header["from"]),
        whole_number(header["to"]),
        None if header["lineage"] is None else Lineage.decode(header["lineage"]),
        EpochHistory(tuple([epoch_pair(each) for each in rows(header["epochs"])])),
        columns,
        etags,
    )
    _check_rows(found)
    return found


def _check_rows(found: SealedObject) -> None:
    """Check that the rows are contiguous and dense, in the range of the object."""
    columns, pairs = found.columns, found.epochs.pairs
    base, end, records = columns["base"], columns["end"], columns["records"]
    is_dense = min(records) > 0 and list(map(sub, end, base)) == list(records)
    if base[0] != found.start or end[-1] != found.end or base[1:] != end[:-1] or not is_dense:
        raise ValueError("its rows are not contiguous and dense")
    if not pairs or pairs[0][1] != found.start or pairs[-1][1] >= found.end or pairs[0][0] < 0:
        raise ValueError("its epochs are not those of its range")
    if min(columns["size"]) < 0 or max(columns["flags"]) >= 2 * max(_STORED.values()):
        raise ValueError("a row has a size or flags that no agent writes")
    if not columns.keys() >= _KINDS.keys():
        raise ValueError("it lacks a column")


def _kind(kind: str) -> tuple[str, int]:
    """Return the code of `array` and the bytes of one value of a column's type; no code for text."""
    if kind.startswith("char"):
        return "", whole_number(int(kind.removeprefix("char")[:4]), 1, MAX_ETAG)
    return {"int64": ("q", 8), "uint32": ("I", 4), "uint8": ("B", 1)}[kind]


_LONG_OF: Final[Mapping[str, Callable[[SealedRow], int | None]]] = {
    "base": lambda row: row.base,
    "end": lambda row: row.metadata.end,
    "size": lambda row: row.size,
    "records": lambda row: row.metadata.records,
    "control": lambda row: row.metadata.control,
    "time_min": lambda row: row.metadata.time_min,
    "time_max": lambda row: row.metadata.time_max,
    "shipped": lambda row: row.metadata.shipped,
}


def _crcs(metadata: SegmentMetadata) -> tuple[int, int, int]:
    return metadata.crc32c, 0 if metadata.txnindex is None else metadata.txnindex[0], metadata.timeindex or 0


def _flags(row: SealedRow) -> int:
    metadata = row.metadata
    state = 0 if metadata.txnindex is None else _STATES.index(metadata.txnindex[1])
    stored = sum(_STORED[suffix] for suffix in row.suffixes)
    return state | (_NAMES_TIMEINDEX if metadata.timeindex is not None else 0) | stored
