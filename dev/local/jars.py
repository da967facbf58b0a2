"""Jars of Kafka, ZooKeeper, Hadoop, Apicurio, Avro and Iceberg for Spark, and our own classes: fetched, built once.

    kafka_jars("3.9") -> build/jars/3.9          Kafka 3.9.1 with ZooKeeper 3.8.4
    kafka_jars("4")   -> build/jars/4            Kafka 4.1.2, KRaft only
    mirror_maker_jars("4") -> build/jars/mirror-maker-4   MirrorMaker 2 of a line, next to its Kafka jars
    spark_avro_jar()  -> build/jars/spark-avro   `from_avro` and `to_avro`, which pyspark does not ship
    iceberg_jars()    -> build/jars/spark-iceberg   Iceberg, with S3 and SQLite
    hadoop_jars()     -> build/jars/hadoop-3.4   HDFS in one process
    apicurio_jar()    -> build/jars/apicurio-2.6 Apicurio Registry
    oracle_jar()      -> build/oracle            the class DumpRecords
    resident_jar()    -> build/resident          the commands of the resident JVM

Each pinned `pom.xml` lists its jars; Maven fetches them with `dependency:copy-dependencies`, or unpacks an archive. A
directory is complete if it has a marker with the hash of its pom or source. After a change of these it is built again.
Two processes may build at once: each builds in its own directory, and renames it under a file lock.

`python -m dev.local.jars` does all of it, so that a later start needs no network.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from dev.local.apt import ToolMissingError
from dev.local.jdk import home, maven, program

Line = Literal["3.9", "4"]
LINES: tuple[Line, ...] = ("3.9", "4")

PACKAGE = Path(__file__).resolve().parent
BUILD = PACKAGE.parents[1] / "build"

_MARKER = ".complete"


class BuildFailedError(RuntimeError):
    """Maven or javac failed. The message has its output."""


def kafka_jars(line: Line) -> Path:
    """Return the directory with the jars of one line of Kafka, fetched if needed.

    Raises:
        ToolMissingError: Java or Maven is missing.
        BuildFailedError: Maven could not fetch them.
    """
    return _fetched(line, _pom(f"kafka-{line}"))


def mirror_maker_jars(line: Line) -> Path:
    """Return the directory with MirrorMaker's jars beyond `kafka_jars` of the same line, fetched if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    return _fetched(f"mirror-maker-{line}", _pom(f"mirror-maker-{line}"))


def spark_avro_jar() -> Path:
    """Return the jar for `spark.jars` that reads and writes Avro, fetched if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    (jar,) = _fetched("spark-avro", _pom("spark-avro")).glob("*.jar")
    return jar


def iceberg_jars() -> list[Path]:
    """Return the jars for `spark.jars` that maintain Iceberg tables, fetched if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    return sorted(_fetched("spark-iceberg", _pom("spark-iceberg")).glob("*.jar"))


def hadoop_jars() -> Path:
    """Return the directory with Hadoop's jars for an HDFS in one process, fetched if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    return _fetched("hadoop-3.4", _pom("hadoop-3.4"))


def apicurio_jar() -> Path:
    """Return the jar that runs Apicurio Registry, in the directory of its libraries, fetched if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    (jar,) = _fetched("apicurio-2.6", _pom("apicurio-2.6"), "unpack").glob("*-runner.jar")
    return jar


def oracle_jar() -> Path:
    """Return the oracle's jar, compiled with Kafka 3.9's client if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    return _compiled("oracle", "3.9", ["oracle"])


def resident_jar() -> Path:
    """Return the jar of the resident JVM's commands, compiled with Kafka 4.1's client if needed.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    return _compiled("resident", "4", ["resident", "oracle"])


def _compiled(name: str, line: Line, folders: Sequence[str]) -> Path:
    """Return the jar of the Java sources in directories of this package, compiled with one line's jars if needed."""
    jars = kafka_jars(line)
    sources = sorted(source for folder in folders for source in (PACKAGE / folder).glob("*.java"))
    jar = f"{name}.jar"

    def compile_it(directory: Path) -> None:
        command = [program("javac"), "--release", "17", "-Xlint:all,-path", "-Werror", "-cp", f"{jars}/*"]
        run([*command, "-d", str(directory / "classes"), *map(str, sources)])
        # A class archive contains classes of jars alone.
        run([program("jar"), "--create", "--file", str(directory / jar), "-C", str(directory / "classes"), "."])

    made_from = b"".join(source.read_bytes() for source in sources) + _pom(f"kafka-{line}").read_bytes() + jar.encode()
    return build_once(BUILD / name, made_from, compile_it) / jar


def _pom(name: str) -> Path:
    return PACKAGE / name / "pom.xml"


def _fetched(name: str, pom: Path, goal: str = "copy-dependencies") -> Path:
    def fetch(directory: Path) -> None:
        run(
            [
                *("env", f"JAVA_HOME={home()}", maven(), "-B", "-ntp", "-q", "-f", str(pom), f"dependency:{goal}"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={directory}"),
                # Maven's own place is next to the pom: it would then unpack nothing into another directory.
                f"-DmarkersDirectory={directory}/.unpacked",
            ]
        )

    return build_once(BUILD / "jars" / name, pom.read_bytes(), fetch)


def build_once(directory: Path, made_from: bytes, build: Callable[[Path], None]) -> Path:
    """Return `directory`, filled by `build` unless its marker has the hash of the same bytes.

    Safe for several processes and threads. `build` receives a new directory, which replaces the old one when it is
    complete. If `build` raises, the old directory stays.
    """
    marker = directory / _MARKER
    want = hashlib.sha256(made_from).hexdigest()
    if _says(marker, want):
        return directory
    with _lock(directory):
        if not _says(marker, want):  # another process may have built it during the wait
            fresh = directory.with_name(f"{directory.name}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            build(fresh)
            (fresh / _MARKER).write_text(want)
            shutil.rmtree(directory, ignore_errors=True)
            fresh.rename(directory)
    return directory


def _says(marker: Path, want: str) -> bool:
    try:
        return marker.read_text() == want
    except FileNotFoundError:
        return False


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: list[str]) -> None:
    """Run a command to its end.

    Raises:
        BuildFailedError: it failed.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailedError(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout[-4000:]}")


def print_fetched(*things: tuple[str, Callable[[], Path]]) -> int:
    """Fetch each thing and print where it is; return the exit status, 1 after an error."""
    try:
        for name, fetched in things:
            print(f"{name}: {fetched()}")
    except (ToolMissingError, BuildFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Fetch and build everything, and print the directories."""
    kafka = [(f"Kafka {line}", partial(kafka_jars, line)) for line in LINES]
    mirrors = [(f"MirrorMaker {line}", partial(mirror_maker_jars, line)) for line in LINES]
    spark = [("Avro for Spark", spark_avro_jar), ("Iceberg for Spark", lambda: iceberg_jars()[0].parent)]
    return print_fetched(*kafka, *mirrors, *spark, ("oracle", oracle_jar), ("resident", resident_jar))


if __name__ == "__main__":
    sys.exit(main())
