"""A broker's files after a fault, and the archive's content, record by record."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import cast

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import Record, wait_for
from dev.local.oracle import OracleRecord
from dev.local.process import Server
from tests.archive import record_of
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import fetch
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound
from ts_common.log_format.index_files import AbortedTransaction, read_transaction_index
from ts_common.log_format.scan import Readable, SegmentScan, scan_segment
from ts_common.model import TopicPartition
from ts_reader.decode.arrow import projection_of, to_arrow
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_reader.decode.segment_decoder import SegmentDecoder

SECONDS = 90.0  # timeout of every wait; the machine may be busy


def records(count: int, *, start: int = 0, size: int = 200, keys: int = 0) -> list[Record]:
    """Return incompressible records with `keys` different keys in turn, or a key for each."""
    return [
        Record(b"%07d" % n + Random(n).randbytes(size), key=b"k%d" % (n % keys if keys else n))
        for n in range(start, start + count)
    ]


@contextmanager
def paused(*servers: Server) -> Iterator[None]:
    """Pause servers inside the block."""
    for server in servers:
        server.pause()
    try:
        yield
    finally:
        for server in servers:
            server.resume()


def live_bases(directory: Path) -> list[int]:
    """Return the base offsets of the live `.log` files; the last is the active segment."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def deleted_bases(directory: Path) -> list[int]:
    """Return the base offsets of the `.log.deleted` files."""
    return sorted(int(path.name.partition(".")[0]) for path in directory.glob("*.log.deleted"))


def closed_files(directory: Path) -> dict[str, str]:
    """Return a hash of each closed segment's `.log`; the cleaner may remove one meanwhile."""
    hashes = {}
    for base in live_bases(directory)[:-1]:
        with suppress(FileNotFoundError):
            path = directory / f"{base:020d}.log"
            hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def text_of(agent: AgentProcess) -> str:
    """Return the whole log of an agent."""
    return agent.log.read_text(errors="replace")


def wait_until_said(agent: AgentProcess, *parts: str) -> str:
    """Wait until one line of an agent's log contains all of `parts`; return that line."""

    def said() -> str:
        return next((line for line in text_of(agent).splitlines() if all(part in line for part in parts)), "")

    return wait_for(said, f"the agent to say {parts}", SECONDS, state=lambda: agent.tail(10))


def sample(agent: AgentProcess, name: str, archive: Archive, partition: int = 0) -> float | None:
    """Return a sample of a partition; None while the agent does not lead it."""
    return agent.metrics().get(f'ts_uploader_partition_{name}{{partition="{partition}",topic="{archive.topic}"}}')


def wait_for_backlog(agent: AgentProcess, archive: Archive, segments: int, partition: int = 0) -> None:
    """Wait until the agent has listed `segments` unshipped closed segments."""
    wait_for(
        lambda: (sample(agent, "unshipped_segments", archive, partition) or 0) >= segments,
        f"{segments} segments to wait",
        SECONDS,
        state=agent.metrics,
    )


def newest_keys(archive: Archive, partition: int = 0) -> PartitionKeys:
    """Return the keys of a partition in the topic's newest incarnation."""
    incarnations, _ = read_incarnations(archive.store, archive.keys, archive.topic)
    return archive.keys.partition(TopicPartition(archive.topic, partition), incarnations.newest_directory)


def view_of(archive: Archive, partition: int = 0) -> PartitionView:
    """Return a partition as readers see it now."""
    return open_view(archive.store, read_catalog(archive.store, newest_keys(archive, partition)))


def gaps_of(archive: Archive, partition: int = 0) -> list[tuple[int, int]]:
    """Return the recorded gaps of a partition, one for each record."""
    prefix = newest_keys(archive, partition).prefix + "gaps/"
    found = (parse_gap_name(info.key.removeprefix(prefix)) for info in archive.store.list(prefix))
    return sorted(gap for gap in found if gap is not None)


@dataclass(frozen=True)
class Seen:
    """A partition as readers see it."""

    records: list[OracleRecord]
    holes: list[Hole]
    start: int
    end: int


def look(archive: Archive, partition: int = 0) -> Seen:
    """Read every record of the view, each offset once, from the union of its copies; and the holes."""
    view = view_of(archive, partition)
    found: list[OracleRecord] = []
    holes: list[Hole] = []
    for step in view.plan(view.start, view.end):
        if isinstance(step, Hole):
            holes.append(step)
            continue
        union: dict[int, OracleRecord] = {}
        for copy in step.copies:
            for record in decode(archive, copy, step.start, step.end):
                assert union.setdefault(record.offset, record) == record, f"{copy.key}: two records for one offset"
        found += [union[offset] for offset in sorted(union)]
    return Seen(found, holes, view.start, view.end)


def decode(archive: Archive, copy: SegmentCopy, start: int, end: int) -> list[OracleRecord]:
    """Return the records of one copy in `[start, end)`."""
    decoder = SegmentDecoder(projection_of(COLUMNS_WITH_HEADERS), start, end, size=copy.segment.size)
    topic, number = copy.keys.partition.topic, copy.keys.partition.partition
    return [
        record_of(row)
        for columns in decoder.decode(fetch(archive.store, copy.key))
        for row in to_arrow(columns, topic, number, COLUMNS_WITH_HEADERS).to_pylist()
    ]


@dataclass(frozen=True)
class Shipped:
    """One `.log` object with its `.txnindex`."""

    copy: SegmentCopy
    data: bytes
    scan: SegmentScan
    txnindex: bytes | None

    @property
    def metadata(self) -> SegmentMetadata:
        """The metadata of the object."""
        return self.copy.metadata

    @property
    def aborted(self) -> Sequence[AbortedTransaction]:
        """The entries of the `.txnindex`."""
        return read_transaction_index(self.txnindex or b"")


def shipped_segments(archive: Archive, partition: int = 0) -> list[Shipped]:
    """Read and scan every segment of the view."""
    found = []
    for copy in view_of(archive, partition).copies:
        data, txnindex = archive.store.get(copy.key)[0], None
        with suppress(ObjectNotFound):
            txnindex = archive.store.get(copy.key.removesuffix(LOG_SUFFIX) + ".txnindex")[0]
        found.append(Shipped(copy, data, scan_bytes(data), txnindex))
    return found


def scan_bytes(data: bytes) -> SegmentScan:
    """Scan the bytes of a segment."""
    return scan_segment(cast("Readable", BytesIO(data)), len(data))
