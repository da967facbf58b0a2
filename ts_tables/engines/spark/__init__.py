"""Spark: its engine, and the maintenance of Iceberg tables by its procedures.

No other part of tables imports pyspark.
"""

from ts_tables.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
