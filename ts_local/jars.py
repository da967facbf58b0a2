"""Jars of Kafka, ZooKeeper, Hadoop and Avro for Spark, and the oracle's class: fetched and built once per checkout.

    kafka_jars("3.9") -> build/jars/3.9          Kafka 3.9.1 with ZooKeeper 3.8.4
    kafka_jars("4")   -> build/jars/4            Kafka 4.1.2, KRaft only
    spark_avro_jar()  -> build/jars/spark-avro   `from_avro` and `to_avro`, which pyspark does not ship
    hadoop_jars()     -> build/jars/hadoop-3.4   HDFS in one process
    oracle_classes()  -> build/oracle            DumpRecords.class

Each pinned `pom.xml` says what comes; Maven fetches it with `dependency:copy-dependencies`. A directory is
complete when its marker stands, which holds the hash of what it was made from: a changed pom or source is built
anew. Two processes may ask at once: one builds in a directory of its own and renames it, under a file lock.

`python -m ts_local.jars` does all of it, so that a later start needs no network.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Line = Literal["3.9", "4"]
LINES: tuple[Line, ...] = ("3.9", "4")

PACKAGE = Path(__file__).resolve().parent
BUILD = PACKAGE.parent / "build"
ORACLE_SOURCE = PACKAGE / "oracle" / "DumpRecords.java"

_MARKER = ".complete"
_INSTALL = "apt-get install openjdk-17-jdk-headless maven"


class ToolMissingError(RuntimeError):
    """Java 17 or Maven is not on this machine. The message says what to install."""


class BuildFailedError(RuntimeError):
    """Maven or javac ended with an error. The message holds what it said."""


def kafka_jars(line: Line) -> Path:
    """The directory with the jars of one line of Kafka, fetched if need be.

    Raises:
        ToolMissingError: no Java 17 or newer, or no Maven.
        BuildFailedError: Maven could not fetch them.
    """
    java()
    return _fetched(line, _pom(f"kafka-{line}"))


def spark_avro_jar() -> Path:
    """The jar for `spark.jars` that lets a session read and write Avro, fetched if need be.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    (jar,) = _fetched("spark-avro", _pom("spark-avro")).glob("*.jar")
    return jar


def hadoop_jars() -> Path:
    """The directory with Hadoop's jars for an HDFS in one process, fetched if need be.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    java()
    return _fetched("hadoop-3.4", _pom("hadoop-3.4"))


def oracle_classes() -> Path:
    """The directory with the oracle's class files, compiled if need be against Kafka 3.9's client.

    Raises:
        ToolMissingError, BuildFailedError: as `kafka_jars`.
    """
    jars = kafka_jars("3.9")

    def compile_it(directory: Path) -> None:
        command = [_require("javac"), "--release", "17", "-Xlint:all,-path", "-Werror", "-cp", f"{jars}/*"]
        run([*command, "-d", str(directory), str(ORACLE_SOURCE)])

    return build_once(BUILD / "oracle", ORACLE_SOURCE.read_bytes() + _pom("kafka-3.9").read_bytes(), compile_it)


def java() -> str:
    """The path of a Java 17 or newer: `JAVA_HOME`'s, else the one on the PATH.

    Raises:
        ToolMissingError: there is none, or it is older.
    """
    path = _require("java")
    if path not in _checked:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', said)
        if version is None or int(version[1]) < 17:
            found = said.splitlines()[0] if said else "no version"
            raise ToolMissingError(f"Java 17 or newer is needed; {path} says {found}. Install it with: {_INSTALL}")
        _checked.add(path)
    return path


_checked: set[str] = set()  # java programs whose version is new enough


def _pom(name: str) -> Path:
    return PACKAGE / name / "pom.xml"


def _fetched(name: str, pom: Path) -> Path:
    def fetch(directory: Path) -> None:
        run(
            [
                *(_require("mvn"), "-B", "-ntp", "-q", "-f", str(pom), "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={directory}"),
            ]
        )

    return build_once(BUILD / "jars" / name, pom.read_bytes(), fetch)


def _require(tool: str) -> str:
    if tool != "mvn" and "JAVA_HOME" in os.environ:
        candidate = Path(os.environ["JAVA_HOME"]) / "bin" / tool
        if candidate.exists():
            return str(candidate)
    found = shutil.which(tool)
    if found is None:
        raise ToolMissingError(f"{tool} is missing (Java 17 and Maven are needed). Install them with: {_INSTALL}")
    return found


def build_once(directory: Path, made_from: bytes, build: Callable[[Path], None]) -> Path:
    """`directory`, filled by `build` unless its marker says that it was made from the same bytes.

    Safe for several processes and threads at once. `build` is given a new directory, which takes the place of the old
    one when it is complete; what it raises goes to the caller, and the old one stays.
    """
    marker = directory / _MARKER
    want = hashlib.sha256(made_from).hexdigest()
    if _says(marker, want):
        return directory
    with _lock(directory):
        if not _says(marker, want):  # another process may have built it while we waited
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
        BuildFailedError: it ended with an error.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailedError(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout[-4000:]}")


def main() -> int:
    """Fetch and build everything, saying where it is."""
    try:
        for line in LINES:
            print(f"Kafka {line}: {kafka_jars(line)}")
        print(f"Avro for Spark: {spark_avro_jar()}")
        print(f"oracle: {oracle_classes()}")
    except (ToolMissingError, BuildFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
