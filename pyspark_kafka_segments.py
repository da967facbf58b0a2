"""What Spark looks for: a top-level module named `pyspark_*` that holds a `DefaultSource`."""

from ts_spark.source import KafkaSegmentsSource as DefaultSource

__all__ = ["DefaultSource"]
