"""A page of documentation as a notebook: its Python blocks in one namespace, and what each of them prints.

Run as `python -m tests.spark.page_process <page> <variables as JSON> <report> <jars>`: a session of its own, since
jars have to be there when its JVM starts. The report is a JSON array, what each block printed.
"""

import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.docs.commands import blocks


def run(page: Path, namespace: dict[str, Any], variables: Mapping[str, Any]) -> list[str]:
    """Run a page's blocks, and give what each printed.

    Args:
        page: the file.
        namespace: what the blocks find there.
        variables: replace those that the first block sets, because that is where a reader sets them.

    Raises:
        ValueError: the first block sets other names in capitals than `variables` has.
        whatever a block raises, with the page's line in its traceback.
    """
    printed = []
    for number, block in enumerate(blocks(page, language="python")):
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
        printed.append(out.getvalue())
        if number == 0:
            names = {name for name in namespace if name.isupper()}
            if names != set(variables):
                raise ValueError(f"the first block sets {sorted(names)}; {sorted(variables)} are given")
            namespace.update(variables)
    return printed


def main(page: str, variables: str, report: str, jars: str) -> None:
    """Run a page with a session called `spark`."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # short queries, no more
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    Path(report).write_text(json.dumps(run(Path(page), {"spark": spark}, json.loads(variables))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
