"""Java parts of the peers, fetched and compiled once for a checkout under `build/`, and the consumer as a process.

spark_kafka_jars()   Spark's own Kafka source, for `spark.jars`
spark_s3_jars()      Hadoop's S3A, for `spark.jars`
JavaConsumer         Kafka's consumer, reading a topic in rounds in one JVM
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from dev.local.jars import BUILD, build_once, kafka_jars
from dev.local.jdk import maven, program

_HERE = Path(__file__).parents[1]
_SPARK_KAFKA = _HERE / "spark-kafka"
_SPARK_S3 = _HERE / "spark-s3"
_CONSUMER = _HERE / "java" / "ConsumeAll.java"
_PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"


def spark_kafka_jars() -> list[Path]:
    """Return Spark's Kafka source, its dependencies beyond pyspark's own jars, and the classes of `no-tokens`.

    Raises:
        ToolMissingError, subprocess.CalledProcessError: Java or Maven is missing or failed; stderr has the reason.
    """
    pom = _SPARK_KAFKA / "pom.xml"
    sources = sorted((_SPARK_KAFKA / "no-tokens").glob("*.java"))

    def build(directory: Path) -> None:
        _fetch(pom, directory)
        classes = directory / "classes"
        _compile(sources, f"{_PYSPARK_JARS}/*", classes)
        archive = [program("jar"), "--create", "--file", str(directory / "no-tokens.jar"), "-C", str(classes), "."]
        subprocess.run(archive, check=True)

    made_from = b"".join(file.read_bytes() for file in (pom, *sources))
    return sorted(build_once(BUILD / "spark-kafka", made_from, build).glob("*.jar"))


def spark_s3_jars() -> list[Path]:
    """Return Hadoop's S3A and its dependencies beyond pyspark's own jars; raise as `spark_kafka_jars`."""
    pom = _SPARK_S3 / "pom.xml"
    return sorted(build_once(BUILD / "spark-s3", pom.read_bytes(), partial(_fetch, pom)).glob("*.jar"))


def _fetch(pom: Path, directory: Path) -> None:
    copy = [maven(), "-B", "-ntp", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run([*copy, f"-DoutputDirectory={directory}"], check=True)


def _compile(sources: Sequence[Path], class_path: str, directory: Path) -> None:
    command = [
        program("javac"),
        "--release",
        "17",
        "-Xlint:all,-path",
        "-Werror",
        "-cp",
        class_path,
        "-d",
        str(directory),
    ]
    subprocess.run([*command, *map(str, sources)], check=True)


@dataclass(frozen=True)
class ConsumedRound:
    """The result of one round of the consumer.

    Attributes:
        records: number of records.
        size: bytes of keys and values.
        greatest_offset: of all partitions.
        seconds: the time of the round.
    """

    records: int
    size: int
    greatest_offset: int
    seconds: float


class JavaConsumer:
    """Kafka's consumer with its default settings; the JVM warms up over the rounds.

    Args:
        topic: read from its beginning.
        ends: of each partition, exclusive.
    """

    def __init__(self, bootstrap: str, topic: str, ends: Sequence[int]) -> None:
        jars = kafka_jars("3.9")

        def build(directory: Path) -> None:
            _compile([_CONSUMER], f"{jars}/*", directory)

        classes = build_once(BUILD / "consume-all", _CONSUMER.read_bytes(), build)
        # The logger in Kafka's jars writes to standard output by default.
        self._command = [
            *(program("java"), "-Xmx1g", "-Dlog4j.configuration=", "-cp", f"{classes}:{jars}/*", "ConsumeAll"),
            *(bootstrap, topic, ",".join(map(str, ends))),
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def round(self) -> ConsumedRound:
        """Read everything once.

        Raises:
            RuntimeError: the process has ended.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("use it in a with block")
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stdout.readline().split()
        if len(said) != 4:
            raise RuntimeError(f"the consumer ended with status {process.wait()}: {' '.join(self._command)}")
        records, size, greatest, nanoseconds = map(int, said)
        return ConsumedRound(records, size, greatest, nanoseconds / 1e9)
