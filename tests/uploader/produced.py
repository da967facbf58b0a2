"""Records that brokers get in these tests."""

from random import Random

from dev.local.kafka.cluster import Record


def records(count: int, *, size: int = 200, start: int = 0) -> list[Record]:
    return [
        Record(
            b"%07d" % n + Random(n).randbytes(size),  # no codec makes segments of it that never fill
            key=None if n % 11 == 0 else b"k%d" % n,
            headers=[("trace", b"%d" % n), ("trace", None)] if n % 3 == 0 else [],
            timestamp=1_700_000_000_000 + n * 10,
        )
        for n in range(start, start + count)
    ]
