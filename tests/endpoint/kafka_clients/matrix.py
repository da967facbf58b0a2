"""Every client of the matrix, by name."""

from typing import Final

from dev.local.jars import LINES
from tests.endpoint.kafka_clients import java_tools, python_clients
from tests.endpoint.kafka_clients.interface import Client, each
from tests.endpoint.kafka_clients.programs import (
    by_franz_go,
    by_kcat,
    by_node,
    shown_by_kafkajs,
    shown_by_kcat,
    shown_by_platformatic,
)
from tests.endpoint.kafka_clients.spark_source import by_spark

CONSOLES: Final = {f"console consumer {line}": line for line in LINES}
_AT_ONCE: Final = 2  # console consumers, which wait for their group at first


# Kafka's clients of 0.8 wrote LZ4 frames with a wrong checksum. Only Kafka's consumer and librdkafka read them.
_LZ4_OF_MAGIC_0: Final = frozenset({"magic-0-lz4", "of-old-0-lz4", "upgraded"})
_SNAPPY: Final = frozenset({"mixed", "compacted-appended", "upgraded"})  # and topics with snappy in their name


def _reads_new_lz4(topic: str) -> bool:
    """Return whether a client can read a topic that has no decompressor for LZ4 of magic 0."""
    return topic not in _LZ4_OF_MAGIC_0


def _reads_no_snappy(topic: str) -> bool:
    """Return whether kafka-python can read a topic without a further package, which snappy and old LZ4 need."""
    return "snappy" not in topic and topic not in _SNAPPY | _LZ4_OF_MAGIC_0


# Clients of Node.js show some records of aborted transactions that interleave, from a broker too.
# `tests/endpoint/recorded` compares what they read of transactions with what they read from the broker.
_NOT_OF_NODE: Final = ("transactions", "magic-", "old", "-0-", "-1-", "upgraded")


# A broker that compresses or compacts writes Snappy in the blocks of snappy-java, as Java's producers do.
# @platformatic/kafka 1.35 reads only librdkafka's bare Snappy. At a block its decompressor fails, from a broker too.
_SNAPPY_OF_JAVA: Final = frozenset({"by-broker-snappy", "compacted-snappy"})


def _is_of_platformatic(topic: str) -> bool:
    """Return whether @platformatic/kafka reads a topic as Java does: no old formats, append times or Java's Snappy."""
    return topic not in _SNAPPY_OF_JAVA and not any(name in topic for name in (*_NOT_OF_NODE, "appended"))


def _is_of_kafkajs(topic: str) -> bool:
    """Return whether kafkajs reads a topic as Java does: without a further package it decompresses gzip alone."""
    return not any(name in topic for name in _NOT_OF_NODE) and topic.endswith(("-none", "-gzip"))


CLIENTS: Final = {
    client.name: client
    for client in (
        Client("librdkafka assign", each(python_clients.by_assign)),
        Client("librdkafka subscribe", each(python_clients.by_subscribe)),
        Client("aiokafka", each(python_clients.by_aiokafka), is_able=_reads_new_lz4),
        Client("kafka-python", each(python_clients.by_kafka_python), is_able=_reads_no_snappy),
        *(Client(f"Java consumer {line}", java_tools.consumer(line)) for line in LINES),
        *(Client(name, each(java_tools.console(line), _AT_ONCE)) for name, line in CONSOLES.items()),
        Client("Spark's Kafka source", by_spark),
        Client("franz-go", by_franz_go, is_able=_reads_new_lz4),
        Client("kcat", each(by_kcat), shown_by_kcat),
        Client("kafkajs", by_node("kafkajs"), shown_by_kafkajs, _is_of_kafkajs),
        Client("@platformatic/kafka", by_node("platformatic"), shown_by_platformatic, _is_of_platformatic),
    )
}
