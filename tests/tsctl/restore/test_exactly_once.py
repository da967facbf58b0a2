"""What the plan lists of exactly-once applications: input offsets behind or ahead of their output."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import MadeArchive, batches
from tests.tsctl.restore.test_groups import key, value
from tests.tsctl.running import Run, runner
from ts_common.archive.snapshots import FIVE_MINUTES, GroupOffset, GroupsSnapshot
from ts_common.model import TopicPartition
from tsctl.restore.groups import OFFSETS_TOPIC

APP, OTHER = 7, 8  # producers
AT = 1_700_000_100_000  # 2023-11-14T22:15:00Z
COMMIT, ABORT = 1, 0
_SECONDS = 60


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Return an archive with the input."""
    made = MadeArchive(tmp_path / "archive")
    put(made, "in", [batches((0, 100))], 100)
    return made


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def put(archive: MadeArchive, topic: str, batches: Sequence[bytes], end: int, stable: int | None = None) -> None:
    """Put one segment, up to the offset `end`."""
    archive.put_segment(topic, 0, b"".join(batches))
    archive.commit(topic, end, last_stable_offset=end if stable is None else stable)


def data(offset: int, time: int, producer: int = APP, epoch: int = 3) -> bytes:
    """Return a transactional batch of one record."""
    return batch(
        offset,
        attributes=TRANSACTIONAL,
        producer_id=producer,
        producer_epoch=epoch,
        base_timestamp=time,
        max_timestamp=time,
    )


def ended(offset: int, time: int, kind: int = COMMIT, producer: int = APP, epoch: int = 3) -> bytes:
    return marker(offset, producer, kind, time=time, producer_epoch=epoch)


def offsets_of(offset: int, group: str, committed: int, time: int, producer: int = -1, epoch: int = 3) -> bytes:
    """Return a record of `__consumer_offsets`: the offset of a group in `in-0`."""
    return batch(
        offset,
        [record(0, key(group, "in", 0), value(committed))],
        attributes=TRANSACTIONAL if producer >= 0 else 0,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_timestamp=time,
        max_timestamp=time,
    )


def put_groups(archive: MadeArchive, time: int, *groups: str) -> None:
    """Put a snapshot with the offset 50 of each group."""
    found = {group: {TopicPartition("in", 0): GroupOffset(50, -1, "")} for group in groups}
    GroupsSnapshot(time, found).put(archive.store, archive.keys, time // FIVE_MINUTES * FIVE_MINUTES)


def notes(run: Run, archive: MadeArchive, directory: Path, *options: object) -> list[str]:
    """Plan, and return the notes about groups; the text has them too."""
    named = ("--url", archive.location, "--cluster", "prod", "--entropy-bits", 0)
    made = run("restore", "plan", directory, "--brokers", 1, "--replication-factor", 1, *named, *options)
    assert made.code == 0, made
    found: Any = json.loads((directory / "plan.json").read_bytes())["groups"]["notes"]
    assert all(f"  note: {note}\n" in made.out for note in found)
    return list(found)


@pytest.mark.parametrize("markers", [0, 1], ids=["transaction.version 1", "transaction.version 2"])
def test_an_exactly_once_group_is_behind_output_of_later_transactions(
    archive: MadeArchive, run: Run, tmp_path: Path, markers: int
) -> None:
    """Its archived offsets are of transaction 1; `out` has 1 to 3, `side` has 1 only, and others write there too."""
    epochs = [3 + markers * number for number in range(3)]
    stored = [offsets_of(0, "app", 40, AT, APP), ended(1, AT + 5, epoch=3 + markers), offsets_of(2, "plain", 5, AT)]
    put(archive, OFFSETS_TOPIC, stored, 3)
    out = [
        each
        for number, epoch in enumerate(epochs)
        for each in (data(2 * number, AT, epoch=epoch), ended(2 * number + 1, AT + 6 + number, epoch=epoch + markers))
    ]
    put(archive, "out", out, 6)
    side = [data(0, 9), ended(1, AT + 4, epoch=3 + markers), data(2, AT, OTHER), ended(3, AT + 99, producer=OTHER)]
    put(archive, "side", side, 4)
    (note,) = notes(run, archive, tmp_path / "plan")
    assert note == (
        "group app has its offsets in transactions of producer 7, as of 2023-11-14T22:15:00.000Z; behind out-0 (2 "
        "later transactions, until 2023-11-14T22:15:00.008Z): their input is processed again, and the output doubled"
    )


def test_an_exactly_once_group_is_ahead_of_output_that_a_cut_removes(
    archive: MadeArchive, run: Run, tmp_path: Path
) -> None:
    """One partition ends within the transaction of the offsets, another before it; a third one has its output."""
    put(archive, OFFSETS_TOPIC, [offsets_of(0, "app", 40, AT, APP), ended(1, AT + 5)], 2)
    both = [data(0, 9), ended(1, AT - 70), data(2, 9), ended(3, AT + 6)]
    for topic in ("torn", "whole"):
        put(archive, topic, both, 4)
    put(archive, "older", [data(0, 9), ended(1, AT - 90)], 2)
    put(archive, "later", [data(0, 9), ended(1, AT - 90), data(2, 9, OTHER), ended(3, AT + 50, producer=OTHER)], 4)
    (note,) = notes(run, archive, tmp_path / "whole")
    assert "ahead of older-0 (its restored transactions end at 2023-11-14T22:14:59.910Z): output" in note
    assert "torn" not in note
    assert "behind" not in note
    (note,) = notes(run, archive, tmp_path / "cut", "--end", "torn-0=3", "older", "torn", "in")
    assert "torn-0 (the transaction from offset 2 on is aborted): output that is missing" in note


def test_a_group_whose_offsets_equal_its_output_has_no_note(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """An aborted transaction is no output, and a group without transactions has no note."""
    stored = [offsets_of(0, "app", 40, AT, APP), ended(1, AT + 5), offsets_of(2, "plain", 7, AT - 9)]
    put(archive, OFFSETS_TOPIC, stored, 3)
    put(archive, "out", [data(0, 9), ended(1, AT + 6), data(2, 9), ended(3, AT + 50, ABORT)], 4)
    assert notes(run, archive, tmp_path / "plan") == []


def test_a_newer_snapshot_of_an_exactly_once_group_is_compared_by_its_time(
    archive: MadeArchive, run: Run, tmp_path: Path
) -> None:
    """The archived record shows that the group commits in transactions, the snapshot has its newest offset."""
    stored = [offsets_of(0, "app", 40, AT - 900, APP), ended(1, AT - 890), offsets_of(2, "plain", 7, AT - 9)]
    put(archive, OFFSETS_TOPIC, stored, 3)
    put_groups(archive, AT, "app", "plain")
    put(archive, "out", [data(0, 9), ended(1, AT - 1), data(2, 9), ended(3, AT + 6)], 4)
    (note,) = notes(run, archive, tmp_path / "plan")
    assert "group app" in note
    assert "behind out-0 (1 later transaction, until 2023-11-14T22:15:00.006Z)" in note


def test_groups_that_may_be_exactly_once_have_one_note(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """Only a snapshot has their offsets: the plan lists the transactional output that is of another time."""
    put_groups(archive, AT, "app", "plain")
    put(archive, "behind", [data(0, 9), ended(1, AT + 6), data(2, 9, OTHER), ended(3, AT + 7, producer=OTHER)], 4)
    put(archive, "ahead", [data(0, 9), ended(1, AT - 60_000)], 2)
    (note,) = notes(run, archive, tmp_path / "plan")
    assert note.startswith("if one of 2 groups commits its offsets in transactions, as of 2023-11-14T22:15:00.000Z; ")
    assert "; behind behind-0 (2 later transactions, until 2023-11-14T22:15:00.007Z): " in note
    assert "; ahead of ahead-0 (its restored transactions end at 2023-11-14T22:14:00.000Z): " in note


def test_kafkas_own_records_of_a_group_have_their_producer(one_broker: LocalCluster, run: Run, tmp_path: Path) -> None:
    """The offsets were shipped after the first transaction, `late` after the third, and `early` before the first."""
    cluster, group = one_broker, "exactly-once"
    for topic in ("in", "early", "late"):
        cluster.create_topic(f"eo-{topic}")
    cluster.produce("eo-in", [Record(b"v")] * 9, partition=0)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.assign([TheirPartition("eo-in", 0, 0)])
    producer = cluster.producer({"transactional.id": group})
    producer.init_transactions(_SECONDS)
    archive = MadeArchive(tmp_path / "archive")

    def transaction(offset: int) -> None:
        producer.begin_transaction()
        for topic in ("eo-early", "eo-late"):
            producer.produce(topic, b"v", partition=0)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TheirPartition("eo-in", 0, offset)], metadata, _SECONDS)
        producer.commit_transaction(_SECONDS)

    def put(topic: str, partition: int = 0) -> None:
        """Ship a partition once the coordinator has written the markers."""

        def is_stable() -> bool:
            return cluster.latest(topic, partition) == cluster.latest(topic, partition, committed=True)

        wait_for(is_stable, "markers", _SECONDS)
        archive.ship_whole(cluster.brokers[1].partition_directory(topic, partition))

    try:
        transaction(3)
        wait_for(lambda: cluster.latest("eo-early", 0) == 2, "the first marker", _SECONDS)
        put("eo-early")
        transaction(5)
        for path in cluster.brokers[1].log_dirs[0].glob(f"{OFFSETS_TOPIC}-*/*.log"):
            if group.encode() in path.read_bytes():
                put(OFFSETS_TOPIC, int(path.parent.name.rpartition("-")[2]))
        for offset in (6, 7):
            transaction(offset)
        wait_for(lambda: cluster.latest("eo-late", 0) == 8, "the last marker", _SECONDS)
        for topic in ("eo-in", "eo-late"):
            put(topic)
    finally:
        consumer.close()
    (note,) = notes(run, archive, tmp_path / "plan")
    assert note.startswith(f"group {group} has its offsets in transactions of producer ")
    assert "; behind eo-late-0 (2 later transactions, until " in note
    assert "; ahead of eo-early-0 (its restored transactions end at " in note
