"""Files of SequenceFile and ORC are read by the programs of Java that people have: Hadoop's and Spark's readers."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.made_tables import MadeTable
from ts_tables.files.layout import FileFormat

START_MS = 1_600_000_000_000 - 1500
START = datetime(1970, 1, 1) + timedelta(milliseconds=START_MS)
VALUES = [b"", b"\xff\x00", None, *(f"value {number}".encode() * 10 for number in range(3000))]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> MadeArchive:
    """Two partitions of a topic; the first record has no key, and a time of another hour."""
    made = MadeArchive(tmp_path_factory.mktemp("archive"))
    for partition in range(2):
        records = [
            record(at, None if at == 0 else f"k{at}".encode(), value, timestamp_delta=at)
            for at, value in enumerate(VALUES)
        ]
        data = batch(0, records, base_timestamp=START_MS, max_timestamp=START_MS + len(VALUES) - 1)
        made.put_segment("t", 0, data, partition=partition)
        made.commit("t", len(VALUES), partition=partition, last_stable_offset=len(VALUES))
    return made


def made(archive: MadeArchive, directory: Path, form: FileFormat, codec: str, **further: Any) -> MadeTable:
    table = MadeTable(archive, directory, format=form, compression=codec, **further)
    table.create()
    table.run()
    return table


@pytest.mark.parametrize("codec", cases(["none", "gzip"], quick=["none"]))
def test_hadoop_reads_a_sequence_file(spark: SparkSession, archive: MadeArchive, tmp_path: Path, codec: str) -> None:
    """Keys are the offsets, and values those of the records; its reader finds the sync markers of a split."""
    names = "{topic}/{generation}_{kafka_partition}_{first_offset}"
    made(archive, tmp_path, FileFormat.SEQUENCE, codec, file_names=names)
    classes = "org.apache.hadoop.io.LongWritable", "org.apache.hadoop.io.BytesWritable"
    pairs: Any = spark.sparkContext.sequenceFile(f"{tmp_path}/files/t/1_1_*.seq", *classes, minSplits=4)
    assert codec == "gzip" or pairs.getNumPartitions() > 1
    expected = [(offset, value or b"") for offset, value in enumerate(VALUES)]
    assert sorted((offset, bytes(value)) for offset, value in pairs.collect()) == expected


def test_hadoop_reads_keys_of_messagepack(spark: SparkSession, archive: MadeArchive, tmp_path: Path) -> None:
    """As Secor writes them: a map of the offset and of the key, which is absent where a record has none."""
    made(archive, tmp_path, FileFormat.SEQUENCE_MESSAGEPACK, "none")
    of_bytes = "org.apache.hadoop.io.BytesWritable"
    pairs: Any = spark.sparkContext.sequenceFile(f"{tmp_path}/files/*.seq", of_bytes, of_bytes).collect()
    found = [(bytes(key), bytes(value)) for key, value in pairs]
    assert len(found) == 2 * len(VALUES)
    assert found.count((b"\x81\x01\x00", b"")) == 2
    assert found.count((b"\x82\x01\x01\x02\xc4\x02k1", VALUES[1] or b"")) == 2
    assert found.count((b"\x82\x01\xcd\x01\x00\x02\xc4\x04k256", VALUES[256] or b"")) == 2


def test_spark_reads_orc(spark: SparkSession, archive: MadeArchive, tmp_path: Path) -> None:
    """All columns; times are those of UTC, without a zone."""
    table = made(archive, tmp_path, FileFormat.ORC, "zstd", partition_by=("hour(timestamp)",))
    jvm: Any = spark._jvm  # of the zone that the reader of ORC has
    zone = jvm.java.util.TimeZone.getDefault().getID()
    rows = spark.read.orc(f"{tmp_path}/files").orderBy("_partition_id", "_offset")
    utc = f"date_format(to_utc_timestamp(from_utc_timestamp(timestamp, '{zone}'), 'UTC'), 'yyyy-MM-dd HH:mm:ss.SSS')"
    found = rows.selectExpr("key", "value", "offset", f"{utc} time", "timestamp_hour").collect()
    assert [(row["key"], row["value"], row["offset"], row["time"]) for row in found[: len(VALUES)]] == [
        (
            None if at == 0 else f"k{at}".encode(),
            value,
            at,
            (START + timedelta(milliseconds=at)).isoformat(" ", "milliseconds"),
        )
        for at, value in enumerate(VALUES)
    ]
    assert {row["timestamp_hour"] for row in found} == {"2020-09-13-12"}
    assert len(found) == len(table.rows())
