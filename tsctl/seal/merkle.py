"""Merkle trees of RFC 6962, section 2.1: the root over all leaves of a seal, and the path that proves one of them.

The hash of a leaf begins with a byte 0 and the hash of an inner node with a byte 1, so that no leaf can pass as a node.
"""

from collections.abc import Sequence
from hashlib import sha256


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def _levels(hashes: Sequence[bytes]) -> list[list[bytes]]:
    """Return the nodes by level, the leaves first. A last node without a neighbour is its own parent."""
    levels = [list(hashes)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [_node(*below[at : at + 2]) for at in range(0, len(below) - 1, 2)]
        levels.append([*pairs, *([below[-1]] if len(below) % 2 else [])])
    return levels


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Return the root over the hashes of leaves; of none, the hash of nothing."""
    return _levels(hashes)[-1][0] if hashes else sha256().digest()


def path_of(hashes: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the audit path of a leaf: the neighbours on the way from it to the root.

    Raises:
        IndexError: there is no such leaf.
    """
    if not 0 <= index < len(hashes):
        raise IndexError(f"leaf {index} of {len(hashes)}")
    path = []
    for level in _levels(hashes)[:-1]:
        neighbour = index ^ 1
        if neighbour < len(level):
            path.append(level[neighbour])
        index //= 2
    return tuple(path)


def root_by_path(hashed: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a path leads to from a leaf; None if the path has another length than the tree's.

    Args:
        hashed: the hash of the leaf.
        index: of the leaf.
        size: number of leaves.
    """
    rest = list(path)
    while size > 1:
        if index % 2 or index + 1 < size:
            if not rest:
                return None
            other = rest.pop(0)
            hashed = _node(other, hashed) if index % 2 else _node(hashed, other)
        index, size = index // 2, (size + 1) // 2
    return None if rest else hashed
