"""The sessions that are recorded: each client reads the topics in a group with `read_committed`, commits, and
sends what an administrator sends.
"""

import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from dev.local.go_programs import go_clients
from dev.local.node_clients import node_program
from tests.endpoint.kafka_clients.java_tools import run_tool
from tests.endpoint.kafka_clients.python_clients import librdkafka, to_the_ends
from tests.endpoint.recorded.topics import PARTITIONS, PREFIX, TOPICS, TX, WITH_GZIP_ALONE
from tests.every_field import TIME

_SECONDS: Final = 300.0
_AT: Final = TIME + 100_000
Session = Callable[[str, str], None]  # bootstrap server and group


def by_java(bootstrap: str, group: str) -> None:
    """Run Kafka 4.1's tools: the console consumer, and those for offsets, topics, groups and settings."""
    tools = "org.apache.kafka.tools"
    place = ["--bootstrap-server", bootstrap]
    consumer = ["--include", f"{PREFIX}.*", "--group", group, "--from-beginning", "--timeout-ms", "15000"]
    run_tool("4", f"{tools}.consumer.ConsoleConsumer", [*place, *consumer, "--isolation-level", "read_committed"])
    for time in ("earliest", "latest", "max-timestamp", str(_AT)):
        run_tool("4", f"{tools}.GetOffsetShell", [*place, "--topic-partitions", f"{PREFIX}.*", "--time", time])
    run_tool("4", f"{tools}.TopicCommand", [*place, "--describe", "--topic", TX])
    run_tool("4", "kafka.admin.ConfigCommand", [*place, "--describe", "--all", "--topic", TX])
    groups = f"{tools}.consumer.group.ConsumerGroupCommand"
    run_tool("4", groups, [*place, "--list"])
    run_tool("4", groups, [*place, "--describe", "--group", group])
    run_tool("4", groups, [*place, "--delete-offsets", "--group", group, "--topic", TX])
    run_tool("4", groups, [*place, "--delete", "--group", group])


def by_librdkafka(bootstrap: str, group: str) -> None:
    """Run librdkafka's consumer and its administrator."""
    consumer = librdkafka(bootstrap, "read_committed", {"group.id": group})
    every = [TopicPartition(topic, number) for topic, count in PARTITIONS.items() for number in range(count)]
    try:
        consumer.subscribe(list(TOPICS))
        to_the_ends(consumer, len(every))
        consumer.commit(asynchronous=False)
        consumer.committed(every, _SECONDS)
        consumer.offsets_for_times([TopicPartition(each.topic, each.partition, _AT) for each in every], _SECONDS)
        for each in every:
            consumer.get_watermark_offsets(each, _SECONDS)
    finally:
        consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.list_topics(timeout=_SECONDS)
    admin.describe_cluster().result(_SECONDS)
    admin.list_consumer_groups().result(_SECONDS)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    waited = [
        *admin.describe_consumer_groups([group]).values(),
        *admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values(),
        *admin.describe_configs([ConfigResource(ResourceType.TOPIC, TX)]).values(),
        *admin.list_offsets(dict.fromkeys(every, latest), isolation_level=IsolationLevel.READ_COMMITTED).values(),
        *admin.delete_consumer_groups([group]).values(),
    ]
    for future in waited:
        future.result(_SECONDS)


def by_program(command: Callable[[], Sequence[str]], *arguments: str, topics: Sequence[str] = TOPICS) -> Session:
    """Return a session that is a program, with bootstrap server, further arguments, group and topics."""

    def session(bootstrap: str, group: str) -> None:
        options = [each.format(bootstrap=bootstrap, group=group) for each in arguments]
        subprocess.run([*command(), *options, *topics], check=True, timeout=_SECONDS, stdout=subprocess.DEVNULL)

    return session


_NODE: Final = ("{bootstrap}", "read_committed", "{group}", "session")
_GO: Final = ("{bootstrap}", "{group}")
SESSIONS: Final[dict[str, Session]] = {
    "java-4.1": by_java,
    "librdkafka": by_librdkafka,
    "sarama": by_program(lambda: [str(go_clients())], "sarama", *_GO),
    "kafka-go": by_program(lambda: [str(go_clients())], "kafka-go", *_GO),
    "kafkajs": by_program(lambda: node_program("kafkajs"), *_NODE, topics=WITH_GZIP_ALONE),
    "platformatic": by_program(lambda: node_program("platformatic"), *_NODE),
}
