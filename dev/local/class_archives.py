"""Writes the class archives of the local servers (`dev.local.jvm`), once for each set of jars.

Each program runs once and exits: broker, ZooKeeper and the oracle.

`python -m dev.local.class_archives` does it for both lines of Kafka; it needs half a minute, and `make test` has more
than a hundred starts of these programs.
"""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from dev.local.jars import LINES, Line, build_once, kafka_jars, print_fetched
from dev.local.jdk import program
from dev.local.jvm import class_archives, writing_class_archives
from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import dump

_EXIT_SECONDS: Final = 120.0  # the JVM writes the archive while it exits


def write_class_archives(line: Line) -> Path:
    """Return the directory of one line's class archives, written if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `dev.local.jars.kafka_jars`.
    """
    directory = class_archives(line)
    # The JVM compares times of the jars, and its own version.
    version = subprocess.run([program("java"), "-version"], capture_output=True, check=True).stderr
    times = [str(jar.stat().st_mtime_ns) for jar in sorted(kafka_jars(line).glob("*.jar"))]
    return build_once(directory, version + " ".join(times).encode(), partial(_run_each, line))


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


def main() -> int:
    """Write the archives of all lines."""
    return print_fetched(*((f"classes of Kafka {line}", partial(write_class_archives, line)) for line in LINES))


if __name__ == "__main__":
    sys.exit(main())
