"""Logs of packs that a test makes, put as an agent puts them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from awscrt.checksums import crc32c

from tests.made_archive import BytesReader, MadeArchive, batches, steps
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import pack_name
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_pack import HEAD_BYTES, PackHead, decode_block, decode_head, encode_pack
from ts_common.errors import ObjectNotFound
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore


class MadeTail:
    """The log of packs of one agent.

    Attributes:
        log: its name.
        number: of the newest pack; 0 without one.
        entries: those that the newest pack leads to.
        time: when the agent requested the high watermarks of the next pack, ms since the epoch.
    """

    def __init__(self, archive: MadeArchive, log: str = "1", time: int = 1) -> None:
        self._archive = archive
        self.log = log
        self.number = 0
        self.time = time
        self.entries: tuple[TailEntry, ...] = ()

    @property
    def newest(self) -> str:
        """The key of the newest pack."""
        return self.key(pack_name(self.number))

    def key(self, name: str) -> str:
        """Return the key of an object of the log."""
        return self._archive.keys.tail(self.log) + name

    def put(self, *made: tuple[TailEntry, bytes], before: str | None = None) -> None:
        """Put the next pack, with entries of its own after those of the log."""
        self.number += 1
        self._put(pack_name(self.number), self.entries, made, before)

    def merge(self, *, moves_index: bool = False) -> None:
        """Copy all entries into one object, which a pack without batches leads to; delete the former packs.

        Args:
            moves_index: whether the index is in the merged object, and the pack leads to it.
        """
        name = f"merged/{self.number}-1a2b3c4d"
        former = {entry.object for entry in self.entries}
        made = [(entry._replace(object=""), self.batches(entry)) for entry in self.entries]
        self._put(name, (), made, None)
        index, self.number = self.entries, self.number + 1
        self._put(pack_name(self.number), () if moves_index else index, (), name if moves_index else None)
        self.entries = index
        self._archive.store.delete([self.key(each) for each in former])

    def batches(self, entry: TailEntry) -> bytes:
        """Return the batches of an entry."""
        data = self._archive.store.get(self.key(entry.object))[0]
        return data[entry.position : entry.position + entry.length]

    def _put(
        self, name: str, others: Iterable[TailEntry], made: Iterable[tuple[TailEntry, bytes]], before: str | None
    ) -> None:
        own, position = [], 0
        for entry, body in made:
            own.append((entry._replace(position=position), body))
            position += len(body)
        head = PackHead(self.log, self.number, "nonce", self.time, before)
        data = encode_pack(head, (*others, *(entry for entry, _ in own)), [body for _, body in own])
        self._archive.store.put(self.key(name), data)
        self.entries = entries_of(data, name)


def entries_of(data: bytes, name: str) -> tuple[TailEntry, ...]:
    """Return the rows of an index."""
    head = decode_head(data[:HEAD_BYTES], name)
    found, position = list[TailEntry](), head.start
    for block in head.blocks:
        found += decode_block(data[position : position + block.length], head, block, name, name)
        position += block.length
    return tuple(found)


def entry(
    archive: MadeArchive,
    topic: str,
    start: int,
    batches: bytes,
    *,
    partition: int = 0,
    epoch: int = 0,
    stable: int | None = None,
    aborted: Iterable[tuple[int, int, int]] | None = (),
) -> tuple[TailEntry, bytes]:
    """Return an entry of a leadership of an epoch, and its batches; `stable` is its end by default."""
    metadata = metadata_of(scan_segment(BytesReader(batches), len(batches)), start, "hand-made")
    assert metadata.epochs is not None
    made = TailEntry(
        archive.partition(topic, partition).directory,
        epoch,
        start,
        metadata.end,
        "",
        0,
        len(batches),
        crc32c(batches),
        metadata.epochs,
        metadata.end if stable is None else stable,
        None if aborted is None else tuple(Aborted(*each) for each in aborted),
        metadata.records,
        metadata.time_max,
    )
    return made, batches


def live(*ahead: tuple[int, int], log: str = "1", former: Sequence[tuple[str, int]] = ()) -> Live:
    """Return what a commit has of its tail."""
    return Live(log, tuple(former), EpochHistory(tuple(ahead)))


def ship(archive: MadeArchive, end: int = 100, **commit: Any) -> None:
    """Ship one closed segment `[0, end)` of leader epoch 0, with a tail from there on."""
    archive.put_segment("t", 0, batches(*steps(0, end)))
    archive.commit("t", end, **{"live": live((0, end)), "last_stable_offset": end, **commit})


def plain(archive: MadeArchive, *ranges: tuple[int, int], epoch: int = 0, batch_epoch: int | None = None) -> Any:
    """Return an entry of plain records."""
    body = batches(*ranges, epoch=epoch if batch_epoch is None else batch_epoch)
    return entry(archive, "t", ranges[0][0], body, epoch=epoch)


class Recorded(WrappedStore):
    """A store that records its requests, and can lose an object before it is first opened."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.requests: list[str] = []
        self.lost: dict[str, bytes] = {}

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        self.requests.append(f"GET {key}")
        if self.lost.pop(key, None) is not None:
            raise ObjectNotFound(key)
        return self._inner.open(key, byte_range)

    def check(self) -> None:
        self.requests.append("HEAD bucket")
        self._inner.check()

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        self.requests.append(f"LIST {prefix} by directory")
        return self._inner.list_directories(prefix)

    def head(self, key: str) -> ObjectInfo:
        self.requests.append(f"HEAD {key}")
        return self._inner.head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self.requests.append(f"LIST {prefix}")
        return self._inner.list(prefix, start_after=start_after)
