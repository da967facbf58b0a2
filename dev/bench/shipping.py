"""`python -m dev.bench.shipping`: the agent and bare boto3, with the same closed segments of a real broker.

Three partitions, uncompressed, lz4 and zstd, in segments of 64 MiB; producing has ended, and the files are in the page
cache. In each round, a bare `put_object` on several threads (`dev.bench.bare_boto3`) and a fresh agent ship the files.
Each has an empty prefix of the same S3 server. Time counts from the first file to the last object. Start-up, and the
agent's wait for the broker's next checkpoint, do not count. Exits with 1 if a goal is missed; `--no-gate` only
prints.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from dev.bench.measuring.agent_runs import Cost, ship_with_agent
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.processes import ProcessWatch
from dev.bench.measuring.topics import CODECS, SEGMENT_BYTES, ClosedPart, closed_parts, produce
from dev.local.kafka.cluster import LocalCluster

THROUGHPUT_RATIO = 0.90
CPU_RATIO = 1.5
PEAK_MIB = 120.0
TOPIC = "bench"
BUCKET = "bench"
# 1.5 million records of each codec need about this much in the log.
_RECORDS_PER_MB = 1_500_000 / 805


class Shipping:
    """The two shippers, with the same files.

    Args:
        cluster: with the topic filled.
        parts: the closed segments.
        threads: of each shipper.
    """

    def __init__(self, cluster: LocalCluster, parts: list[ClosedPart], threads: int) -> None:
        if cluster.s3 is None:
            raise ValueError("a cluster without an S3 server")
        self._cluster = cluster
        self._s3 = cluster.s3
        self._parts = parts
        self._threads = threads
        self._runs = 0

    def bare(self, *, settled: bool = True, source: str = "files") -> Cost:
        """Ship with bare boto3, in its own Python process. Unless `settled`, the page cache stays as it is.

        With the source `memory` it sends as many bytes without opening a file.
        """
        prefix = self._next_prefix("bare", settled=settled)
        script = Path(__file__).with_name("bare_boto3.py")
        files = [str(file) for part in self._parts for file in part.files]
        process = subprocess.Popen(
            [sys.executable, str(script), BUCKET, prefix, str(self._threads), source, *files],
            env={**os.environ, **self._s3.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process, ProcessWatch(process.pid) as watch:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("the process has no pipes")
            process.stdout.readline()
            process.stdin.write("go\n")
            process.stdin.flush()
            said = process.stdout.readline().split()
            if len(said) != 2:
                raise RuntimeError(f"bare boto3 ended with status {process.wait()}")
            began, ended = map(float, said)
            time.sleep(0.1)  # two more samples
        return Cost(began, ended, watch.cpu_seconds(began, ended), watch.peak_mib)

    def agent(self, *, settled: bool = True) -> Cost:
        """Ship with the installed agent. Unless `settled`, the page cache stays as it is."""
        prefix = self._next_prefix("agent", settled=settled)
        return ship_with_agent(
            self._cluster,
            f"s3://{BUCKET}/{prefix}",
            TOPIC,
            self._parts,
            name=prefix,
            threads=self._threads,
            environment=self._s3.environment(),
        )

    def _next_prefix(self, name: str, *, settled: bool) -> str:
        """Return the next prefix; if `settled`, the files are in the page cache and nothing waits to be written."""
        if settled:
            for part in self._parts:
                for file in part.files:
                    file.read_bytes()
            os.sync()
        self._runs += 1
        return f"{name}-{self._runs}"


def fill(cluster: LocalCluster, megabytes: int) -> list[ClosedPart]:
    """Fill a partition for each codec, and return the closed segments."""
    config = {"segment.bytes": str(SEGMENT_BYTES), "segment.ms": "604800000"}
    cluster.create_topic(TOPIC, partitions=len(CODECS), config=config)
    for partition, codec in enumerate(CODECS):
        produce(cluster, TOPIC, partition, codec, int(megabytes * _RECORDS_PER_MB))
    return closed_parts(cluster, TOPIC, range(len(CODECS)))


def disk_rate(directory: Path, megabytes: int) -> float:
    """Return MB/s of `dd oflag=dsync`, in blocks of 1 MB."""
    file = directory / "dd"
    command = ["dd", "if=/dev/zero", f"of={file}", "bs=1000000", f"count={megabytes}", "oflag=dsync", "status=none"]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - began
    file.unlink()
    return megabytes / seconds


def report(found: dict[str, list[Cost]], megabytes: float) -> int:
    """Print the table and the goals; return how many were missed."""
    rows = [
        (
            name,
            *(
                f"{statistics.median(figures):.{digits}f} ({min(figures):.{digits}f} to {max(figures):.{digits}f})"
                for figures, digits in (
                    ([megabytes / cost.seconds for cost in costs], 0),
                    ([cost.cpu_seconds / megabytes * 1000 for cost in costs], 2),
                    ([cost.peak_mib for cost in costs], 0),
                )
            ),
        )
        for name, costs in found.items()
    ]
    print_table(("median (range)", "MB/s", "CPU s/GB", "peak RSS MiB"), rows)
    bare, agent = found["bare boto3"], found["agent"]
    print()
    return print_goals(
        [
            Goal(
                "throughput / bare boto3",
                median_ratio([cost.seconds for cost in bare], [cost.seconds for cost in agent]),
                THROUGHPUT_RATIO,
                at_least=True,
            ),
            Goal(
                "CPU per GB / bare boto3",
                median_ratio([cost.cpu_seconds for cost in agent], [cost.cpu_seconds for cost in bare]),
                CPU_RATIO,
                at_least=False,
            ),
            Goal("agent's peak RSS", max(cost.peak_mib for cost in agent), PEAK_MIB, at_least=False, unit=" MiB"),
        ]
    )


def main() -> int:
    """Fill, ship in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=800, help="approximate size of the closed segments")
    arguments.add_argument("--threads", type=int, default=3, help="threads of each shipper")
    arguments.add_argument("--repeat", type=int, default=4, help="number of rounds, after a warm-up")
    options = arguments.parse_args()
    with LocalCluster(s3=True, buckets=[BUCKET], name="bench") as cluster:
        parts = fill(cluster, options.megabytes)
        megabytes = sum(file.stat().st_size for part in parts for file in part.files) / 1e6
        segments = sum(len(part.logs) for part in parts)
        if not segments:
            raise SystemExit(f"--megabytes {options.megabytes} closes no segment; give 250 or more")
        print(f"{segments} closed segments of {len(parts)} partitions, {megabytes:.0f} MB, {options.threads} threads")
        print(f"disk, dd oflag=dsync: {disk_rate(cluster.directory, 200):.0f} MB/s\n")
        shipping = Shipping(cluster, parts, options.threads)
        found = rounds({"bare boto3": shipping.bare, "agent": shipping.agent}, options.repeat, warm_up=1)
        missed = report(found, megabytes)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
