"""Writes the class archives of the local servers and of Spark (`dev.local.jvm`), once for each set of jars.

Each program runs once and exits: broker, ZooKeeper, the oracle and a session of Spark.

`python -m dev.local.class_archives` does it for all of them; it needs a minute, and `make test` starts these programs
more than a hundred times.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from dev.local.jars import LINES, Line, build_once, kafka_jars, print_fetched
from dev.local.jdk import program
from dev.local.jvm import class_archives, writing_class_archives
from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import dump
from dev.local.spark import jars, run_examples

_EXIT_SECONDS: Final = 120.0  # the JVM writes the archive while it exits


def write_class_archives(line: Line) -> Path:
    """Return the directory of one line's class archives, written if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `dev.local.jars.kafka_jars`.
    """
    return _write_once(line, sorted(kafka_jars(line).glob("*.jar")), partial(_run_each, line))


def write_class_archive_of_spark() -> Path:
    """Return the directory of the class archive of `dev.local.spark`, written if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `dev.local.jars.iceberg_jars`.
    """
    return _write_once("spark", jars(), _run_spark)


def _write_once(programs: str, of_jars: Iterable[Path], run: Callable[[Path], None]) -> Path:
    # The JVM compares paths and times of the jars, and its own version.
    version = subprocess.run([program("java"), "-version"], capture_output=True, check=True).stderr
    described = " ".join(f"{jar} {jar.stat().st_mtime_ns}" for jar in of_jars)
    return build_once(class_archives(programs), version + described.encode(), run)


def _run_each(line: Line, directory: Path) -> None:
    shutil.rmtree(class_archives(line), ignore_errors=True)  # a JVM does not read one archive and write another
    with (
        writing_class_archives(directory),
        LocalCluster(mode="zookeeper" if line == "3.9" else "kraft", name=f"classes-{line}") as cluster,
    ):
        cluster.create_topic("t")
        cluster.produce("t", [Record(b"value", key=b"key")], partition=0)
        dump(cluster.bootstrap, "t", line=line)
        for server in reversed(cluster.servers):
            server.stop_seconds = _EXIT_SECONDS
            server.stop()


def _run_spark(directory: Path) -> None:
    shutil.rmtree(class_archives("spark"), ignore_errors=True)  # as above
    with writing_class_archives(directory), tempfile.TemporaryDirectory() as files:
        run_examples(Path(files))


def main() -> int:
    """Write the archives of all programs."""
    of_kafka = [(f"classes of Kafka {line}", partial(write_class_archives, line)) for line in LINES]
    return print_fetched(*of_kafka, ("classes of Spark", write_class_archive_of_spark))


if __name__ == "__main__":
    sys.exit(main())
