"""`python -m dev.bench.decode`: the speed of decoding a segment in memory to columns, on one core.

One segment of 64 MiB for each codec: 300-byte JSON-like values, 11-byte keys, batches of 16 KiB. In the same
repetitions, aiokafka and kafka-python decode a part of the segment, and the bare decompressor (`decompress_into` of
cramjam) each batch into one buffer. The goals are ratios between medians of one run. Exits with 1 if one is missed;
`--no-gate` only prints.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from awscrt.checksums import crc32c
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals
from dev.bench.measuring.records import json_value, key
from ts_common.log_format.framing import HEADER_SIZE
from ts_reader.decode.codecs import Codec
from ts_reader.decode.columns import BufferPool, Projection
from ts_reader.decode.compression import compress
from ts_reader.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder

SEGMENT_BYTES = 64 << 20
CHUNK_BYTES = 4 << 20
RECORDS_A_BATCH = 51  # of 11 + 300 bytes and the fields around them: 16 KiB
AIOKAFKA_RATIO = 3.0
BARE_RATIOS = {Codec.GZIP: 0.70, Codec.SNAPPY: 0.60, Codec.LZ4: 0.70, Codec.ZSTD: 0.70}
_BATCH_LENGTH = slice(8, 12)


@dataclass
class Segment:
    """A segment, and its parts for the other libraries."""

    data: bytes
    batches: list[memoryview]
    records: int
    uncompressed_bytes: int


def build(codec: Codec, segment_bytes: int) -> Segment:
    """Return a segment as a broker stores it: base offsets ascend; codec and CRC are the producer's."""
    generator, data, sizes, records, uncompressed = random.Random(7), bytearray(), [], 0, 0
    values = [json_value(generator, number) for number in range(20_000)]
    while len(data) < segment_bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        for index in range(RECORDS_A_BATCH):
            number = records + index
            timestamp = 1_700_000_000_000 + number // 10
            builder.append(index, timestamp, key(number), values[number % len(values)], [])
        batch = bytearray(builder.build())
        uncompressed += len(batch) - HEADER_SIZE
        if codec:
            batch[HEADER_SIZE:] = compress(codec, bytes(batch[HEADER_SIZE:]))
            batch[22] |= codec
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
            batch[_BATCH_LENGTH] = (len(batch) - 12).to_bytes(4, "big")
        batch[:8] = records.to_bytes(8, "big")
        data += batch
        sizes.append(len(batch))
        records += RECORDS_A_BATCH
    whole, batches, position = bytes(data), [], 0
    for size in sizes:
        batches.append(memoryview(whole)[position : position + size])
        position += size
    return Segment(whole, batches, records, uncompressed)


def decoder(segment: Segment) -> Callable[[], int]:
    """Return a run of the project's decoder: chunks as in a streaming GET, all columns, buffers reused."""
    view = memoryview(segment.data)
    chunks = [view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES)]
    projection = Projection()
    pool = BufferPool(projection, MAX_ROWS, MAX_BYTES)

    def run() -> int:
        decoding = SegmentDecoder(projection, pool=pool)
        return sum(columns.row_count for columns in decoding.decode(chunks))

    return run


def bare(segment: Segment, codec: Codec) -> Callable[[], int]:
    """Return a run of the decompressor alone; snappy's framing is removed before, because it decodes bare blocks."""
    bodies = [batch[HEADER_SIZE:] for batch in segment.batches]
    if codec is Codec.SNAPPY:
        bodies = [body[20:] for body in bodies]
    into = {
        Codec.GZIP: cramjam.gzip.decompress_into,
        Codec.SNAPPY: cramjam.snappy.decompress_raw_into,
        Codec.LZ4: cramjam.lz4.decompress_into,
        Codec.ZSTD: cramjam.zstd.decompress_into,
    }[codec]
    output = bytearray(1 << 16)

    def run() -> int:
        size = 0
        for body in bodies:
            size += into(body, output)
        return size

    return run


def client(records_class: type, segment: Segment, batches: int) -> Callable[[], int]:
    """Return a run of a client library: CRC, records, and their keys and values as bytes."""
    data = b"".join(segment.batches[:batches])

    def run() -> int:
        count, reader = 0, records_class(data)
        while reader.has_next():
            batch = reader.next_batch()
            if not batch.validate_crc():
                raise SystemExit("a client library finds a wrong CRC")
            for record in batch:
                if record.value is not None and record.key is not None:
                    count += 1
        return count

    return run


def measure(runs: dict[str, Callable[[], int]], repetitions: int) -> dict[str, float]:
    """Return the median seconds of each run; every repetition runs all, and the first warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(repetitions + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            if repetition:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> int:
    """Print the speeds and the goals; return 1 if a goal is missed."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--repetitions", type=int, default=7)
    arguments.add_argument("--mib", type=int, default=SEGMENT_BYTES >> 20, help="size of the segment")
    options = arguments.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    goals: list[Goal] = []
    print(f"{'codec':8}{'what':24}{'M records/s':>12}{'GB/s out':>10}{'ratio':>8}")
    for codec in Codec:
        segment = build(codec, options.mib << 20)
        part = min(len(segment.batches), 800)
        slow = min(part, 60)
        runs = {
            "this decoder": decoder(segment),
            "aiokafka": client(AiokafkaRecords, segment, part),
        }
        if codec is Codec.NONE:
            runs["kafka-python"] = client(KafkaPythonRecords, segment, slow)
        else:
            runs["bare decompressor"] = bare(segment, codec)
        for name, expected in (("this decoder", segment.records), ("aiokafka", part * RECORDS_A_BATCH)):
            if runs[name]() != expected:
                raise SystemExit(f"{codec.name}: {name} finds {runs[name]()} records, {expected} expected")
        shares = {"aiokafka": part / len(segment.batches), "kafka-python": slow / len(segment.batches)}
        seconds = {name: spent / shares.get(name, 1.0) for name, spent in measure(runs, options.repetitions).items()}
        for name, time_taken in seconds.items():
            bound = {"aiokafka": AIOKAFKA_RATIO} if codec is Codec.NONE else {"bare decompressor": BARE_RATIOS[codec]}
            ratio = time_taken / seconds["this decoder"]
            shown = "" if name == "this decoder" else f"{ratio:8.2f}"
            if name in bound:
                goals.append(Goal(f"{codec.name.lower()}: speed relative to {name}", ratio, bound[name], at_least=True))
            records, size = segment.records / time_taken / 1e6, segment.uncompressed_bytes / time_taken / 1e9
            print(f"{codec.name.lower():8}{name:24}{records:12.2f}{size:10.2f}{shown}")
    print()
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
