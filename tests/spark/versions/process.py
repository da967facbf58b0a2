"""A driver of some Spark version: answers with what it read. It imports pyspark and the standard library only.

Run as a file, with the question as JSON on standard input: `{"options": {...}, "folder": "..."}`. The last line of
standard output is the answer.
"""

import json
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

LIMIT = "30"


def digest(rows: list[dict[str, Any]]) -> list[Any]:
    """How many rows, and a digest of what is in them."""
    hashed = blake2b(digest_size=16)
    for row in sorted(rows, key=lambda row: row["offset"]):
        fields = [row[name] for name in ("key", "value", "offset", "timestampType", "headers")]
        hashed.update(repr([bytes(field) if isinstance(field, bytearray) else field for field in fields]).encode())
    return [len(rows), hashed.hexdigest()]


def available(spark: SparkSession, options: dict[str, str], folder: Path) -> dict[str, Any]:
    """Two runs of `Trigger.AvailableNow` with one checkpoint: batches of the first one, and what the sink has."""
    batches = []
    for _ in range(2):
        table = spark.readStream.format("kafka_segments").options(**options).load()
        writer = table.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.option("path", str(folder / "sink")).trigger(availableNow=True).start()
        query.awaitTermination()
        batches.append(len(list((folder / "checkpoint/commits").glob("[0-9]*"))))
    offsets = sorted(row.offset for row in spark.read.parquet(str(folder / "sink")).select("offset").collect())
    return {"batches": batches, "offsets": offsets}


def main() -> None:
    """Answer standard input's question."""
    question = json.load(sys.stdin)
    options, folder = question["options"], Path(question["folder"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def load(**more: str) -> DataFrame:
        return spark.read.format("kafka_segments").options(**options, **more).load()

    answer: dict[str, Any] = {
        "pyspark": pyspark.__version__,
        "python": ".".join(map(str, sys.version_info[:2])),
        "schema": load(subscribe="t", includeHeaders="true").schema.simpleString(),
        "all": digest([row.asDict(recursive=True) for row in load(subscribe="t", includeHeaders="true").collect()]),
        "committed": load(subscribe="tx", **{"kafka.isolation.level": "read_committed"}).count(),
        "uncommitted": load(subscribe="tx").count(),
        "stream": available(
            spark, {**options, "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": LIMIT}, folder
        ),
    }
    if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        narrow = load(subscribe="t", pushDownPredicate="true").where("offset < 5")
        answer["filtered"] = [row.offset for row in narrow.select("offset").collect()]
    spark.stop()
    print(json.dumps(answer))  # noqa: T201  (the answer)


if __name__ == "__main__":
    main()
