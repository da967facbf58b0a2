"""Decoders of record batches that share no code with the endpoint's encoder."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aiokafka.record.memory_records import MemoryRecords

from dev.local.consumed_logs import consume
from dev.local.kafka.tools import DUMP_LOG, output_of
from dev.local.resident_jvm import resident_jvm
from tests.reader.decode.decoded_rows import Row, decoded
from ts_common.log_format.framing import BatchHeader, batch_crc, crc_start, parse_header


def headers_of(data: bytes) -> list[BatchHeader]:
    """Return the header of each batch; each CRC is right, and no byte is left."""
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position, len(data) - position)
        assert isinstance(header, BatchHeader)
        end = position + header.size_in_bytes
        assert header.crc == batch_crc(2, data[position + crc_start(2) : end])
        found.append(header)
        position = end
    return found


def _by_project(data: bytes) -> list[Row]:
    return decoded(data)


def _by_java(data: bytes) -> list[Row]:
    (found,) = consume(resident_jvm(), [data])
    assert not found.uncommitted.refusal
    assert found.uncommitted.position == len(data)
    return [
        (*one[:3], one.key, one.value, tuple((name.decode(), value) for name, value in one.headers))
        for one in found.uncommitted.records
    ]


def _by_aiokafka(data: bytes) -> list[Row]:
    rows: list[Row] = []
    read: Any = MemoryRecords(data)
    while read.has_next():
        batch = read.next_batch()
        assert batch.validate_crc()
        rows += [
            (one.offset, one.timestamp, one.timestamp_type, one.key, one.value, tuple(one.headers)) for one in batch
        ]
    return rows


DECODERS: Final[dict[str, Callable[[bytes], list[Row]]]] = {
    "the project": _by_project,
    "Kafka's consumer": _by_java,
    "aiokafka": _by_aiokafka,
}

_BATCH: Final = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*isvalid: (\w+)", re.MULTILINE)
_RECORD: Final = re.compile(r"^\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) .*$", re.MULTILINE)
_TYPES: Final = {"CreateTime": 0, "LogAppendTime": 1}


def dump_log_segments(directory: Path, data: bytes) -> tuple[list[tuple[int, int, int]], list[tuple[int, ...]]]:
    """Return what Kafka's own DumpLogSegments prints of a segment whose first batch has the base offset 0.

    Returns:
        of each valid batch: base offset, last offset and count; of each record: offset, timestamp, its type, and the
        sizes of key and value.
    """
    path = directory / f"{0:020d}.log"
    path.write_bytes(data)
    command = ["--deep-iteration", "--files", str(path)]
    out = output_of(DUMP_LOG, command)
    found = [(int(base), int(last), int(count)) for base, last, count, valid in _BATCH.findall(out) if valid == "true"]
    rows: list[tuple[int, ...]] = [
        (int(offset), int(time), _TYPES[kind], int(key), int(value))
        for offset, kind, time, key, value in _RECORD.findall(out)
    ]
    return found, rows
