"""The traffic between agents and their store, and the invariants of the store at every moment."""

import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from http.client import HTTPException

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import OracleRecord, dump
from dev.local.proxy.s3 import Request, S3FaultProxy
from tests.faults.files import SECONDS, live_bases, records, sample
from tests.uploader.beside import BUCKET, Archive
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound

# A batch of four records fills a segment; with these settings the index of an active segment is not 10 MB.
TINY = {"segment.bytes": "1000", "segment.index.bytes": "1000"}
_BATCH = 4
# A commit for each segment, and the steps of a partition in one order.
ONE_THREAD = {"ts.segment.uploader.upload.thread.count": "1"}
IMPATIENT = {"ts.segment.uploader.upload.timeout.ms": "1000"}
ANY_TIMES = None


def fill(cluster: LocalCluster, topic: str, segments: int, partitions: int = 1, *, start: int = 0) -> None:
    """Produce to a topic of `TINY` segments until each partition has at least so many more closed ones.

    Args:
        cluster: with the topic.
        topic: of `TINY` segments.
        segments: of each partition.
        partitions: how many.
        start: number of the first record; an earlier call of this function ended at 4 * segments + 1.
    """
    made = records(segments * _BATCH + 1, start=start)
    cluster.produce(
        topic,
        [Record(record.value, record.key, partition=partition) for record in made for partition in range(partitions)],
        config={"batch.num.messages": _BATCH, "linger.ms": 50},
    )


def closed(archive: Archive, partition: int = 0, broker: int = 1) -> list[int]:
    """Return the base offsets of a broker's closed segments."""
    return live_bases(archive.cluster.brokers[broker].partition_directory(archive.topic, partition))[:-1]


def ends_of(archive: Archive, partitions: int = 1, broker: int = 1) -> dict[int, int]:
    """Return the end of a broker's closed segments by partition."""
    return {
        partition: live_bases(archive.cluster.brokers[broker].partition_directory(archive.topic, partition))[-1]
        for partition in range(partitions)
    }


def wait_shipped(archive: Archive, ends: Mapping[int, int], seconds: float = SECONDS) -> None:
    """Wait until readers see everything below these offsets."""
    for partition, end in ends.items():
        archive.wait_for_offset(end, partition, seconds)


def wait_led(agent: AgentProcess, partitions: int) -> None:
    """Wait until an agent leads so many partitions."""
    wait_for(
        lambda: agent.health()["partitions_led"] == partitions,
        f"the agent to know {partitions} partitions",
        SECONDS,
        state=agent.health,
    )


def kafkas(archive: Archive, partitions: int = 1) -> dict[int, list[OracleRecord]]:
    """Return the records that Kafka's own consumer returns of each partition."""
    found: dict[int, list[OracleRecord]] = {partition: [] for partition in range(partitions)}
    for record in dump(archive.cluster.bootstrap, archive.topic):
        found[record.partition].append(record)
    return found


def assert_view(archive: Archive, oracle: Mapping[int, list[OracleRecord]]) -> None:
    """Check that readers see exactly the records of Kafka's consumer below the next offset; skip without a commit."""
    for partition, expected in oracle.items():
        if archive.commit(partition) is None:
            continue
        seen = archive.read(partition)
        below = archive.next_offset(partition)  # a commit between the two reads shows more, never less
        assert seen == expected[: len(seen)]
        assert len(seen) == len([record for record in expected if record.offset < below]) or below > seen[-1].offset + 1


def assert_complete(archive: Archive, ends: Mapping[int, int], oracle: Mapping[int, list[OracleRecord]]) -> None:
    """Check that each record is shown once, and that the store has the closed segments with indexes and nothing else.

    Segments that were shipped before a commit was rebuilt have a second copy, as a variant.
    """
    expected = {archive.keys.incarnations(archive.topic)}
    objects = set(archive.objects())
    for partition, end in ends.items():
        assert archive.next_offset(partition) == end
        assert archive.read(partition) == [record for record in oracle[partition] if record.offset < end]
        keys = archive.partition_keys(partition)
        expected |= {keys.commit, keys.log_start}
        for base in closed(archive, partition):
            whole = {f"{keys.prefix}{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
            commit = archive.commit(partition)
            if commit is not None and commit.lineage is not None and base < commit.lineage.highest:
                whole = {key for key in objects if key.startswith(f"{keys.prefix}{base:020d}.")}
                assert any(key.endswith(".log") for key in whole)
            expected |= whole
    assert objects == expected


def variants(archive: Archive) -> list[str]:
    """Return the objects whose plain name has other content."""
    return [key for key in archive.objects() if re.search(r"\.e-?\d", key)]


def unexplained_variants(archive: Archive) -> list[str]:
    """Return the `variants` that no lineage explains: below its third element agents use no plain names."""
    unexplained = []
    for key in variants(archive):
        *_, directory, name = key.split("/")
        commit = archive.commit(int(directory.rpartition("-")[2]))
        if commit is None or commit.lineage is None or int(name[:20]) >= commit.lineage.highest:
            unexplained.append(key)
    return unexplained


def knows(agent: AgentProcess, archive: Archive, ends: Mapping[int, int]) -> bool:
    """Whether an agent runs, and reports that it committed up to these offsets."""
    try:
        return all(sample(agent, "next_offset", archive, partition) == end for partition, end in ends.items())
    except (OSError, HTTPException):  # it is ending, or has ended
        return False


def key_of(archive: Archive, request: Request) -> str:
    """Return the key of a request below the archive's location; empty if it is outside."""
    prefix = f"/{BUCKET}/{archive.location.rpartition('/')[2]}/"
    return request.path.removeprefix(prefix) if request.path.startswith(prefix) else ""


def puts(proxy: S3FaultProxy, target: str = "") -> list[Request]:
    """Return the PUTs of a proxy whose path matches a regular expression, in order of arrival."""
    return [r for r in proxy.requests() if r.method == "PUT" and re.search(target, r.path)]


def assert_logs_came_last(proxy: S3FaultProxy) -> None:
    """Check by the proxy's record that each `.log` was put after its indexes; a Guard checks that those exist then."""
    logs = puts(proxy, r"\.log$")
    assert logs != []
    for log in logs:
        stem = log.path.removesuffix(".log")
        before = {
            request.path.removeprefix(stem)
            for request in puts(proxy, re.escape(stem) + r"\.\w*index$")
            if request.status == 200 and request.number < log.number
        }
        assert before >= {".index", ".timeindex"}, f"{log.path} came after {sorted(before)} only"


class Guard:
    """Checks the store before each `.log` is put and after each commit, and notes violations.

    Attributes:
        violations: each in one line.
        commits: how many it checked.
        logs: how many `.log` objects it checked.

    Args:
        archive: of one leader, without overlaps.
        proxies: of its agents; `clear` removes the guard.
    """

    def __init__(self, archive: Archive, *proxies: S3FaultProxy) -> None:
        self.violations: list[str] = []
        self.commits = self.logs = 0
        self._archive = archive
        self._store = archive.store  # opened by this thread
        self._pairs: dict[str, tuple[int, int]] = defaultdict(lambda: (-1, -1))
        self._lock = threading.Lock()  # guards all of the above
        for proxy in proxies:
            proxy.before(self._before)
            proxy.after(self._after)

    def _before(self, request: Request) -> None:
        key = key_of(self._archive, request)
        if request.method == "PUT" and key.endswith(".log"):
            with self._lock:
                self.logs += 1
                self._check_log(key)

    def _after(self, request: Request) -> None:
        """Check the commit, before the agent receives the store's answer."""
        key = key_of(self._archive, request)
        if request.method == "PUT" and request.server_status == 200 and key.endswith("offset.wm"):
            with self._lock:
                self.commits += 1
                self._check_commit(int(key.split("/")[-2].rpartition("-")[2]))

    def _check_log(self, key: str) -> None:
        for suffix in (".index", ".timeindex"):
            try:
                self._store.head(key.removesuffix(".log") + suffix)
            except ObjectNotFound:
                self.violations.append(f"{key} went up without its {suffix}")

    def _check_commit(self, partition: int) -> None:
        keys = self._archive.partition_keys(partition)
        found, etag = read_commit(self._store, keys)
        if not isinstance(found, Commit):
            self.violations.append(f"{keys.commit}: {found}")
            return
        pair = (found.epoch, found.next_offset)
        if pair < self._pairs[keys.commit]:
            self.violations.append(f"{keys.commit} went back from {self._pairs[keys.commit]} to {pair}")
        self._pairs[keys.commit] = pair
        view = open_view(self._store, read_catalog(self._store, keys, (found, etag)))
        holes = [step for step in view.plan(view.start, view.end) if isinstance(step, Hole)]
        if holes or view.warning:
            self.violations.append(f"{keys.commit} at {pair}: {holes} {view.warning}")
