"""Hashes of the keys of records, by a kernel; `ts_reader.decode.hashed_key` has what they are."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ts_reader.decode.checksums import crc32_of
from ts_reader.decode.columns import BinaryColumn
from ts_reader.decode.compiled import kernel
from ts_reader.decode.hashed_key import (
    FNV,
    FNV_LONG,
    FNV_LONG_PRIME,
    FNV_PRIME,
    MIX_1,
    MIX_2,
    MURMUR,
    MURMUR_SEED,
    SIGN,
    WORD,
)
from ts_reader.decode.kernel_source import Bytes, Int32s, Int64s, inlined


@dataclass(frozen=True, slots=True, eq=False)
class KeyHashes:
    """The hashes of the keys of some records that have one; each array is int64[n]."""

    offsets: Int64s
    place: Int64s
    murmur2: Int64s
    crc32: Int64s
    fnv1a: Int64s


def hashes_of(keys: BinaryColumn, offsets: Int64s) -> KeyHashes:
    """Return the hashes of the keys that are not null.

    Args:
        keys: of consecutive records.
    """
    rows = len(offsets)
    found = [np.empty(rows, np.int64) for _ in range(5)]
    validity = keys.validity if keys.null_count else _ALL
    count = _hash_keys(rows, keys.data, keys.offsets, validity, np.ascontiguousarray(offsets), *found)
    return KeyHashes(*(each[:count] for each in found))


_ALL: Final[Bytes] = np.empty(0, np.uint8)  # no key is null


@inlined
def _place_of(data: Bytes, start: Any, end: Any) -> Any:
    value = np.uint64(FNV_LONG)
    for at in range(start, end):
        value = (value ^ np.uint64(data[at])) * np.uint64(FNV_LONG_PRIME)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(MIX_1)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(MIX_2)
    return np.int64((value ^ (value >> np.uint64(33))) >> np.uint64(24))


@inlined
def _times_murmur(value: Any) -> Any:
    return (value * np.uint64(MURMUR)) & np.uint64(WORD)


@inlined
def _murmur2_of(data: Bytes, start: Any, end: Any) -> Any:
    value = np.uint64(MURMUR_SEED) ^ np.uint64(end - start)
    at = start
    while at + 4 <= end:
        word = np.uint64(0)
        for index in range(4):
            word |= np.uint64(data[at + index]) << np.uint64(8 * index)
        word = _times_murmur(word)
        value = _times_murmur(value) ^ _times_murmur(word ^ (word >> np.uint64(24)))
        at += 4
    if at < end:
        word = np.uint64(0)
        for index in range(end - at):
            word |= np.uint64(data[at + index]) << np.uint64(8 * index)
        value = _times_murmur(value ^ word)
    value = _times_murmur(value ^ (value >> np.uint64(13)))
    return np.int64((value ^ (value >> np.uint64(15))) & np.uint64(0x7FFFFFFF))


@inlined
def _fnv1a_of(data: Bytes, start: Any, end: Any) -> Any:
    value = np.uint64(FNV)
    for at in range(start, end):
        value = ((value ^ np.uint64(data[at])) * np.uint64(FNV_PRIME)) & np.uint64(WORD)
    number = np.int64(value)
    return number if number < SIGN else np.int64(1 << 32) - number


@kernel
def _hash_keys(
    rows: int,
    data: Bytes,
    bounds: Int32s,
    validity: Bytes,
    offsets: Int64s,
    found_offsets: Int64s,
    places: Int64s,
    murmur2: Int64s,
    crc32: Int64s,
    fnv1a: Int64s,
) -> int:
    """Hash the keys that are not null; return their number.

    Args:
        rows: the number of records.
        data: bytes of the keys; `bounds` has rows + 1.
        validity: a bit for each record, or nothing if all have a key.
        found_offsets: room for the offsets of the records with a key.
        places: room for the hashes, as the others.
    """
    count = 0
    for row in range(rows):
        if len(validity) and not (validity[row >> 3] >> np.uint8(row & 7)) & np.uint8(1):
            continue
        start, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
        found_offsets[count] = offsets[row]
        places[count] = _place_of(data, start, end)
        murmur2[count] = _murmur2_of(data, start, end)
        crc32[count] = crc32_of(data, start, end)  # type: ignore[arg-type]
        fnv1a[count] = _fnv1a_of(data, start, end)
        count += 1
    return count
