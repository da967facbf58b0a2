"""The newest offset of each key, in little memory: a hash table of 128-bit hashes in flat arrays.

A key costs 24 bytes (its hash, its newest offset with one bit for "this one is a tombstone") in tables that are filled
to between 53 and 80 %: 30 to 45 bytes. There are 64 tables, by bits of the hash, and each grows by half when it is
full, so growing needs hardly more than that. 10 million keys of a partition use about 0.4 GB of a Python worker.

Hash: SipHash-2-4 with 128 bits (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and its reference
implementation), with a random key per table, so that no producer can choose keys that collide. Two of n keys have the
same hash with odds of n^2 / 2^129: for a billion keys, one in 6 * 10^20. Then the older of the two would be missing.
"""

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_source import Bytes, Int32s, Int64s, UInt64Rows, UInt64s, inlined

_SHARD_BITS: Final = 6
_FIRST_CAPACITY: Final = 64
_FULL: Final = 0.8
_GROWTH: Final = 1.5
_EMPTY: Final = -1


@inlined
def _rounds(v0: Any, v1: Any, v2: Any, v3: Any, count: int) -> Any:
    """Return the state after `count` SipRounds."""
    for _ in range(count):
        v0 += v1
        v1 = (v1 << np.uint64(13)) | (v1 >> np.uint64(51))
        v1 ^= v0
        v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
        v2 += v3
        v3 = (v3 << np.uint64(16)) | (v3 >> np.uint64(48))
        v3 ^= v2
        v0 += v3
        v3 = (v3 << np.uint64(21)) | (v3 >> np.uint64(43))
        v3 ^= v0
        v2 += v1
        v1 = (v1 << np.uint64(17)) | (v1 >> np.uint64(47))
        v1 ^= v2
        v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@kernel
def siphash128(data: Bytes, bounds: Int32s, seed: UInt64s, hashes: UInt64Rows) -> None:
    """Fill `hashes[i]` with both halves of the hash of `data[bounds[i]:bounds[i + 1]]`.

    Args:
        data: the strings, one after the other.
        bounds: int32[n + 1].
        seed: uint64[2], the key of the hash.
        hashes: uint64[n, 2].
    """
    for index in range(len(hashes)):
        start, end = np.int64(bounds[index]), np.int64(bounds[index + 1])
        v0, v1 = seed[0] ^ np.uint64(0x736F6D6570736575), seed[1] ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
        v2, v3 = seed[0] ^ np.uint64(0x6C7967656E657261), seed[1] ^ np.uint64(0x7465646279746573)
        position = start
        while position <= end:  # the last word has the rest, and the length in its highest byte
            word = np.uint64(0)
            held = min(np.int64(8), end - position)
            for byte in range(held):
                word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
            if held < 8:
                word |= np.uint64((end - start) & 0xFF) << np.uint64(56)
            v3 ^= word
            v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 2)
            v0 ^= word
            position += 8
        v2 ^= np.uint64(0xEE)
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 4)
        hashes[index, 0] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 4)
        hashes[index, 1] = v0 ^ v1 ^ v2 ^ v3


@kernel
def _put(table: UInt64Rows, newest: Int64s, hashes: UInt64Rows, values: Int64s) -> int:
    """Keep the greatest value of each hash, in a table with room for all; return the number of new hashes."""
    capacity = np.uint64(len(newest))
    added = 0
    for index in range(len(values)):
        first, second, value = hashes[index, 0], hashes[index, 1], values[index]
        slot: Any = np.int64(first % capacity)
        while newest[slot] != _EMPTY and (table[slot, 0] != first or table[slot, 1] != second):
            slot = slot + 1 if slot + 1 < len(newest) else 0
        if newest[slot] == _EMPTY:
            table[slot, 0], table[slot, 1] = first, second
            added += 1
        newest[slot] = max(newest[slot], value)
    return added


class NewestOffsets:
    """The newest record of each key among the records added so far."""

    def __init__(self) -> None:
        self._seed: UInt64s = np.frombuffer(os.urandom(16), np.uint64)
        self._shards = [_Shard() for _ in range(1 << _SHARD_BITS)]

    @property
    def keys(self) -> int:
        """Return the number of different keys."""
        return sum(shard.used for shard in self._shards)

    @property
    def size_in_bytes(self) -> int:
        """Return the size of its tables."""
        return sum(shard.size_in_bytes for shard in self._shards)

    def add(self, keys: pa.BinaryArray, offsets: Int64s, tombstones: npt.NDArray[np.bool_]) -> None:
        """Add records, in any order.

        Args:
            keys: without nulls.
            offsets: int64[n].
            tombstones: bool[n], whether each record's value is null.
        """
        hashes: UInt64Rows = np.empty((len(keys), 2), np.uint64)
        _, bounds, data = keys.buffers()
        held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        siphash128(held, np.frombuffer(bounds, np.int32)[keys.offset : keys.offset + len(keys) + 1], self._seed, hashes)
        values = offsets * 2 + tombstones
        shards = (hashes[:, 1] >> np.uint64(64 - _SHARD_BITS)).astype(np.uint8)
        order = np.argsort(shards, kind="stable")
        hashes, values = hashes[order], values[order]
        ends = np.cumsum(np.bincount(shards, minlength=len(self._shards)))
        start = 0
        for shard, end in zip(self._shards, ends.tolist(), strict=True):
            if end > start:
                shard.put(hashes[start:end], values[start:end])
            start = end

    def pop_offsets(self) -> Int64s:
        """Return the offsets of the newest records that are not tombstones, ascending, and empty the table."""
        found = np.concatenate([np.empty(0, np.int64), *self._pop_shards()])
        found.sort()
        return found

    def _pop_shards(self) -> Iterator[Int64s]:
        while self._shards:
            newest = self._shards.pop().newest
            yield newest[(newest != _EMPTY) & (newest & 1 == 0)] >> 1


class _Shard:
    """A table with open addressing.

    Attributes:
        used: slots in use.
        newest: twice the newest offset of each slot's hash, plus one for a tombstone; -1 for a free slot.
    """

    def __init__(self) -> None:
        self.used = 0
        self.newest: Int64s
        self._allocate(_FIRST_CAPACITY)

    @property
    def size_in_bytes(self) -> int:
        return self._table.nbytes + self.newest.nbytes

    def put(self, hashes: UInt64Rows, values: Int64s) -> None:
        needed = (self.used + len(values)) / _FULL
        if needed > len(self.newest):
            table, newest = self._table, self.newest
            self._allocate(max(int(needed) + 1, int(len(newest) * _GROWTH)))
            inside = newest != _EMPTY
            _put(self._table, self.newest, table[inside], newest[inside])
        self.used += int(_put(self._table, self.newest, hashes, values))

    def _allocate(self, capacity: int) -> None:
        self._table: UInt64Rows = np.empty((capacity, 2), np.uint64)
        self.newest = np.full(capacity, _EMPTY, np.int64)
