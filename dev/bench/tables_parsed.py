"""`python -m dev.bench.tables_parsed`: JSON in segments on S3 to tables of ten columns on S3, and their parts alone.

A topic of two partitions: each has segments of 64 MiB, values of 300 bytes in JSON, batches of 16 KiB. Each round
measures:

- a run of a new Iceberg table with a parser of ten columns and two workers; the catalog is SQLite;
- a run of a new table of plain files, the same otherwise;
- two processes with one partition each, which fetch each segment from S3, decode it, parse each value by orjson, make
  ten columns of the objects, write them by pyarrow's `write_table` with zstd into memory, and put these bytes;
- the same, parsed by pyarrow's `read_json` for each batch, on one thread.

A run also checks each value against its column, adds the position and the digest of each record, and commits twice.
Server and clients share two cores. Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import argparse
import io
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from dev.bench.measuring.made_archives import (
    CLUSTER,
    NONE,
    RECORDS_A_BATCH,
    TIME,
    batch_of,
    ship,
    template_segment,
)
from dev.bench.measuring.new_tables import NewTables, sql_catalog
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.s3_server import s3_server
from dev.bench.reader import BUCKET, PARTITIONS, SEGMENT_BYTES, Halves, seconds
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.columns import BufferPool, Projection
from ts_reader.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder

RATIO: Final = 0.8
TOPIC: Final = "events"
VALUE_BYTES: Final = 300
ICEBERG, PLAIN = "Iceberg table", "Parquet files"
ORJSON, PYARROW = "orjson", "pyarrow"
TYPES: Final = {
    "id": "long",
    "user": "string",
    "event": "string",
    "url": "string",
    "amount": "double",
    "quantity": "int",
    "session": "string",
    "is_new": "boolean",
    "city": "string",
    "note": "string",
}
SCHEMA: Final = pa.schema(
    [
        (
            name,
            {"long": pa.int64(), "int": pa.int32(), "double": pa.float64(), "boolean": pa.bool_()}.get(
                kind, pa.string()
            ),
        )
        for name, kind in TYPES.items()
    ]
)
_CHUNK_BYTES: Final = 4 << 20


def value_of(draw: random.Random, number: int) -> bytes:
    """Return an event of 300 bytes in JSON."""
    event = {
        "id": number,
        "user": f"user-{draw.randrange(100_000):06d}",
        "event": draw.choice(("view", "click", "purchase", "scroll")),
        "url": f"https://shop.example.com/product/{draw.randrange(1_000_000)}",
        "amount": round(draw.random() * 1000, 2),
        "quantity": draw.randrange(10),
        "session": f"{draw.getrandbits(64):016x}",
        "is_new": draw.random() < 0.1,
        "city": draw.choice(("Ulm", "Bonn", "Kiel", "Trier")),
        "note": "",
    }
    text = json.dumps(event, separators=(",", ":"))
    event["note"] = "x" * (VALUE_BYTES - len(text))
    return json.dumps(event, separators=(",", ":")).encode()


def fill(location: str, segments: int) -> None:
    """Put the topic."""
    draw = random.Random(7)
    pattern = batch_of([value_of(draw, number) for number in range(RECORDS_A_BATCH)], NONE)
    batches = SEGMENT_BYTES // len(pattern)
    with open_store(location) as store:
        for number in range(PARTITIONS):
            made, base = [], 0
            for _ in range(segments):
                log = template_segment(pattern, base, RECORDS_A_BATCH, batches, TIME + base, RECORDS_A_BATCH)
                made.append((base, log))
                base += RECORDS_A_BATCH * batches
            ship(store, TOPIC, made, base, number)


def by_orjson(values: list[bytes]) -> pa.RecordBatch:
    """Return the columns of JSON values."""
    objects = [orjson.loads(value) for value in values]
    arrays = [pa.array([each.get(field.name) for each in objects], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def by_pyarrow(values: list[bytes]) -> pa.RecordBatch:
    """Return the columns of JSON values."""
    options = pj.ReadOptions(use_threads=False, block_size=64 << 20)
    parse = pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    found = pj.read_json(io.BytesIO(b"\n".join(values)), read_options=options, parse_options=parse)
    return found.combine_chunks().to_batches()[0]


PARSES: Final[dict[str, Callable[[list[bytes]], pa.RecordBatch]]] = {ORJSON: by_orjson, PYARROW: by_pyarrow}


def write_half(location: str, number: int) -> None:
    """Write a partition for each way to parse that is named on standard input."""
    projection = Projection(headers=False)
    pool = BufferPool(projection, MAX_ROWS, MAX_BYTES)
    with open_store(location) as store:
        keys = [info.key for info in store.list(f"{CLUSTER}/{TOPIC}-{number}/") if info.key.endswith(".log")]
        for line in sys.stdin:
            for key in keys:
                decoder = SegmentDecoder(projection, pool=pool)
                batches = [
                    PARSES[line.strip()](to_arrow(columns, TOPIC, number, ("value",))["value"].to_pylist())
                    for columns in decoder.decode(_chunks(store, key))
                ]
                written = io.BytesIO()
                pq.write_table(pa.Table.from_batches(batches), written, compression="zstd")
                store.put(f"parts/{key.replace('/', '-')}.parquet", written.getvalue())
            print("done", flush=True)


def _chunks(store: ObjectStore, key: str) -> Iterator[bytes]:
    with store.open(key) as stream:
        while data := stream.read(_CHUNK_BYTES):
            yield data


def measure(new: NewTables, url: str, repeat: int) -> list[Goal]:
    """Print the seconds of each thing; return the goals."""
    parts = Halves("dev.bench.tables_parsed", url)
    try:
        things: dict[str, Callable[[], float]] = {
            ICEBERG: partial(new.seconds, TOPIC, is_plain=False),
            PLAIN: partial(new.seconds, TOPIC, is_plain=True),
            **{name: partial(seconds, partial(parts.run, name)) for name in PARSES},
        }
        found = rounds(things, repeat, warm_up=1)
    finally:
        parts.end()
    print_table(("", *things), [("seconds", *(statistics.median(found[name]) for name in things))])
    ratios: Any = {name: median_ratio(found[PYARROW], found[name]) for name in (ICEBERG, PLAIN)}
    print_table(("ratio to the parts with pyarrow's parse", ""), list(ratios.items()))
    return [
        Goal(f"{name} / its parts with orjson", median_ratio(found[ORJSON], found[name]), RATIO, True)
        for name in (ICEBERG, PLAIN)
    ]


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--segments", type=int, default=6, help="of each partition")
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after one that warms up")
    arguments.add_argument("--half", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--location", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.half is not None:
        write_half(options.location, options.half)
        return 0
    with ExitStack() as ending:
        server, directory = ending.enter_context(s3_server("parsed", BUCKET))
        url = f"s3://{BUCKET}/base"
        fill(url, options.segments)
        catalog = sql_catalog(server, directory, BUCKET)
        definition = {"parser": {"type": "json", "columns": TYPES}}
        new = NewTables({"url": url, "cluster": CLUSTER}, f"s3://{BUCKET}/plain", catalog, definition=definition)
        goals = measure(new, url, options.repeat)
    print()
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
