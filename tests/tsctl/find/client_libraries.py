"""Producers of four client libraries, each with a partitioner of the library, and one with a partitioner of its own.

`partitions.json` has some keys, and the partition that each producer chose for them on a broker.
`python -m tests.tsctl.find.client_libraries` writes it again.
"""

import json
import struct
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from dev.local.go_programs import go_clients
from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.resident_jvm import resident_jvm

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.partitioner import Partitioner

PARTITIONS: Final = 12
OWN: Final = "own"
VALUE: Final = bytes(300)
RECORDED: Final = Path(__file__).with_name("partitions.json")
_SECONDS: Final = 120.0
_NUMBER: Final = struct.Struct(">i")

Produce = Callable[[LocalCluster, str, Sequence[bytes]], list[int]]


@dataclass(frozen=True, slots=True)
class Library:
    """A producer.

    Attributes:
        hash: that chooses a partition, as of `ts_reader.decode.hashed_key`; None for a partitioner of its own.
        produce: produces a record for each key, and returns their partitions.
    """

    hash: str | None
    produce: Produce


def keys() -> list[bytes]:
    """Return distinct keys: of every length from 1 to 40, each byte, numbers, texts with and without ASCII."""
    rnd = Random(51)
    found = [bytes([byte]) for byte in range(256)]
    found += [rnd.randbytes(length) for length in range(2, 41) for _ in range(4)]
    found += [struct.pack(form, number) for form in (">i", ">q") for number in range(-30, 30)]
    found += [f"user-{number}".encode() for number in range(60)]
    found += [f"schl\u00fcssel-{number}".encode() for number in range(20)]
    return list(dict.fromkeys(found))


def by_java(cluster: LocalCluster, topic: str, keys: Sequence[bytes]) -> list[int]:
    """Produce by Kafka's Java producer."""
    words = [_text(cluster.bootstrap), _text(topic), _NUMBER.pack(len(VALUE)), _NUMBER.pack(len(keys))]
    result = resident_jvm().call("produce", b"".join([*words, *(_text(key.hex()) for key in keys)]), seconds=_SECONDS)
    return [partition for (partition,) in _NUMBER.iter_unpack(result)]


def by_sarama(cluster: LocalCluster, topic: str, keys: Sequence[bytes]) -> list[int]:
    """Produce by Sarama, which needs `go`, and once the network."""
    command = [str(go_clients()), "produce", cluster.bootstrap, str(len(VALUE)), topic]
    lines = "".join(f"{key.hex()}\n" for key in keys)
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=_SECONDS, check=True)
    return list(map(int, ended.stdout.split()))[:-1]


def by_librdkafka(partitioner: str | None = None) -> Produce:
    """Return a way to produce by librdkafka.

    Args:
        partitioner: by its setting; None for the default.
    """

    def produce(cluster: LocalCluster, topic: str, keys: Sequence[bytes]) -> list[int]:
        config = {} if partitioner is None else {"partitioner": partitioner}
        return [number for number, _ in cluster.produce(topic, [Record(VALUE, key) for key in keys], config=config)]

    return produce


class _Own(Partitioner):  # type: ignore[misc]  # kafka-python carries no types
    """Chooses by the sum of a key's bytes."""

    def partition(self, topic: str, _key: Any, serialized_key: bytes, *others: Any) -> int:
        *_, cluster = others
        return sum(serialized_key) % len(cluster.partitions_for_topic(topic))


def by_kafka_python(**settings: Any) -> Produce:
    """Return a way to produce by kafka-python, with some settings."""

    def produce(cluster: LocalCluster, topic: str, keys: Sequence[bytes]) -> list[int]:
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=20, **settings)
        try:
            sent = [producer.send(topic, key=key, value=VALUE) for key in keys]
            return [each.get(_SECONDS).partition for each in sent]
        finally:
            producer.close()

    return produce


LIBRARIES: Final[Mapping[str, Library]] = {
    "java": Library("murmur2", by_java),
    "librdkafka": Library("crc32", by_librdkafka()),
    "librdkafka-murmur2": Library("murmur2", by_librdkafka("murmur2_random")),
    "librdkafka-fnv1a": Library("fnv1a", by_librdkafka("fnv1a_random")),
    "sarama": Library("fnv1a", by_sarama),
    "kafka-python": Library("murmur2", by_kafka_python()),
    OWN: Library(None, by_kafka_python(partitioner=_Own())),
}


def recorded() -> tuple[list[bytes], dict[str, list[int]]]:
    """Return the keys of the file, and the partition of each by the producer."""
    found = json.loads(RECORDED.read_text())
    return [bytes.fromhex(key) for key in found["keys"]], found["partitions"]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def main() -> None:
    """Produce the keys by each library, and write what it chose."""
    every, chosen = keys(), dict[str, list[int]]()
    with LocalCluster(name="client-libraries") as cluster:
        for name, library in LIBRARIES.items():
            cluster.create_topic(name, partitions=PARTITIONS)
            chosen[name] = library.produce(cluster, name, every)
    lines = [f'"keys": {json.dumps([key.hex() for key in every])}']
    lines.append(
        '"partitions": {\n' + ",\n".join(f"{json.dumps(n)}: {json.dumps(c)}" for n, c in chosen.items()) + "\n}"
    )
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
