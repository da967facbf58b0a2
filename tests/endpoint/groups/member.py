"""A process that is one member of a group: it prints each record's partition and offset, then commits them."""

import sys

from confluent_kafka import Consumer

_AT_ONCE = 20


def main() -> None:
    """Consume until the process is killed."""
    bootstrap, topic, group = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([topic])
    while True:
        messages = [each for each in consumer.consume(_AT_ONCE, 0.2) if each.error() is None]
        for message in messages:
            sys.stdout.write(f"{message.partition()} {message.offset()}\n")
        sys.stdout.flush()
        if messages:
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
