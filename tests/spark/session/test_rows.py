"""What a query shows equals what Kafka's Java consumer shows, field by field, in order, and once."""

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from dev.local.kafka.cluster import LocalCluster
from tests.spark.archives import oracle_records
from tests.spark.session.conftest import NAMES, Shipped


@pytest.mark.parametrize("topic", ["fields", "appended"])
def test_r07_rows_equal_the_java_consumers(spark: SparkSession, on_disk: Shipped, topic: str) -> None:
    """Five codecs, both timestamp types, null and empty fields, headers with repeated names (fault R07)."""
    options = on_disk.archive.options(subscribe=topic, includeHeaders="true")
    table = spark.read.format("kafka_segments").options(**options).load()
    assert oracle_records(table.toArrow().to_pylist()) == on_disk.records[topic]


def test_rows_are_read_from_s3(spark: SparkSession, on_s3: Shipped) -> None:
    """The executors open the bucket with the environment's credentials; keys have five bits of entropy."""
    archive = on_s3.archive
    table = (
        spark.read.format("kafka_segments")
        .option("cluster", "prod")
        .option("prefixEntropyBits", 5)
        .option("subscribe", "fields")
        .option("includeHeaders", "true")
        .load(archive.location)
    )
    assert oracle_records(table.toArrow().to_pylist()) == on_s3.records["fields"]


def test_the_columns_are_those_of_sparks_kafka_source(spark: SparkSession, on_disk: Shipped) -> None:
    """Names, types and order; headers only with `includeHeaders`."""
    table = spark.read.format("kafka_segments").options(**on_disk.archive.options(subscribe="t")).load()
    assert [(field.name, field.dataType.simpleString()) for field in table.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    options = on_disk.archive.options(subscribe="t", includeHeaders="TRUE")
    headers = spark.read.format("kafka_segments").options(**options).load().schema["headers"]
    assert headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_a_narrower_schema_reads_those_columns(spark: SparkSession, on_disk: Shipped) -> None:
    """In the order of the schema, the only thing that Spark passes about the columns."""
    options = on_disk.archive.options(subscribe="fields")
    reader = spark.read.format("kafka_segments").options(**options)
    table = reader.schema("offset bigint, partition int").load()
    assert [tuple(row) for row in table.collect()] == [
        (record.offset, record.partition) for record in on_disk.records["fields"]
    ]
    assert reader.schema("topic string").load().distinct().collect()[0].topic == "fields"


def test_a_count_needs_every_row_and_no_column(spark: SparkSession, on_disk: Shipped) -> None:
    """Also in a temporary view, which keeps its options, and over an aggregate."""
    options = on_disk.archive.options(subscribe="fields")
    listed = ", ".join(f"{name} '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW history USING kafka_segments OPTIONS ({listed})")
    assert spark.table("history").count() == len(on_disk.records["fields"])
    per_partition = spark.sql("SELECT partition, count(*) AS n FROM history GROUP BY partition").collect()
    assert {row.partition: row.n for row in per_partition} == {
        partition: end for (topic, partition), end in on_disk.next_offsets.items() if topic == "fields"
    }


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        pytest.param({"subscribe": "_under"}, {"_under": {0}}, marks=pytest.mark.full),
        ({"subscribe": " a-b , a.b,a-b"}, {"a-b": {0}, "a.b": {0}}),
        pytest.param({"subscribe": "t-1"}, {"t-1": {0}}, marks=pytest.mark.full),
        pytest.param({"subscribe": "t"}, {"t": set(range(11))}, marks=pytest.mark.full),
        pytest.param({"subscribePattern": "a.b"}, {"a-b": {0}, "a.b": {0}}, marks=pytest.mark.full),
        ({"subscribePattern": r"t-\d+"}, {"t-1": {0}, "t-10": {0}}),
        ({"assign": '{"t":[1,10],"t-10":[0]}'}, {"t": {1, 10}, "t-10": {0}}),
    ],
)
def test_r10_exactly_the_selected_partitions_are_read(
    on_disk: Shipped, subscription: dict[str, str], expected: dict[str, set[int]]
) -> None:
    """Names that begin with `_` or contain `-` and `.`; partitions 10 and 1 (fault R10)."""
    rows = on_disk.archive.rows(**subscription)
    found: dict[str, set[int]] = {}
    for row in rows:
        found.setdefault(row["topic"], set()).add(row["partition"])
        assert row["value"].startswith(f"{row['topic']}-{row['partition']} ".encode())
    assert found == expected
    assert len(rows) == sum(on_disk.next_offsets[t, p] for t, partitions in expected.items() for p in partitions)


def test_timestamps_mean_what_they_mean_to_the_broker(cluster: LocalCluster, on_disk: Shipped) -> None:
    """The offset that Kafka finds for a time is where a query of that time begins; timestamps go back now and then."""
    end = on_disk.next_offsets["fields", 3]
    times = [record.timestamp for record in on_disk.records["fields"] if record.partition == 3]
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "times"})
    for time in [0, *times[::97], times[10], times[11] - 1, times[-1] + 1]:
        (found,) = consumer.offsets_for_times([TopicPartition("fields", 3, time)], timeout=30)
        options = {"startingTimestamp": str(time), "startingOffsetsByTimestampStrategy": "latest"}
        rows = on_disk.archive.rows(assign='{"fields":[3]}', **options)
        assert [row["offset"] for row in rows] == list(range(found.offset, end)) if found.offset >= 0 else rows == []
    consumer.close()


def test_spark_finds_the_source_without_loading_what_is_heavy() -> None:
    """Spark imports it whenever it looks for data sources, whichever one a query wants."""
    code = "import sys, pyspark_kafka_segments as p; print(p.DefaultSource.name(), *sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == "kafka_segments"
    assert {"llvmlite", "boto3", "pydantic", "structlog"}.isdisjoint(said)


def test_planning_loads_no_decoder() -> None:
    """It takes time to load, in each process that Spark plans in; most queries name no timestamp."""
    code = "import sys, ts_reader.query.plan_query, ts_spark.streaming.driver; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"llvmlite", "pyarrow"}.isdisjoint(said)


def test_r10_odd_names_are_read_through_spark_from_s3(spark: SparkSession, on_s3: Shipped) -> None:
    """A pattern over all of them, in one query."""
    options = on_s3.archive.options(subscribePattern="_under|a.b|t.*", includeHeaders="true")
    table = spark.read.format("kafka_segments").options(**options).load()
    rows = oracle_records(table.toArrow().to_pylist())
    assert rows == [record for name in sorted(NAMES) for record in on_s3.records[name]]
