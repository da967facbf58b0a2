"""Rewritten segments in the log of a real broker: it loads them, and serves all other records."""

from pathlib import Path
from random import Random
from typing import get_args

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import Isolation, dump
from tests.erased.canary import put_erased
from tests.made_archive import MadeArchive
from tsctl.erase.erased_copies import Did
from tsctl.erase.replacing import replace_copies

PERSON = b"user-7"


def fill(cluster: LocalCluster) -> None:
    """Produce records of forty users with each codec, by idempotent and transactional producers; some abort."""
    chance = Random(5)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        records = [
            Record(b"%d " % at + b"x" * chance.randrange(200), b"user-%d" % chance.randrange(40)) for at in range(2000)
        ]
        cluster.produce("t", records, partition=0, config={"compression.type": codec, "enable.idempotence": True})
        producer = cluster.producer({"transactional.id": f"x-{codec}", "compression.type": codec})
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            for at in range(40):
                producer.produce("t", b"tx %d %d" % (number, at), b"user-%d" % chance.randrange(40), partition=0)
            producer.flush()
            (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(30)
    cluster.produce("t", [Record(b"y" * 900, b"last") for _ in range(300)], partition=0)


@pytest.mark.full
def test_a_broker_serves_rewritten_segments_to_javas_consumer(tmp_path: Path) -> None:
    """In both isolation levels; it recovers them as after a crash, and a transactional producer continues."""
    with LocalCluster(1, mode="kraft", name="rewritten") as cluster:
        cluster.create_topic("t", partitions=1, config={"segment.bytes": "120000", "file.delete.delay.ms": "60000"})
        fill(cluster)
        levels: tuple[Isolation, ...] = get_args(Isolation)
        before = {level: dump(cluster.bootstrap, "t", level) for level in levels}
        broker = cluster.brokers[1]
        directory = broker.partition_directory("t", 0)
        broker.stop()
        archive = MadeArchive(tmp_path / "bucket")
        archive.ship(directory)
        keys = archive.partition("t")
        gone = [record.offset for record in before["read_uncommitted"] if record.key == PERSON]
        put_erased(archive.store, keys, ((offset, offset + 1, 9) for offset in gone))
        outcomes = [*replace_copies(archive.store, keys, held=lambda: None, locked=lambda _: {})]
        assert len(outcomes) > 2
        assert {each.did for each in outcomes} == {Did.REWRITTEN}  # the last segments have nothing of the person
        for each in outcomes:
            path = directory / each.key.rpartition("/")[2]
            path.write_bytes(archive.store.get(str(each.made))[0])
            for suffix in (".index", ".timeindex"):
                path.with_suffix(suffix).unlink()
        for path in (*directory.glob("*.snapshot"), directory.parent / ".kafka_cleanshutdown"):
            path.unlink(missing_ok=True)
        (directory.parent / "recovery-point-offset-checkpoint").unlink()
        broker.start()
        for level in levels:
            assert dump(cluster.bootstrap, "t", level) == [each for each in before[level] if each.key != PERSON]
        producer = cluster.producer({"transactional.id": "x-lz4"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"again", partition=0)
        producer.commit_transaction(30)
