"""A driver with both sources: answers each case of `cases` twice.

Run as `python -m tests.spark.against_kafka.process`, with the question as JSON on standard input:
`{"jars": [...], "options": {...}, "next": {"topic": {"0": 12}}, "cases": [{...}, ...]}`. It writes a line of JSON for
each case on standard output: `{"ours": ..., "kafka": ...}`, each `{"rows": n, "digest": ..., "schema": ...}` or
`{"error": ...}`. Of Kafka's rows those below `next` count: the archive ends there.
"""

import json
import sys
from hashlib import blake2b
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

Ends = dict[str, dict[str, int]]
OURS, KAFKA = "kafka_segments", "kafka"
_SHOWN = 300  # characters of an error


def answer(spark: SparkSession, source: str, options: dict[str, str], ends: Ends) -> dict[str, Any]:
    """What a source gives."""
    try:
        table = spark.read.format(source).options(**options).load()
        return {"schema": table.schema.simpleString(), **digest(table, ends)}
    except (PySparkException, ValueError) as error:
        return {"error": str(error)[:_SHOWN]}
    except Exception as error:  # noqa: BLE001  (a JVM's, that PySpark has no class for)
        return {"error": f"{type(error).__name__}: {error}"[:_SHOWN]}


def digest(table: DataFrame, ends: Ends) -> dict[str, Any]:
    """How many rows, and a digest of all that is in them."""
    rows = [row.asDict(recursive=True) for row in table.collect()]
    below = [row for row in rows if row["offset"] < ends[row["topic"]][str(row["partition"])]]
    below.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    hashed = blake2b(digest_size=16)
    for row in below:
        hashed.update(repr(sorted(row.items())).encode())
    return {"rows": len(below), "digest": hashed.hexdigest()}


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
    for case in question["cases"]:
        options = {**question["options"], **case}
        found = {source: answer(spark, source, options, question["next"]) for source in (OURS, KAFKA)}
        print(json.dumps({"ours": found[OURS], "kafka": found[KAFKA]}), flush=True)  # noqa: T201  (the answer)
    spark.stop()


if __name__ == "__main__":
    main()
