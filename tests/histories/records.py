"""The content of a log: batches, what compaction leaves of them, their bytes, and their transactions.

A `Batch` is a leader's append: its identity is the object itself, and replicas of one log share it. `Held` is what one
replica's files have of a batch. The bytes of every `Held` differ, so a `Codec` decodes a reader's bytes by lookup:
bytes that no replica ever wrote are an error.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from awscrt.checksums import crc32c

from tests.common.log_format import build

NO_PRODUCER = -1
NO_EPOCH = -1


class Kind(Enum):
    """The kind of a batch: records, or one marker that ends a transaction."""

    DATA = 2
    COMMIT = 1
    ABORT = 0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One append of a leader.

    Attributes:
        base: first offset.
        numbers: one for each record, unique in a history; a marker has one, too.
        epoch: leader epoch; -1 for magic 1.
        producer: id of a transactional producer; -1 for none.
        kind: records, or a marker.
        first: for a marker, first offset of the transaction that it ends; -1 if that has no record.
    """

    base: int
    numbers: tuple[int, ...]
    epoch: int
    producer: int = NO_PRODUCER
    kind: Kind = Kind.DATA
    first: int = -1

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.base + len(self.numbers)


@dataclass(frozen=True, slots=True)
class Held:
    """What compaction left of a batch: some offsets; no offset if Kafka keeps the batch for its producer."""

    batch: Batch
    kept: tuple[int, ...]

    @staticmethod
    def whole(batch: Batch) -> "Held":
        """Return a batch that the cleaner has not changed."""
        return Held(batch, tuple(range(batch.base, batch.end)))


class Codec:
    """Encodes what replicas have of one topic, and decodes it."""

    def __init__(self, magic: int) -> None:
        self.magic = magic
        self.closed: set[tuple[Held, ...]] = set()  # the content of every closed segment so far
        self._bytes: dict[Held, bytes] = {}
        self._held: dict[bytes, Held] = {}

    def encode(self, held: Held) -> bytes:
        """Return the batch as a broker writes it."""
        data = self._bytes.get(held)
        if data is None:
            data = self._bytes[held] = self._encode(held)
            self._held[data] = held
        return data

    def decode(self, data: bytes) -> list[Held]:
        """Return the batches of a segment, in order.

        Raises:
            AssertionError: it has bytes that no replica wrote.
        """
        found, position = [], 0
        while position < len(data):
            size = 12 + struct.unpack_from(">i", data, position + 8)[0]
            piece = data[position : position + size]
            assert piece in self._held, f"a reader finds bytes that no broker wrote: {piece[:80]!r}"
            found.append(self._held[piece])
            position += size
        return found

    def _encode(self, held: Held) -> bytes:
        batch = held.batch
        if self.magic < 2:
            (number,) = batch.numbers
            return build.message(self.magic, batch.base, b"%d" % number)
        if batch.kind is not Kind.DATA:
            return build.marker(batch.base, batch.producer, batch.kind.value, batch.epoch)
        return build.batch(
            batch.base,
            [build.record(at - batch.base, value=b"%d" % batch.numbers[at - batch.base]) for at in held.kept],
            last_offset_delta=len(batch.numbers) - 1,
            epoch=batch.epoch,
            attributes=build.TRANSACTIONAL if batch.producer >= 0 else 0,
            producer_id=batch.producer,
        )


# The batch of each offset of a log from 0 on; a batch of three records is listed three times.
History = list[Batch]


def batches(history: Sequence[Batch], end: int | None = None) -> Iterator[Batch]:
    """Return the batches of a history that begin below an offset, in order."""
    position, end = 0, len(history) if end is None else end
    while position < end:
        yield history[position]
        position = history[position].end


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a history below an offset.

    Attributes:
        open: first offset by producer of those without a marker.
        ended: (producer, first offset, marker) of those with one.
    """

    open: dict[int, int]
    ended: tuple[tuple[int, int, Batch], ...]

    def last_stable_offset(self, end: int) -> int:
        """Return Kafka's last stable offset, for a log that ends at `end`."""
        return min([*self.open.values(), end])


def transactions(history: Sequence[Batch], end: int | None = None) -> Transactions:
    """Return the transactions of a history below an offset."""
    begun: dict[int, int] = {}
    ended = []
    for batch in batches(history, end):
        if batch.producer < 0:
            continue
        if batch.kind is Kind.DATA:
            begun.setdefault(batch.producer, batch.base)
        elif batch.producer in begun:
            ended.append((batch.producer, begun.pop(batch.producer), batch))
    return Transactions(begun, tuple(ended))


_TXN_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


def transaction_index(held: Sequence[Held], history: Sequence[Batch]) -> bytes:
    """Return the `.txnindex` of a segment: an entry for each abort marker in it."""
    entries = []
    for one in held:
        marker = one.batch
        if marker.kind is Kind.ABORT and marker.first >= 0:
            stable = transactions(history, marker.end).last_stable_offset(marker.end)
            entries.append(_TXN_ENTRY.pack(0, marker.producer, marker.first, marker.base, stable))
    return b"".join(entries)


def producer_snapshot(history: Sequence[Batch], end: int) -> bytes:
    """Return a broker's `<end>.snapshot`: first offsets of the open transactions."""
    producers = {batch.producer for batch in batches(history, end) if batch.producer >= 0}
    begun = transactions(history, end).open
    body = struct.pack(">i", len(producers)) + b"".join(
        _SNAPSHOT_ENTRY.pack(producer, 0, 0, end - 1, 0, 1000, 0, begun.get(producer, -1)) for producer in producers
    )
    return struct.pack(">hI", 1, crc32c(body)) + body
