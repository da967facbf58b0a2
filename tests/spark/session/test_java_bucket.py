"""A bucket that the Java uploader wrote: no metadata, no second line in `offset.wm`."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ts_common.errors import QueryError
from ts_common.store.factory import open_store
from ts_reader.query.plan_query import QueryPlan, plan_query
from ts_spark.options.parse import parse_options

LOCATION = (Path(__file__).parents[2] / "data/java-uploader/bucket-archive/kafka").as_uri()


def plan(**options: str) -> QueryPlan:
    given = {"path": LOCATION, "cluster": "my_test_kafka_cluster", "subscribe": "appendtime", **options}
    with open_store(LOCATION) as store:
        return plan_query(store, parse_options(given).query)


def rows(spark: SparkSession, **options: Any) -> list[Any]:
    table = (
        spark.read.format("kafka_segments")
        .option("cluster", "my_test_kafka_cluster")
        .option("prefixEntropyBits", 3)
        .option("subscribe", "appendtime")
        .options(**options)
        .load(LOCATION)
    )
    return table.selectExpr("offset", "timestampType", "unix_millis(timestamp) AS time").collect()


def test_a_java_written_bucket_reads_up_to_the_segment_that_its_commit_names(spark: SparkSession) -> None:
    """`offset.wm` names 200, so the segment at 287 is not committed."""
    found = rows(spark)
    assert [row.offset for row in found] == list(range(287))
    assert {row.timestampType for row in found} == {1}


def test_timestamps_are_found_without_metadata(spark: SparkSession) -> None:
    """No metadata has the latest timestamp of a segment, so its records are read."""
    everything = rows(spark)
    middle = everything[150].time
    expected = [row.offset for row in everything[next(i for i, r in enumerate(everything) if r.time >= middle) :]]
    assert [row.offset for row in rows(spark, startingTimestamp=middle)] == expected


def test_the_right_entropy_width_is_named() -> None:
    """The Java uploader's keys have three bits here."""
    with pytest.raises(QueryError, match="found with prefixEntropyBits=3: set that option"):
        plan()
