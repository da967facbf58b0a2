"""Ways to damage the batch `[20, 30)` of a segment of five batches, and the offsets that are then lost."""

from collections.abc import Callable
from typing import Final

from tests.made_archive import batches, steps

Damage = Callable[[bytes], bytes]

LOG: Final = batches(*steps(0, 50))
BEGIN: Final = len(batches((0, 10), (10, 20)))  # of the batch [20, 30)
END: Final = len(batches(*steps(0, 30)))

DAMAGES: Final[dict[str, tuple[Damage, list[int]]]] = {
    "truncated": (lambda log: log[: BEGIN + 70], [*range(20, 50)]),
    "flipped bit": (lambda log: log[: BEGIN + 80] + bytes([log[BEGIN + 80] ^ 1]) + log[BEGIN + 81 :], [*range(20, 30)]),
    "base offset": (lambda log: log[:BEGIN] + (21).to_bytes(8, "big") + log[BEGIN + 8 :], [*range(20, 30)]),
    "leader epoch": (lambda log: log[: BEGIN + 12] + (7).to_bytes(4, "big") + log[BEGIN + 16 :], [*range(20, 30)]),
    "2 GB": (lambda log: log[: BEGIN + 8] + (2**31 - 1).to_bytes(4, "big") + log[BEGIN + 12 :], [*range(20, 30)]),
    "garbage": (lambda log: log[:BEGIN] + b"\xa5" * (END - BEGIN) + log[END:], [*range(20, 30)]),
    "zeros": (lambda log: log[:BEGIN] + bytes(END - BEGIN) + log[END:], [*range(20, 30)]),
    "cut out": (lambda log: log[:BEGIN] + log[END:], [*range(20, 30)]),
}


def raw_bytes(how: str) -> bytes:
    """Return the bytes that a reader finds in the place of the batch."""
    return DAMAGES[how][0](LOG)[BEGIN : BEGIN if how == "cut out" else END]
