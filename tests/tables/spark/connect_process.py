"""A client of Spark Connect, with a server of its own in local mode: a process has one kind of session.

Run as `python -m tests.tables.spark.connect_process <directory>`. It writes a line of JSON.
"""

import json
import sys
from pathlib import Path

from dev.local.jars import iceberg_jars
from tests.made_archive import MadeArchive, batches, steps
from tests.tables.made_tables import NAME, MadeTable
from ts_tables.compaction import compact
from ts_tables.engines.spark import SparkEngine
from ts_tables.engines.spark.procedures import SparkProcedures
from ts_tables.engines.spark.session import open_session
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.run import run_once
from ts_tables.verify.run import verify


def main(directory: Path) -> None:
    """Run, compact and verify a table; write what was done."""
    jars = ",".join(map(str, iceberg_jars()))
    spark = open_session({"spark.remote": "local[2]", "spark.jars": jars, "spark.log.level": "OFF"})
    table = MadeTable(MadeArchive(directory / "archive"), directory / "lake")
    table.create()
    target, engine, records = table.target(), SparkEngine(spark), []
    assert isinstance(target, IcebergTarget)
    for start in range(0, 300, 50):
        for partition in range(2):
            table.archive.put_segment("t", start, batches(*steps(start, start + 50)), partition=partition)
            table.archive.commit(
                "t", start + 50, partition=partition, highest_base=start, last_stable_offset=start + 50
            )
        records.append(run_once(target, table.planner(), engine).records)
    done = compact(target, SparkProcedures(spark, "lake", target.catalog_properties, {}, NAME), expire_after=0)
    opened = target.open()
    found = verify(opened, table.planner().claimed(opened.state), engine)
    report = {
        "session": type(spark).__module__,
        "records": records,
        "rewritten": done.rewritten.files,
        "files": done.files,
        "rows": found.rows,
        "differences": [str(each) for each in found.differences],
    }
    spark.stop()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
