"""Logs of packs that a test makes, put as an agent puts them."""

from collections.abc import Iterable
from dataclasses import replace

from awscrt.checksums import crc32c

from tests.made_archive import BytesReader, MadeArchive
from ts_common.archive.object_keys import pack_name
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_pack import HEAD_BYTES, PackHead, decode_block, decode_head, encode_pack
from ts_common.log_format.scan import scan_segment


class MadeTail:
    """The log of packs of one agent.

    Attributes:
        log: its name.
        number: of the newest pack; 0 without one.
        entries: those that the newest pack leads to.
    """

    def __init__(self, archive: MadeArchive, log: str = "1") -> None:
        self._archive = archive
        self.log = log
        self.number = 0
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
        made = [(replace(entry, object=""), self.batches(entry)) for entry in self.entries]
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
        for entry, batches in made:
            own.append((replace(entry, position=position), batches))
            position += len(batches)
        head = PackHead(self.log, self.number, "nonce", 1, before)
        data = encode_pack(head, (*others, *(entry for entry, _ in own)), [batches for _, batches in own])
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
