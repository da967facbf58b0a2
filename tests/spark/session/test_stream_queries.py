"""Streams through Spark itself: triggers, messages, and drivers that are killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dev.local.oracle import OracleRecord
from dev.local.waiting import wait_for
from tests.made_archive import batches, steps
from tests.made_tail import MadeTail, entry
from tests.spark.archives import Archive, oracle_records
from tests.spark.session.conftest import CODECS, Shipped
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_reader.following.checkpoint import read_checkpoint

SECONDS = 240
TOPIC = "fields"


@pytest.fixture
def two(archive: Archive) -> Archive:
    """Topic `t`: segments [0, 100) and [100, 200), the first one committed."""
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 100)
    return archive


def read_available(spark: SparkSession, archive: Archive, folder: Path, **options: str) -> list[int]:
    """Run a query with `Trigger.AvailableNow`; every offset that the sink holds then."""
    table = spark.readStream.format("kafka_segments").options(**archive.options(subscribe="t", **options)).load()
    writer = table.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer.option("path", str(folder / "sink")).trigger(availableNow=True).start().awaitTermination()
    return sorted(row.offset for row in spark.read.parquet(str(folder / "sink")).select("offset").collect())


@pytest.mark.full  # `test_live_tail` has a tail and its segments, `tests/spark/test_tail.py` the option
def test_a_live_tail_is_read_once_before_and_after_its_segment_closes(
    spark: SparkSession, archive: Archive, tmp_path: Path
) -> None:
    """By a stream and by a query; with tail=false closed segments only."""
    tail = MadeTail(archive)

    def commit(next_offset: int) -> None:
        epochs = EpochHistory(((0, next_offset),))
        archive.commit("t", next_offset, live=Live("1", (), epochs), last_stable_offset=next_offset, highest_base=base)

    base = 0
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    commit(100)
    tail.put(entry(archive, "t", 100, batches((100, 110))))
    assert read_available(spark, archive, tmp_path, startingOffsets="earliest") == [*range(110)]
    tail.put(entry(archive, "t", 110, batches((110, 120))))
    base = 100
    archive.put_segment("t", 100, batches((100, 110), (110, 115)))
    commit(115)
    assert read_available(spark, archive, tmp_path, startingOffsets="earliest") == [*range(120)]
    for name, end in (("true", 120), ("false", 115)):
        reader = spark.read.format("kafka_segments").options(**archive.options(subscribe="t", tail=name))
        assert sorted(row.offset for row in reader.load().select("offset").collect()) == [*range(end)]


@pytest.fixture(params=["false", pytest.param("true", marks=pytest.mark.full)])
def wrapper(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether Spark's own way around what Python sources lack for `Trigger.AvailableNow` is on."""
    name = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    spark.conf.set(name, request.param)
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("wrapper")
def test_available_now_reads_everything_once(spark: SparkSession, two: Archive, tmp_path: Path) -> None:
    """And what was shipped since, the next time; the checkpoint is in the shape of Spark's Kafka source.

    Spark's wrapper requests the end of a restarted query before it passes its position.
    """
    assert read_available(spark, two, tmp_path, startingOffsets="earliest") == list(range(100))
    two.commit("t", 200, highest_base=100)
    assert read_available(spark, two, tmp_path, startingOffsets="earliest") == list(range(200))
    assert read_available(spark, two, tmp_path, startingOffsets="earliest") == list(range(200))
    (last,) = (tmp_path / "checkpoint/offsets/1").read_text().splitlines()[2:]
    assert json.loads(last)["t"] == {"0": 200}
    with open_store((tmp_path / "checkpoint").as_uri()) as store:
        found = read_checkpoint(store)
    assert found is not None
    assert [each.positions for each in found.offsets] == [{TopicPartition("t", 0): 200}]


@pytest.mark.full
def test_available_now_is_one_batch_that_the_limit_bounds(spark: SparkSession, two: Archive, tmp_path: Path) -> None:
    """What Spark 4.1 supports for Python sources, as documented: start the query again until it returns no row."""
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    assert read_available(spark, two, tmp_path, **limits) == list(range(60))
    assert read_available(spark, two, tmp_path, **limits) == list(range(100))


def test_batches_are_as_large_as_the_limit(spark: SparkSession, two: Archive) -> None:
    """Followed without a pause, in one query; a narrower schema reads those columns only."""
    sizes: list[int] = []
    options = two.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="40")
    reader = spark.readStream.format("kafka_segments").options(**options)
    table = reader.schema("offset bigint").load()
    query = table.writeStream.foreachBatch(lambda rows, _: sizes.append(rows.count())).start()
    query.processAllAvailable()
    two.commit("t", 130, highest_base=100)
    query.processAllAvailable()
    query.stop()
    assert sizes == [40, 40, 20, 30]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endingOffsets": "latest", "maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        pytest.param(
            {"endingOffsets": "latest"},
            "endingOffsets: a stream has no end; drop it, or use spark.read",
            marks=pytest.mark.full,
        ),
        pytest.param({"subscribe": "u"}, "QueryError: topic u: cluster prod in file:///", marks=pytest.mark.full),
        ({"startingOffsets": '{"t":{"0":500}}'}, "DataLoss: t-0: offsets 100 to 499 are not in the store"),
    ],
)
def test_a_message_contains_no_traceback(
    spark: SparkSession, two: Archive, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    """When the table is loaded, or when the query has begun."""

    def start() -> None:
        given = two.options(**{"subscribe": "t", **options})
        writer = spark.readStream.format("kafka_segments").options(**given).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(PySparkException) as caught:
        start()
    message = str(caught.value)
    assert told in message
    assert 'File "' not in message.partition("JVM stacktrace")[0]


class Growing:
    """A copy of an archive whose commits of topic `fields` begin at their first segment, and move on step by step."""

    def __init__(self, shipped: Shipped, folder: Path) -> None:
        location = Path(shipped.archive.location.removeprefix("file://"))
        shutil.copytree(location, folder / "store")
        self.archive = Archive(folder / "store")
        self.records = sorted(shipped.records[TOPIC], key=_place)
        self._ends: dict[int, list[int]] = {}
        for partition in range(len(CODECS)):
            segments = read_catalog(self.archive.store, self.archive.partition(TOPIC, partition)).segments
            bases = [segment.name.base for segment in segments]
            self._ends[partition] = [*bases[1:], shipped.next_offsets[TOPIC, partition]]
        self.grow(0)

    def grow(self, number: int) -> None:
        """The commits after so many further segments, as far as there are any."""
        for partition, ends in self._ends.items():
            end = ends[min(number, len(ends) - 1)]
            self.archive.commit(TOPIC, end, partition=partition, highest_base=([0, *ends])[min(number, len(ends) - 1)])


class Driver:
    """Processes that run one query, one after the other."""

    def __init__(self, archive: Archive, folder: Path) -> None:
        self.sink, self.checkpoint = folder / "sink", folder / "checkpoint"
        self._folder = folder
        self._options = archive.options(subscribe=TOPIC, startingOffsets="earliest", includeHeaders="true")

    @contextmanager
    def running(self, mode: str, **options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A driver in a process group of its own, which does not outlive the block."""
        arguments = [json.dumps({**self._options, **options}), str(self.sink), str(self.checkpoint), mode]
        command = [sys.executable, "-m", "tests.spark.streaming.process", *arguments]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(self._folder / "local")}
        with (self._folder / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, start_new_session=True, stdout=log, stderr=log, cwd=Path(__file__).parents[3]
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(SECONDS)

    def kill(self, batch: int, *, inside: bool, **options: str) -> None:
        """Kill a driver with its JVM when it reaches a batch: when the batch is begun, or when it is committed."""
        awaited = self.checkpoint / ("offsets" if inside else "commits") / str(batch)
        with self.running("follow", **options) as process:
            wait_for(lambda: awaited.exists() or process.poll() is not None, f"{awaited}", SECONDS, state=self._said)
            assert process.poll() is None, self._said()

    def finish(self) -> None:
        """Run a driver until it has read everything."""
        with self.running("finish") as process:
            assert process.wait(SECONDS) == 0, self._said()

    def rows(self, spark: SparkSession) -> list[OracleRecord]:
        """What the sink holds, by partition and offset."""
        table = spark.read.parquet(str(self.sink))
        return sorted(oracle_records(table.toArrow().to_pylist()), key=_place)

    def last_batch(self) -> int:
        """Return the highest batch in the checkpoint; -1 if it has no batch."""
        return max((int(path.name) for path in (self.checkpoint / "offsets").glob("[0-9]*")), default=-1)

    def _said(self) -> Any:
        return (self._folder / "driver.log").read_text()[-5000:]


def _place(record: OracleRecord) -> tuple[int, int]:
    return record.partition, record.offset


@pytest.mark.full  # three drivers, one after the other
def test_a_killed_driver_loses_and_repeats_nothing(spark: SparkSession, on_disk: Shipped, tmp_path: Path) -> None:
    """Killed with SIGKILL in its second batch, of many tasks; the sink then holds what Kafka's Java consumer read."""
    growing = Growing(on_disk, tmp_path)
    driver = Driver(growing.archive, tmp_path)
    growing.grow(2)
    driver.kill(1, inside=True, maxOffsetsPerTrigger="400", maxRecordsPerPartition="20")
    assert not (driver.checkpoint / "commits/1").exists()
    growing.grow(1000)
    driver.finish()
    assert driver.rows(spark) == growing.records


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_driver_killed_20_times_loses_and_repeats_nothing(
    spark: SparkSession, on_disk: Shipped, tmp_path: Path
) -> None:
    """Between batches and in them, while the commits move on."""
    growing = Growing(on_disk, tmp_path)
    driver = Driver(growing.archive, tmp_path)
    limits = {"maxOffsetsPerTrigger": "80", "maxRecordsPerPartition": "20"}
    draw = random.Random(20)
    for number in range(20):
        growing.grow(number + 1)
        driver.kill(driver.last_batch() + draw.choice([1, 1, 2]), inside=draw.random() < 0.6, **limits)
    growing.grow(1000)
    driver.finish()
    assert driver.rows(spark) == growing.records
