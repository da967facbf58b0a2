"""What a user sees if a query fails: one message with the way out, not a traceback."""

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.made_archive import batches
from tests.spark.archives import Archive


@pytest.fixture
def damaged(archive: Archive) -> Archive:
    """Topic `t`, whose only object does not match its metadata; topic `holed`, without its first segment."""
    archive.put_segment("t", 0, batches((0, 10)), body=batches((0, 9)))
    archive.commit("t", 10)
    archive.put_segment("holed", 10, batches((10, 20)))
    archive.commit("holed", 20)
    return archive


def message_of(query: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        query()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "t", "failOnDatalos": "false"}, "failondatalos: unknown option; did you mean failOnDataLoss?"),
        ({"subscribe": "u"}, "QueryError: topic u: cluster prod in file:///"),
        ({"subscribe": "t", "prefixEntropyBits": "4"}, "found with no prefixEntropyBits: set that option"),
        ({"subscribe": "holed"}, "DataLoss: holed-0: offsets 0 to 9 are lost: no object in the store contains them"),
        ({"subscribe": "t"}, "CorruptData: t-0: prod/t-0/00000000000000000000.log in file:///"),
    ],
)
def test_a_message_contains_no_traceback(
    spark: SparkSession, damaged: Archive, options: dict[str, str], told: str
) -> None:
    """Errors of options, of planning and of reading."""
    reader = spark.read.format("kafka_segments").options(**damaged.options(**options))
    message = message_of(lambda: reader.load().collect())
    assert told in message
    assert "Traceback" not in message


def test_a_wrong_schema_is_reported(spark: SparkSession, damaged: Archive) -> None:
    """When the query is planned."""
    reader = spark.read.format("kafka_segments").options(**damaged.options(subscribe="holed"))
    message = message_of(lambda: reader.schema("ofset long").load().collect())
    assert "ofset: no such column; did you mean offset?" in message


def test_data_loss_that_is_allowed_shows_the_rest(spark: SparkSession, damaged: Archive) -> None:
    """With failOnDataLoss=false, through Spark."""
    options = damaged.options(subscribe="holed", failOnDataLoss="false")
    table = spark.read.format("kafka_segments").options(**options).schema("offset long").load()
    assert [row.offset for row in table.collect()] == list(range(10, 20))


def test_writing_is_refused(spark: SparkSession) -> None:
    """Before options are looked at, which a writer has none of."""
    writer = spark.range(1).write.format("kafka_segments").mode("append")
    message = message_of(lambda: writer.save("file:///nowhere"))
    assert "QueryError: kafka_segments is read only" in message
    assert "Traceback" not in message
