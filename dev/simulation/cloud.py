"""A store with S3's limits under each prefix, latencies and outages; each broker has its own connection to it."""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from dev.simulation.clock import Clock
from dev.simulation.memory_store import MemoryStore
from dev.simulation.scenarios import Scenario
from ts_common.archive.object_keys import LOG_SUFFIX, entropy, partition_of
from ts_common.errors import StoreThrottled, StoreUnavailable
from ts_common.model import TopicPartition
from ts_common.store.contract import NO_METADATA, Body, ByteRange, Condition, ObjectInfo, ObjectStream
from ts_common.store.wrappers.request_rate import Pace, PacedStore

CLUSTER = "simulated"
WIDEST_BITS = 7  # of the prefixes that requests are counted by
UPLOAD_THREADS = 3  # the agent's default
_CONNECTION_BYTES_PER_SECOND = 100e6
_AROUND_SECONDS = 0.15  # of a segment's other requests, during which its upload thread is busy
_TIMEOUT_SECONDS = (20.0, 40.0)  # until an unreachable store's request fails, its retries included
_SLOW_DOWN_SECONDS = 0.02
# Of the logarithm of a request's seconds: a median of 25 ms.
_LATENCY = (-3.7, 0.5)
PUT, GET, HEAD, LIST = "PUT", "GET", "HEAD", "LIST"


class Cloud:
    """All objects, and the requests of all brokers.

    Attributes:
        requests: their number by (minute, operation).
        by_prefix: their number by (minute, whether PUT, first `WIDEST_BITS` entropy bits of the partition). Objects of
            the whole cluster have no such bits.
        slow_downs: their number by minute.
    """

    def __init__(self, scenario: Scenario, clock: Clock, random: Random) -> None:
        self._scenario = scenario
        self.clock = clock
        self._random = random
        self.requests: Counter[tuple[int, str]] = Counter()
        self.by_prefix: Counter[tuple[int, bool, int]] = Counter()
        self.slow_downs: Counter[int] = Counter()
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self.keys: defaultdict[str, list[str]] = defaultdict(list)  # in order, by the partition's directory
        # By entropy bits and whether PUT: how many requests are free, and since when.
        self._free: dict[tuple[str, bool], tuple[float, float]] = {}

    def request(self, operation: str, key: str) -> None:
        """Let the time of a request pass.

        Raises:
            StoreThrottled: the prefix has too many.
            StoreUnavailable: the store is out.
        """
        scenario, now = self._scenario, self.clock.now
        minute, is_put = int(now // 60), operation == PUT
        bits, place = _place(_directory(key))
        self.requests[minute, operation] += 1
        if bits:
            self.by_prefix[minute, is_put, place] += 1
        if scenario.outage[0] <= now < scenario.outage[1]:
            self.clock.sleep(self._random.uniform(*_TIMEOUT_SECONDS))
            raise StoreUnavailable("the simulated outage")
        limit = (scenario.writes if is_put else scenario.reads) / scenario.weight
        prefix = bits[: scenario.entropy_bits], is_put
        free, since = self._free.get(prefix, (limit, now))
        free = min(max(limit, 1.0), free + (now - since) * limit)
        if free < 1:
            self._free[prefix] = free, now
            self.slow_downs[minute] += 1
            self.clock.sleep(_SLOW_DOWN_SECONDS)
            raise StoreThrottled("SlowDown")
        self._free[prefix] = free - 1, now
        self.clock.sleep(self._random.lognormvariate(*_LATENCY))


class BrokerStore(MemoryStore):
    """The cloud as one broker's agent reaches it."""

    def __init__(self, scenario: Scenario, cloud: Cloud) -> None:
        super().__init__()
        self._cloud = cloud
        self.objects = cloud.objects
        self._upload_seconds = scenario.segment_bytes / _CONNECTION_BYTES_PER_SECOND
        # The upload threads are as long busy with the partitions that are not simulated.
        self._busy_seconds = scenario.share / UPLOAD_THREADS * (self._upload_seconds + _AROUND_SECONDS)
        self._busy_until = 0.0

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        """Put after the time of the request, and for a segment of its bytes."""
        self._cloud.request(PUT, key)
        if key.endswith(LOG_SUFFIX):
            now = self._cloud.clock.now
            end = max(now + self._upload_seconds, self._busy_until)
            self._busy_until = max(now, self._busy_until) + self._busy_seconds
            self._cloud.clock.sleep(end - now)
        is_new = key not in self.objects
        info = super().put(
            key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )
        if is_new:
            insort(self._cloud.keys[_directory(key)], key)
        return info

    @contextmanager
    def open(self, key: str, byte_range: ByteRange | None = None) -> Iterator[ObjectStream]:
        """Open after the time of the request."""
        self._cloud.request(GET, key)
        with super().open(key, byte_range) as stream:
            yield stream

    def head(self, key: str) -> ObjectInfo:
        """Return the metadata after the time of the request."""
        self._cloud.request(HEAD, key)
        return super().head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List within a partition's directory, after the time of the request."""
        self._cloud.request(LIST, prefix)
        keys = self._cloud.keys[_directory(prefix)]
        for key in keys[bisect_right(keys, start_after) :]:
            if key.startswith(prefix):
                yield replace(self.objects[key][1], metadata=NO_METADATA)


class GatedStore(PacedStore):
    """A broker's store behind its gate of requests; its asynchronous puts run one after another, on the caller."""

    def __init__(self, inner: BrokerStore, pace: Pace) -> None:
        super().__init__(inner, pace, threads=1)

    def put_async(self, key: str, body: bytes | Body, **options: Any) -> Future[ObjectInfo]:
        """Return the result, which is available."""
        future: Future[ObjectInfo] = Future()
        try:
            future.set_result(self.put(key, body, **options))
        except Exception as error:  # noqa: BLE001  (the future has whatever it is)
            future.set_exception(error)
        return future


def _directory(key: str) -> str:
    """Return the part of a key up to the partition's or topic's directory, with the final slash."""
    *parts, _ = key.split("/")
    cluster = next((number for number, part in enumerate(parts) if part == CLUSTER), 0)
    return "/".join(parts[: cluster + 2]) + "/"


@cache
def _place(directory: str) -> tuple[str, int]:
    """Return the first entropy bits of a partition, as text and as a number; those of a topic are partition 0's.

    Objects of the whole cluster have none.
    """
    name = directory.rstrip("/").rpartition("/")[2]
    if not directory.endswith(f"{CLUSTER}/{name}/"):
        return "", 0
    partition = partition_of(name) or TopicPartition(name, 0)
    bits = entropy(CLUSTER, partition, WIDEST_BITS)
    return bits, int(bits, 2)
