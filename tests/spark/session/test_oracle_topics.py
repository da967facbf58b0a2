"""Every kind of topic that Kafka can write, through the whole system: broker, agent, store, Spark.

No field of any record may differ from what Kafka's Java consumer returns.
"""

from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from dev.local.oracle import Isolation
from tests.matrix import cases
from tests.oracle_topics.kinds import KINDS, QUICK
from tests.oracle_topics.shipped import CLUSTER, ENTROPY_BITS, ISOLATIONS, ByTopic, Shipped
from tests.spark.archives import oracle_records

# tests/reader/test_oracle_topics.py reads all of `QUICK` with the code that Spark's workers run.
QUICK_IN_SPARK = ("appended-snappy", "transactions-lz4", "upgraded", "large")


@dataclass(frozen=True)
class Compared:
    """The records of every topic by both readers: the Java consumer's, and those of a query through Spark."""

    shipped: Shipped
    shown: dict[Isolation, ByTopic]


@pytest.fixture(scope="module")
def compared(oracle_topics: Shipped, spark: SparkSession) -> Compared:
    """Read the topics with Spark."""
    shipped, shown = oracle_topics, {}
    for isolation in ISOLATIONS:
        table = (
            spark.read.format("kafka_segments")
            .option("cluster", CLUSTER)
            .option("prefixEntropyBits", ENTROPY_BITS)
            .option("subscribePattern", "[a-z].*")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", isolation)
            .load(shipped.location)
        )
        shown[isolation] = shipped.by_topic(oracle_records(table.toArrow().to_pylist()))
    return Compared(shipped, shown)


def test_there_are_topics_enough() -> None:
    """At least forty in all, and a few of each kind of format in `make test`."""
    assert len(KINDS) >= 40
    assert len(QUICK) >= 12


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", cases(KINDS, quick=QUICK_IN_SPARK))
def test_no_field_of_any_topic_differs_from_the_java_consumers(
    compared: Compared, topic: str, isolation: Isolation
) -> None:
    """The topic is of its kind, and every field of all its records is equal, in order, and once."""
    compared.shipped.check(topic, isolation, compared.shown[isolation][topic])
