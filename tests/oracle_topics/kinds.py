"""The kinds of topics: how each is filled, and a proof that its segments are of the kind that its name promises.

The broker of 3.9 still writes the formats of 0.9 and 0.10. Kafka's cleaner compacts some topics, a few of them twice:
tombstones and markers are removed too, and batches without a record remain. `make test` has each kind with one codec or
two, `make test-full` all of them.
"""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from dev.local.kafka.cluster import LocalCluster, Record
from tests.common.log_format.old_brokers import CODECS as OLD_CODECS
from tests.common.log_format.old_brokers import FORMATS, produce_as_of_old, write_in
from tests.every_field import TIME, every_field
from ts_common.log_format.framing import BatchHeader

CODECS = (*OLD_CODECS, "zstd")
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


def _kinds() -> dict[str, Kind]:
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


KINDS: Final = _kinds()
# Each kind with one codec. Kafka's bytes of every codec and format are also in tests/reader/decode, without a broker.
QUICK: Final = (
    *("appended-snappy", "by-broker-lz4", "transactions-lz4"),
    *("compacted-transactions-zstd", "forgotten-transactions-none"),
    *("magic-0-gzip", "of-old-1-lz4", "compacted-1-none"),
    *("upgraded", "mixed", "large", "cut-below"),
)
