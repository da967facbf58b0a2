"""Parses and encodes the text files that a broker keeps next to its segments.

Formats: Kafka's `CheckpointFile` (a version, a count, that many lines), `OffsetCheckpointFile`,
`LeaderEpochCheckpointFile` and `PartitionMetadataFile`. The broker replaces each by a rename, so a file that does not
parse is damaged, and nothing of it is used.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ts_common.errors import CorruptData
from ts_common.json_objects import MAX_INT32, MAX_INT64
from ts_common.wording import counted

_SUPPORTED_VERSION: Final = "0"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_ZERO_TOPIC_ID: Final = "A" * 22
_METADATA_LINES: Final = 2


def parse_offset_checkpoint(data: bytes) -> dict[tuple[str, int], int]:
    """Return offsets by (topic, partition), from a `replication-offset-checkpoint` or a file of that format.

    Raises:
        CorruptData: the file does not parse, or names a partition twice.
    """
    offsets: dict[tuple[str, int], int] = {}
    for line, fields in _entries("offset checkpoint", data, 3):
        topic, partition = sys.intern(fields[0]), _number("offset checkpoint", line, fields[1])
        if (topic, partition) in offsets:
            raise CorruptData(f"offset checkpoint: {topic}-{partition} has two entries")
        offsets[topic, partition] = _number("offset checkpoint", line, fields[2])
    return offsets


def parse_changed_offsets(
    data: bytes, before: bytes, offsets: Mapping[tuple[str, int], int]
) -> tuple[dict[tuple[str, int], int], frozenset[tuple[str, int]]]:
    """Return the offsets of a file of offsets, and the entries that changed; parses only the lines that did.

    Args:
        data: of the file.
        before: of another one.
        offsets: in that.

    Raises:
        CorruptData: as `parse_offset_checkpoint`.
    """
    added, removed = (
        parse_offset_checkpoint(b"0\n%d\n%s" % (len(some), b"".join(line + b"\n" for line in some)))
        for some in _differing(data.split(b"\n"), before.split(b"\n"))
    )
    now = {entry: offset for entry, offset in offsets.items() if entry not in removed} | added
    if data.startswith(b"0\n%d\n" % len(now)) and data.endswith(b"\n") and data.count(b"\n") == len(now) + 2:
        return now, frozenset(added.keys() | removed.keys())
    now = parse_offset_checkpoint(data)  # a line is damaged, or of an unusual form
    return now, frozenset(entry for entry, _ in now.items() ^ offsets.items())


def _differing(lines: Sequence[bytes], old: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the entries that only one of two files has. A broker mostly writes them in the same order."""
    if len(lines) == len(old):
        pairs = [pair for pair in zip(lines, old, strict=True) if pair[0] != pair[1]]
        new, gone = {line for line, _ in pairs}, {line for _, line in pairs}
    else:
        new, gone = set(lines), set(old)
    return [line for line in new - gone if b" " in line], [line for line in gone - new if b" " in line]


def parse_leader_epoch_checkpoint(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return pairs (leader epoch, start offset), ascending, from a `leader-epoch-checkpoint`.

    Raises:
        CorruptData: the file does not parse, or epochs or start offsets do not ascend.
    """
    name = "leader epoch checkpoint"
    epochs = tuple(
        (_number(name, line, epoch, MAX_INT32), _number(name, line, start))
        for line, (epoch, start) in _entries(name, data, 2)
    )
    for (epoch, start), (next_epoch, next_start) in pairwise(epochs):
        if next_epoch <= epoch or next_start < start:
            raise CorruptData(f"{name}: ({next_epoch}, {next_start}) follows ({epoch}, {start})")
    return epochs


def parse_partition_metadata(data: bytes) -> str | None:
    """Return the topic id of a `partition.metadata`, 22 characters of URL-safe base64; None for the zero id.

    Raises:
        CorruptData: the file does not parse.
    """
    lines = _text("partition metadata", data).splitlines()
    fields = [tuple(part.strip() for part in line.split(":", 1)) for line in lines]
    if len(fields) != _METADATA_LINES or fields[0] != ("version", _SUPPORTED_VERSION):
        raise CorruptData(f"partition metadata: {lines[:3]!r}, 'version: 0' and 'topic_id: ...' expected")
    if len(fields[1]) != 2 or fields[1][0] != "topic_id" or not _TOPIC_ID.fullmatch(fields[1][1]):
        raise CorruptData(f"partition metadata: {lines[1]!r}, 'topic_id: ' and 22 characters of base64 expected")
    return None if fields[1][1] == _ZERO_TOPIC_ID else fields[1][1]


def encode_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return the content of a checkpoint of offsets by (topic, partition)."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return _encoded(lines)


def encode_leader_epoch_checkpoint(epochs: Sequence[tuple[int, int]]) -> bytes:
    """Return the content of a `leader-epoch-checkpoint` with pairs (leader epoch, start offset), ascending."""
    return _encoded([f"{epoch} {start}" for epoch, start in epochs])


def _encoded(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_SUPPORTED_VERSION, len(lines), *lines)).encode()


def _entries(name: str, data: bytes, width: int) -> Iterator[tuple[str, list[str]]]:
    """Yield (line, its fields) of each entry of a checkpoint file; one at a time, as there may be ten thousand."""
    *lines, rest = _text(name, data).split("\n")
    if rest:
        raise CorruptData(f"{name}: ends in the middle of the line {rest!r}")
    if len(lines) < 2:
        raise CorruptData(f"{name}: {counted(len(lines), 'line')}, a version and a count expected")
    if lines[0] != _SUPPORTED_VERSION:
        raise CorruptData(f"{name}: version {lines[0]!r}, {_SUPPORTED_VERSION!r} expected")
    count = _number(name, lines[1], lines[1])
    if count != len(lines) - 2:
        raise CorruptData(f"{name}: {counted(len(lines) - 2, 'entry')}, {count} expected by its count")
    for line in lines[2:]:
        fields = line.split()
        if len(fields) != width:
            raise CorruptData(f"{name}: {line!r}, {width} fields expected")
        yield line, fields


def _number(name: str, line: str, field: str, most: int = MAX_INT64) -> int:
    number = int(field) if _NUMBER.fullmatch(field) else -1
    if not 0 <= number <= most:
        raise CorruptData(f"{name}: {line!r}, where {field!r} is no number from 0 to {most}")
    return number


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptData(f"{name}: not UTF-8 at byte {error.start}") from error
