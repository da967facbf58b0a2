"""`python -m dev.bench.planning`: planning a query on 100,000 segments of 1,000 partitions, from S3.

The segments exist: a `.log` of one batch with the agent's metadata, `.index`, `.timeindex`, `offset.wm` and
`log.start`. The agent's own code writes the cache objects, at the commits where an agent would. Partitions have 99 to
106 segments, so half of them have a last segment that no cache object contains yet. Then a fresh process plans a query
on all of it; the same without cache objects for a tenth of the partitions.

It measures `plan_query` alone: seconds, CPU seconds of planner and server, and requests by kind. The time to load the
data source before that is printed too.

The goal: under 10 s. Exits with 1 if it is missed; `--no-gate` only prints.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.measuring.processes import ProcessWatch
from dev.bench.measuring.raw_puts import RawPuts
from dev.local.stores.s3 import S3Server
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import scan_segment
from ts_common.model import TopicPartition

BUCKET = "bench"
CLUSTER, TOPIC = "bench", "planned"
GOAL_SECONDS = 10.0
RECORDS = 10  # of each segment
_SPREAD = 8  # partitions differ in their number of segments by less than this
_FILLERS = 8
_MIB = 1 << 20


@dataclass(frozen=True)
class Planned:
    """The cost of one planning.

    Attributes:
        loading: seconds to load the data source.
        seconds: of `plan_query`.
        cpu: its CPU seconds, all threads.
        requests: by kind.
        segments: of the plan.
        splits: of the plan.
        peak_mib: peak memory of the process.
        server_cpu: CPU seconds of the S3 server during the planning.
    """

    loading: float
    seconds: float
    cpu: float
    requests: dict[str, int]
    segments: int
    splits: int
    peak_mib: float
    server_cpu: float = 0.0


def segments_of(partition: int, segments: int) -> int:
    """Return the number of segments of a partition: `segments`, and a few more on average."""
    return segments - 1 + partition % _SPREAD


def tiny_segments(count: int) -> list[tuple[bytes, dict[str, str]]]:
    """Return consecutive logs of one batch each, with the agent's metadata."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(RECORDS):
        builder.append(number, 1_700_000_000_000 + number, b"key", b"value", [])
    batch = bytes(builder.build())
    made = []
    for number in range(count):
        base = number * RECORDS
        log = base.to_bytes(8, "big") + batch[8:]  # no checksum covers the base offset
        made.append((log, metadata_of(scan_segment(BytesIO(log), len(log)), base, TOPIC).encode()))
    return made


class Puts(Protocol):
    """A store that accepts objects."""

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] = ...) -> None:
        """Put one object with its metadata."""


def fill(puts: Puts, prefix: str, partitions: int, segments: int) -> int:
    """Put everything but cache objects; return the number of segments."""
    keys = ClusterKeys(CLUSTER)
    made = tiny_segments(segments_of(_SPREAD - 1, segments))

    def fill_partition(number: int) -> int:
        own = keys.partition(TopicPartition(TOPIC, number))
        puts.put(f"{prefix}/{own.log_start}", encode_log_start(0))
        count = segments_of(number, segments)
        for index, (log, metadata) in enumerate(made[:count]):
            name = SegmentName(index * RECORDS)
            for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
                puts.put(f"{prefix}/{own.segment(name, suffix)}", bytes(entry_bytes))
            puts.put(f"{prefix}/{own.segment(name)}", log, metadata)
        end = count * RECORDS
        commit = Commit(end - RECORDS, end, 0, EpochHistory(((0, 0),)), end, None, 1, 0, f"{number:016x}")
        puts.put(f"{prefix}/{own.commit}", commit.encode())
        return count

    with ThreadPoolExecutor(_FILLERS, "fill") as pool:
        return sum(pool.map(fill_partition, range(partitions)))


def write_cache_objects(url: str, partitions: int, segments: int) -> None:
    """Write cache objects as an agent that committed each segment by itself, with the agent's own code.

    Only its HEAD requests are answered here, which saves minutes.
    """
    # The SDK is imported only by its users.
    from ts_common.archive.metadata_cache import CACHE_OBJECT_SEGMENTS  # noqa: PLC0415
    from ts_common.store.contract import ObjectInfo  # noqa: PLC0415
    from ts_common.store.factory import open_store  # noqa: PLC0415
    from ts_common.store.wrappers.wrapped import WrappedStore  # noqa: PLC0415
    from ts_uploader.shipping.metadata_cache_writer import SEGMENTS_PER_CACHE_OBJECT_WRITE, write_cache_object  # noqa: PLC0415

    keys = ClusterKeys(CLUSTER)
    metadata = {
        f"{index * RECORDS:020d}.log": said for index, (_, said) in enumerate(tiny_segments(segments + _SPREAD))
    }

    class Known(WrappedStore):
        def head(self, key: str) -> ObjectInfo:
            """Return it without a request."""
            return ObjectInfo(key, 0, "", 0.0, metadata[key.rpartition("/")[2]])

    def write(number: int) -> None:
        count = segments_of(number, segments) // SEGMENTS_PER_CACHE_OBJECT_WRITE * SEGMENTS_PER_CACHE_OBJECT_WRITE
        own = keys.partition(TopicPartition(TOPIC, number))
        while write_cache_object(store, own, count * RECORDS)[1] == CACHE_OBJECT_SEGMENTS:
            pass

    with Known(open_store(url), threads=1) as store, ThreadPoolExecutor(_FILLERS, "cache objects") as pool:
        list(pool.map(write, range(partitions)))


def plan_here(url: str) -> Planned:
    """Plan a query on everything in this fresh process."""
    began = time.perf_counter()
    from ts_common.store.s3.driver import S3Store  # noqa: PLC0415
    from ts_reader.query.plan_query import plan_query  # noqa: PLC0415
    from ts_spark.options.parse import parse_options  # noqa: PLC0415

    loading = time.perf_counter() - began
    requests: Counter[str] = Counter()

    class CountingStore(S3Store):
        """Counts requests, retries too."""

        def count(self) -> None:
            """Count from now on."""
            self._reads.meta.events.register("before-send.s3", self._one)

        @staticmethod
        def _one(event_name: str, request: Any, **_: Any) -> None:
            operation = event_name.rpartition(".")[2]
            *_, directory, name = urlsplit(request.url).path.split("/")
            of = "cache objects" if directory == "segment-metadata" else name
            requests[f"{operation} {of}" if operation == "GetObject" else operation] += 1

    query = parse_options({"path": url, "cluster": CLUSTER, "subscribe": TOPIC}).query
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    with CountingStore(bucket, prefix) as store, ProcessWatch(os.getpid()) as watch:
        store.count()
        cpu, began = time.process_time(), time.perf_counter()
        plan = plan_query(store, query)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Planned(loading, seconds, cpu, dict(requests), plan.segments, len(plan.splits), watch.peak_mib)


def plan_apart(url: str, server: S3Server) -> Planned:
    """Run `plan_here` in a fresh process, and add the server's cost."""
    with ProcessWatch(server.pid) as watch:
        began = time.time()
        answer = subprocess.run(
            [sys.executable, "-m", "dev.bench.planning", "--plan", url],
            env={**os.environ, **server.environment()},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            check=True,
        )
        ended = time.time()
    found = json.loads(answer.stdout.splitlines()[-1])
    return Planned(**{**found, "server_cpu": watch.cpu_seconds(began, ended)})


def report(found: dict[str, Planned]) -> None:
    """Print a column for each planning."""
    kinds = sorted({kind for planned in found.values() for kind in planned.requests})
    columns = found.values()
    rows: list[Sequence[object]] = [
        ("segments", *(planned.segments for planned in columns)),
        ("splits", *(planned.splits for planned in columns)),
        ("seconds of plan_query", *(planned.seconds for planned in columns)),
        ("  of loading the data source before", *(planned.loading for planned in columns)),
        ("CPU seconds, planner", *(planned.cpu for planned in columns)),
        ("CPU seconds, server", *(planned.server_cpu for planned in columns)),
        ("peak RSS of the planner, MiB", *(f"{planned.peak_mib:.0f}" for planned in columns)),
        *((f"requests, {kind}", *(planned.requests.get(kind, 0) for planned in columns)) for kind in kinds),
        ("requests, all", *(sum(planned.requests.values()) for planned in columns)),
    ]
    print_table(("", *found), rows)
    print(flush=True)


def main() -> int:
    """Fill, plan, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=1_000)
    arguments.add_argument("--segments", type=int, default=100, help="approximate segments of each partition")
    arguments.add_argument("--repeat", type=int, default=3, help="number of plannings; the median counts")
    arguments.add_argument("--plan", metavar="URL", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.plan is not None:
        print(json.dumps(asdict(plan_here(options.plan))))
        return 0
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-planning.", dir=build) as directory,
        S3Server(Path(directory), Path(directory)) as server,
    ):
        server.create_bucket(BUCKET)
        os.environ.update(server.environment())
        puts = RawPuts(server.endpoint, server.admin, BUCKET)
        tenth = max(1, options.partitions // 10)
        began = time.monotonic()
        count = fill(puts, "all", options.partitions, options.segments)
        print(f"{count} segments put in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        write_cache_objects(f"s3://{BUCKET}/all", options.partitions, options.segments)
        print(f"cache objects written in {time.monotonic() - began:.0f} s", flush=True)
        plannings = [plan_apart(f"s3://{BUCKET}/all", server) for _ in range(options.repeat)]
        print(*plannings, sep="\n", flush=True)
        found = sorted(plannings, key=lambda planned: planned.seconds)[len(plannings) // 2]
        print("seconds of each planning: " + ", ".join(f"{one.seconds:.2f}" for one in plannings), flush=True)
        fill(puts, "bare", tenth, options.segments)
        bare = plan_apart(f"s3://{BUCKET}/bare", server)
    if found.segments != count:
        raise RuntimeError(f"{count} segments were put, and {found.segments} planned")
    report({f"{options.partitions} partitions": found, f"{tenth} without cache objects": bare})
    missed = print_goals([Goal(f"planning {count} segments", found.seconds, GOAL_SECONDS, False, " s")])
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
