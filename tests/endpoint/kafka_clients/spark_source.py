"""Spark's own Kafka source in a process of its own, because a session has its jars from its start.

Run as `python -m tests.endpoint.kafka_clients.spark_source` with the question as JSON on standard input: `{"jars":
[...], "bootstrap": "...", "isolation": "...", "topics": [...]}`. It writes each record as a line of JSON, as
`DumpRecords` does.
"""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from dev.bench.measuring.java_parts import spark_kafka_jars
from dev.local.oracle import Isolation, OracleRecord, record_of
from tests.endpoint.kafka_clients.interface import SECONDS, ClientFailedError

_ROOT = Path(__file__).parents[3]


def by_spark(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> list[OracleRecord]:
    """Read with `format("kafka")`, from earliest to latest; all topics in one session."""
    jars = [str(jar) for jar in spark_kafka_jars()]
    question = {"jars": jars, "bootstrap": bootstrap, "isolation": isolation, "topics": list(topics)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.endpoint.kafka_clients.spark_source"],
        input=json.dumps(question).encode(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
        cwd=_ROOT,
    )
    if done.returncode:
        raise ClientFailedError(f"Spark's Kafka source, {topics}:\n{done.stderr.decode(errors='replace')[-4000:]}")
    return [record_of(line) for line in done.stdout.splitlines()]


def _line(row: Any) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("topic", "partition", "offset", "timestamp", "timestampType")},
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "headers": [(header["key"], _text(header["value"])) for header in row["headers"] or ()],
    }


def _text(data: bytearray | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def main() -> None:
    """Answer standard input's question."""
    question = json.load(sys.stdin)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", ",".join(question["jars"]))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for topic in question["topics"]:
        table = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", question["bootstrap"])
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", question["isolation"])
            .load()
            .withColumn("timestamp", sql.unix_millis("timestamp"))
            .orderBy("partition", "offset")
        )
        for row in table.toLocalIterator():
            print(json.dumps(_line(row)))  # noqa: T201  (the answer)
    spark.stop()


if __name__ == "__main__":
    main()
