"""Read an archive of Kafka topics without Spark: into Arrow, DuckDB, polars and pandas.

::

    from ts_reader import Archive

    archive = Archive("s3://bucket/base/prefix", cluster="prod")
    scan = archive.scan("clicks", starting_timestamp="2026-11-01T00:00:00Z")
    pyarrow.table(scan)

Below this interface is the engine, which Spark's source, tables, the endpoint and the consumer use too: `decode`,
`reading`, `query`, `schemas`, `following` and `execution`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ts_reader.archive import Archive
    from ts_reader.dataset import Observer, ScanDataset
    from ts_reader.partition_info import PartitionInfo
    from ts_reader.planned_query import Estimate, FarTimes
    from ts_reader.scan import PartitionStatistics, Scan
    from ts_reader.schemas.registry import Registry
    from ts_reader.steps import Step

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

# A worker of Spark imports the engine, and must not load what only this interface needs.
_MODULES = {
    "Archive": "archive",
    "Estimate": "planned_query",
    "FarTimes": "planned_query",
    "Observer": "dataset",
    "PartitionInfo": "partition_info",
    "PartitionStatistics": "scan",
    "Registry": "schemas.registry",
    "Scan": "scan",
    "ScanDataset": "dataset",
    "Step": "steps",
}


def __getattr__(name: str) -> Any:
    """Load a name of the interface when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
