"""Archives of real agents beside a real cluster: one without fault, and one broken on purpose, in each way once."""

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.faults.leaders import move_leader
from tests.tsctl.browser import open_page, without_scripts
from tests.tsctl.test_report import bars, part_of
from tests.uploader.beside import BUCKET, SMALL_FETCHES, Archive, archives
from ts_common.catalog import StoredSegment, read_catalog
from ts_common.log_format.framing import LENGTH_END, LENGTH_POSITION, BatchHeader, batch_field_position, parse_header
from ts_common.log_format.scan import scan_segment
from ts_common.object_keys import SegmentName
from ts_common.probe import metadata_of
from ts_common.store.contract import ObjectStore
from ts_local.cluster import LocalCluster, Record, wait_for
from tsctl.segment_check import Depth, Filling

SMALL = {"segment.bytes": "20000"}
EPOCH = batch_field_position("leader_epoch")
SECONDS = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two brokers, an S3 server, a cleaner that does not wait."""
    properties = {**SMALL_FETCHES, "log.cleaner.backoff.ms": "500", "zookeeper.session.timeout.ms": "2000"}
    with LocalCluster(brokers=2, s3=True, buckets=[BUCKET], properties=properties, name="verify") as running:
        yield running


@dataclass
class Told:
    """What `tsctl verify --json` said.

    Attributes:
        code: how it ended.
        findings: as they stand in the document.
        document: all of it.
    """

    code: int
    findings: list[dict[str, object]]
    document: dict[str, object]

    def worse(self) -> list[tuple[str, str]]:
        """(code, where) of each finding worse than information."""
        return sorted((str(f["code"]), str(f["where"])) for f in self.findings if f["severity"] != "information")


def tsctl(archive: Archive, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("tsctl")), *arguments]
    config = archive._directory / "conf" / f"{archive.keys.cluster}.properties"
    environment = {"PATH": "/usr/bin:/bin", **archive.s3.environment()}
    return subprocess.run(
        [*command, "--config", str(config)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=SECONDS,
    )


def verify(archive: Archive, depth: Depth, *arguments: str) -> Told:
    done = tsctl(archive, "verify", "--json", "--depth", depth.value, "--in-flight-hours", "0", *arguments)
    assert done.returncode in {0, 1}, done.stderr
    document = json.loads(done.stdout)
    return Told(done.returncode, document["findings"], document)


def records(count: int, start: int = 0) -> list[Record]:
    return [Record(b"%06d" % n + bytes(150), key=b"k%d" % (n % 7)) for n in range(start, start + count)]


def stored(archive: Archive, partition: int) -> tuple[StoredSegment, ...]:
    return read_catalog(archive.store, archive.partition_keys(partition)).segments


@pytest.fixture(scope="module")
def broken(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """Seven partitions that an agent shipped; six of them were broken since, each in its own way."""
    with archives(cluster, tmp_path_factory.mktemp("broken")) as archive_of:
        archive = archive_of("broken")
        cluster.create_topic("broken", assignment=[[1]] * 7, config=SMALL)
        for partition in range(7):
            cluster.produce("broken", records(700), partition=partition, config={"batch.size": 4000})
        agent = archive.agent()
        for partition in range(7):
            archive.wait_until_shipped(partition=partition)
        agent.stop()
        assert verify(archive, Depth.FULL).findings == []
        make_hole(archive, 0)
        make_overlap(archive, 1)
        make_orphan(archive, 2)
        remove_index(archive, 3)
        make_dead_tail(archive, 4)
        flip_a_bit(archive, 5)
        yield archive


def make_hole(archive: Archive, partition: int) -> None:
    """A clean-up job took the four objects of a segment."""
    keys, name = archive.partition_keys(partition), stored(archive, partition)[2].name
    archive.store.delete(keys.segment(name, suffix) for suffix in (".log", ".index", ".timeindex"))


def make_overlap(archive: Archive, partition: int) -> None:
    """Another leader rolled in the middle of a segment."""
    segments, keys = stored(archive, partition), archive.partition_keys(partition)
    log = archive.store.get(keys.segment(segments[1].name))[0]
    second = next(header.base_offset for header in headers(log) if header.base_offset > segments[1].name.base)
    put_copy(archive.store, archive, partition, SegmentName(second), log[position_of(log, second) :])


def make_orphan(archive: Archive, partition: int) -> None:
    """A segment far above the run."""
    keys, segments = archive.partition_keys(partition), stored(archive, partition)
    log = bytearray(archive.store.get(keys.segment(segments[0].name))[0])
    for position, header in positions(bytes(log)):  # base offset and epoch are in no batch's CRC
        struct.pack_into(">q", log, position, header.base_offset + 900_000)
    put_copy(archive.store, archive, partition, SegmentName(segments[0].name.base + 900_000), bytes(log))


def remove_index(archive: Archive, partition: int) -> None:
    keys, name = archive.partition_keys(partition), stored(archive, partition)[1].name
    archive.store.delete([keys.segment(name, ".timeindex")])


def make_dead_tail(archive: Archive, partition: int) -> None:
    """What a leader of a reign that lost left: a copy whose batches from the second on are of another epoch."""
    keys, segments = archive.partition_keys(partition), stored(archive, partition)
    log = bytearray(archive.store.get(keys.segment(segments[1].name))[0])
    for position, _ in list(positions(bytes(log)))[1:]:
        struct.pack_into(">i", log, position + EPOCH, 77)
    scan = scan_segment(Filling(reader(bytes(log))), len(log))
    put_copy(archive.store, archive, partition, SegmentName(segments[1].name.base, 77, scan.crc32c), bytes(log))


def flip_a_bit(archive: Archive, partition: int) -> None:
    keys, name = archive.partition_keys(partition), stored(archive, partition)[1].name
    data, info = archive.store.get(keys.segment(name))
    place = len(data) // 3
    changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
    archive.store.put(keys.segment(name), changed, metadata=archive.store.head(info.key).metadata)


def put_copy(store: ObjectStore, archive: Archive, partition: int, name: SegmentName, log: bytes) -> None:
    keys = archive.partition_keys(partition)
    metadata = metadata_of(scan_segment(Filling(reader(log)), len(log)), name.base, "copy")
    for suffix in (".index", ".timeindex"):
        store.put(keys.segment(name, suffix), b"")
    store.put(keys.segment(name), log, metadata=replace(metadata, rebuilt=False).encode())


def reader(data: bytes) -> "Reading":
    return Reading(data)


class Reading:
    """Bytes as a function reads them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __call__(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece


def positions(log: bytes) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position < len(log):
        header = parse_header(log, position, len(log) - position)
        assert isinstance(header, BatchHeader)
        yield position, header
        position += LENGTH_END + int.from_bytes(log[position + LENGTH_POSITION : position + LENGTH_END], "big")


def headers(log: bytes) -> list[BatchHeader]:
    return [header for _, header in positions(log)]


def position_of(log: bytes, base: int) -> int:
    return next(position for position, header in positions(log) if header.base_offset == base)


EXPECTED = {
    ("hole", "broken-0"),
    ("orphan-segment", "broken-2"),
    ("index-missing", "broken-3"),
    ("overlap", "broken-1"),
    ("dead-tail", "broken-4"),
}


@pytest.mark.parametrize("depth", list(Depth))
def test_what_was_broken_is_named_and_nothing_else(broken: Archive, depth: Depth) -> None:
    """A hole, an overlap, an orphan, a missing index, a dead tail, a flipped bit: one finding each, none elsewhere."""
    told = verify(broken, depth)
    found = {(finding["code"], finding["where"]) for finding in told.findings}
    expected = set(EXPECTED)
    if depth is Depth.FULL:  # a bit among records
        expected |= {("segment-damaged", "broken-5"), ("overlap", "broken-4")}
    elif depth is Depth.HEADERS:
        expected |= {("overlap", "broken-4")}
    else:  # names alone do not say that a copy is dead, or that a hole is none of compaction's
        found -= {("hole", "broken-0"), ("overlap", "broken-1"), ("overlap", "broken-4"), ("dead-tail", "broken-4")}
        expected = {("orphan-segment", "broken-2"), ("index-missing", "broken-3")}
    assert found == expected
    assert told.code == 1


def test_a_finding_names_key_and_offsets(broken: Archive) -> None:
    """The hole is the segment that is gone; the cluster says that it still holds it."""
    told = verify(broken, Depth.HEADERS, "--bootstrap-server", broken.cluster.bootstrap)
    (hole,) = [finding for finding in told.findings if finding["code"] == "hole"]
    segments = stored(broken, 0)
    assert hole["to"] == segments[2].name.base
    assert isinstance(hole["from"], int)
    assert segments[1].name.base < hole["from"] < segments[2].name.base
    assert "the cluster still holds" in str(hole["detail"])
    assert hole["severity"] == "data-loss"


def test_the_severity_that_fails_is_chosen(broken: Archive) -> None:
    """A partition that has an overlap only is fine, unless information is asked to fail."""
    assert verify(broken, Depth.HEADERS, "broken", "--partition", "1").code == 0
    assert verify(broken, Depth.HEADERS, "broken", "--partition", "1", "--fail-on", "information").code == 1


def test_the_table_says_what_to_do(broken: Archive) -> None:
    """For people: a row for each finding, and a sentence for each kind."""
    done = tsctl(broken, "verify", "--in-flight-hours", "0")
    assert done.returncode == 1
    assert "data-loss" in done.stdout
    assert "hole: Offsets below the next offset" in done.stdout
    assert "7 partitions" in done.stdout
    assert tsctl(broken, "verify", "nothing-of-that-name").returncode == 2
    assert tsctl(broken, "verify", "--fail-on", "bad").returncode == 2


def test_the_report_shows_what_was_broken(broken: Archive, tmp_path: Path) -> None:
    """Written in one step, opened in a browser: a row for each finding, the hole in red, the dead tail in grey."""
    page = tmp_path / "report.html"
    page.write_text("what was here before")
    arguments = ["--depth", "full", "--in-flight-hours", "0", "--output", str(page)]
    assert tsctl(broken, "report", *arguments).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    document = without_scripts(open_page(page, tmp_path / "profile"))
    assert sorted(re.findall('data-code="([^"]*)"', document)) == sorted(
        ["hole", "overlap", "overlap", "orphan-segment", "index-missing", "dead-tail", "segment-damaged"]
    )
    map_of_offsets = part_of(document, "offsets-0")
    assert bars(map_of_offsets, "rgb(208, 0, 0)") == 1
    assert bars(map_of_offsets, "rgb(138, 138, 138)") == 1
    assert 'class="verdict data-loss"' in document
    nowhere = tsctl(broken, "report", "--output", str(tmp_path / "no" / "x.html"))
    assert nowhere.returncode == 2
    assert "no directory" in nowhere.stderr


@pytest.mark.full
def test_an_undamaged_archive_has_no_fault(cluster: LocalCluster, tmp_path: Path) -> None:
    """Compaction, transactions, leader changes, lives of a topic, every codec: nothing worse than information."""
    with archives(cluster, tmp_path) as archive_of:
        archive = archive_of("(codecs|compacted|moved|again|decided)", cluster_id="whole")
        cluster.create_topic("codecs", assignment=[[1]], config=SMALL)
        cluster.create_topic("decided", assignment=[[2]], config=SMALL)
        cluster.create_topic("again", assignment=[[1]], config=SMALL)
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL}
        cluster.create_topic("compacted", assignment=[[1]], config=compact)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            noise = [Record(bytes(range(256)) + b"%d" % n, key=b"%d" % n) for n in range(400)]
            cluster.produce("codecs", noise, partition=0, config={"compression.type": codec})
        cluster.produce("compacted", records(1500), partition=0, config={"enable.idempotence": "false"})
        cluster.produce("again", records(400), partition=0)
        cluster.create_topic("moved", assignment=[[1, 2]], config=SMALL)
        transact(cluster, "decided")
        for broker in (1, 2):
            archive.agent(broker)
        wait_for(lambda: reached(archive, "again") > 0, "the first life to be shipped", SECONDS)
        assert cluster.zookeeper is not None
        client = KazooClient(hosts=cluster.zookeeper.connect)
        client.start()
        for leader in (2, 1, 2):
            cluster.produce("moved", records(300), partition=0)
            move_leader(client, "moved", leader, 3 - leader)
        cluster.produce("moved", records(300), partition=0)
        client.stop()
        client.close()
        cluster.delete_topic("again")
        cluster.create_topic("again", assignment=[[1]], config=SMALL)
        cluster.produce("again", records(700, 7000), partition=0)
        directory = cluster.brokers[1].partition_directory("compacted", 0)
        wait_for(
            lambda: sum(path.stat().st_size for path in directory.glob("*.log")) < 100_000,
            "the cleaner to come",
            SECONDS,
        )
        for topic, broker in (("codecs", 1), ("decided", 2), ("compacted", 1), ("again", 1), ("moved", 2)):
            active = max(int(p.stem) for p in cluster.brokers[broker].partition_directory(topic, 0).glob("*.log"))
            wait_for(lambda topic=topic, active=active: reached(archive, topic) >= active, f"{topic} shipped", SECONDS)  # type: ignore[misc]
        for depth in Depth:
            told = verify(archive, depth, "--bootstrap-server", cluster.bootstrap)
            assert told.worse() == []
            assert told.code == 0
        partitions = told.document["partitions"]
        assert isinstance(partitions, list)
        assert len(partitions) == 6  # one of them a life that is over


def reached(archive: Archive, topic: str) -> int:
    """The next offset of partition 0 in the newest life."""
    told = tsctl(archive, "ls", topic, "--json")
    if told.returncode:
        return 0
    partitions = json.loads(told.stdout)["topics"][0]["partitions"]
    return max((partition["next_offset"] or 0 for partition in partitions), default=0)


def transact(cluster: LocalCluster, topic: str) -> None:
    producer = cluster.producer({"transactional.id": topic})
    producer.init_transactions(SECONDS)
    for number in range(6):
        producer.begin_transaction()
        for record in records(60):
            producer.produce(topic, record.value, record.key, partition=0)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
