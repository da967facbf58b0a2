"""A driver of its own, to be killed: streams a topic into parquet files until it has all there is, or for ever.

Run as `python -m tests.spark.streaming.process <options as JSON> <sink> <checkpoint> <finish or follow>`.
"""

import json
import sys

from pyspark.sql import SparkSession


def main(options: str, sink: str, checkpoint: str, mode: str) -> None:
    """Start the query; `finish` ends when nothing new is left, `follow` never."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = spark.readStream.format("kafka_segments").options(**json.loads(options)).load()
    query = table.writeStream.format("parquet").option("path", sink).option("checkpointLocation", checkpoint).start()
    if mode == "finish":
        query.processAllAvailable()
        query.stop()
    else:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
