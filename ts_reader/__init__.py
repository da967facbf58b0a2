"""Read an archive of Kafka topics without Spark: into Arrow, DuckDB, polars and pandas.

::

    from ts_reader import Archive

    archive = Archive("s3://bucket/base/prefix", cluster="prod")
    scan = archive.scan("clicks", starting_timestamp="2026-11-01T00:00:00Z")
    pyarrow.table(scan)
"""

from ts_reader.archive import Archive, PartitionInfo
from ts_reader.dataset import Observer, ScanDataset
from ts_reader.planned_query import Estimate
from ts_reader.scan import Scan
from ts_reader.statistics import PartitionStatistics

__all__ = ["Archive", "Estimate", "Observer", "PartitionInfo", "PartitionStatistics", "Scan", "ScanDataset"]
