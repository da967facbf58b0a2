r"""Packs: the objects of a live tail (tail rule 3). Each has whole batches of many partitions, and an index.

::

    tail/<log>/packs/<12 hex>, tail/<log>/merged/<n>-<nonce>
        "TSPK" 01                            magic, version
        uint32, uint32                       length and CRC-32C of the header
        {"log":"1","n":7,"nonce":"5f0c1d2e","time":1,"before":null,"blocks":[["t-0",100,61,300,1234567],...]}
        ...                                  the blocks of the index
        ...                                  the batches

All numbers are little-endian. The header names each block by the directory and first offset of its first row; then its
length, the length that it unpacks to, and its CRC-32C. A block is compressed by zlib: a uint32 with the length of a
JSON text, that text, and int64 columns, whose first bytes are first, then their second ones, and so on::

    {"rows":2,"pairs":2,"aborted":0,"directories":["t-0"],"objects":["","packs/fffffffffff9"]}
    directory, epoch    of each row: a number of `directories`; of the leadership
    skipped, offsets    offsets between the row before of the same directory and this one, or its first offset; its own
    object, apart       a number of `objects`; bytes between the row before of the same object and this one
    length, crc32c      of the batches
    unstable            offsets from the last stable one to the end
    compacted           offsets without a record; -1 if the number of records is unknown
    later               the greatest timestamp, less that of the last row that has one; the least number without one
    epochs, aborted     numbers of pairs and triples; -1 if transactions are not named
    ...                 the pairs of all rows: epoch, first offset less the row's; the triples of all rows

Rows ascend by directory and offset. In `objects`, "" is the object itself; the positions of its rows are those from its
first batch on, which follows its last block. Positions in other objects are absolute, so no reader needs their headers.
So a row of a busy log needs some ten bytes: most differences are 0.
An index has at most `INDEX_BYTES`: if it needs more, `before` names an object of the log whose index continues it.

The agent has neither NumPy nor a compiled compression.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter, sub
from typing import Any, Final, NamedTuple

from awscrt.checksums import crc32c

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.object_keys import is_tail_object
from ts_common.archive.packed import column_bytes, column_of, unpack_exactly
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.errors import CorruptData
from ts_common.format_version import check_version
from ts_common.json_objects import (
    MAX_INT32,
    MAX_INT64,
    MAX_UINT32,
    MIN_INT64,
    decoding,
    parse_json,
    rows,
    shown,
    text,
    whole_number,
)

HEADER_BYTES: Final = 64 << 10
INDEX_BYTES: Final = 256 << 10
BLOCK_BYTES: Final = 512 << 10  # unpacked; its pairs need nine times as much memory
MAX_BLOCK_ROWS: Final = 2048
MAX_BLOCKS: Final = 16  # equal rows need next to nothing, and each is an object in a reader's memory
MOST_ABORTED: Final = 32  # of an entry: with more it names none, and readers find them by the markers in its batches
_MAGIC: Final = b"TSPK\x01"
_PREFIX: Final = len(_MAGIC) + 8
HEAD_BYTES: Final = _PREFIX + HEADER_BYTES + INDEX_BYTES  # the header and the index are within these
_MOST_POSITION: Final = 5 << 40  # S3 has no larger object, and no file system a file of 2^63 bytes
_ABSENT: Final = MIN_INT64
_COLUMNS: Final = (
    *("directory", "epoch", "skipped", "offsets", "object", "apart", "length"),
    *("crc32c", "unstable", "compacted", "later", "epochs", "aborted"),
)
_WIDTH: Final = 8
_LEVEL: Final = 3  # of zlib: some 5 % more bytes than by its default, in 40 % of the time
_EXPECTED: Final = "a pack"


class Block(NamedTuple):
    """A block of an index.

    Attributes:
        directory: of its first row.
        start: first offset of that row.
        length: in bytes.
        size: that it unpacks to.
        crc32c: of its bytes.
    """

    directory: str
    start: int
    length: int
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class PackHead:
    """The header of a pack.

    Attributes:
        log: name of the log.
        number: of the pack; of a merged object, of the newest pack when it was made.
        nonce: random text, so that no two have equal bytes.
        time: when the agent requested the high watermarks, ms since the epoch by its clock.
        before: name of the object below the log whose index continues this one; None if the log has no more entries.
        blocks: of the index, ascending.
        start: position of the first block.
    """

    log: str
    number: int
    nonce: str
    time: int
    before: str | None = None
    blocks: tuple[Block, ...] = ()
    start: int = 0

    @property
    def data_start(self) -> int:
        """Position of the first batch."""
        return self.start + sum(block.length for block in self.blocks)

    def positions(self) -> Iterator[tuple[int, Block]]:
        """Yield each block with its position."""
        yield from zip(
            accumulate((block.length for block in self.blocks), initial=self.start), self.blocks, strict=False
        )

    def blocks_of(self, directory: str) -> Iterator[tuple[int, Block]]:
        """Yield the blocks that can have rows of a directory, each with its position."""
        followers = [*(block.directory for block in self.blocks[1:]), None]
        for (position, block), following in zip(self.positions(), followers, strict=False):
            if block.directory <= directory and (following is None or directory <= following):
                yield position, block


def encode_pack(head: PackHead, entries: Iterable[TailEntry], batches: Sequence[bytes]) -> bytes:
    """Return the bytes of a pack.

    Args:
        head: without blocks.
        entries: of the index; those without an object are in this one, at a position from its first batch on.
        batches: of this object.

    Raises:
        CorruptData: header or index are larger than readers accept.
    """
    ordered = sorted(entries, key=attrgetter("directory", "start", "end", "epoch"))
    blocks, bodies = list[Block](), list[bytes]()
    for part, content in _parts(ordered):
        body = zlib.compress(content, _LEVEL)
        blocks.append(Block(part[0].directory, part[0].start, len(body), len(content), crc32c(body)))
        bodies.append(body)
    fields = {"log": head.log, "n": head.number, "nonce": head.nonce, "time": head.time, "before": head.before}
    header = json.dumps({**fields, "blocks": blocks}, separators=(",", ":")).encode()
    is_large = len(blocks) > MAX_BLOCKS or any(block.size > BLOCK_BYTES for block in blocks)
    if is_large or len(header) > HEADER_BYTES or sum(map(len, bodies)) > INDEX_BYTES:
        raise CorruptData(f"pack {head.number} of log {head.log}: {len(ordered)} entries need more than readers accept")
    prefix = _MAGIC + len(header).to_bytes(4, "little") + crc32c(header).to_bytes(4, "little")
    return b"".join([prefix, header, *bodies, *batches])


def decode_head(data: bytes, key: str) -> PackHead:
    """Parse the header of a pack.

    Args:
        data: the object's first bytes: `HEAD_BYTES`, or fewer if it has fewer.
        key: its key, for messages.

    Raises:
        CorruptData: it is damaged.
        NewerFormat: a later release wrote it.
    """
    with decoding(key, _EXPECTED, data):
        if data[:4] != _MAGIC[:4] or len(data) < _PREFIX:
            raise ValueError("it does not begin as one")
        check_version({"version": data[4]}, key)
        length = int.from_bytes(data[5:9], "little")
        header = data[_PREFIX : _PREFIX + min(length, HEADER_BYTES)]
        if len(header) != length or crc32c(header) != int.from_bytes(data[9:13], "little"):
            raise ValueError(f"its header has not the {length} bytes that it names")
        fields = parse_json(header, key, HEADER_BYTES)
        if not isinstance(fields, dict):
            raise ValueError("its header is not an object")  # noqa: TRY004  (the data is wrong)
        blocks = tuple([_block(each) for each in rows(fields["blocks"])[: MAX_BLOCKS + 1]])
        if len(blocks) > MAX_BLOCKS or sum(block.length for block in blocks) > INDEX_BYTES:
            raise ValueError("its index is too large")
        if list(blocks) != sorted(blocks, key=lambda block: block[:2]):
            raise ValueError("its index does not ascend")
        return PackHead(
            text(fields["log"]),
            whole_number(fields["n"]),
            text(fields["nonce"]),
            whole_number(fields["time"]),
            None if fields["before"] is None else _name(fields["before"]),
            blocks,
            _PREFIX + length,
        )


def _name(value: object) -> str:
    """Return the name of an object; another name would lead out of the log, or no store would accept it."""
    if not is_tail_object(name := text(value)):
        raise ValueError(f"{shown(name)} is no object of a log")
    return name


def _block(value: object) -> Block:
    directory, start, length, size, crc = rows(value)
    return Block(
        text(directory),
        whole_number(start),
        whole_number(length, 1, INDEX_BYTES),
        whole_number(size, 4, BLOCK_BYTES),
        whole_number(crc, 0, MAX_UINT32),
    )


def decode_block(data: bytes, head: PackHead, block: Block, name: str, key: str) -> tuple[TailEntry, ...]:
    """Parse a block of an index.

    Args:
        data: the block's bytes.
        name: of the object below its log.
        key: its key, for messages.

    Raises:
        CorruptData: it is damaged.
    """
    with decoding(key, "a block of an index"):
        if len(data) != block.length or crc32c(data) != block.crc32c:
            raise ValueError("its CRC-32C is not the one that the header names")
        content = unpack_exactly(data, block.size)
        at = 4 + int.from_bytes(content[:4], "little")
        named = parse_json(content[4:at], key, BLOCK_BYTES)
        if not isinstance(named, dict) or at > len(content):
            raise ValueError("it has no names")
        count = whole_number(named["rows"], 1, MAX_BLOCK_ROWS)
        pairs, aborted = whole_number(named["pairs"]), whole_number(named["aborted"])
        numbers = len(_COLUMNS) * count + 2 * pairs + 3 * aborted
        if len(content) - at != numbers * _WIDTH:
            raise ValueError(f"it has not the {numbers} numbers of its rows")
        values = column_of("q", _joined(content[at:]))
        columns = {column: values[at * count : (at + 1) * count] for at, column in enumerate(_COLUMNS)}
        rest = values[len(_COLUMNS) * count :]
        found = tuple(_rows(named, columns, rest[: 2 * pairs], rest[2 * pairs :], (name, head.data_start)))
        if (found[0].directory, found[0].start) != block[:2]:
            raise ValueError("its first row is not the one that the header names")
        return found


def _rows(
    named: Mapping[str, Any],
    columns: Mapping[str, Sequence[int]],
    pairs: Sequence[int],
    aborted: Sequence[int],
    own: tuple[str, int],
) -> Iterator[TailEntry]:
    """Yield the rows of a block; each number is bounded."""
    directories = [text(each) for each in rows(named["directories"])]
    objects = [own if each == "" else (_name(each), 0) for each in rows(named["objects"])]
    starts = _absolute(columns["directory"], columns["skipped"], columns["offsets"])
    positions = _absolute(columns["object"], columns["apart"], columns["length"], _MOST_POSITION)
    pair = triple = time = 0
    for row in zip(starts, positions, *(columns[name] for name in _COLUMNS), strict=True):
        start, position, directory, epoch, _, offsets, place, _, length, crc, unstable, lacking, later, *counts = row
        end = start + offsets
        name, first = objects[whole_number(place)]
        epoch_count, ended_count = whole_number(counts[0]), max(whole_number(counts[1], -1), 0)
        own_pairs = pairs[2 * pair : 2 * (pair + epoch_count)]
        own_ended = aborted[3 * triple : 3 * (triple + ended_count)]
        if len(own_pairs) != 2 * epoch_count or len(own_ended) != 3 * ended_count:
            raise ValueError("it has fewer epochs or transactions than its rows have")
        pair, triple = pair + epoch_count, triple + ended_count
        if later != _ABSENT:
            time = whole_number(time + later, MIN_INT64 + 1)
        yield TailEntry(
            directories[whole_number(directory)],
            whole_number(epoch, 0, MAX_INT32),
            start,
            end,
            name,
            first + position,
            length,
            whole_number(crc, 0, MAX_UINT32),
            _epochs(own_pairs, start, end),
            end - whole_number(unstable, 0, end),
            None if counts[1] < 0 else tuple(_aborted(own_ended, end)),
            None if lacking < 0 else offsets - whole_number(lacking, 0, offsets),
            None if later == _ABSENT else time,
        )


def _absolute(groups: Sequence[int], gaps: Sequence[int], sizes: Sequence[int], most: int = MAX_INT64) -> Iterator[int]:
    """Yield where each row begins: the gap behind the row before of its group, or behind 0; `most` is the last end."""
    ends: dict[int, int] = {}
    for group, gap, size in zip(groups, gaps, sizes, strict=True):
        start = whole_number(ends.get(group, 0) + gap)
        ends[group] = whole_number(start + whole_number(size, 1), most=most)
        yield start


def _gaps(groups: Sequence[int], starts: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the gaps for `_absolute`."""
    ends, gaps = [0] * len(groups), list[int]()
    for group, start, size in zip(groups, starts, sizes, strict=True):
        gaps.append(start - ends[group])
        ends[group] = start + size
    return gaps


def _divided(data: bytes) -> bytes:
    """Return the first bytes of all numbers, then their second ones, and so on: most of them are equal."""
    return b"".join(data[at::_WIDTH] for at in range(_WIDTH))


def _joined(data: bytes) -> bytes:
    """Return the numbers that `_divided` has divided."""
    found, count = bytearray(len(data)), len(data) // _WIDTH
    for at in range(_WIDTH):
        found[at::_WIDTH] = data[at * count : (at + 1) * count]
    return bytes(found)


def _epochs(flat: Sequence[int], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the epochs of a row, whose offsets ascend."""
    pairs = tuple((epoch, start + first) for epoch, first in zip(flat[::2], flat[1::2], strict=True))
    for (epoch, first), (_, following) in zip(pairs, (*pairs[1:], (0, end)), strict=False):
        whole_number(epoch, NO_EPOCH, MAX_INT32)
        whole_number(first, start, following - 1)
    return pairs


def _aborted(flat: Sequence[int], end: int) -> Iterator[Aborted]:
    for producer, first, last in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        yield Aborted(producer, whole_number(first, 0, whole_number(last, 0, end - 1)), last)


def unpacked_bytes(entry: TailEntry) -> int:
    """Return the bytes of an entry in a block that is not compressed, without its names."""
    return (len(_COLUMNS) + 2 * len(entry.epochs) + 3 * len(entry.aborted or ())) * _WIDTH


def _parts(entries: Sequence[TailEntry]) -> Iterator[tuple[Sequence[TailEntry], bytes]]:
    """Yield the entries of each block, and its content: fewer rows where they have many epochs, or long names."""
    begin = 0
    while begin < len(entries):
        part = entries[begin : begin + MAX_BLOCK_ROWS]
        while len(content := _encoded(part)) > BLOCK_BYTES and len(part) > 1:
            part = part[: max(1, len(part) * BLOCK_BYTES // len(content))]
        yield part, content
        begin += len(part)


def _encoded(entries: Sequence[TailEntry]) -> bytes:
    """Return the content of a block."""
    names, epochs, starts, ends, objects, positions, lengths, crcs, pairs_of, stables, aborted_of, records, times = zip(
        *entries, strict=True
    )
    directories, places = _numbers(names), _numbers(objects)
    directory_of, place_of = [*map(directories.__getitem__, names)], [*map(places.__getitem__, objects)]
    pairs = list[int]()
    for start, some in zip(starts, pairs_of, strict=True):
        for epoch, first in some:
            pairs += epoch, first - start
    aborted = [number for some in aborted_of if some for each in some for number in each]
    offsets = [*map(sub, ends, starts)]
    columns: Iterable[Sequence[int]] = (
        directory_of,
        epochs,
        _gaps(directory_of, starts, offsets),
        offsets,
        place_of,
        _gaps(place_of, positions, lengths),
        lengths,
        crcs,
        [*map(sub, ends, stables)],
        [-1 if count is None else size - count for size, count in zip(offsets, records, strict=True)],
        _later(times),
        [*map(len, pairs_of)],
        [-1 if some is None else len(some) for some in aborted_of],
        pairs,
        aborted,
    )
    named = {
        "rows": len(entries),
        "pairs": len(pairs) // 2,
        "aborted": len(aborted) // 3,
        "directories": list(directories),
        "objects": list(places),
    }
    header = json.dumps(named, separators=(",", ":")).encode()
    numbers = _divided(b"".join(column_bytes("q", column) for column in columns))
    return len(header).to_bytes(4, "little") + header + numbers


def _numbers(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each name, by its first use."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _later(times: Iterable[int | None]) -> list[int]:
    """Return the differences of timestamps."""
    before, later = 0, []
    for time in times:
        if time is None:
            later.append(_ABSENT)
        else:
            later.append(time - before)
            before = time
    return later
