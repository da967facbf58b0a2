"""Rendezvous hashing: each key belongs to the candidate with the highest hash of candidate and key.

If a candidate leaves, only its keys move, and they spread over all others. If it returns, the same keys return.
D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", 1998.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def seed_of(candidate: str) -> bytes:
    """Return what `owner` mixes into the hash for a candidate.

    Args:
        candidate: a name that is the same in all processes.
    """
    return hashlib.blake2b(candidate.encode(), digest_size=32).digest()


def owner(key: str, candidates: Sequence[tuple[bytes, T]]) -> T:
    """Return the candidate that owns a key.

    Args:
        key: any text.
        candidates: seed and value of each; at least one.
    """
    encoded = key.encode()
    return max(candidates, key=lambda each: hashlib.blake2b(encoded, digest_size=8, key=each[0]).digest())[1]
