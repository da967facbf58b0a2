"""Every kind of topic that Kafka can write, through the whole system: broker, agent, store, Spark.

No field of any record may differ from what Kafka's Java consumer returns. The broker of 3.9 still writes the formats of
0.9 and 0.10. Kafka's cleaner compacts some topics, a few of them twice, so that tombstones and markers are removed too
and batches without a record remain. `make test` has each kind with one codec or two, `make test-full` all of them.
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.common.log_format.old_brokers import CODECS as OLD_CODECS
from tests.common.log_format.old_brokers import FORMATS, OLD_PROTOCOL, closed, headers, produce_as_of_old, write_in
from tests.every_field import TIME, every_field
from tests.matrix import cases
from tests.spark.archives import oracle_records
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.framing import BatchHeader
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_local.agent import AgentProcess, write_config
from ts_local.kafka.cluster import LocalCluster, Record, wait_for
from ts_local.oracle import Isolation, OracleRecord, dump

CODECS = (*OLD_CODECS, "zstd")
CLUSTER = "kinds"
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
SECONDS = 60.0
CUT = 411
NOTHING: Mapping[str, object] = {}

Fill = Callable[[LocalCluster, str, int], None]  # the topic, and which round of filling it is
Small = Mapping[str, str]

SMALL: Small = {"segment.bytes": "30000", "index.interval.bytes": "1000"}
APPENDED: Small = {"message.timestamp.type": "LogAppendTime"}
COMPACTED: Small = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "40000",
    "delete.retention.ms": "86400000",
}
FORGETFUL: Small = {**COMPACTED, "delete.retention.ms": "0"}


@dataclass(frozen=True)
class Kind:
    """One topic of one partition.

    Attributes:
        fill: produces records, in each round.
        config: of the topic.
        rounds: how often it is filled; after each round the cleaner reaches the active segment.
        proof: checks the batches of its closed segments, so that the topic is of the kind that its name promises.
    """

    fill: Fill
    config: Small
    rounds: int
    proof: Callable[[list[BatchHeader]], bool]

    @property
    def is_cleaned(self) -> bool:
        """Whether the cleaner compacts it."""
        return "cleanup.policy" in self.config


def plain(codec: str, cluster: LocalCluster, topic: str, _: int, config: Mapping[str, object] = NOTHING) -> None:
    """Produce with a codec."""
    cluster.produce(topic, every_field(600), partition=0, config={"compression.type": codec, **config})


def without_headers(codec: str, cluster: LocalCluster, topic: str, _: int) -> None:
    """As `plain`, with fields that old formats have; the broker converts the records."""
    cluster.produce(topic, every_field(600, with_headers=False), partition=0, config={"compression.type": codec})


def of_old(magic: int, codec: str, cluster: LocalCluster, topic: str, _: int) -> None:
    """Produce like an old client; the broker stores its bytes unchanged."""
    produce_as_of_old(cluster, topic, 0, magic, OLD_CODECS.index(codec))


def keyed(codec: str, cluster: LocalCluster, topic: str, number: int, *, with_headers: bool = True) -> None:
    """Produce repeated keys, tombstones, and filling with unique keys, which the cleaner keeps."""
    rows = [
        Record(
            None if n % 13 == 0 else b"%d-%d" % (number, n) * 5,
            b"key-%d" % (n if n % 3 == 0 else n % 12),
            headers=[("n", b"%d" % n)] if with_headers else [],
            timestamp=TIME + n,
        )
        for n in range(600)
    ]
    filling = [Record(os.urandom(4000), b"filling-%d-%d" % (number, n), timestamp=TIME) for n in range(30)]
    # Not idempotent: the cleaner keeps the last batch of a live producer.
    config = {"compression.type": codec, "enable.idempotence": "false", "batch.size": 4000}
    cluster.produce(topic, rows + filling, partition=0, config=config)


def transactional(codec: str, cluster: LocalCluster, topic: str, number: int) -> None:
    """Run three producers whose transactions interleave, commit and abort, some of them over several segments."""
    draw = random.Random(f"{topic}-{number}")
    config = {"compression.type": codec, "batch.size": 1000, "linger.ms": 0}
    producers = [cluster.producer({**config, "transactional.id": f"{topic}-{number}-{n}"}) for n in range(3)]
    for producer in producers:
        producer.init_transactions(SECONDS)
    began: set[int] = set()
    for step in range(60):
        which = draw.randrange(3)
        if which not in began:
            producers[which].begin_transaction()
            began.add(which)
        for n in range(draw.randrange(1, 8)):
            value = None if draw.random() < 0.1 else b"%d-%d-%d" % (which, step, n) + os.urandom(draw.randrange(1000))
            producers[which].produce(topic, value, b"key-%d" % draw.randrange(20), headers=[("n", b"%d" % n)])
        producers[which].flush(SECONDS)
        if draw.random() < (0.1 if which == 0 else 0.5):
            end = producers[which].abort_transaction if draw.random() < 0.5 else producers[which].commit_transaction
            end(SECONDS)
            began.discard(which)
    for which in began:
        producers[which].abort_transaction(SECONDS)
    # A transaction whose only record the cleaner removes.
    producers[1].begin_transaction()
    producers[1].produce(topic, b"soon gone", b"key-1")
    producers[1].commit_transaction(SECONDS)
    keyed(codec, cluster, topic, number)


def upgraded(cluster: LocalCluster, topic: str, number: int) -> None:
    """Write one segment in the formats of 0.9, 0.10 and 3.9, with each codec."""
    for magic in (0, 1, 2):
        write_in(cluster, topic, magic)
        for codec in OLD_CODECS:
            without_headers(codec, cluster, topic, number)


def mixed(cluster: LocalCluster, topic: str, number: int) -> None:
    """Produce with one codec after the other."""
    for codec in CODECS:
        cluster.produce(topic, every_field(50)[:50], partition=0, config={"compression.type": codec})
    plain("none", cluster, topic, number)


def large(cluster: LocalCluster, topic: str, _: int) -> None:
    """Produce records of one megabyte, half of them zeros, which compress to almost nothing."""
    rows = [
        Record(os.urandom(900_000) if n % 2 else bytes(900_000), b"%d" % n, [("h", bytes(50_000))]) for n in range(6)
    ]
    for codec in ("none", "zstd", "lz4"):
        cluster.produce(topic, rows, partition=0, config={"compression.type": codec, "message.max.bytes": 2_000_000})


def bulk(cluster: LocalCluster, topic: str, number: int) -> None:
    """Produce hundreds of records in each batch, one batch in each segment."""
    for _ in range(3):
        plain("zstd", cluster, topic, number, {"batch.size": 900_000, "linger.ms": 500})


def cut_below(cluster: LocalCluster, topic: str, number: int) -> None:
    """Delete records up to the middle of a segment: the archive begins with the broker's oldest segment."""
    plain("lz4", cluster, topic, number)
    cluster.delete_records(topic, {0: CUT})


def _has(codec: str, magic: int = 2, *, appended: bool = False) -> Callable[[list[BatchHeader]], bool]:
    """Require batches of that format only, at least one of them of that codec."""

    def proof(found: list[BatchHeader]) -> bool:
        return (
            {header.magic for header in found} == {magic}
            and CODECS.index(codec) in {header.codec for header in found}
            and {header.is_log_append_time for header in found} == {appended}
        )

    return proof


def _both(*proofs: Callable[[list[BatchHeader]], bool]) -> Callable[[list[BatchHeader]], bool]:
    return lambda found: all(proof(found) for proof in proofs)


def _has_markers(found: list[BatchHeader]) -> bool:
    return any(header.is_control for header in found)


def _has_empty(found: list[BatchHeader]) -> bool:
    return any(header.record_count == 0 for header in found)


def kinds() -> dict[str, Kind]:
    """Return every topic, by name."""
    made: dict[str, Kind] = {}
    for codec in CODECS:
        made[f"created-{codec}"] = Kind(partial(plain, codec), SMALL, 1, _has(codec))
        made[f"appended-{codec}"] = Kind(partial(plain, codec), {**SMALL, **APPENDED}, 1, _has(codec, appended=True))
        by_broker = {**SMALL, "compression.type": "uncompressed" if codec == "none" else codec}
        made[f"by-broker-{codec}"] = Kind(
            partial(plain, "gzip" if codec != "gzip" else "lz4"), by_broker, 1, _has(codec)
        )
        made[f"compacted-{codec}"] = Kind(partial(keyed, codec), COMPACTED, 1, _has(codec))
        made[f"transactions-{codec}"] = Kind(partial(transactional, codec), SMALL, 1, _both(_has(codec), _has_markers))
    for codec in ("none", "zstd"):
        kept = _both(_has(codec), _has_markers)
        made[f"compacted-transactions-{codec}"] = Kind(partial(transactional, codec), COMPACTED, 1, kept)
        gone = _both(_has(codec), _has_empty)
        made[f"forgotten-transactions-{codec}"] = Kind(partial(transactional, codec), FORGETFUL, 2, gone)
        made[f"forgotten-{codec}"] = Kind(partial(keyed, codec), FORGETFUL, 2, _has(codec))
    appended = {**COMPACTED, **APPENDED}
    made["compacted-appended"] = Kind(partial(keyed, "snappy"), appended, 1, _has("snappy", appended=True))
    for magic, version in FORMATS.items():
        old = {"message.format.version": version}
        for codec in OLD_CODECS:
            converted = partial(without_headers, codec)
            made[f"magic-{magic}-{codec}"] = Kind(converted, {**SMALL, **old}, 1, _has(codec, magic))
            made[f"of-old-{magic}-{codec}"] = Kind(
                partial(of_old, magic, codec), {**SMALL, **old}, 1, _has(codec, magic)
            )
        for codec in ("none", "gzip"):
            cleaned = partial(keyed, codec, with_headers=False)
            made[f"compacted-{magic}-{codec}"] = Kind(cleaned, {**COMPACTED, **old}, 1, _has(codec, magic))
    for codec in ("none", "lz4"):
        old = {**SMALL, **APPENDED, "message.format.version": FORMATS[1]}
        proof = _has(codec, 1, appended=True)
        made[f"appended-1-{codec}"] = Kind(partial(without_headers, codec), old, 1, proof)
    upgrade = {"segment.bytes": "200000", "message.format.version": "0.9.0"}
    made["upgraded"] = Kind(upgraded, upgrade, 1, lambda found: {header.magic for header in found} == {0, 1, 2})
    made["mixed"] = Kind(mixed, SMALL, 1, lambda found: {header.codec for header in found} == {0, 1, 2, 3, 4})
    megabytes = {"segment.bytes": "3000000", "max.message.bytes": "2000000"}
    made["large"] = Kind(large, megabytes, 1, lambda found: max(header.size_in_bytes for header in found) > 900_000)
    single: Fill = partial(plain, "lz4", config={"batch.num.messages": 1})
    made["single"] = Kind(single, SMALL, 1, lambda found: {header.record_count for header in found} == {1})
    wide = {"segment.bytes": "100000"}
    made["bulk"] = Kind(bulk, wide, 1, lambda found: max(header.record_count or 0 for header in found) > 300)
    made["cut-below"] = Kind(cut_below, SMALL, 1, _has("lz4"))
    return made


KINDS = kinds()
# Each kind with one codec or two, each codec with several kinds. Kafka's bytes of every codec and format are also in
# tests/common/decode, without a broker.
QUICK = (
    *("created-gzip", "created-zstd", "appended-snappy", "by-broker-lz4", "compacted-none"),
    *("transactions-none", "transactions-lz4", "compacted-transactions-zstd", "compacted-appended"),
    *("forgotten-transactions-none", "forgotten-zstd"),
    *("magic-0-gzip", "magic-1-snappy", "of-old-0-snappy", "of-old-1-lz4", "of-old-0-none", "of-old-1-gzip"),
    *("compacted-0-gzip", "compacted-1-none", "appended-1-lz4"),
    *("upgraded", "mixed", "large", "single", "bulk", "cut-below"),
)


@dataclass(frozen=True)
class Compared:
    """The records of every topic by both readers.

    Attributes:
        batches: of each topic's closed segments.
        ends: each topic's next offset.
        expected: records of Kafka's Java consumer below it, by isolation and topic.
        shown: records of a query through Spark.
    """

    batches: dict[str, list[BatchHeader]]
    ends: dict[str, int]
    expected: dict[Isolation, dict[str, list[OracleRecord]]]
    shown: dict[Isolation, dict[str, list[OracleRecord]]]

    def start(self, topic: str) -> int:
        """Return the first offset of a topic that the broker returns."""
        return CUT if topic == "cut-below" else 0


@pytest.fixture(scope="module")
def compared(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Fill and clean the topics of the selected tests, ship them, stop broker and agent, and read with Spark."""
    tests = (item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec"))
    selected = {test.callspec.params["topic"] for test in tests if test.path == request.path}
    kinds_here = {name: kind for name, kind in KINDS.items() if name in selected}
    directory = tmp_path_factory.mktemp("kinds")
    location = (directory / "store").as_uri()
    (directory / "store").mkdir()
    with LocalCluster(properties={**OLD_PROTOCOL, "message.max.bytes": "2000000"}, name="kinds") as cluster:
        for name, kind in kinds_here.items():
            cluster.create_topic(name, config=kind.config)
        for number in range(2):
            for name, kind in kinds_here.items():
                if number < kind.rounds:
                    kind.fill(cluster, name, number)
            _wait_for_the_cleaner(cluster, kinds_here)
        ends = _ship(cluster, kinds_here, directory, location)
        batches = {name: headers(closed(cluster, name, 0)[0]) for name in kinds_here}
        expected = {
            isolation: _by_topic(dump(cluster.bootstrap, list(kinds_here), isolation), ends) for isolation in ISOLATIONS
        }
    shown = {}
    for isolation in ISOLATIONS:
        table = (
            spark.read.format("kafka_segments")
            .option("cluster", CLUSTER)
            .option("prefixEntropyBits", 3)
            .option("subscribePattern", "[a-z].*")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", isolation)
            .load(location)
        )
        shown[isolation] = _by_topic(oracle_records(table.toArrow().to_pylist()), ends)
    return Compared(batches, ends, expected, shown)


def _ends(cluster: LocalCluster, topics: Iterable[str]) -> dict[str, int]:
    """Return the base offset of each topic's active segment, once no producer writes any more."""
    return {
        name: max(int(path.stem) for path in cluster.brokers[1].partition_directory(name, 0).glob("*.log"))
        for name in topics
    }


def _wait_for_the_cleaner(cluster: LocalCluster, kinds_here: Mapping[str, Kind]) -> None:
    """Wait until the cleaner has reached the active segment of each topic that it cleans."""
    checkpoint = cluster.brokers[1].log_dirs[0] / "cleaner-offset-checkpoint"
    wanted = {
        name: f"{name} 0 {end}" for name, end in _ends(cluster, kinds_here).items() if kinds_here[name].is_cleaned
    }

    def left() -> list[str]:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return [name for name, line in wanted.items() if line not in lines]

    wait_for(lambda: not left(), "the cleaner to reach the active segments", 120, state=left)


def _ship(cluster: LocalCluster, topics: Iterable[str], directory: Path, location: str) -> dict[str, int]:
    """Ship all closed segments with an agent; return each topic's next offset."""
    config = {"storage.service.endpoint.url": location, "ts.segment.uploader.s3.prefix.entropy.bits": "3"}
    write_config(directory / "conf", CLUSTER, config)
    broker = cluster.brokers[1]
    agent = AgentProcess(directory, cluster.logs, directory / "conf", broker.server_properties, CLUSTER)
    keys, ends = ClusterKeys(CLUSTER, 3), _ends(cluster, topics)
    with open_store(location) as store:

        def next_offset(name: str) -> int | None:
            commit, _ = read_commit(store, keys.partition(TopicPartition(name, 0)))
            return commit.next_offset if isinstance(commit, Commit) else None

        def left() -> list[str]:
            return [name for name, end in ends.items() if next_offset(name) != end]

        agent.start()
        try:
            wait_for(lambda: not left(), "the agent to ship all that is closed", 120, state=left)
        finally:
            agent.stop()
    return ends


def _by_topic(records: list[OracleRecord], ends: Mapping[str, int]) -> dict[str, list[OracleRecord]]:
    """Return the records below the next offsets by topic, in their order."""
    found: dict[str, list[OracleRecord]] = defaultdict(list)
    for record in records:
        if record.offset < ends[record.topic]:
            found[record.topic].append(record)
    return found


def test_there_are_topics_enough() -> None:
    """At least forty in all, and a few of each kind of format in `make test`."""
    assert len(KINDS) >= 40
    assert len(QUICK) >= 20


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", cases(KINDS, quick=QUICK))
def test_no_field_of_any_topic_differs_from_the_java_consumers(
    compared: Compared, topic: str, isolation: Isolation
) -> None:
    """The topic is of its kind, and every field of all its records is equal, in order, and once."""
    found = compared.batches[topic]
    assert KINDS[topic].proof(found), found[:10]
    shown, expected = compared.shown[isolation][topic], compared.expected[isolation][topic]
    # An archive begins with the broker's oldest segment; DeleteRecords moves the broker's start inside it.
    assert [record for record in shown if record.offset >= compared.start(topic)] == expected
    every, committed = (compared.expected[level][topic] for level in ISOLATIONS)
    assert every
    # The cleaner removes aborted records.
    assert (len(committed) < len(every)) == topic.startswith("transactions")
