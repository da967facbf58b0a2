"""`python -m dev.bench.tables`: segments on S3 to an Iceberg table and to Parquet files on S3, and their parts alone.

A topic of two partitions for each codec: each has 16 segments of 64 MiB, values of 300 bytes, batches of 16 KiB that
differ. Each round measures, for each codec:

- a run of a new Iceberg table with two workers, from S3 to Parquet (zstd) on S3; the catalog is SQLite;
- a run of a new table of plain files, the same otherwise;
- two processes with one partition each, which fetch each segment from S3, decode it to Arrow, write it by pyarrow's
  `write_table` with zstd into memory, and put these bytes.

Server and clients share two cores. Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import argparse
import io
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dev.bench.measuring.made_archives import CLUSTER
from dev.bench.measuring.new_tables import NewTables, sql_catalog
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.s3_server import s3_server
from dev.bench.reader import BUCKET, CODECS, Halves, fill, seconds
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_reader.decode.columns import BufferPool, Projection
from ts_reader.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder

RATIO = 0.85
ICEBERG, PLAIN, PARTS = "Iceberg table", "Parquet files", "fetch, decode, write_table, put"
_CHUNK_BYTES = 4 << 20


def write_half(location: str, partition: int) -> None:
    """Write a partition of each topic that is named on standard input."""
    projection = Projection()
    pool = BufferPool(projection, MAX_ROWS, MAX_BYTES)
    with open_store(location) as store:
        for line in sys.stdin:
            topic = line.strip()
            keys = [info.key for info in store.list(f"{CLUSTER}/{topic}-{partition}/") if info.key.endswith(".log")]
            if not keys:
                raise RuntimeError(f"{location} has no segment of {topic}-{partition}")
            for key in keys:
                _write(store, key, topic, partition, pool)
            print("done", flush=True)


def _write(store: ObjectStore, key: str, topic: str, partition: int, pool: BufferPool) -> None:
    def chunks() -> Any:
        with store.open(key) as stream:
            while data := stream.read(_CHUNK_BYTES):
                yield data

    decoder = SegmentDecoder(Projection(), pool=pool)
    batches = [to_arrow(columns, topic, partition, COLUMNS_WITH_HEADERS) for columns in decoder.decode(chunks())]
    written = io.BytesIO()
    pq.write_table(pa.Table.from_batches(batches), written, compression="zstd")
    store.put(f"parts/{key.replace('/', '-')}.parquet", written.getvalue())


def measure(new: NewTables, url: str, repeat: int) -> list[Goal]:
    """Print the seconds of each thing for each codec; return the goals."""
    goals, table = [], []
    parts = Halves("dev.bench.tables", url)
    try:
        for codec in CODECS:
            things: dict[str, Callable[[], float]] = {
                ICEBERG: partial(new.seconds, codec, is_plain=False),
                PLAIN: partial(new.seconds, codec, is_plain=True),
                PARTS: partial(seconds, partial(parts.run, codec)),
            }
            found = rounds(things, repeat, warm_up=1)
            table.append((codec, *(statistics.median(found[name]) for name in things)))
            goals += [
                Goal(f"{codec}: {name} / its parts", median_ratio(found[PARTS], found[name]), RATIO, True)
                for name in (ICEBERG, PLAIN)
            ]
    finally:
        parts.end()
    print_table(("seconds", ICEBERG, PLAIN, PARTS), table)
    return goals


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--segments", type=int, default=16, help="of each partition")
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after one that warms up")
    arguments.add_argument("--half", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--location", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.half is not None:
        write_half(options.location, options.half)
        return 0
    with ExitStack() as ending:
        server, directory = ending.enter_context(s3_server("tables", BUCKET))
        url = f"s3://{BUCKET}/base"
        fill(url, options.segments)
        catalog = sql_catalog(server, directory, BUCKET)
        new = NewTables({"url": url, "cluster": CLUSTER}, f"s3://{BUCKET}/plain", catalog)
        goals = measure(new, url, options.repeat)
    print()
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
