"""Read an archive of Kafka topics without Spark: into Arrow, DuckDB, polars and pandas.

::

    from ts_reader import Archive

    archive = Archive("s3://bucket/base/prefix", cluster="prod")
    scan = archive.scan("clicks", starting_timestamp="2026-11-01T00:00:00Z")
    pyarrow.table(scan)
"""

from typing import TYPE_CHECKING, Any

from ts_reader.archive import Archive
from ts_reader.dataset import Observer, ScanDataset
from ts_reader.following import Step
from ts_reader.partitions import PartitionInfo
from ts_reader.planned_query import Estimate, FarTimes
from ts_reader.scan import Scan
from ts_reader.statistics import PartitionStatistics

if TYPE_CHECKING:
    from ts_common.schemas.registry import Registry

__all__ = [
    "Archive",
    "Estimate",
    "FarTimes",
    "Observer",
    "PartitionInfo",
    "PartitionStatistics",
    "Registry",
    "Scan",
    "ScanDataset",
    "Step",
]


def __getattr__(name: str) -> Any:
    """Load `Registry` when it is first used: few scans need its HTTP client."""
    if name == "Registry":
        from ts_common.schemas.registry import Registry  # noqa: PLC0415

        return Registry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
