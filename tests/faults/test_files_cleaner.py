"""The log cleaner rewrites and merges segments before, while and after they are shipped (faults U12 and U25)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.conftest import ArchiveOf
from tests.faults.files import (
    SECONDS,
    closed_files,
    deleted_bases,
    gaps_of,
    live_bases,
    look,
    paused,
    records,
    sample,
    scan_bytes,
    shipped_segments,
    text_of,
    wait_for_backlog,
    wait_until_said,
)
from tests.uploader.beside import Archive
from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_offset_checkpoint
from ts_common.log_format.framing import Trailing

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "1",
}
NOT_YET = {**COMPACTED, "min.compaction.lag.ms": "86400000"}
NOW = {"min.compaction.lag.ms": "0"}
# Not idempotent: the cleaner keeps the last batch of a living producer.
PLAIN = {"enable.idempotence": "false", "batch.size": 4000}


def cleaned_up_to(log_dir: Path, topic: str) -> dict[int, int]:
    """Return the cleaner's offsets by partition, as it writes them after each pass; the file is empty at first."""
    with suppress(FileNotFoundError, CorruptData):
        offsets = parse_offset_checkpoint((log_dir / "cleaner-offset-checkpoint").read_bytes())
        return {partition: offset for (name, partition), offset in offsets.items() if name == topic}
    return {}


def fill(cluster: LocalCluster, topic: str, count: int, *, start: int, keys: int, partition: int = 0) -> None:
    """Return records of few unique keys; the others repeat so often that whole batches and segment tails are removed.

    A batch that keeps a record keeps its last offset. Only if all of it is removed, a file lacks its end.
    """
    again = records(count, start=start, keys=keys)
    once = records(count, start=start)
    mixed = [once[n] if (start + n) % 120 < 20 else again[n] for n in range(count)]
    cluster.produce(topic, mixed, partition=partition, config=PLAIN)


def wait_until_cleaned(directory: Path, before: dict[str, str]) -> None:
    """Wait until the cleaner has passed over everything that was closed: most of it is rewritten or removed."""

    def changed() -> bool:
        now = closed_files(directory)
        return sum(now.get(name) != digest for name, digest in before.items()) >= len(before) - 1

    wait_for(changed, f"the cleaner to rewrite {len(before)} segments", SECONDS)


def check_objects(archive: Archive, partition: int = 0) -> None:
    """Check that each object is one whole file: every batch, nothing after them, and the bytes of its metadata."""
    for shipped in shipped_segments(archive, partition):
        scan = shipped.scan
        assert (scan.corruption, scan.trailing) == ((), Trailing.NONE), shipped.copy.key
        assert scan.crc32c == shipped.metadata.crc32c, shipped.copy.key
        assert scan.record_count == shipped.metadata.records, shipped.copy.key
        if scan.base_offset is not None and scan.end_offset is not None:
            assert shipped.copy.base <= scan.base_offset
            assert scan.end_offset <= shipped.metadata.end


def check_union(archive: Archive, partition: int = 0) -> None:
    """Check that all records of the broker below the next offset are read, and that others were overwritten later.

    The keys of a compacted log show that nothing was passed over. A record is missing only if a later one has its key,
    and that one can be above the next offset.
    """
    kept = archive.oracle(partition)
    seen = look(archive, partition)
    assert seen.holes == []
    assert gaps_of(archive, partition) == []
    read = {record.offset: record for record in seen.records}
    expected = {record.offset: record for record in kept if record.offset < seen.end}
    assert {offset: read.get(offset) for offset in expected} == expected
    last = {record.key: record.offset for record in kept}
    for record in seen.records:
        assert last[record.key] >= record.offset


@pytest.mark.full
def test_u12_segments_compacted_before_and_after_they_are_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """Rewritten and merged files are shipped whole; when the cleaner removes more, the archive keeps its records."""
    topic = f"compacted-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=NOT_YET)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    fill(cluster, topic, 1200, start=0, keys=7)
    produced = archive.oracle()
    before = closed_files(directory)
    assert len(before) >= 10
    cluster.alter_config(topic, NOW)
    wait_until_cleaned(directory, before)
    archive.agent()
    first = archive.wait_until_shipped()
    check_objects(archive)
    check_union(archive)
    once = archive.read()
    assert len(once) < first  # the cleaner had removed some
    assert set(once) <= set(produced)
    objects = archive.objects()

    shipped = closed_files(directory)
    fill(cluster, topic, 600, start=1200, keys=7)
    cluster.produce(topic, records(1200), partition=0, config=PLAIN)  # each key again
    wait_until_cleaned(directory, shipped)
    archive.wait_until_shipped()
    after = archive.objects()
    logs = [key for key in objects if key.endswith(".log")]
    assert {key: after.get(key) for key in logs} == {key: objects[key] for key in logs}
    check_objects(archive)
    check_union(archive)
    assert set(once) <= set(look(archive).records)


def test_u12_segments_compacted_while_they_are_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """The cleaner replaces the files of held uploads: each object is one whole file, and nothing is passed over."""
    topic = f"compacted-meanwhile-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=NOT_YET)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    fill(cluster, topic, 100, start=0, keys=7)
    agent = archive.agent()
    archive.wait_until_shipped()
    with paused(archive.s3):
        fill(cluster, topic, 1200, start=100, keys=7)
        wait_for_backlog(agent, archive, 10)
        produced = archive.oracle()
        before = closed_files(directory)
        cluster.alter_config(topic, NOW)
        wait_until_cleaned(directory, before)
    assert len(before) >= 10
    end = archive.wait_until_shipped()
    check_objects(archive)
    check_union(archive)
    read = archive.read()
    assert set(read) <= set(produced)
    assert len(read) < end
    # The held uploads had read their files before, so every record of these is there.
    logs = {segment.copy.base: segment for segment in shipped_segments(archive)}
    assert any(segment.copy.dense for segment in logs.values())
    assert any(not segment.copy.dense for segment in logs.values())


class Renames(threading.Thread):
    """Lists directories again and again, and counts states that exist only during the cleaner's renames."""

    def __init__(self, directories: list[Path]) -> None:
        super().__init__(daemon=True)
        self._directories = directories
        self._ended = threading.Event()
        self.seen = 0

    def run(self) -> None:
        while not self._ended.is_set():
            for directory in self._directories:
                with suppress(FileNotFoundError):
                    names = [path.name for path in directory.iterdir()]
                    self.seen += any(name.endswith((".swap", ".cleaned")) for name in names)

    def stop(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def watched(directories: list[Path]) -> Iterator[Renames]:
    renames = Renames(directories)
    renames.start()
    try:
        yield renames
    finally:
        renames.stop()


@pytest.mark.full
def test_u25_a_cleaner_that_stops_in_the_middle_of_its_renames(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """The broker stops between `.deleted` and `.log`: neighbours in a listing prove nothing; no gap is recorded."""
    topic = f"halfway-{repetition}"
    archive = archive_of(topic)
    broker, zookeeper = cluster.brokers[1], cluster.zookeeper
    assert zookeeper is not None
    cluster.create_topic(topic, assignment=[[1]], config=NOT_YET)
    directory = broker.partition_directory(topic, 0)
    fill(cluster, topic, 100, start=0, keys=7)
    agent = archive.agent()
    shipped = archive.wait_until_shipped()

    def halfway() -> bool:
        """Whether the broker, paused now, has renamed old segments away and not named the new one yet."""
        if not any(path.name.endswith(".log.swap") for path in directory.iterdir()):
            return False
        broker.pause()
        new = [int(path.name.partition(".")[0]) for path in directory.glob("*.log.swap")]
        live = live_bases(directory)
        if any(base not in live and live[0] < base < live[-1] for base in new):
            return True
        broker.resume()
        return False

    def stopped_halfway() -> bool:
        """Whether the broker could be paused in the middle of this pass of the cleaner; a busy machine is too slow."""
        active = live_bases(directory)[-1]
        wait_for(
            lambda: halfway() or cleaned_up_to(broker.log_dirs[0], topic).get(0, 0) >= active,
            "the cleaner in the middle of renames, or at the end of its pass",
            SECONDS,
            every=0.0,
        )
        return broker.paused

    try:
        with paused(archive.s3):
            fill(cluster, topic, 1500, start=100, keys=7)
            wait_for_backlog(agent, archive, 10)
            wait_for(lambda: sample(agent, "lag_offsets", archive) == 1600 - shipped, "the high watermark", SECONDS)
            cluster.alter_config(topic, NOW)
            end = 1600
            while not stopped_halfway():
                assert end < 20_000, "the cleaner was never met in the middle"
                fill(cluster, topic, 800, start=end, keys=7)
                end += 800
            zookeeper.pause()  # otherwise its session would end, and with it the leadership
        wait_until_said(agent, "partition_blocked", f"{topic}-0", "renames")
        before = archive.next_offset()
    finally:
        for server in (zookeeper, broker):
            if server.paused:
                server.resume()
    wait_for(lambda: cluster.leader(topic, 0) == 1, "the broker to lead", SECONDS)
    assert archive.wait_until_shipped() > before
    check_objects(archive)
    check_union(archive)


# `tests/uploader/log_dirs/test_whole_listings.py` has the renames without a broker.
@pytest.mark.full
@pytest.mark.parametrize("rounds", [10])
def test_u25_scans_in_the_middle_of_renames_pass_nothing_over(
    cluster: LocalCluster, archive_of: ArchiveOf, rounds: int
) -> None:
    """The cleaner works on three partitions without a pause while they are filled and shipped: no false coverage."""
    topic = f"renaming-{rounds}"
    archive = archive_of(topic)
    cluster.create_topic(
        topic,
        assignment=[[1]] * 3,
        config={**COMPACTED, "segment.bytes": "8000", "max.compaction.lag.ms": "100"},
    )
    broker = cluster.brokers[1]
    directories = [broker.partition_directory(topic, partition) for partition in range(3)]
    agent = archive.agent()
    produced, passes = 0, [cleaned_up_to(broker.log_dirs[0], topic)]

    def loaded(wanted: int) -> bool:
        """Produce a little more, and return whether the cleaner has ended so many passes meanwhile."""
        nonlocal produced
        for partition in range(3):
            fill(cluster, topic, 100, start=produced, keys=3, partition=partition)
        produced += 100
        now = cleaned_up_to(broker.log_dirs[0], topic)
        if now != passes[-1]:
            passes.append(now)
        return len(passes) > wanted

    for number in range(1, rounds + 1):
        with watched(directories) as renames:
            wait_for(partial(loaded, 3 * number), "the cleaner to end passes under load", SECONDS, state=lambda: passes)
        assert renames.seen > 0
        # Check all at the end; before that one in turn, because each check reads all of it.
        for partition in range(3) if number == rounds else [number % 3]:
            archive.wait_until_shipped(partition=partition)
            check_objects(archive, partition)
            check_union(archive, partition)
    assert all(offset > 0 for offset in cleaned_up_to(broker.log_dirs[0], topic).values())
    assert "died" not in text_of(agent)
    assert all(len(live_bases(directory)) > 1 or deleted_bases(directory) for directory in directories)


def merged_without_a_tail(directory: Path) -> bool:
    """Whether a live segment was merged and lost its last batches, and its sources are named `.deleted`."""
    live, deleted = live_bases(directory), deleted_bases(directory)
    for base, following in pairwise(live):
        if any(base < gone < following for gone in deleted):
            with suppress(FileNotFoundError):
                end = scan_bytes((directory / f"{base:020d}.log").read_bytes()).end_offset
                if end is None or end < following:
                    return True
    return False


@pytest.mark.parametrize("passes", [1, pytest.param(10, marks=pytest.mark.full)])
def test_u35_a_busy_cleaner_whose_files_are_kept_for_an_hour_stops_nothing(
    cluster: LocalCluster, archive_of: ArchiveOf, passes: int
) -> None:
    """An archive that begins on such a topic, and one whose agent restarts on it: the commit reaches the end."""
    topic = f"kept-{passes}"
    archive = archive_of(topic)
    config = {"segment.bytes": "8000", "max.compaction.lag.ms": "100", "file.delete.delay.ms": "3600000"}
    cluster.create_topic(topic, assignment=[[1]], config={**COMPACTED, **config})
    broker = cluster.brokers[1]
    directory = broker.partition_directory(topic, 0)
    produced, cleaned = 0, {-1: -1}

    def was_cleaned() -> bool:
        """Whether the cleaner has ended a pass since the last call; then there is a little more to clean."""
        nonlocal produced, cleaned
        now = cleaned_up_to(broker.log_dirs[0], topic)
        if now == cleaned:
            return False
        cleaned = now
        fill(cluster, topic, 200, start=produced, keys=3)
        produced += 200
        return True

    def one_pass() -> None:
        wait_for(was_cleaned, "the cleaner to end a pass", SECONDS)

    def reached(offset: int) -> bool:
        """Whether the commit has reached the end; the cleaner continues while the agent ships."""
        was_cleaned()
        return archive.next_offset() >= offset

    for _ in range(2):
        for _ in range(passes):
            one_pass()
        while not merged_without_a_tail(directory):
            one_pass()
            assert produced < 100_000
        agent = archive.agent()
        active = live_bases(directory)[-1]
        wait_for(partial(reached, active), f"the commit to reach {active}", 60, state=partial(agent.tail, 10))
        assert any(base < active for base in deleted_bases(directory))
        agent.kill()
    archive.agent()
    archive.wait_until_shipped()
    check_objects(archive)
    check_union(archive)
