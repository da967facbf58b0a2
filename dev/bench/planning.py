"""`python -m dev.bench.planning`: planning a query on 100,000 segments from S3, and on 1,000,000 in a directory.

The segments exist: a `.log` of one batch with the agent's metadata, `.index`, `.timeindex`, `offset.wm` and
`log.start`. Each has records of one hour. Each hundredth segment begins an epoch, and each thousandth has a variant.
The agent's own code writes the cache objects, at the commits where an agent would, and the sealed ones.

- S3 has 1,000 partitions of 99 to 106 segments, so half of them have a last segment that no cache object contains yet.
  Such partitions are too small to be sealed. A tenth is planned without cache objects too.
- The directory has 100 partitions of 1,000 segments, and of 10,000: a year of a topic whose segments close each hour.
  One partition is written, and the others are hard links to its files. Requests are counted as S3 has them.

A fresh process plans a query on all of it, and one on a single hour. It measures `plan_query` alone: seconds, CPU
seconds of planner and server, peak memory, and requests by kind. The time to load the data source is printed too.

The goals: 100,000 segments on S3 under 10 s; 1,000,000 segments under 5 CPU seconds, an hour of them under 3, both with
at most 4,000 requests and 200 MiB. Exits with 1 if one is missed; `--no-gate` only prints.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from awscrt.checksums import crc32c

from dev.bench.measuring.linked_archives import CountingStore, Files, link_partitions
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
from ts_common.store.contract import ObjectStore

BUCKET = "bench"
CLUSTER, TOPIC = "bench", "planned"
GOAL_SECONDS = 10.0
GOAL_CPU = {"whole": 5.0, "an hour": 3.0}
GOAL_REQUESTS = 4_000
GOAL_MIB = 200.0
RECORDS = 10  # of each segment
_SPREAD = 8  # partitions on S3 differ in their number of segments by less than this
_FILLERS = 8
_LINKED = (1_000, 10_000)  # segments of each partition in the directory
_LINKED_PARTITIONS = 100
_EPOCH = 100  # segments of an epoch
_VARIANT = 1_000  # each of these has a variant
_BEGIN, _HOUR = 1_700_000_000_000, 3_600_000  # ms


@dataclass(frozen=True)
class Planned:
    """The cost of one planning.

    Attributes:
        loading: seconds to load the data source.
        seconds: of `plan_query`.
        cpu: its CPU seconds, all threads.
        requests: by kind.
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
    """Return consecutive logs of one batch each, with the agent's metadata; the broker gave the records their time."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(RECORDS):
        builder.append(number, _BEGIN, b"key", b"value", [])
    batch = bytes(builder.build())
    made = []
    for number in range(count):
        base, at = number * RECORDS, _BEGIN + number * _HOUR
        # From the attributes on the CRC covers the batch: LogAppendTime, and both timestamps.
        covered = struct.pack(">hiqq", 8, RECORDS - 1, at, at) + batch[43:]
        log = struct.pack(">q4siBI", base, batch[8:12], number // _EPOCH, 2, crc32c(covered)) + covered
        made.append((log, metadata_of(scan_segment(BytesIO(log), len(log)), base, TOPIC).encode()))
    return made


def commit_of(count: int, nonce: str) -> bytes:
    """Return the commit of a partition with so many segments."""
    end = count * RECORDS
    epochs = EpochHistory(tuple((epoch, epoch * _EPOCH * RECORDS) for epoch in range(-(-count // _EPOCH))))
    return Commit(end - RECORDS, end, epochs.pairs[-1][0], epochs, end, None, 1, 0, nonce).encode()


class Puts(Protocol):
    """A store that accepts objects."""

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] = ...) -> None:
        """Put one object with its metadata."""


def fill(puts: Puts, prefix: str, partitions: int, segments: int, *, variants: bool = False) -> int:
    """Put everything but cache objects; return the number of segments without variants."""
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
            if variants and (number * segments + index) % _VARIANT == _VARIANT // 2:
                variant = replace(name, epoch=index // _EPOCH + 1, crc32c=crc32c(log))
                for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
                    puts.put(f"{prefix}/{own.segment(variant, suffix)}", bytes(entry_bytes))
                puts.put(f"{prefix}/{own.segment(variant)}", log, metadata)
        puts.put(f"{prefix}/{own.commit}", commit_of(count, f"{number:016x}"))
        return count

    with ThreadPoolExecutor(_FILLERS, "fill") as pool:
        return sum(pool.map(fill_partition, range(partitions)))


def write_cache_objects(url: str, partitions: int, segments: int, *, seals: bool = False) -> None:
    """Write cache objects as an agent that committed each segment by itself, with the agent's own code; also seal.

    Only its HEAD requests are answered here, which saves minutes.
    """
    # The SDK is imported only by its users.
    from ts_common.archive.metadata_cache import CACHE_OBJECT_SEGMENTS  # noqa: PLC0415
    from ts_common.store.contract import ObjectInfo  # noqa: PLC0415
    from ts_common.store.factory import open_store  # noqa: PLC0415
    from ts_common.store.wrappers.wrapped import WrappedStore  # noqa: PLC0415
    from ts_uploader.shipping.metadata_cache_writer import SEGMENTS_PER_CACHE_OBJECT_WRITE, write_cache_object  # noqa: PLC0415
    from ts_uploader.shipping.sealing import seal  # noqa: PLC0415

    keys = ClusterKeys(CLUSTER)
    metadata = {f"{index * RECORDS:020d}": said for index, (_, said) in enumerate(tiny_segments(segments + _SPREAD))}

    class Known(WrappedStore):
        def head(self, key: str) -> ObjectInfo:
            """Return it without a request."""
            return ObjectInfo(key, 0, "", 0.0, metadata[key.rpartition("/")[2][:20]])

    def write(number: int) -> None:
        count = segments_of(number, segments) // SEGMENTS_PER_CACHE_OBJECT_WRITE * SEGMENTS_PER_CACHE_OBJECT_WRITE
        own = keys.partition(TopicPartition(TOPIC, number))
        while write_cache_object(store, own, count * RECORDS)[1] == CACHE_OBJECT_SEGMENTS:
            pass
        if seals and count > CACHE_OBJECT_SEGMENTS:
            seal(store, own)

    with Known(open_store(url), threads=1) as store, ThreadPoolExecutor(_FILLERS, "cache objects") as pool:
        list(pool.map(write, range(partitions)))


def make_linked(root: Path, partitions: int, segments: int) -> int:
    """Write one partition as its agents would, with sealed objects, and link the others to it; return the segments."""
    # Only the benchmarks that write an archive need the agent.
    from ts_common.archive.metadata_cache import CACHE_OBJECT_SEGMENTS  # noqa: PLC0415
    from ts_common.store.factory import open_store  # noqa: PLC0415
    from ts_uploader.shipping.sealing import seal  # noqa: PLC0415

    own = ClusterKeys(CLUSTER).partition(TopicPartition(TOPIC, 0))
    count = fill(Files(root.parent), root.name, 1, segments + 1, variants=True)
    with open_store(root.as_uri()) as store:
        write_cache_objects(root.as_uri(), 1, segments + 1)
        for committed in (*range(CACHE_OBJECT_SEGMENTS, count, CACHE_OBJECT_SEGMENTS), count):
            store.put(own.commit, commit_of(committed, f"{committed:016x}"))
            if committed != count:  # an agent seals when a cache object is full
                seal(store, own)
    link_partitions(root, CLUSTER, TOPIC, partitions)
    return count * partitions


def plan_here(url: str, hour: int | None) -> Planned:
    """Plan a query in this fresh process, on everything or on an hour."""
    began = time.perf_counter()
    from ts_common.store.factory import open_store  # noqa: PLC0415
    from ts_common.store.s3.driver import S3Store  # noqa: PLC0415
    from ts_reader.query.filters import EVERYTHING, QueryFilters  # noqa: PLC0415
    from ts_reader.query.plan_query import plan_query  # noqa: PLC0415
    from ts_spark.options.parse import parse_options  # noqa: PLC0415

    loading = time.perf_counter() - began
    requests: Counter[str] = Counter()

    class CountingS3(S3Store):
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
    filters = EVERYTHING
    if hour is not None:
        filters = QueryFilters(milliseconds=((_BEGIN + hour * _HOUR, _BEGIN + (hour + 1) * _HOUR),))
    store: ObjectStore
    if url.startswith("s3:"):
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        store = CountingS3(bucket, prefix)
        store.count()
    else:
        store = open_store(url)
    with store:
        cpu, began = time.process_time(), time.perf_counter()
        plan = plan_query(store, query, filters)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    # By the kernel: a thread that looks every 20 ms is a part of the CPU seconds, of most of them on a busy machine.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak_mib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    if not requests:
        with CountingStore(open_store(url)) as counting:
            plan_query(counting, query, filters)
            requests.update(counting.counted())
    return Planned(loading, seconds, cpu, dict(requests), plan.segments, len(plan.splits), peak_mib)


def plan_apart(url: str, hour: int | None = None, server: S3Server | None = None) -> Planned:
    """Run `plan_here` in a fresh process, and add the server's cost."""
    command = [sys.executable, "-m", "dev.bench.planning", "--plan", url]
    command += [] if hour is None else ["--hour", str(hour)]
    environment = os.environ if server is None else {**os.environ, **server.environment()}
    with ProcessWatch(os.getpid() if server is None else server.pid) as watch:
        began = time.time()
        answer = subprocess.run(
            command, env=environment, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=True
        )
        ended = time.time()
    found = json.loads(answer.stdout.splitlines()[-1])
    return Planned(**{**found, "server_cpu": 0.0 if server is None else watch.cpu_seconds(began, ended)})


def median(plannings: Sequence[Planned]) -> Planned:
    """Return the planning with the median CPU seconds."""
    print("CPU seconds of each planning: " + ", ".join(f"{one.cpu:.2f}" for one in plannings), flush=True)
    return sorted(plannings, key=lambda planned: planned.cpu)[len(plannings) // 2]


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


def plan_s3(directory: Path, partitions: int, segments: int, repeat: int) -> list[Goal]:
    """Fill an S3 server, plan, report; return the goals."""
    with S3Server(directory, directory) as server:
        server.create_bucket(BUCKET)
        os.environ.update(server.environment())
        puts = RawPuts(server.endpoint, server.admin, BUCKET)
        tenth = max(1, partitions // 10)
        began = time.monotonic()
        count = fill(puts, "all", partitions, segments, variants=True)
        print(f"{count} segments put in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        write_cache_objects(f"s3://{BUCKET}/all", partitions, segments, seals=True)
        print(f"cache objects written in {time.monotonic() - began:.0f} s", flush=True)
        plannings = [plan_apart(f"s3://{BUCKET}/all", server=server) for _ in range(repeat)]
        hour = plan_apart(f"s3://{BUCKET}/all", segments // 2, server)
        fill(puts, "bare", tenth, segments)
        bare = plan_apart(f"s3://{BUCKET}/bare", server=server)
    found = sorted(plannings, key=lambda planned: planned.seconds)[repeat // 2]
    print("seconds of each planning: " + ", ".join(f"{one.seconds:.2f}" for one in plannings), flush=True)
    check(found, hour, count, partitions)
    report({f"{partitions} partitions": found, "an hour": hour, f"{tenth} without cache objects": bare})
    return [Goal(f"planning {count} segments", found.seconds, GOAL_SECONDS, False, " s")]


def plan_directory(directory: Path, partitions: int, segments: Sequence[int], repeat: int) -> list[Goal]:
    """Make the archives in a directory, plan, report; return the goals of the largest one."""
    found: dict[str, Planned] = {}
    for each in segments:
        root = directory / str(each)
        began = time.monotonic()
        count = make_linked(root, partitions, each)
        print(f"{count} segments made in {time.monotonic() - began:.0f} s", flush=True)
        last = {
            what: median([plan_apart(root.as_uri(), hour) for _ in range(repeat)])
            for what, hour in (("whole", None), ("an hour", each // 3))
        }
        check(last["whole"], last["an hour"], count, partitions)
        found |= {f"{count} segments, {what}": planned for what, planned in last.items()}
    report(found)
    goals = []
    for what, planned in last.items():
        goals += [
            Goal(f"CPU, {count} segments, {what}", planned.cpu, GOAL_CPU[what], False, " s"),
            Goal(f"requests, {what}", sum(planned.requests.values()), GOAL_REQUESTS, False),
            Goal(f"memory, {what}", planned.peak_mib, GOAL_MIB, False, " MiB"),
        ]
    return goals


def check(whole: Planned, hour: Planned, segments: int, partitions: int) -> None:
    """Check that plans have what they must have.

    Raises:
        RuntimeError: they have not.
    """
    if (whole.segments, hour.segments) != (segments, partitions):
        raise RuntimeError(f"{segments} segments were put; planned: {whole.segments}, of an hour {hour.segments}")


def main() -> int:
    """Fill, plan, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--stores", nargs="*", choices=("s3", "directory"), default=("s3", "directory"))
    arguments.add_argument("--partitions", type=int, default=1_000, help="on S3")
    arguments.add_argument("--segments", type=int, default=100, help="approximate segments of each partition on S3")
    arguments.add_argument("--linked-partitions", type=int, default=_LINKED_PARTITIONS, help="in the directory")
    arguments.add_argument("--linked", type=int, nargs="*", default=_LINKED, help="segments of each, ascending")
    arguments.add_argument("--repeat", type=int, default=3, help="number of plannings; the median counts")
    arguments.add_argument("--plan", metavar="URL", help=argparse.SUPPRESS)
    arguments.add_argument("--hour", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.plan is not None:
        print(json.dumps(asdict(plan_here(options.plan, options.hour))))
        return 0
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="bench-planning.", dir=build) as directory:
        if "s3" in options.stores:
            goals += plan_s3(Path(directory), options.partitions, options.segments, options.repeat)
        if "directory" in options.stores:
            goals += plan_directory(Path(directory), options.linked_partitions, options.linked, options.repeat)
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
