"""Datasets whose reads a test notes."""

from datetime import UTC, datetime, timedelta

from ts_common.errors import TieredStorageError
from ts_reader import Estimate, Observer, Scan, ScanDataset

EPOCH = datetime.fromtimestamp(0, UTC)


class Noting(Observer):
    """Keeps what a dataset reads."""

    def __init__(self) -> None:
        self.estimates: list[Estimate] = []
        self.failures: list[TieredStorageError] = []

    def reads(self, estimate: Estimate) -> None:
        """Keep it."""
        self.estimates.append(estimate)

    def failed(self, error: TieredStorageError) -> None:
        """Keep it."""
        self.failures.append(error)


def observed(scan: Scan) -> tuple[ScanDataset, Noting]:
    """Return a dataset and its observer."""
    noting = Noting()
    return scan.dataset(noting), noting


def at(milliseconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)
