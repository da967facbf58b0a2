"""Hashes of keys, as the index of keys and the partitioners of Kafka's clients compute them.

==========  =====================================================  ================================
number      from                                                   partition: the number modulo N
==========  =====================================================  ================================
`place`     40 bits of FNV-1a of 64 bits, mixed as in MurmurHash3  none: it is the order of an index
`murmur2`   MurmurHash2 without its sign                           Java, kafka-python
`crc32`     CRC-32                                                 librdkafka's `consistent`
`fnv1a`     FNV-1a of 32 bits, without its sign                    Sarama
==========  =====================================================  ================================

This module computes them for one key, without a library; `key_hashes` for all keys of a segment.
"""

import zlib
from dataclasses import dataclass
from typing import Final

PLACE_BITS: Final = 40
WORD: Final = 0xFFFFFFFF
FNV: Final = 0x811C9DC5
FNV_PRIME: Final = 0x01000193
FNV_LONG: Final = 0xCBF29CE484222325
FNV_LONG_PRIME: Final = 0x100000001B3
MIX_1: Final = 0xFF51AFD7ED558CCD
MIX_2: Final = 0xC4CEB9FE1A85EC53
MURMUR: Final = 0x5BD1E995
MURMUR_SEED: Final = 0x9747B28C
SIGN: Final = 1 << 31
_LONG: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class HashedKey:
    """A key with its hashes; the attributes are those of the module's table."""

    key: bytes
    place: int
    murmur2: int
    crc32: int
    fnv1a: int


def hashed(key: bytes) -> HashedKey:
    """Return a key with its hashes."""
    return HashedKey(key, _place(key), _murmur2(key), zlib.crc32(key), _fnv1a(key))


def _place(key: bytes) -> int:
    value = FNV_LONG
    for byte in key:
        value = (value ^ byte) * FNV_LONG_PRIME & _LONG
    value = (value ^ value >> 33) * MIX_1 & _LONG
    value = (value ^ value >> 33) * MIX_2 & _LONG
    return (value ^ value >> 33) >> 24


def _murmur2(key: bytes) -> int:
    value = MURMUR_SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * MURMUR & WORD
        word = (word ^ word >> 24) * MURMUR & WORD
        value = (value * MURMUR & WORD) ^ word
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * MURMUR & WORD
    value = (value ^ value >> 13) * MURMUR & WORD
    return (value ^ value >> 15) & (SIGN - 1)


def _fnv1a(key: bytes) -> int:
    value = FNV
    for byte in key:
        value = (value ^ byte) * FNV_PRIME & WORD
    return value if value < SIGN else (1 << 32) - value
