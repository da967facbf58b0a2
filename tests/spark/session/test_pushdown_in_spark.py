"""Filters through Spark itself, with its setting on and off. What may not be read cannot be: its bytes are garbage."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.made_archive import CLUSTER, batches, steps
from tests.made_views import view_of
from tests.spark.archives import Archive
from ts_reader.find.rules import Certificate, Entry, identity_of
from ts_reader.find.runs import put_objects
from ts_spark.options.filters import OPTION, SETTING

TIME = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC; the record at offset `o` is `o` milliseconds later
DAMAGED = "CorruptData"


@pytest.fixture
def spark_with_filters(spark: SparkSession) -> Iterator[SparkSession]:
    """The session hands filters over."""
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture
def half(archive: Archive) -> Archive:
    """Topic `t`: [0, 100) is garbage in partition 0, [100, 200) is well; partition 1 is garbage."""
    for partition, base in ((0, 0), (0, 100), (1, 0)):
        log = batches(*steps(base, base + 100), time=TIME)
        body = log if base else bytes(len(log))
        archive.put_segment("t", base, log, partition=partition, body=body)
        archive.commit("t", base + 100, partition=partition, highest_base=base)
    return archive


def table(spark: SparkSession, archive: Archive, **options: str) -> DataFrame:
    chosen = archive.options(**{"subscribe": "t", OPTION: "true", **options})
    return spark.read.format("kafka_segments").options(**chosen).load()


def first_and_count(frame: DataFrame) -> tuple[int, int]:
    found = sorted(row["offset"] for row in frame.select("offset").collect())
    return found[0], len(found)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param("topic = 't' and partition in (0) and offset in (199, 100)", (100, 2), marks=pytest.mark.full),
        ("partition <=> 0 and timestamp > timestamp'2023-11-14 22:13:20.198500 UTC'", (199, 1)),
        pytest.param("partition < 1 and offset > 99 and not (key <=> binary('5'))", (100, 100), marks=pytest.mark.full),
    ],
)
def test_filters_leave_out_what_cannot_match(
    spark_with_filters: SparkSession, half: Archive, where: str, expected: tuple[int, int]
) -> None:
    """With the setting on, and the option."""
    assert first_and_count(table(spark_with_filters, half).where(where)) == expected


def test_equal_keys_leave_out_what_certificates_exclude(spark_with_filters: SparkSession, half: Archive) -> None:
    """The garbage is not read: by the certificates that an index has of it, no segment there has these keys."""
    copies = [copy for number in (0, 1) for copy in view_of(half, partition=number).copies if copy.base == 0]
    entries = [(identity_of(copy), Entry(row, 0, 100, 0, Certificate(0, 1, 1))) for row, copy in enumerate(copies)]
    named = [(identity, entry) for identity, entry in entries if identity is not None]
    put_objects(half.store, f"{half.keys.find('t')}2026-00000001/", named, {})
    assert first_and_count(table(spark_with_filters, half).where("key = binary('150')")) == (150, 1)
    assert first_and_count(table(spark_with_filters, half).where("key in (binary('150'), binary('199'))")) == (150, 2)


def test_filters_leave_out_nothing_unless_the_option_allows_it(spark_with_filters: SparkSession, half: Archive) -> None:
    """All is read, and the damage is met."""
    with pytest.raises(Exception, match=DAMAGED):
        table(spark_with_filters, half, **{OPTION: "false"}).where("partition = 0 and offset >= 150").collect()


def test_literals_follow_the_sessions_time_zone(spark_with_filters: SparkSession, half: Archive) -> None:
    """What Spark means by a text without a zone is what is left out."""
    spark_with_filters.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        local = table(spark_with_filters, half).where("partition = 0 and timestamp >= '2023-11-15 03:43:20.150'")
        assert first_and_count(local) == (150, 50)
    finally:
        spark_with_filters.conf.set("spark.sql.session.timeZone", "UTC")


def test_with_the_setting_off_filters_are_right_and_all_is_read(spark: SparkSession, half: Archive) -> None:
    """Spark rejects a reader that accepts filters then, so the reader accepts none, whatever its option."""
    with pytest.raises(Exception, match=DAMAGED):
        table(spark, half).where("partition = 0 and offset >= 150").collect()
    whole = {"assign": '{"t":[0]}', "startingOffsets": '{"t":{"0":100}}'}
    options = {name: value for name, value in half.options(**whole, **{OPTION: "true"}).items() if name != "subscribe"}
    frame = spark.read.format("kafka_segments").options(**options).load()
    assert first_and_count(frame.where("offset >= 150")) == (150, 50)


def test_a_query_without_a_filter_reads_all_with_the_setting_on(
    spark_with_filters: SparkSession, archive: Archive
) -> None:
    """Spark plans it in a process that does not have the setting."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.commit("t", 100)
    assert table(spark_with_filters, archive).count() == 100


@pytest.mark.full
def test_without_the_option_a_table_answers_any_number_of_queries(
    spark_with_filters: SparkSession, archive: Archive
) -> None:
    """With the option, a table is for one query, because Spark keeps a filtered plan with its table.

    See ts_spark.options.filters. If the last line fails, Spark has fixed this, and the option can be on by default.
    """
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.commit("t", 100)
    safe = table(spark_with_filters, archive, **{OPTION: "false"})
    assert safe.where("offset < 3").union(safe.where("offset > 96")).count() == 6
    assert (safe.where("offset < 3").count(), safe.count()) == (3, 100)
    one_each = (table(spark_with_filters, archive).where(text) for text in ("offset < 3", "offset > 96"))
    assert next(one_each).union(next(one_each)).count() == 6
    pruned = table(spark_with_filters, archive)
    assert (pruned.where("offset < 3").count(), pruned.count()) == (3, 3)


def test_only_the_driver_reads_the_clusters_file(spark: SparkSession, archive: Archive, tmp_path: Path) -> None:
    """Once a query is planned, the file can be deleted."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.commit("t", 100)
    file = tmp_path / f"{CLUSTER}.properties"
    file.write_text(f"storage.service.endpoint.url={archive.location}\n")
    reader = spark.read.format("kafka_segments").option("config", str(file)).option("subscribe", "t")
    frame = reader.load()
    assert frame.count() == 100
    file.unlink()
    assert frame.count() == 100
    with pytest.raises(Exception, match="there is no such file; each cluster has one"):
        reader.load()
