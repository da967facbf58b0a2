"""Damaged, unreadable, rebuilt or replaced files, and lost file events (faults U10, U13, U19, U33)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from awscrt.checksums import crc32c
from confluent_kafka import Producer

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.conftest import ArchiveOf
from tests.faults.files import (
    SECONDS,
    closed_files,
    decode,
    gaps_of,
    live_bases,
    look,
    paused,
    records,
    sample,
    scan_bytes,
    shipped_segments,
    text_of,
    view_of,
    wait_for_backlog,
    wait_until_said,
)
from ts_common.archive.segment_metadata import TxnIndexState
from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_offset_checkpoint
from ts_common.log_format.framing import HEADER_SIZE, Trailing, parse_header
from ts_common.log_format.index_files import txnindex_is_complete

SMALL = {"segment.bytes": "20000"}
# Without these capabilities, file modes apply to root as to every user.
WITHOUT_PRIVILEGE = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner") if os.geteuid() == 0 else ()


def log_of(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}.log"


def batches_of(data: bytes) -> list[tuple[int, int]]:
    """Return (position, base offset) of each batch of a segment."""
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position, len(data) - position, position)
        assert not isinstance(header, Trailing)
        found.append((position, header.base_offset))
        position += header.size_in_bytes
    return found


@contextmanager
def with_mode(path: Path, mode: int) -> Iterator[None]:
    """Change the permissions of a file or directory inside the block."""
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)


@contextmanager
def moved_out(path: Path, outside: Path) -> Iterator[Path]:
    """Move a file or directory elsewhere inside the block, and leave a symbolic link in its place."""
    elsewhere = outside / path.name
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    try:
        yield elsewhere
    finally:
        path.unlink()
        elsewhere.rename(path)


# --- U10 ---------------------------------------------------------------------------------------------------------


def queue_length() -> int:
    """Return how many events the kernel queues for one inotify instance."""
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def overflow(log_dir: Path) -> None:
    """Cause more file events than the kernel queues, next to the partitions, where a broker has its checkpoints."""
    for number in range(queue_length() // 2 + 100):
        path = f"{log_dir}/event.{number}"
        os.mknod(path)
        os.unlink(path)  # noqa: PTH108  (thousands)


def test_u10_rolls_that_no_event_reports_are_found(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The queue of a paused agent overflows, then real segments roll: the next scan finds every one of them."""
    topic = "unheard"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={"segment.bytes": "4000"})
    broker = cluster.brokers[1]
    cluster.produce(topic, records(50), partition=0, config={"batch.size": 1000})
    agent = archive.agent()
    archive.wait_until_shipped()
    assert "overflow" not in text_of(agent)
    with paused(agent):
        overflow(broker.log_dirs[0])
        cluster.produce(topic, records(150, start=50), partition=0, config={"batch.size": 1000})
    wait_until_said(agent, "overflow")
    assert agent.metrics()["ts_uploader_inotify_overflows_total"] >= 1
    assert len(live_bases(broker.partition_directory(topic, 0))) > 7
    end = archive.wait_until_shipped()
    assert archive.read() == archive.oracle(end=end)
    # It receives later events again.
    cluster.produce(topic, records(50, start=200), partition=0, config={"batch.size": 1000})
    archive.wait_until_shipped()


@pytest.mark.full
def test_u10_thousands_of_real_rolls_overflow_the_queue(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The same, with events of the broker's own files only."""
    topic = "rolling"
    archive = archive_of(topic)
    rolls = queue_length() // 4 // 4 + 100  # a roll creates four files
    cluster.create_topic(topic, assignment=[[1]] * 4, config={"segment.bytes": "100"})
    agent = archive.agent()
    wait_for(lambda: agent.health()["partitions_led"] == 4, "the agent to know its partitions", SECONDS)
    with paused(agent):
        for partition in range(4):
            cluster.produce(topic, records(rolls, size=10), partition=partition, config={"batch.num.messages": 1})
    wait_until_said(agent, "overflow")
    for partition in range(4):
        directory = cluster.brokers[1].partition_directory(topic, partition)
        active = live_bases(directory)[-1]
        assert len(live_bases(directory)) >= rolls
        archive.wait_for_offset(active, partition, seconds=600)
        assert archive.read(partition) == archive.oracle(partition, active)


# --- U13 ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_u13_preallocated_files(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Zero bytes after the last batch, in the active segment and in a closed one, are neither records nor damage."""
    topic = "preallocated"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**SMALL, "preallocate": "true"})
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(500), partition=0)
    oracle = archive.oracle()
    active = log_of(directory, live_bases(directory)[-1]).read_bytes()
    assert len(active) == 20_000
    assert scan_bytes(active).trailing is Trailing.ZEROS
    padded = live_bases(directory)[1]
    with log_of(directory, padded).open("ab") as file:  # as a broker leaves it that died before it could trim
        file.write(bytes(3000))
    agent = archive.agent()
    end = archive.wait_until_shipped()
    by_base = {shipped.copy.base: shipped for shipped in shipped_segments(archive)}
    assert by_base[padded].scan.trailing is Trailing.ZEROS
    assert by_base[padded].metadata.end == live_bases(directory)[2]
    assert by_base[padded].metadata.corruptions == 0
    assert archive.read() == oracle[:end]
    assert agent.metrics()["ts_uploader_corrupt_segments_total"] == 0


@pytest.mark.full
def test_u13_a_torn_tail_is_no_coverage(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """A closed segment lost the end of its last batch: readers see up to there, and all once it is whole again."""
    topic = "torn"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=SMALL)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(600), partition=0, config={"batch.size": 3000})
    oracle = archive.oracle()
    torn = log_of(directory, live_bases(directory)[2])
    whole = torn.read_bytes()
    last = batches_of(whole)[-1][1]
    torn.write_bytes(whole[:-10])
    agent = archive.agent()
    archive.wait_for_offset(last, seconds=SECONDS)
    wait_until_said(agent, "partition_blocked", f"{topic}-0", "a segment that contains the next offset")
    assert sample(agent, "hole", archive) == 1
    assert (sample(agent, "unshipped_segments", archive) or 0) > 0
    assert archive.next_offset() == last
    assert archive.read() == oracle[:last]
    assert torn.stat().st_size == len(whole) - 10  # the broker does not repair it
    agent.stop()
    torn.write_bytes(whole)
    archive.agent()
    end = archive.wait_until_shipped()
    assert end > last
    seen = look(archive)
    assert (seen.records, seen.holes) == (oracle[:end], [])


def test_u13_a_corrupt_batch_is_shipped_unchanged_and_reported(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """A flipped byte in the middle of a closed segment: the object is the file, marked, and the rest is readable."""
    topic = "corrupt"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=SMALL)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(600), partition=0, config={"batch.size": 3000})
    oracle = archive.oracle()
    base, following = live_bases(directory)[2:4]
    path = log_of(directory, base)
    data = bytearray(path.read_bytes())
    (position, first), (_, behind) = batches_of(bytes(data))[2:4]
    data[position + HEADER_SIZE + 50] ^= 0x01
    path.write_bytes(data)
    agent = archive.agent()
    end = archive.wait_until_shipped()
    assert path.read_bytes() == bytes(data)  # the broker does not repair it
    by_base = {shipped.copy.base: shipped for shipped in shipped_segments(archive)}
    assert by_base[base].data == bytes(data)
    assert (by_base[base].metadata.corruptions, by_base[base].metadata.end) == (1, following)
    assert archive.store.head(by_base[base].copy.key).metadata["ts-corrupt"] == "1"
    assert agent.metrics()["ts_uploader_corrupt_segments_total"] == 1
    line = wait_until_said(agent, "segment_shipped_corrupt", f"{topic}-0", "error")
    assert f"base={base}" in line
    view = view_of(archive)
    assert view.end == end
    for copy in view.copies:
        if copy.base != base:
            assert decode(archive, copy, copy.base, copy.end) == oracle[copy.base : copy.end]
    corrupt = by_base[base].copy
    assert decode(archive, corrupt, base, first) == oracle[base:first]
    with pytest.raises(CorruptData, match=str(first)):
        decode(archive, corrupt, base, following)
    assert behind < following


# --- U19 ---------------------------------------------------------------------------------------------------------


def test_u19_unreadable_files_are_reported_and_other_partitions_continue(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """One partition's directory and one file of another are unreadable: each is reported, and nothing else waits."""
    topic = "refused"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]] * 3, config=SMALL)
    directories = [cluster.brokers[1].partition_directory(topic, partition) for partition in range(3)]
    for partition in range(3):
        cluster.produce(topic, records(500), partition=partition)
    refused = live_bases(directories[2])[2]
    path = log_of(directories[2], refused)
    with with_mode(directories[1], 0o300), with_mode(path, 0o000):  # a broker that is not root can still roll there
        agent = archive.agent(prefix=WITHOUT_PRIVILEGE)
        wait_until_said(agent, str(directories[1]), "error", "Permission denied")
        wait_until_said(agent, f"{topic}-2", "Permission denied", path.name)
        end = archive.wait_until_shipped(partition=0)
        assert archive.read(0) == archive.oracle(0, end)
        archive.wait_for_offset(refused, partition=2)  # earlier segments are not delayed
        cluster.produce(topic, records(200, start=500), partition=0)
        archive.wait_until_shipped(partition=0)
        assert archive.next_offset(2) == refused
        # Between two attempts too, because operators rely on it.
        assert (sample(agent, "unshipped_segments", archive, 2) or 0) > 0
        assert (sample(agent, "oldest_unshipped_age_seconds", archive, 2) or 0) > 0
        assert archive.commit(1) is None
        assert agent.alive
    last = archive.wait_until_shipped(partition=2)  # it kept retrying
    assert archive.read(2) == archive.oracle(2, last)
    agent.stop()
    archive.agent(prefix=WITHOUT_PRIVILEGE)
    archive.wait_until_shipped(partition=1)


@pytest.mark.full
def test_u19_links_that_lead_out_are_not_followed(cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path) -> None:
    """A partition's directory, and a file of another, are links: reported, not read, and the others continue."""
    topic = "linked"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]] * 3, config=SMALL)
    directories = [cluster.brokers[1].partition_directory(topic, partition) for partition in range(3)]
    for partition in range(3):
        cluster.produce(topic, records(500), partition=partition)
    outside = tmp_path / "outside"
    outside.mkdir()
    linked = live_bases(directories[2])[2]
    path = log_of(directories[2], linked)
    with moved_out(directories[1], outside), moved_out(path, outside):
        assert live_bases(directories[1])  # following the link would find segments
        agent = archive.agent()
        wait_until_said(agent, f"{topic}-2", path.name)
        end = archive.wait_until_shipped(partition=0)
        assert archive.read(0) == archive.oracle(0, end)
        archive.wait_for_offset(linked, partition=2)
        cluster.produce(topic, records(200, start=500), partition=0)
        archive.wait_until_shipped(partition=0)
        assert archive.next_offset(2) == linked
        held = archive.objects()
        assert [key for key in held if key.startswith(archive.partition_keys(1).prefix)] == []
        assert archive.partition_keys(2).prefix + f"{linked:020d}.log" not in held
        assert agent.alive
        wait_until_said(agent, f"{topic}-1", "error")
    last = archive.wait_until_shipped(partition=2)
    assert archive.read(2) == archive.oracle(2, last)


# --- U33 ---------------------------------------------------------------------------------------------------------


def transact(cluster: LocalCluster, topic: str, name: str, *, rounds: int) -> None:
    """Produce transactions in turn, every second one aborted; the last is left open."""
    producer: Producer = cluster.producer({"transactional.id": name, "batch.size": 1500})
    producer.init_transactions(SECONDS)
    for number in range(rounds + 1):
        producer.begin_transaction()
        for record in records(30, start=30 * number):
            producer.produce(topic, record.value, record.key, partition=0)
        producer.flush(SECONDS)
        if number == rounds:
            return
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(SECONDS)


def aborting(directory: Path) -> list[int]:
    """Return the base offsets of the closed segments with abort markers."""
    closed = live_bases(directory)[:-1]
    return [base for base in closed if scan_bytes(log_of(directory, base).read_bytes()).abort_markers]


def checked_up_to(log_dir: Path, topic: str) -> int:
    """Return the high watermark of partition 0 in the broker's checkpoint."""
    offsets = parse_offset_checkpoint((log_dir / "replication-offset-checkpoint").read_bytes())
    return offsets.get((topic, 0), 0)


# A broker starts again: `tests/uploader/shipping` has its files one by one.
@pytest.mark.full
def test_u33_a_broker_that_recovers_from_a_crash(cluster: LocalCluster, archive_of: ArchiveOf, repetition: int) -> None:
    """Missing indexes, a reset `.txnindex`, an unfinished swap: no false gap or coverage, and no false "no aborts"."""
    topic = f"recovering-{repetition}"
    archive = archive_of(topic)
    broker, zookeeper = cluster.brokers[1], cluster.zookeeper
    assert zookeeper is not None
    cluster.create_topic(topic, assignment=[[1]], config={"segment.bytes": "15000"})
    directory = broker.partition_directory(topic, 0)
    cluster.produce(topic, records(200), partition=0, config={"batch.size": 3000})
    agent = archive.agent()
    shipped = archive.wait_until_shipped()
    try:
        with paused(archive.s3):
            transact(cluster, topic, "recovering", rounds=30)
            wait_for_backlog(agent, archive, 10)
            oracle = archive.oracle()
            active = live_bases(directory)[-1]
            wait_for(lambda: checked_up_to(broker.log_dirs[0], topic) > active, "the high watermark", SECONDS)
            # Its session ends with ZooKeeper's next answer: until then the agent continues as leader.
            zookeeper.pause()
            broker.kill()
            before = closed_files(directory)
            # A recovering broker resets each segment's indexes before it fills them.
            reset, missing, unindexed = [base for base in aborting(directory) if base > shipped][4:7]
            (directory / f"{reset:020d}.txnindex").write_bytes(b"")
            (directory / f"{missing:020d}.txnindex").unlink()
            for suffix in (".index", ".timeindex"):
                (directory / f"{unindexed:020d}{suffix}").unlink()
        for base in (reset, missing):
            wait_until_said(agent, "segment_shipped", f"base={base} ", f"{topic}-0")
        wait_until_said(agent, f"{unindexed:020d}.index no longer exists", f"{topic}-0")
        archive.wait_for_offset(unindexed)
        swapped = next(base for base in live_bases(directory) if base > unindexed)
        for suffix in (".log", ".index", ".timeindex"):
            path = directory / f"{swapped:020d}{suffix}"
            path.rename(f"{path}.swap")
        wait_until_said(agent, "partition_blocked", f"{topic}-0", "renames")
        assert archive.next_offset() == unindexed
    finally:
        if zookeeper.paused:
            zookeeper.resume()
        broker.start()
    wait_for(lambda: cluster.leader(topic, 0) == 1, "the broker to lead again", SECONDS)
    assert closed_files(directory).items() >= before.items()
    cluster.produce(topic, records(300, start=1000), partition=0, config={"batch.size": 3000})
    end = archive.wait_until_shipped()
    assert end > active

    segments = {segment.copy.base: segment for segment in shipped_segments(archive)}
    for segment in segments.values():
        state = segment.metadata.txnindex
        if segment.scan.abort_markers:
            assert state is not None, f"{segment.copy.key}: says that nothing was aborted"
            whole = segment.txnindex is not None and txnindex_is_complete(segment.aborted, segment.scan.abort_markers)
            assert state[1] is (TxnIndexState.COMPLETE if whole else TxnIndexState.CORRUPT)
        if state is not None and state[1] is TxnIndexState.COMPLETE:
            assert state[0] == crc32c(segment.txnindex or b"")
    states = {base: segment.metadata.txnindex for base, segment in segments.items()}
    for base in (reset, missing):
        assert (states[base] or (0, None))[1] is TxnIndexState.CORRUPT
    assert (states[unindexed] or (0, None))[1] is TxnIndexState.COMPLETE
    markers = [marker for segment in segments.values() for marker in segment.scan.abort_markers]
    assert len(set(markers)) == len(markers) == 15
    assert all(one.metadata.end == two.copy.base for one, two in pairwise(segments.values()))
    assert gaps_of(archive) == []
    gaps = {name: value for name, value in agent.metrics().items() if name.startswith("ts_uploader_gaps_total")}
    assert gaps
    assert set(gaps.values()) == {0}
    seen = look(archive)
    assert seen.holes == []
    assert seen.records[: len(oracle)] == oracle
    assert seen.records == archive.oracle(end=end)
    commit = archive.commit()
    assert commit is not None
    # The open transaction limits what read_committed may show.
    assert commit.last_stable_offset == cluster.latest(topic, 0, committed=True)
