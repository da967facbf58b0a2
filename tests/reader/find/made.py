"""Drawn archives with an index of keys: overlapping copies, dead tails, variants, repairs, retention, elections."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.common.log_format.build import batch, record
from tests.made_archive import BytesReader, MadeArchive
from tests.made_views import view_of
from ts_common.archive.commit import encode_log_start
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import scan_segment
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.building import Built, build, lacking
from ts_reader.find.lookup import read_runs
from ts_reader.find.runs import Run

END = 120
PARTITIONS = 3
KEYS = [b"k%d" % number for number in range(24)]
Salt = Callable[[int], int]


def keys_of(partition: int, partitioner: str) -> list[bytes]:
    """Return the keys that a partitioner puts into a partition."""
    if partitioner == "own":
        return KEYS
    return [key for key in KEYS if getattr(hashed(key), partitioner) % PARTITIONS == partition]


@dataclass
class Drawn:
    """An archive of topic `t` with three partitions, drawn from a seed."""

    archive: MadeArchive
    rnd: Random
    partitioner: str

    @classmethod
    def of(cls, directory: Path, seed: int) -> "Drawn":
        rnd = Random(seed)
        drawn = cls(MadeArchive(directory), rnd, rnd.choice(["murmur2", "crc32", "fnv1a", "own"]))
        for partition in range(PARTITIONS):
            drawn._write(partition)
        return drawn

    def _write(self, partition: int) -> None:
        """Leader 0 wrote all; an election lost what is above a cut, and leader 1 wrote other records there."""
        rnd, keys = self.rnd, keys_of(partition, self.partitioner)
        cut, compacts = rnd.randint(20, 60), rnd.random() < 0.5
        start = 0
        while start < cut + 20:
            end = start + rnd.randint(8, 30)
            self.put(partition, start, end, 0, keys, lambda _: 0, compacts)
            start = end
        start = rnd.randint(max(0, cut - 30), cut)
        while start < END:
            end = min(start + rnd.randint(8, 30), END)
            self.put(partition, start, end, 1, keys, lambda offset: 0 if offset < cut else 5, compacts, cut)
            start = end
        log_start = rnd.choice([0, 0, rnd.randint(0, 30)])
        self.archive.commit(
            "t", END, partition=partition, epochs=((0, 0), (1, cut)), highest_base=END - 1, log_start=log_start
        )

    def put(
        self,
        partition: int,
        start: int,
        end: int,
        epoch: int,
        keys: list[bytes],
        salt: Salt,
        compacts: bool,
        cut: int = 0,
    ) -> None:
        """Put a segment; now and then as the repair of another one, with damage, or without its metadata."""
        rnd, log, first = self.rnd, b"", start
        while first < end:
            stop = min(first + rnd.randint(1, 6), end)
            of_epoch = 0 if first < cut else epoch
            while stop > first + 1 and (0 if stop - 1 < cut else epoch) != of_epoch:
                stop -= 1
            offsets = [offset for offset in range(first, stop) if not (compacts and rnd.random() < 0.4)]
            records = [
                record(
                    offset - first, keys[(offset * 7 + salt(offset)) % len(keys)], b"v%d.%d" % (offset, salt(offset))
                )
                for offset in offsets
            ]
            if records:
                log += batch(first, records, epoch=of_epoch, last_offset_delta=stop - 1 - first)
            first = stop
        if not log:
            return
        metadata = replace(metadata_of(scan_segment(BytesReader(log), len(log), None), start, "drawn"), end=end)
        place = self.archive.partition("t", partition)
        name = SegmentName(start, epoch, metadata.crc32c) if epoch else SegmentName(start)
        names = [
            parsed[0]
            for info in self.archive.store.list(place.prefix)
            if (parsed := SegmentName.parse(info.key.removeprefix(place.prefix))) is not None
        ]
        if name in names:
            return
        if epoch and names and rnd.random() < 0.15:
            metadata = replace(metadata, replaces=rnd.choice(names).stem)
        fields = metadata.encode() if rnd.random() > 0.1 else {}  # a Java uploader writes none
        self.archive.store.put(place.segment(name), log, metadata=fields)

    def elect(self) -> None:
        """Let a later leader put the end of a partition again, under names of its own."""
        for partition in range(PARTITIONS):
            keys, place = keys_of(partition, self.partitioner), self.archive.partition("t", partition)
            last = max(
                parsed[0].base
                for info in self.archive.store.list(place.prefix)
                if (parsed := SegmentName.parse(info.key.removeprefix(place.prefix))) is not None
            )
            start = self.rnd.choice([max(last, 61), self.rnd.randint(61, 100)])
            for low, high in ((start, END), (END, END + 10)):
                self.put(partition, low, high, 2, keys, lambda _: 9, False, start)
            self.archive.commit(
                "t", END + 10, partition=partition, epochs=((0, 0), (1, 60), (2, start)), highest_base=END
            )

    def retain(self) -> None:
        """Let retention raise the starts, and remove the segments below."""
        for partition in range(PARTITIONS):
            view, start = self.views[partition], self.rnd.randint(30, 60)
            self.archive.store.put(view.keys.log_start, encode_log_start(max(start, view.start)))
            self.archive.store.delete([copy.key for copy in view.copies if copy.end <= start])

    @property
    def prefix(self) -> str:
        return self.archive.keys.find("t")

    @property
    def views(self) -> list[PartitionView]:
        return [view_of(self.archive, partition=number) for number in range(PARTITIONS)]

    def runs(self) -> list[Run]:
        return read_runs(self.archive.store, self.archive.keys, "t")

    def index(self, share: float = 0.7, most_share: float = 10.0) -> Built:
        """Add some of the segments that the index lacks; the least bound leaves certificates alone."""
        runs = self.runs()
        copies = [each for view in self.views for each in lacking(view, runs) if self.rnd.random() < share]
        return build(self.archive.store, self.prefix, copies, most_share=most_share)
