"""Records to produce that have all that a record can have."""

import os

from dev.local.kafka.cluster import Record

TIME = 1_700_000_000_000


def every_field(count: int, *, with_headers: bool = True) -> list[Record]:
    """Nulls, empty fields, headers with repeated names, timestamps that go back; then what fills segments up.

    Args:
        count: how many, before 15 records of 4,000 random bytes.
        with_headers: False for formats that have none.
    """
    made = []
    for n in range(count):
        pairs: list[tuple[str, bytes | None]] = [("h", b"%d" % n), ("h", None), ("\u00e9", b"")]
        made.append(
            Record(
                value=None if n % 7 == 0 else b"%d" % n * (n % 20),
                key=None if n % 5 == 0 else b"key-%d" % n if n % 11 else b"",
                headers=pairs if with_headers and n % 3 == 0 else [],
                timestamp=TIME + n * 1000 - (5000 if n % 10 == 0 else 0),
            )
        )
    return [*made, *(Record(os.urandom(4000), timestamp=TIME + count * 1000) for _ in range(15))]
