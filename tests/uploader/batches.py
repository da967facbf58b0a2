"""Batches of closed segments that no broker wrote."""

from tests.common.log_format import build


def batch(base: int, records: int, epoch: int = 0) -> bytes:
    return build.batch(base, [build.record(n) for n in range(records)], epoch=epoch)
