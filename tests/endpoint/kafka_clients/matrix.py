"""Every client of the matrix, by name."""

from typing import Final

from tests.endpoint.kafka_clients import java_tools, python_clients
from tests.endpoint.kafka_clients.interface import Client, each
from tests.endpoint.kafka_clients.programs import by_franz_go, by_kcat, shown_by_kcat
from tests.endpoint.kafka_clients.spark_source import by_spark
from ts_local.jars import LINES

CONSOLES: Final = {f"console consumer {line}": line for line in LINES}
_AT_ONCE: Final = 3  # console consumers: each waits for most of its time


def _without_snappy(topic: str) -> bool:
    """Return whether kafka-python can read a topic without the package that decompresses snappy."""
    return "snappy" not in topic and topic not in {"mixed", "compacted-appended", "upgraded"}


CLIENTS: Final = {
    client.name: client
    for client in (
        Client("librdkafka assign", each(python_clients.by_assign)),
        Client("librdkafka subscribe", each(python_clients.by_subscribe)),
        Client("aiokafka", each(python_clients.by_aiokafka)),
        Client("kafka-python", each(python_clients.by_kafka_python), is_able=_without_snappy),
        *(Client(f"Java consumer {line}", java_tools.consumer(line)) for line in LINES),
        *(Client(name, each(java_tools.console(line), _AT_ONCE)) for name, line in CONSOLES.items()),
        Client("Spark's Kafka source", by_spark),
        Client("franz-go", by_franz_go),
        Client("kcat", each(by_kcat), shown_by_kcat),
    )
}
