"""An archive with records of one person, a random string, and a list that erases them."""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.common.log_format.build import batch, record
from tests.made_archive import BytesReader, MadeArchive
from ts_common.archive.catalog import read_log_start
from ts_common.archive.commit import new_writer
from ts_common.archive.erased_list import ErasedList, encode_erased_list, erased_key
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectStore
from ts_reader.decode.codecs import Codec
from ts_reader.decode.compression import compress

END = 200
# The first and the last offset of the view, those around a cut of segments, a whole batch, and single ones.
GONE = frozenset({0, 13, 14, 57, 99, 100, *range(110, 120), 199})
STAY = [offset for offset in range(END) if offset not in GONE]
OTHERS = 100_000  # other persons, each with one record
FEW = 4  # an index of keys has a file for each of 256 prefixes of hashes: with few other persons it has few files


@dataclass(frozen=True, slots=True)
class Canary:
    """An archive with a topic `t`.

    Attributes:
        person: the text in key, value and a header of each record of the person.
    """

    archive: MadeArchive
    person: bytes

    @property
    def keys(self) -> PartitionKeys:
        """The keys of the topic's only partition."""
        return self.archive.partition("t")

    def erase(self, gone: Iterable[int] = GONE, epoch: int = 0, number: int = 1) -> None:
        """Put a list by hand, and name it in `log.start`."""
        put_erased(self.archive.store, self.keys, ((offset, offset + 1, epoch) for offset in gone), number)

    def put_repair(self, log: bytes, replaces: SegmentName) -> SegmentName:
        """Put what a repair puts: the good bytes, under a variant's name, which is returned."""
        scan = scan_segment(BytesReader(log), len(log), None)
        name = SegmentName(replaces.base, 0, scan.crc32c)
        metadata = replace(metadata_of(scan, name.base, "x"), replaces=replaces.stem)
        self.archive.store.put(self.keys.segment(name), log, metadata=metadata.encode())
        return name


def put_erased(
    store: ObjectStore,
    keys: PartitionKeys,
    runs: Iterable[tuple[int, int, int]],
    number: int = 1,
    *,
    names: bool = True,
) -> None:
    """Put a list; with `names` also `log.start` with its number."""
    found = ErasedList(number, 1, ErasedOffsets.of(runs))
    store.put(erased_key(keys, number), encode_erased_list(keys, found))
    before = read_log_start(store, keys.log_start)
    if names and before is not None:
        start = replace(before.content, erased=number, written_by=new_writer("erase"))
        store.put(keys.log_start, start.encode())


def person_batch(
    base: int, person: bytes, gone: Collection[int], codec: Codec = Codec.NONE, epoch: int = 0, others: int = OTHERS
) -> bytes:
    """Return a batch of ten records, those of the person at some offsets; timestamps are 1000 and the offset."""
    records = []
    for at in range(10):
        name = person if base + at in gone else b"other-%05d" % ((base + at) % others)
        records.append(record(at, name, b"value of " + name, [(b"who", name)], timestamp_delta=at))
    body = b"".join(records)
    return batch(
        base,
        body=compress(codec, body) if codec else body,
        count=10,
        last_offset_delta=9,
        attributes=codec,
        epoch=epoch,
        base_timestamp=1000 + base,
        max_timestamp=1009 + base,
        producer_id=7,
        producer_epoch=1,
        sequence=base,
    )


def log_of(
    person: bytes,
    start: int,
    end: int,
    gone: Collection[int] = GONE,
    *,
    packed: bool = True,
    epoch: int = 0,
    others: int = OTHERS,
) -> bytes:
    """Return batches of ten records, of all codecs in turn."""
    codecs = [*Codec] if packed else [Codec.NONE]
    return b"".join(
        person_batch(base, person, gone, codecs[base // 10 % len(codecs)], epoch, others)
        for base in range(start, end, 10)
    )


def canary(location: str | Path | MadeArchive, *, packed: bool = True, others: int = OTHERS) -> Canary:
    """Return an archive of two segments with the offsets 0 to 199, without a list."""
    archive = location if isinstance(location, MadeArchive) else MadeArchive(location)
    person = b"person-" + secrets.token_hex(12).encode()
    for base in (0, 100):
        archive.put_segment("t", base, log_of(person, base, base + 100, packed=packed, others=others))
    archive.commit("t", END, highest_base=100)
    return Canary(archive, person)


def restored_canary(location: Path) -> Canary:
    """Return cluster `later`: it continues the canary's topic up to offset 220, and each directory has a list.

    The lists of both leave `STAY` below `END`, and all but 203 from there on.
    """
    former = canary(location)
    former.erase()
    later = MadeArchive(location, cluster="later")
    later.put_segment("t", END, log_of(former.person, END, 220, {203}))
    later.commit("t", 220, highest_base=END, log_start=END)
    later.put_restored(former.archive.keys, END)
    put_erased(later.store, later.partition("t"), [(5, 6, 9), (203, 204, 0)])
    return Canary(later, former.person)
