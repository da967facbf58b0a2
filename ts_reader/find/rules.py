"""What an index proves of a copy: the offsets that can have a key. No request, no file.

The index is a cache. A copy that no entry has as it is now is read: the answer can have too much, never too little.
Windows are the union over all copies of an offset, because the planner can choose any of them, and later another one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.wording import counted
from ts_reader.decode.hashed_key import HashedKey

PARTS: Final = 256  # of a segment's offsets
WHOLE: Final = -1  # in place of a part: the key is in many
MOST_LISTED: Final = 8  # of one key in one segment; with more, reading the whole segment costs less

Identity = tuple[str, str, int, str]
Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Evidence of the partitioner of a segment's keys.

    Each number is the greatest N for which the hash of each key, modulo N, is that of the partition's number. So it is
    a multiple of the number of partitions that a producer with this hash had. 1 proves nothing; 0 proves that the
    hash of each key is the number itself.
    """

    murmur2: int
    crc32: int
    fnv1a: int

    def allows(self, partition: int, key: HashedKey) -> bool:
        """Return whether the segment of a partition can have a key."""
        proven = ((self.murmur2, key.murmur2), (self.crc32, key.crc32), (self.fnv1a, key.fnv1a))
        return all(number == partition if of == 0 else (number - partition) % of == 0 for of, number in proven)


@dataclass(frozen=True, slots=True)
class Entry:
    """What an index has of one object.

    Attributes:
        row: its number in its run.
        base: first offset of its coverage.
        end: the offset after the last.
        parts: the number of parts of its offsets that the index names; 0 if it has only the certificate.
    """

    row: int
    base: int
    end: int
    parts: int
    certificate: Certificate

    def window(self, part: int) -> Window:
        """Return the offsets of a part, or of all of them.

        An offset is in the part `(offset - base) * parts // (end - base)`.
        """
        if part == WHOLE:
            return self.base, self.end
        length = self.end - self.base
        return self.base - (-length * part // self.parts), self.base - (-length * (part + 1) // self.parts)


def identity_of(copy: SegmentCopy) -> Identity | None:
    """Return what identifies a stored object; None for an entry of a tail, or without a listing."""
    if copy.packed is not None or copy.segment.etag is None:
        return None
    return copy.keys.directory, copy.segment.name.stem, copy.segment.size, copy.segment.etag


def is_indexable(copy: SegmentCopy) -> bool:
    """Return whether an index can have a copy: its agent scanned all of it, and found no damage.

    The metadata of other segments, of a Java uploader for example, does not bind their records to their coverage.
    """
    metadata = copy.metadata
    is_scanned = metadata.records is not None and not metadata.corruptions and not metadata.rebuilt
    return is_scanned and identity_of(copy) is not None


def entry_of(copy: SegmentCopy, entries: Mapping[Identity, Entry]) -> Entry | None:
    """Return the entry of a copy as it is now; None if the index does not have it so."""
    identity = identity_of(copy)
    entry = None if identity is None or not is_indexable(copy) else entries.get(identity)
    return entry if entry is not None and (entry.base, entry.end) == (copy.base, copy.end) else None


def window_of(copy: SegmentCopy) -> Window:
    """Return the offsets to read of a copy that no index covers: all."""
    return copy.base, copy.end


def allowed(partition: int, entry: Entry, keys: Iterable[HashedKey]) -> frozenset[HashedKey]:
    """Return the keys that a segment of a partition can have, by its certificate."""
    return frozenset(key for key in keys if entry.certificate.allows(partition, key))


def windows_of(entry: Entry, found: Iterable[int] | None) -> Iterator[Window]:
    """Yield the offsets of an object that can have wanted keys.

    Args:
        found: the parts that the index has of the keys that the certificate allows, of none if it has none of them;
            None if that is unknown: all offsets.
    """
    parts = (WHOLE,) if found is None else found
    yield from (entry.window(part) for part in parts)


def obeys(entry: Entry, number: int, erased: ErasedOffsets, greatest: int) -> bool:
    """Return whether an entry has no key of a record that the list of its directory hides.

    Args:
        number: of the list that its run obeys.
        erased: the offsets of the greatest list.
        greatest: number of that list.
    """
    return number >= greatest or not erased.meets(entry.base, entry.end)


@dataclass(frozen=True, slots=True)
class Found:
    """What the indexes cover of the views of a query.

    Attributes:
        indexed: the number of segments that an index covers.
        excluded: the number of these that certificates alone leave out.
        unindexed: the number of segments that no index covers, which are read.
        unindexed_bytes: of these.
        runs: the number of runs that were read.
    """

    indexed: int = 0
    excluded: int = 0
    unindexed: int = 0
    unindexed_bytes: int = 0
    runs: int = 0

    def __str__(self) -> str:
        text = f"an index covers {counted(self.indexed, 'segment')}; certificates leave out {self.excluded:,} of them"
        if not self.unindexed:
            return text
        return (
            f"{text}; {counted(self.unindexed, 'segment')} without an index ({self.unindexed_bytes:,} bytes) are read"
        )


def together(found: Sequence[Found]) -> Found | None:
    """Return what the indexes of several stores cover; None without any."""
    if not found:
        return None
    return Found(*(sum(getattr(each, field.name) for each in found) for field in fields(Found)))
