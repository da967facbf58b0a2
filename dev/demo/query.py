"""The Spark program, in a process of its own (see `spark_runner`); it reads the store and the journal, and no broker.

`python -m dev.demo.query QUESTION`, a `Question` as JSON. Each answer is one line of JSON on stdout; the output of
Spark and Java is on stderr.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

_KEY = ["partition", "offset"]
_FIELDS = ("key", "value", "topic", "timestamp", "timestampType", "headers")
_EXAMPLES = 5
_CREATE_TIME = 0


@dataclass(frozen=True)
class Question:
    """What the program has to compute.

    Attributes:
        location: of the store, as in `load`.
        entropy_bits: of the store's keys.
        ends: of partition 0, 1, ...: all lower offsets must exist.
        first_ms, end_ms: the time range `[first_ms, end_ms)` to query.
        journal: directory of the journal's files.
        scratch: directory for Spark's own files.
    """

    location: str
    cluster: str
    entropy_bits: int
    topic: str
    ends: list[int]
    first_ms: int
    end_ms: int
    journal: str
    scratch: str

    def to_json(self) -> str:
        """Return it as the program's argument."""
        return json.dumps(asdict(self))


def start_spark(scratch: str) -> SparkSession:
    """Start a session on two cores of this machine that writes only to `scratch`."""
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("ts-uploader demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def archive(spark: SparkSession, question: Question) -> DataFrameReader:
    """Return a reader of the topic in the store; further options choose a part of it."""
    return (
        spark.read.format("kafka_segments")
        .option("cluster", question.cluster)
        .option("prefixEntropyBits", question.entropy_bits)
    )


def journal(spark: SparkSession, question: Question) -> DataFrame:
    """Return the acknowledged records below the ends, with the columns of the data source."""
    below = [(F.col("partition") == number) & (F.col("offset") < end) for number, end in enumerate(question.ends)]
    written = spark.read.parquet(question.journal).where(_any(below))
    return written.withColumns({"topic": F.lit(question.topic), "timestampType": F.lit(_CREATE_TIME)})


def rows_per_partition(spark: SparkSession, question: Question) -> dict[str, Any]:
    """Return for each partition its rows, first and last offset and time; only the columns of `schema` are decoded."""
    rows = archive(spark, question).option("subscribe", question.topic)
    found = rows.schema("partition int, offset long, timestamp timestamp").load(question.location)
    counted = found.groupBy("partition").agg(
        F.count("*"), F.min("offset"), F.max("offset"), _clock(F.min("timestamp")), _clock(F.max("timestamp"))
    )
    return {"rows": [list(row) for row in counted.orderBy("partition").collect()]}


def time_range(spark: SparkSession, question: Question) -> dict[str, Any]:
    """Return the number of rows of the range, by the source's own options and by the journal."""
    found = (
        archive(spark, question)
        .option("subscribe", question.topic)
        .option("startingTimestamp", question.first_ms)
        .option("endingTimestamp", question.end_ms)
        .schema("timestamp timestamp")
        .load(question.location)
    )
    time = F.unix_millis("timestamp")
    within = (time >= question.first_ms) & (time < question.end_ms)
    (counted,) = found.agg(F.count("*").alias("rows"), F.count_if(~within).alias("outside")).collect()
    return {**counted.asDict(), "journal": journal(spark, question).where(within).count()}


def sample(spark: SparkSession, question: Question) -> dict[str, Any]:
    """Return a few rows of partition 0, with their headers."""
    middle = question.ends[0] // 2
    found = (
        archive(spark, question)
        .option("assign", json.dumps({question.topic: [0]}))
        .option("startingOffsets", json.dumps({question.topic: {"0": middle}}))
        .option("endingOffsets", json.dumps({question.topic: {"0": middle + 4}}))
        .option("includeHeaders", "true")
        .load(question.location)
    )
    headers = F.transform(
        "headers",
        lambda header: F.concat_ws("=", header["key"], F.coalesce(header["value"].cast("string"), F.lit("null"))),
    )
    text = (F.col("key").cast("string"), F.col("value").cast("string"), F.concat_ws(" ", headers))
    rows = found.select("partition", "offset", _clock(F.col("timestamp")), *text)
    return {"rows": [list(row) for row in rows.orderBy("offset").collect()]}


def compare(found: DataFrame, written: DataFrame) -> dict[str, Any]:
    """Compare every row that was read with every row that was written, field by field.

    Args:
        found: with `partition`, `offset` and the fields.
        written: the same; each partition and offset once.

    Returns:
        counts: `equal`, `missing`, `unexpected`, `twice` (read more than once), `different`, and of the last
        `fields`, a count for each; `examples` of all but the first.
    """
    read = found.groupBy(*_KEY).agg(F.count("*").alias("times"), F.first(F.struct(*_FIELDS)).alias("read"))
    both = written.select(*_KEY, F.struct(*_FIELDS).alias("written")).join(read, _KEY, "full_outer")
    missing, unexpected = F.col("times").isNull(), F.col("written").isNull()
    matched = ~missing & ~unexpected
    wrong = {name: matched & ~F.col(f"read.{name}").eqNullSafe(F.col(f"written.{name}")) for name in _FIELDS}
    different = _any(list(wrong.values()))
    kinds = {"missing": missing, "unexpected": unexpected, "twice": F.col("times") > 1, "different": different}
    counts = both.agg(
        F.count_if(matched & ~different).alias("equal"),
        *(F.count_if(condition).alias(name) for name, condition in kinds.items()),
        *(F.count_if(condition).alias(f"wrong_{name}") for name, condition in wrong.items()),
    ).first()
    said: dict[str, Any] = counts.asDict() if counts is not None else {}
    fields = {name: said.pop(f"wrong_{name}") for name in _FIELDS}
    examples: list[list[Any]] = []
    if any(said[name] for name in kinds):
        kind = F.concat_ws("+", *(F.when(condition, name) for name, condition in kinds.items()))
        bad = both.select(*_KEY, kind.alias("kind")).where("kind <> ''").orderBy(*_KEY).limit(_EXAMPLES)
        examples = [list(row) for row in bad.collect()]
    return {**said, "fields": fields, "examples": examples}


def compare_all(spark: SparkSession, question: Question) -> dict[str, Any]:
    """Return `compare` of all rows in the store."""
    rows = archive(spark, question).option("subscribe", question.topic).option("includeHeaders", "true")
    return compare(rows.load(question.location), journal(spark, question))


def _any(conditions: list[Column]) -> Column:
    joined = F.lit(False)
    for condition in conditions:
        joined = joined | condition
    return joined


def _clock(moment: Column) -> Column:
    return F.date_format(moment, "HH:mm:ss.SSS")


def main(question: Question, answers: TextIO) -> None:
    """Compute all answers, and write one line for each."""

    def answer(name: str, facts: dict[str, Any]) -> None:
        print(json.dumps({"answer": name, **facts}), file=answers, flush=True)

    spark = start_spark(question.scratch)
    answer("started", {"version": spark.version})
    answer("rows", rows_per_partition(spark, question))
    answer("range", time_range(spark, question))
    answer("sample", sample(spark, question))
    answer("comparison", compare_all(spark, question))
    spark.stop()


if __name__ == "__main__":
    Path(json.loads(sys.argv[1])["scratch"]).mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)  # Java shares stdout, and its output is no answer
        main(Question(**json.loads(sys.argv[1])), stdout)
