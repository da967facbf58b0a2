"""Clients that are programs of other languages: C (kcat), Golang (franz-go), Node.js (kafkajs, @platformatic/kafka)."""

import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dev.local.go_programs import franz_go
from dev.local.kcat import kcat
from dev.local.node_clients import node_program
from dev.local.oracle import Isolation, OracleRecord, record_of
from tests.endpoint.kafka_clients.interface import SECONDS, ClientFailedError, ReadSeveral


def by_franz_go(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> list[OracleRecord]:
    """Read with franz-go's `ConsumePartitions`."""
    return [record_of(line) for line in _run([str(franz_go()), bootstrap, isolation, *topics]).splitlines()]


def by_node(name: str) -> ReadSeveral:
    """Return a way to read with a client of Node.js, as the only member of a group."""

    def read(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> list[OracleRecord]:
        arguments = [bootstrap, isolation, f"matrix-{uuid.uuid4()}", "read", *topics]
        return [record_of(line) for line in _run([*node_program(name), *arguments]).splitlines()]

    return read


def shown_by_platformatic(record: OracleRecord) -> OracleRecord:
    """Return what @platformatic/kafka returns of a record: no type of a timestamp."""
    return replace(record, timestamp_type=0)


def shown_by_kafkajs(record: OracleRecord) -> OracleRecord:
    """Return what kafkajs returns of a record: no type of a timestamp, and headers by name."""
    names = dict.fromkeys(name for name, _ in record.headers)
    headers = tuple(pair for name in names for pair in record.headers if pair[0] == name)
    return replace(record, timestamp_type=0, headers=headers)


def by_kcat(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
    """Read with kcat's consumer up to the end of each partition; it prints no type of a timestamp."""
    program, environment = kcat()
    arguments = [
        "-b",
        bootstrap,
        "-C",
        "-t",
        topic,
        "-o",
        "beginning",
        "-e",
        "-q",
        "-X",
        f"isolation.level={isolation}",
    ]
    out = _run([program, *arguments, "-f", r"%p %o %T %K %S %h\n%k%s\n"], environment)
    records, at = [], 0
    while at < len(out):
        end = out.index(b"\n", at)
        partition, offset, time, key_size, value_size, headers = out[at:end].split(b" ", 5)
        key, after_key = _field(out, end + 1, int(key_size))
        value, after_value = _field(out, after_key, int(value_size))
        pairs = tuple(_pair(text) for text in headers.split(b",")) if headers else ()
        records.append(OracleRecord(topic, int(partition), int(offset), int(time), 0, key, value, pairs))
        at = after_value + 1
    return records


def shown_by_kcat(record: OracleRecord) -> OracleRecord:
    """Return what kcat prints of a record: of header values a C string, NULL for a null; 0 for no timestamp."""
    headers = tuple((name, b"NULL" if value is None else value.partition(b"\0")[0]) for name, value in record.headers)
    return replace(record, timestamp=max(record.timestamp, 0), timestamp_type=0, headers=headers)


def _pair(text: bytes) -> tuple[str, bytes | None]:
    name, _, value = text.partition(b"=")
    return name.decode(), value


def _field(data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, env=environment)
    if done.returncode:
        said = done.stderr.decode(errors="replace")[-4000:]
        raise ClientFailedError(f"{' '.join(command)}: status {done.returncode}\n{said}")
    return done.stdout
