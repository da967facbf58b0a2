"""How erased records return if segments alone are rewritten; the list hides them each time."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.erased.canary import END, GONE, STAY, Canary, canary, log_of
from tests.made_archive import CLUSTER, BytesReader
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.log_format.batch_rewriting import without_records
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import IfAbsent
from ts_reader import Archive
from ts_reader.decode.compression import ReusedCodecs

FIRST, SECOND = SegmentName(0), SegmentName(100)


def rewritten(log: bytes, gone: Collection[int]) -> bytes:
    """Return a segment without some records."""
    position, found = 0, b""
    while position < len(log):
        header = parse_header(log, position, len(log) - position)
        assert isinstance(header, BatchHeader)
        deltas = {offset - header.base_offset for offset in gone}
        found += without_records(log[position : position + header.size_in_bytes], deltas, ReusedCodecs())
        position += header.size_in_bytes
    return found


def put_rewritten(person: Canary, name: SegmentName, gone: Collection[int] = GONE) -> SegmentName:
    """Put the rewritten copy of a segment as a variant that replaces it."""
    store, keys = person.archive.store, person.keys
    log, info = store.get(keys.segment(name))
    new, old = rewritten(log, gone), decode_metadata(info.metadata, "x")
    assert old is not None
    scan = scan_segment(BytesReader(new), len(new), None)
    metadata = replace(metadata_of(scan, name.base, "x"), end=old.end, epochs=old.epochs, replaces=name.stem)
    made = SegmentName(name.base, 0, scan.crc32c)
    store.put(keys.segment(made), new, metadata=metadata.encode(), condition=IfAbsent())
    return made


def delete(person: Canary, name: SegmentName) -> None:
    person.archive.store.delete([person.keys.segment(name)])


def both_rewritten(person: Canary) -> None:
    """Each copy is rewritten, and the originals are deleted."""
    for name in (FIRST, SECOND):
        put_rewritten(person, name)
        delete(person, name)


def another_leaders_copy(person: Canary) -> None:
    """The copy of another leader overlaps, and is not rewritten."""
    person.archive.put_segment("t", 40, log_of(person.person, 40, 140))
    put_rewritten(person, FIRST)
    delete(person, FIRST)


def chain(person: Canary) -> None:
    """X is damaged, R replaces X, E replaces R; R is deleted before X."""
    store, keys = person.archive.store, person.keys
    repaired = person.put_repair(store.get(keys.segment(FIRST))[0], FIRST)
    put_rewritten(person, repaired)
    delete(person, repaired)


def shipped_again_as_a_variant(person: Canary) -> None:
    """After a lossy election an agent ships it under a variant's name, and its dense copy has more records."""
    both_rewritten(person)
    person.archive.put_segment("t", 0, log_of(person.person, 0, 100), variant=True)


def damaged(person: Canary) -> None:
    """The rewritten copy is damaged, and the original is still in its grace."""
    made = put_rewritten(person, FIRST)
    store, key = person.archive.store, person.keys.segment(made)
    body, info = store.get(key)
    broken = bytearray(body)
    broken[250] ^= 1
    store.put(key, bytes(broken), metadata=dict(info.metadata))


WAYS = [another_leaders_copy, chain, shipped_again_as_a_variant]


def shown(person: Canary, mode: str = "FAILFAST") -> pa.Table:
    return pa.table(Archive(person.archive.location, CLUSTER).scan("t", mode=mode, include_headers=True))


@pytest.mark.parametrize("way", WAYS)
def test_the_list_hides_what_a_rewrite_alone_does_not(tmp_path: Path, way: Callable[[Canary], None]) -> None:
    """Without the list the person is back."""
    person = canary(tmp_path / "archive")
    way(person)
    assert GONE.intersection(shown(person)["offset"].to_pylist())
    person.erase()
    found = shown(person)
    assert found["offset"].to_pylist() == STAY
    assert person.person not in str(found.to_pylist()).encode()


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
def test_a_damaged_copy_leads_no_tolerant_reader_to_the_original(tmp_path: Path, mode: str) -> None:
    """It reads the original in the damaged copy's place, and the list counts there too."""
    person = canary(tmp_path / "archive")
    damaged(person)
    assert GONE.intersection(shown(person, mode)["offset"].to_pylist())
    person.erase()
    found = shown(person, mode)
    assert found["offset"].to_pylist() == STAY
    assert person.person not in str(found.to_pylist()).encode()


def test_a_rewritten_archive_is_read_whole(tmp_path: Path) -> None:
    """With and without the list: emptied batches and lower counts are no damage."""
    person = canary(tmp_path / "archive")
    both_rewritten(person)
    assert shown(person)["offset"].to_pylist() == STAY
    person.erase()
    assert shown(person)["offset"].to_pylist() == STAY
    assert len(STAY) + len(GONE) == END
