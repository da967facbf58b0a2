"""Transactions of a made log, with times and producer epochs."""

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from ts_common.log_format.markers import ABORT, COMMIT

__all__ = ["ABORT", "COMMIT", "data", "ended"]


def data(offset: int, time: int, producer: int = 7, *, epoch: int = 0, sequence: int = 5, key: bytes = b"k") -> bytes:
    """Return one record of a transaction with a timestamp (ms); with sequence 0 it is the first of its epoch."""
    return batch(
        offset,
        [record(0, key, b"%d" % offset)],
        attributes=TRANSACTIONAL,
        producer_id=producer,
        producer_epoch=epoch,
        sequence=sequence,
        base_timestamp=time,
        max_timestamp=time,
    )


def ended(offset: int, time: int, producer: int = 7, *, kind: int = COMMIT, epoch: int = 0) -> bytes:
    """Return a marker that its leader wrote at a time (ms)."""
    return marker(offset, producer, kind, time=time, producer_epoch=epoch)
