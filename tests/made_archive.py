"""Archives that a test makes: a broker's closed segments, or batches that the test encodes."""

import io
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlparse

from awscrt.checksums import crc32c

from tests.common.log_format.build import batch, record
from ts_common.archive.commit import Commit, Live, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys, SegmentName
from ts_common.archive.restored import Ended, Restored, RestoredPartition, RestoredTopic
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import scan_segment
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_uploader.log_dirs.producer_snapshot import first_unstable_offset

CLUSTER = "prod"


class MadeArchive:
    """The objects of a cluster in one store, put there step by step.

    Args:
        location: of the store; a directory is created.
        entropy_bits: of its keys.
    """

    def __init__(self, location: str | Path, entropy_bits: int = 0, cluster: str = CLUSTER) -> None:
        if isinstance(location, Path):
            location.mkdir(parents=True, exist_ok=True)
        self.location = location.as_uri() if isinstance(location, Path) else location
        self.store: ObjectStore = open_store(self.location)
        self.keys = ClusterKeys(cluster, entropy_bits)
        self.directories: dict[str, str] = {}  # of topics that are put into a later incarnation

    def partition(self, topic: str, partition: int = 0) -> PartitionKeys:
        return self.keys.partition(TopicPartition(topic, partition), self.directories.get(topic))

    def put_segment(
        self,
        topic: str,
        base: int,
        log: bytes,
        *,
        partition: int = 0,
        end: int | None = None,
        body: bytes | None = None,
        index: bytes | None = None,
        timeindex: bytes | None = None,
        variant: bool = False,
        txnindex: bytes | None = None,
        late: bool = False,
    ) -> None:
        """Put a segment with the metadata of `log`; `body` is the object's real content.

        With `late` it was shipped when it may have lacked markers; `txnindex` is complete otherwise.
        """
        scan = scan_segment(BytesReader(log), len(log), None if timeindex is None else TimeIndex(base, timeindex))
        metadata = metadata_of(scan, base, "hand-made")
        if end is not None:
            metadata = SegmentMetadata(
                end,
                metadata.epochs,
                metadata.records,
                metadata.time_max,
                metadata.time_min,
                metadata.crc32c,
                corruptions=metadata.corruptions,
                control=metadata.control,
            )
        if late or txnindex is not None:
            state = TxnIndexState.LATE if late else TxnIndexState.COMPLETE
            metadata = replace(metadata, txnindex=(crc32c(txnindex or b""), state))
        name = SegmentName(base, scan.epochs[-1][0], scan.crc32c) if variant else SegmentName(base)
        keys = self.partition(topic, partition)
        if index is not None:
            self.store.put(keys.segment(name, ".index"), index)
        if timeindex is not None:
            self.store.put(keys.segment(name, ".timeindex"), timeindex)
        if txnindex is not None:
            self.store.put(keys.segment(name, ".txnindex"), txnindex)
        self.store.put(keys.segment(name), log if body is None else body, metadata=metadata.encode())

    def commit(
        self,
        topic: str,
        next_offset: int,
        *,
        partition: int = 0,
        epochs: Sequence[tuple[int, int]] = ((0, 0),),
        highest_base: int = 0,
        log_start: int | None = 0,
        last_stable_offset: int | None = None,
        epoch: int | None = None,
        live: Live | None = None,
    ) -> None:
        """Write `log.start`, then `offset.wm`; `epoch` is of a leader without records."""
        keys = self.partition(topic, partition)
        if log_start is not None:
            self.store.put(keys.log_start, encode_log_start(log_start))
        line = EpochHistory(tuple(epochs))
        leader = epochs[-1][0] if epoch is None else epoch
        commit = Commit(highest_base, next_offset, leader, line, last_stable_offset, None, 1, 0, "nonce", live=live)
        self.store.put(keys.commit, commit.encode())

    def age(self, seconds: float, *names: str) -> None:
        """Make objects of a directory older, by the ends of their names; without names, all of them."""
        for path in Path(urlparse(self.location).path).rglob("*"):
            if path.is_file() and path.name.endswith(names or ("",)):
                written = time.time() - seconds
                os.utime(path, (written, written))

    def put_incarnations(self, topic: str, *topic_ids: str) -> None:
        """Write the list of a topic's incarnations."""
        incarnations = Incarnations(topic)
        for number, topic_id in enumerate(topic_ids):
            incarnations = incarnations.opened(topic_id, number, self.keys)
        self.store.put(self.keys.incarnations(topic), incarnations.encode())

    def put_restored(
        self,
        former: ClusterKeys,
        end: int,
        *,
        topic: str = "t",
        directory: str | None = None,
        epochs: Sequence[tuple[int, int]] = ((0, 0),),
        ended: Sequence[Ended] = (),
        url: str | None = None,
    ) -> None:
        """Record that partition 0 of a topic was restored from another cluster of the store, up to an offset."""
        part = RestoredPartition(end, None, EpochHistory(tuple(epochs)), tuple(ended))
        found = RestoredTopic(url, former.cluster, former.entropy_bits, topic, {0: part})
        self.store.put(self.keys.restored, Restored(1, "ops", {directory or topic: found}).encode())

    def ship(self, directory: Path, txnindex: TxnIndexState = TxnIndexState.COMPLETE) -> int:
        """Put what the agent would ship of a broker's partition directory; return the next offset.

        Args:
            directory: of the partition.
            txnindex: the state of each `.txnindex` in the metadata.
        """
        found = TopicPartition.parse(directory.name)
        assert found is not None
        keys = self.keys.partition(found)
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        for base, following in pairwise(bases):
            name = SegmentName(base)
            for suffix in (".index", ".timeindex"):
                path = directory / f"{name.stem}{suffix}"
                self.store.put(keys.segment(name, suffix), path.read_bytes())
            log = (directory / f"{name.stem}.log").read_bytes()
            timeindex = TimeIndex(base, (directory / f"{name.stem}.timeindex").read_bytes())
            metadata = metadata_of(scan_segment(BytesReader(log), len(log), timeindex), base, directory.name)
            assert metadata.end == following
            path = directory / f"{name.stem}.txnindex"
            if path.exists():
                self.store.put(keys.segment(name, ".txnindex"), path.read_bytes())
                metadata = replace(metadata, txnindex=(crc32c(path.read_bytes()), txnindex))
            self.store.put(keys.segment(name), log, metadata=metadata.encode())
        snapshot = directory / f"{bases[-1]:020d}.snapshot"
        unstable = first_unstable_offset(snapshot.read_bytes()) if snapshot.exists() else None
        self.commit(
            found.topic,
            bases[-1],
            partition=found.partition,
            highest_base=bases[-2],
            last_stable_offset=bases[-1] if unstable is None else unstable,
        )
        return bases[-1]

    def ship_whole(self, directory: Path, last_stable_offset: int | None = None) -> None:
        """Put every segment of a broker's partition directory, the active one too, as if it were closed.

        Args:
            directory: of the partition.
            last_stable_offset: of the partition; None if no transaction is open.
        """
        found = TopicPartition.parse(directory.name)
        assert found is not None
        keys = self.keys.partition(found)
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        end = bases[-1]
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            name = SegmentName(base)
            log = (directory / f"{name.stem}.log").read_bytes()
            # The broker allocates the index of an active segment beforehand; the rest is zeros.
            timeindex = _without_zeros((directory / f"{name.stem}.timeindex").read_bytes(), 12)
            metadata = metadata_of(
                scan_segment(BytesReader(log), len(log), TimeIndex(base, timeindex)), base, name.stem
            )
            end = metadata.end if following is None else following
            metadata = replace(metadata, end=end)
            self.store.put(keys.segment(name, ".timeindex"), timeindex)
            path = directory / f"{name.stem}.txnindex"
            if path.exists():
                self.store.put(keys.segment(name, ".txnindex"), path.read_bytes())
                metadata = replace(metadata, txnindex=(crc32c(path.read_bytes()), TxnIndexState.COMPLETE))
            self.store.put(keys.segment(name), log, metadata=metadata.encode())
        _, _, *lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()
        epochs = [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]
        self.commit(
            found.topic,
            end,
            partition=found.partition,
            epochs=epochs or [(0, 0)],
            highest_base=bases[-1],
            log_start=bases[0],
            last_stable_offset=end if last_stable_offset is None else last_stable_offset,
        )

    def ship_as_java(self, directory: Path) -> int:
        """Put what a Java uploader ships: no metadata, no `.txnindex`, a commit of one line; return its end."""
        found = TopicPartition.parse(directory.name)
        assert found is not None
        keys = self.keys.partition(found)
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        for base in bases[:-1]:
            for suffix in (".log", ".index", ".timeindex"):
                path = directory / f"{base:020d}{suffix}"
                self.store.put(keys.segment(SegmentName(base), suffix), path.read_bytes())
        self.store.put(keys.commit, b"%020d" % bases[-2])
        return bases[-1]


def batches(*ranges: tuple[int, int], epoch: int = 0, value: bytes = b"v", time: int = 1000) -> bytes:
    """Return a segment of one batch for each `[start, end)`; the record at offset `o` has the timestamp `time + o`."""
    return b"".join(
        batch(
            start,
            [record(delta, b"%d" % (start + delta), value, timestamp_delta=delta) for delta in range(end - start)],
            epoch=epoch,
            base_timestamp=time + start,
            max_timestamp=time + end - 1,
        )
        for start, end in ranges
    )


def steps(start: int, end: int, step: int = 10) -> Iterable[tuple[int, int]]:
    """Return consecutive ranges of `step` offsets."""
    return [(low, min(low + step, end)) for low in range(start, end, step)]


def _without_zeros(data: bytes, size: int) -> bytes:
    """Return the entries of an index before those of zeros."""
    end = len(data.rstrip(b"\0"))
    return data[: end + -end % size]


class BytesReader:
    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readinto(self, buffer: memoryview, /) -> int:
        return self._data.readinto(buffer)
