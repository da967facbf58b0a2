"""What a stream of Spark has read, by its checkpoint.

::

    <checkpoint>/offsets/17   v1                                      where batch 17 ends
                              {"batchWatermarkMs":0,...}
                              {"clicks":{"0":23},"~topicIds":...}     a line for each source, `-` without an offset
    <checkpoint>/commits/17   v1                                      batch 17 is complete
                              {"nextBatchWatermarkMs":0}

The source of the format is Spark's `OffsetSeqLog` and `CommitLog` (`HDFSMetadataLog`): the names are batch numbers, and
Spark keeps the newest hundred. A batch without a commit runs again, so what is needed begins where the last complete
batch ends. Each line is what a source returned: ours has the form of `ts_reader.following.offset`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound, StoreUnavailable
from ts_common.json_objects import parse_json
from ts_common.store.contract import ObjectStore
from ts_reader.following.offset import StreamOffset, decode_offset

_OFFSETS: Final = "offsets/"
_COMMITS: Final = "commits/"
_METADATA: Final = "metadata"
_VERSION: Final = b"v1"
_NOTHING: Final = b"-"  # of a source without an offset
_BATCH: Final = re.compile(r"0|[1-9][0-9]{0,18}")  # other names are of writes under way and of checksums
_LARGEST: Final = 64 << 20  # an offset of a hundred thousand partitions has a few megabytes
_ATTEMPTS: Final = 3
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a stream has read.

    Attributes:
        batch: the last complete one; None before the first.
        offsets: where it ends, of each source whose offset has our form; at least one if there is a batch.
        time: milliseconds since the epoch, by the clock of its store: when that batch was complete, or else when the
            checkpoint was last written.
    """

    batch: int | None
    offsets: tuple[StreamOffset, ...]
    time: int


def read_checkpoint(store: ObjectStore) -> Checkpoint | None:
    """Return what a stream has read; None if the store has no checkpoint.

    Args:
        store: whose location is the checkpoint's.

    Raises:
        CorruptData: the offsets of the last complete batch are missing, damaged, or of other sources.
        NewerFormat: a release of Spark wrote them that this release cannot read.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for _ in range(_ATTEMPTS):
        commits, offsets = _batches(store, _COMMITS), _batches(store, _OFFSETS)
        if not commits:
            times = [*offsets.values(), *(info.modified for info in store.list(_METADATA) if info.key == _METADATA)]
            return Checkpoint(None, (), int(max(times) * _MILLISECONDS)) if times else None
        batch = max(commits)
        key = f"{_OFFSETS}{batch}"
        if batch not in offsets:
            raise CorruptData(
                f"{store.location}: {_COMMITS}{batch} exists and {key} does not, so what the stream has read is unknown"
            )
        try:
            data, _ = get_small(store, key, _LARGEST)
        except ObjectNotFound:
            continue  # the stream removed it since it was listed, a hundred batches later
        return Checkpoint(batch, _decode(data, f"{store.location}: {key}"), int(commits[batch] * _MILLISECONDS))
    raise StoreUnavailable(
        f"{store.location}: the stream removed its offsets {_ATTEMPTS} times during a read; try again"
    )


def _batches(store: ObjectStore, prefix: str) -> dict[int, float]:
    """Return the batches of a log, each with the seconds since the epoch of its last write."""
    found = {info.key.removeprefix(prefix): info.modified for info in store.list(prefix)}
    return {int(name): modified for name, modified in found.items() if _BATCH.fullmatch(name)}


def _decode(data: bytes, what: str) -> tuple[StreamOffset, ...]:
    version, *lines = data.split(b"\n")
    if not re.fullmatch(rb"v[0-9]{1,9}", version) or not lines:
        raise CorruptData(f"{what} has no offsets of Spark")
    if version != _VERSION:
        raise NewerFormat(f"{what} has version {version.decode()}, and this release reads {_VERSION.decode()}")
    found = tuple(_ours(lines[1:], what))
    if not found:
        raise CorruptData(f"{what} has no offset of a source that reads this archive")
    return found


def _ours(lines: list[bytes], what: str) -> Iterator[StreamOffset]:
    """Yield the offsets that have our form, as those of Spark's own Kafka source have too."""
    for line in lines:
        if line in {b"", _NOTHING}:
            continue
        fields = parse_json(line, what, _LARGEST)
        if isinstance(fields, dict):
            try:
                yield decode_offset(fields)
            except ValueError:
                continue
