"""A producer at a fixed rate, in its own process, and its statistics.

    with PacedProducer(bootstrap, topic, partitions, rate) as producer:
        producer.wait_under_way()
        ...
        produced = producer.finish()
    produced.rate_between(began, ended)

`python -m dev.bench.paced_producer BOOTSTRAP TOPIC PARTITIONS RATE` is that process: confluent-kafka with acks=all,
values of 300 bytes. The rate is in records a second; 0 is as many as possible. If the broker is too slow, it falls
behind, and catches up later as far as its queue allows. It ends when standard input is closed, and prints a `Produced`
as JSON.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from dev.bench.measuring.records import json_value, key

_UNDER_WAY_SECONDS = 2.0
_EVERY_SECONDS = 0.05
_SLICE_SECONDS = 0.002
_ONE_IN = 50  # records whose acknowledgement is timed: a Python call for each would limit the rate
_DISTINCT_VALUES = 5_000


@dataclass(frozen=True)
class Produced:
    """The statistics of a producer.

    Attributes:
        times: instants, as `time.time()`, ascending.
        acknowledged: number of acknowledged records at each instant.
        acknowledged_at: when each of some records was acknowledged, ascending.
        latencies: seconds from the handover of each of these to the producer to its acknowledgement.
    """

    times: Sequence[float]
    acknowledged: Sequence[int]
    acknowledged_at: Sequence[float]
    latencies: Sequence[float]

    def rate_between(self, begin: float, end: float) -> float:
        """Return acknowledged records a second between two instants, by the samples nearest inside.

        Raises:
            ValueError: fewer than two samples are between them.
        """
        first, last = bisect_left(self.times, begin), bisect_right(self.times, end) - 1
        if last <= first:
            raise ValueError(f"no two samples between {begin} and {end}")
        return (self.acknowledged[last] - self.acknowledged[first]) / (self.times[last] - self.times[first])

    def latencies_between(self, begin: float, end: float) -> Sequence[float]:
        """Return the latencies of records that were acknowledged between two instants."""
        return self.latencies[bisect_left(self.acknowledged_at, begin) : bisect_right(self.acknowledged_at, end)]


class PacedProducer:
    """The process of a producer.

    Args:
        partitions: their number; used in turn.
        rate: records a second; 0: as many as possible.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        arguments = [bootstrap, topic, str(partitions), str(rate)]
        self._command = [sys.executable, "-m", "dev.bench.paced_producer", *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            self._command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def wait_under_way(self) -> None:
        """Wait until the producer has run for two seconds.

        Raises:
            RuntimeError: it has ended.
        """
        process = self._running()
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError(f"the producer ended with status {process.wait()}")

    def finish(self) -> Produced:
        """End the producer, and return its statistics.

        Raises:
            RuntimeError: it failed.
        """
        process = self._running()
        said, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"the producer ended with status {process.returncode}")
        return Produced(**json.loads(said))

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("use it in a with block")
        return self._process


def produce(producer: Producer, topic: str, partitions: int, rate: float, ended: threading.Event) -> Produced:
    """Produce until `ended` is set.

    Raises:
        RuntimeError: a record was rejected.
    """
    generator = random.Random(7)
    values = [json_value(generator, number) for number in range(_DISTINCT_VALUES)]
    times: list[float] = []
    acknowledged: list[int] = []
    acknowledged_at: list[float] = []
    latencies: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not acknowledged: {error}")
        acknowledged_at.append(time.time())
        latencies.append(message.latency() or 0.0)

    began, sent, next_sample, said = time.monotonic(), 0, 0.0, False
    while not ended.is_set():
        elapsed = time.monotonic() - began
        due = int(elapsed * rate) if rate else sent + 1_000
        try:
            while sent < due:
                value, callback = values[sent % _DISTINCT_VALUES], None if sent % _ONE_IN else delivered
                if callback is None:
                    producer.produce(topic, value, key(sent), sent % partitions)
                else:
                    producer.produce(topic, value, key(sent), sent % partitions, on_delivery=callback)
                sent += 1
            producer.poll(_SLICE_SECONDS if rate else 0)
        except BufferError:
            producer.poll(_SLICE_SECONDS)
        if elapsed >= next_sample:
            times.append(time.time())
            acknowledged.append(sent - len(producer))
            next_sample = elapsed + _EVERY_SECONDS
            if not said and elapsed >= _UNDER_WAY_SECONDS:
                said = True
                print("under way", flush=True)
    return Produced(times, acknowledged, acknowledged_at, latencies)


def main() -> None:
    """Produce until standard input ends."""
    bootstrap, topic, partitions, rate = sys.argv[1:]
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 16_384}
    producer = Producer({**settings, "queue.buffering.max.messages": 200_000})
    produced = produce(producer, topic, int(partitions), float(rate), ended)
    producer.flush(60)
    print(json.dumps(asdict(produced)))


if __name__ == "__main__":
    main()
