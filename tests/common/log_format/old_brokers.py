"""Real brokers that still write magic 0 and 1: the requests of old clients, and the closed segments."""

import socket
import struct
from functools import partial

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from tests.common.log_format.build import message
from tests.common.log_format.legacy_messages import LZ4, packed
from tests.every_field import every_field
from ts_common.log_format.framing import BatchHeader, parse_header

CODECS = ("none", "gzip", "snappy", "lz4")
FORMATS = {0: "0.9.0", 1: "0.10.2"}
# With these settings, a broker of 3.9 applies a topic's `message.format.version`.
OLD_PROTOCOL = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "2.8"}


def produce_set(cluster: LocalCluster, topic: str, partition: int, message_set: bytes) -> None:
    """Send a produce request of version 2, as a client of 0.10; a broker with message format 1 stores the bytes."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    request = struct.pack(">hhih", 0, 2, 1, -1) + struct.pack(">hii", -1, 30_000, 1) + name
    request += struct.pack(">iii", 1, partition, len(message_set)) + message_set
    address = ("127.0.0.1", cluster.brokers[1].port)
    with socket.create_connection(address, 30) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answer.read(4))
        body = answer.read(size)
    (error,) = struct.unpack_from(">h", body, 4 + 4 + len(name) + 4 + 4)
    assert error == 0, f"error code {error}"


def produce_as_of_old(cluster: LocalCluster, topic: str, partition: int, magic: int, codec: int) -> None:
    """Produce messages, or wrappers over 50 of them, as an old client writes them."""
    every = every_field(1000, with_headers=False)
    sets = [every[start : start + 50] for start in range(0, 1000, 50)] + [[one] for one in every[1000:]]
    for number, few in enumerate(sets):
        times = [record.timestamp or 0 for record in few]
        inner = b"".join(message(magic, n, r.value, r.key, timestamp=r.timestamp or 0) for n, r in enumerate(few))
        if not codec:
            produce_set(cluster, topic, partition, inner)
            continue
        data = bytearray(packed(codec, inner))
        if codec == LZ4 and magic:
            data[6] = 0x82  # the right header checksum
        wrapper = message(magic, len(few) - 1, bytes(data), attributes=codec, timestamp=max(times) if number % 2 else 5)
        produce_set(cluster, topic, partition, wrapper)


def closed(cluster: LocalCluster, topic: str, partition: int) -> tuple[list[bytes], int]:
    """Return a partition's closed segments, and the base offset of the active one."""
    paths = sorted(cluster.brokers[1].partition_directory(topic, partition).glob("*.log"))
    return [path.read_bytes() for path in paths[:-1]], int(paths[-1].stem)


def headers(segments: list[bytes]) -> list[BatchHeader]:
    """Return the header of every batch and message."""
    found = []
    for data in segments:
        position = 0
        while isinstance(header := parse_header(data, position, len(data) - position), BatchHeader):
            found.append(header)
            position += header.size_in_bytes
    return found


def write_in(cluster: LocalCluster, topic: str, magic: int, partitions: int = 1) -> None:
    """Change the message format of a topic; produce until the broker applies the change."""
    cluster.alter_config(topic, {"message.format.version": FORMATS.get(magic, "2.8")})

    def taken(partition: int) -> bool:
        cluster.produce(topic, [Record(b"in which format?")], partition=partition)
        active = max(cluster.brokers[1].partition_directory(topic, partition).glob("*.log"))
        return headers([active.read_bytes()])[-1].magic == magic

    for partition in range(partitions):
        wait_for(partial(taken, partition), f"{topic}-{partition} to be written with magic {magic}", 60)
