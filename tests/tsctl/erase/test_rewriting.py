"""A stored segment without its erased records: what stays, and what is hidden only."""

import hashlib
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.common.log_format.build import (
    TRANSACTIONAL,
    batch,
    marker,
    message,
    record,
)
from tests.erased.canary import log_of
from tests.made_archive import BytesReader, MadeArchive
from tests.made_indexes import timeindex_of
from tests.matrix import examples
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.metadata_check import metadata_differences
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.errors import BatchTooLarge, ObjectNotFound
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.log_format.index_files import AbortedTransaction, TimeIndex, read_offset_index
from ts_common.log_format.limits import BatchLimit
from ts_common.log_format.scan import scan_segment
from ts_reader.decode.codecs import Codec
from ts_reader.decode.compression import compress
from ts_reader.decode.segment_decoder import SegmentDecoder
from tsctl.erase.rewriting import HiddenOnly, rewritten

PERSON = b"PERSON"
GONE = {0, 13, 14, 57, *range(60, 70), 99}


def listed(*offsets: int, epoch: int = 0) -> ErasedOffsets:
    return ErasedOffsets.of((offset, offset + 1, epoch) for offset in offsets)


def copy_of(made: MadeArchive, base: int = 0) -> SegmentCopy:
    keys = made.partition("t")
    catalog = read_snapshot(made.store, keys)
    (copy,) = [each for each in describe(made.store, keys, catalog.segments) if each.base == base]
    return copy


def stored(tmp_path: Path, log: bytes, base: int = 0, **given: object) -> tuple[MadeArchive, SegmentCopy]:
    made = MadeArchive(tmp_path / "bucket")
    made.put_segment("t", base, log, **given)  # type: ignore[arg-type]
    return made, copy_of(made, base)


def rewrite(
    made: MadeArchive, copy: SegmentCopy, erased: ErasedOffsets
) -> tuple[bytes, SegmentMetadata, dict[str, bytes], tuple[int, int]] | None:
    """Return bytes, metadata, indexes, and the numbers of erased records and of their batches."""
    with rewritten(made.store, copy, erased) as found:
        if found is None:
            return None
        found.file.seek(0)
        data = found.file.read()
        old, _ = made.store.get(copy.key)
        assert (found.before, found.after) == (hashlib.sha256(old).hexdigest(), hashlib.sha256(data).hexdigest())
        assert found.size == len(data)
        assert found.etag == made.store.head(copy.key).etag
        return data, found.metadata, dict(found.indexes), (found.records, found.batches)


def headers(log: bytes) -> list[BatchHeader]:
    found, position = [], 0
    while position < len(log):
        header = parse_header(log, position, len(log) - position)
        assert isinstance(header, BatchHeader)
        found.append(header)
        position += header.size_in_bytes
    return found


def offsets(log: bytes) -> list[int]:
    return [each for columns in SegmentDecoder().decode([log]) for each in columns.offsets.tolist()]


def text(log: bytes) -> bytes:
    """Return all keys and values."""
    found = b""
    for columns in SegmentDecoder().decode([log]):
        assert columns.keys is not None
        assert columns.values is not None
        found += columns.keys.data.tobytes() + columns.values.data.tobytes()
    return found


def test_all_codecs_are_rewritten_and_nothing_else_changes(tmp_path: Path) -> None:
    """Batches keep their offsets, producers and codecs; metadata and indexes are those of the new bytes."""
    log = log_of(PERSON, 0, 100, GONE)
    made, copy = stored(tmp_path, log, timeindex=timeindex_of(log))
    found = rewrite(made, copy, listed(*GONE))
    assert found is not None
    new, metadata, indexes, counts = found
    assert offsets(new) == [offset for offset in range(100) if offset not in GONE]
    assert PERSON not in text(new)
    assert counts == (15, 5)
    for before, after in zip(headers(log), headers(new), strict=True):
        emptied = after.record_count == 0
        assert before.codec == after.codec or emptied
        names = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
        assert [getattr(before, name) for name in names] == [getattr(after, name) for name in names]
    times = TimeIndex(0, indexes[".timeindex"])
    scan = scan_segment(BytesReader(new), len(new), times)
    assert metadata_differences(scan, metadata, indexes) == []
    assert (metadata.crc32c, metadata.timeindex) == (scan.crc32c, scan.timeindex_crc32c)
    assert metadata.timeindex is not None
    assert (metadata.end, metadata.epochs, metadata.records) == (100, copy.metadata.epochs, 85)
    assert metadata.replaces == SegmentName(0).stem


def test_the_index_leads_to_batches(tmp_path: Path) -> None:
    """Positions change: readers that begin in the middle use them."""
    log = log_of(PERSON, 0, 2000, GONE, packed=False)
    made, copy = stored(tmp_path, log)
    found = rewrite(made, copy, listed(*GONE))
    assert found is not None
    entries = read_offset_index(found[2][".index"])
    assert entries
    positions, at = {}, 0
    for header in headers(found[0]):
        positions[at] = header.last_offset
        at += header.size_in_bytes
    assert all(positions[position] == relative for relative, position in entries)


def transactions() -> tuple[bytes, bytes]:
    """Return a segment with an aborted and a committed transaction, and its `.txnindex`."""
    log = b"".join(
        (
            batch(0, [record(at, PERSON) for at in range(5)], attributes=TRANSACTIONAL, producer_id=7),
            batch(5, [record(at, b"k") for at in range(5)], attributes=TRANSACTIONAL, producer_id=8),
            marker(10, 7, 0),
            marker(11, 8, 1),
        )
    )
    return log, AbortedTransaction(7, 0, 10, 0).encode()


def test_transactions_and_their_markers_stay(tmp_path: Path) -> None:
    """The list names a marker's offset, and the batch of an aborted transaction is emptied: the abort stays."""
    log, aborts = transactions()
    made, copy = stored(tmp_path, log, txnindex=aborts)
    found = rewrite(made, copy, listed(0, 1, 2, 3, 4, 7, 10, 11))
    assert found is not None
    new, metadata, indexes, counts = found
    assert [header.record_count for header in headers(new)] == [0, 4, 1, 1]
    assert new[-2 * len(marker(11, 8, 1)) :] == marker(10, 7, 0) + marker(11, 8, 1)
    assert indexes[".txnindex"] == aborts
    assert metadata.txnindex == copy.metadata.txnindex
    assert (metadata.records, metadata.control, counts) == (6, 2, (6, 2))


def test_a_segment_that_compaction_left_with_gaps_keeps_its_end(tmp_path: Path) -> None:
    """Coverage, and an epoch that has no batch any more, are in metadata alone."""
    log = batch(3, [record(0, PERSON), record(6)], last_offset_delta=9) + batch(20, [record(0), record(2)])
    made, copy = stored(tmp_path, log, 0, end=40)
    metadata = replace(copy.metadata, epochs=((0, 0), (4, 30)), shipped=5)
    made.store.put(copy.key, log, metadata=metadata.encode())
    found = rewrite(made, copy_of(made), listed(3, 4, 21))
    assert found is not None
    assert offsets(found[0]) == [9, 20, 22]
    assert (found[1].end, found[1].epochs, found[1].shipped) == (40, ((0, 0), (4, 30)), 5)


@pytest.mark.parametrize(
    "erased",
    [listed(), listed(100), listed(5, epoch=-1), listed(45, 1000)],
    ids=["none", "above", "of lower epochs", "no record"],
)
def test_without_an_erased_record_nothing_is_made(tmp_path: Path, erased: ErasedOffsets) -> None:
    """A batch of a higher epoch is shown; a second run finds nothing to do."""
    made, copy = stored(tmp_path, log_of(PERSON, 0, 5, GONE) + batch(50, [record(0)]), end=100)
    assert rewrite(made, copy, erased) is None


def test_a_rewritten_segment_is_not_rewritten_again(tmp_path: Path) -> None:
    """It has none of the listed records."""
    made, copy = stored(tmp_path, log_of(PERSON, 0, 100, GONE))
    found = rewrite(made, copy, listed(*GONE))
    assert found is not None
    made.store.put(copy.key, found[0], metadata=found[1].encode())
    assert rewrite(made, copy_of(made), listed(*GONE)) is None


def damaged(log: bytes) -> bytes:
    changed = bytearray(log)
    changed[-5] ^= 1
    return bytes(changed)


def test_a_damaged_segment_is_hidden_only(tmp_path: Path) -> None:
    """A rewritten copy would look whole. The damage is found before the list is looked at."""
    log = log_of(PERSON, 0, 100, GONE)
    made, copy = stored(tmp_path, log, body=damaged(log))
    with pytest.raises(HiddenOnly, match=r"it is damaged \(.*\): repair it"):
        rewrite(made, copy, listed(5))
    made.put_segment("t", 200, damaged(log_of(PERSON, 200, 300, GONE)))
    with pytest.raises(HiddenOnly, match=r"it is damaged \(batch of base offset 290"):
        rewrite(made, copy_of(made, 200), listed(205))


def test_a_cut_segment_is_hidden_only(tmp_path: Path) -> None:
    """The object has fewer bytes than its metadata promises."""
    log = log_of(PERSON, 0, 100, GONE)
    made, copy = stored(tmp_path, log, body=log[:-7])
    with pytest.raises(HiddenOnly, match="it is damaged"):
        rewrite(made, copy, listed(13))


def test_wrong_metadata_is_damage(tmp_path: Path) -> None:
    """Epochs that contradict the batches would be carried over."""
    log = log_of(PERSON, 0, 100, GONE)
    made, copy = stored(tmp_path, log)
    made.store.put(copy.key, log, metadata=replace(copy.metadata, epochs=((3, 0),)).encode())
    with pytest.raises(HiddenOnly, match="epochs"):
        rewrite(made, copy_of(made), listed(13))


def test_a_lost_txnindex_is_damage(tmp_path: Path) -> None:
    """Without it readers would show aborted records of the rewritten copy."""
    log, aborts = transactions()
    made, copy = stored(tmp_path, log, txnindex=aborts)
    made.store.delete([made.partition("t").segment(SegmentName(0), ".txnindex")])
    with pytest.raises(HiddenOnly, match=r"its \.txnindex is missing"):
        rewrite(made, copy, listed(1))


def test_a_txnindex_that_is_corrupt_on_the_broker_is_carried_as_corrupt(tmp_path: Path) -> None:
    """Readers do not use it, in the old segment or in the new one."""
    log, aborts = transactions()
    made, copy = stored(tmp_path, log, txnindex=aborts)
    corrupt = replace(copy.metadata, txnindex=(0, TxnIndexState.CORRUPT))
    made.store.put(copy.key, log, metadata=corrupt.encode())
    found = rewrite(made, copy_of(made), listed(1))
    assert found is not None
    assert found[1].txnindex == (0, TxnIndexState.CORRUPT)


def old_messages(codec: Codec) -> bytes:
    inner = b"".join(message(1, at, b"value", PERSON) for at in range(3))
    return message(1, 2, compress(codec, inner), attributes=codec) if codec else inner


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_erased_message_of_magic_1_is_hidden_only(tmp_path: Path, codec: Codec) -> None:
    """In a segment with both magics, the records of magic 2 can be rewritten alone."""
    log = old_messages(codec) + batch(3, [record(0, PERSON), record(1)])
    made, copy = stored(tmp_path, log)
    for offset in (0, 1, 2):
        with pytest.raises(HiddenOnly, match=f"the erased offset {offset} is in a message of magic 1"):
            rewrite(made, copy, listed(offset))
    found = rewrite(made, copy, listed(3))
    assert found is not None
    assert offsets(found[0]) == [0, 1, 2, 4]
    assert found[0].startswith(old_messages(codec))


def test_a_java_uploaders_segment_is_hidden_only(tmp_path: Path) -> None:
    """It has no metadata, and its uploader can write it again."""
    made, copy = stored(tmp_path, log_of(PERSON, 0, 100, GONE))
    made.store.put(copy.key, log_of(PERSON, 0, 100, GONE))
    with pytest.raises(HiddenOnly, match="it has no metadata"):
        rewrite(made, copy_of(made), listed(13))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("erased", [(5,), (1, 5)], ids=["outside of its header", "and another record"])
def test_a_producers_wrong_offsets_are_hidden_only(tmp_path: Path, codec: Codec, erased: tuple[int, ...]) -> None:
    """A record outside of its header's offsets is found by comparing rows, and does not stay in silence."""
    body = b"".join((record(0, b"a"), record(1, b"b"), record(5, PERSON)))
    log = batch(0, body=compress(codec, body) if codec else body, count=3, last_offset_delta=2, attributes=codec)
    made, copy = stored(tmp_path, log + batch(10, [record(0)]))
    with pytest.raises(HiddenOnly, match=r"erased records have other offsets|not those that readers show"):
        rewrite(made, copy, listed(*erased))


def test_a_batch_above_the_limit_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    """Four kilobytes can decompress to gigabytes."""
    body = compress(Codec.ZSTD, record(0, PERSON, bytes(1 << 20)))
    made, copy = stored(tmp_path, batch(0, body=body, count=1, attributes=Codec.ZSTD))
    with (
        pytest.raises(BatchTooLarge, match="--max-batch-bytes"),
        rewritten(made.store, copy, listed(0), limit=BatchLimit(1 << 16, "--max-batch-bytes")),
    ):
        pass


def test_offsets_that_no_index_can_have_are_damage(tmp_path: Path) -> None:
    """An index has 32 bits for an offset; another error would end the run, also for other topics."""
    far = [batch((1 << 33) + at, [record(0, b"k", 5000 * b"v")]) for at in range(2)]
    made, copy = stored(tmp_path, batch(0, [record(0, PERSON)]) + b"".join(far))
    with pytest.raises(HiddenOnly, match=r"it is damaged \(a batch near position \d+ is 2\*\*31 offsets"):
        rewrite(made, copy, listed(0))


def test_the_range_of_a_header_uses_no_memory(tmp_path: Path) -> None:
    """One record can have a range of 2**31 offsets, and one run of a list has all of them."""
    log = batch(0, [record(0, PERSON)], last_offset_delta=3_000_000)
    made, copy = stored(tmp_path, log)
    rewrite(made, copy, listed(0))  # imports and buffers
    tracemalloc.start()
    try:
        found = rewrite(made, copy, ErasedOffsets.of([(0, 1 << 40, 0)]))
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()
    assert found is not None
    assert (offsets(found[0]), found[1].end) == ([], 3_000_001)


def test_a_removed_segment_is_no_damage(tmp_path: Path) -> None:
    """Retention removed it."""
    made, copy = stored(tmp_path, log_of(PERSON, 0, 100, GONE))
    made.store.delete([copy.key])
    with pytest.raises(ObjectNotFound):
        rewrite(made, copy, listed(13))


@st.composite
def segments(draw: st.DrawFn) -> tuple[bytes, set[int], int]:
    """Return batches with gaps, of several epochs, codecs and kinds; the offsets of records; the end."""
    log, there, position, epoch = b"", set[int](), 0, 0
    for _ in range(draw(st.integers(1, 6))):
        position += draw(st.sampled_from([0, 0, 3]))
        epoch += draw(st.sampled_from([0, 0, 1]))
        kind = draw(st.sampled_from(["records", "records", "records", "marker", "empty"]))
        if kind == "marker":
            log += marker(position, 5, 1, epoch)
            position += 1
            continue
        span = draw(st.integers(1, 8))
        deltas = sorted(draw(st.sets(st.integers(0, span - 1), max_size=span))) if kind == "records" else []
        codec = draw(st.sampled_from(Codec)) if deltas else Codec.NONE
        body = b"".join(record(delta, b"%d" % (position + delta), timestamp_delta=-delta) for delta in deltas)
        log += batch(
            position,
            body=compress(codec, body) if codec else body,
            count=len(deltas),
            last_offset_delta=span - 1,
            epoch=epoch,
            attributes=codec | draw(st.sampled_from([0, TRANSACTIONAL])),
            producer_id=5,
        )
        there |= {position + delta for delta in deltas}
        position += span
    return log, there, position


def runs(draw: st.DrawFn, end: int) -> Iterable[tuple[int, int, int]]:
    for offset in draw(st.sets(st.integers(0, end + 2), max_size=10)):
        yield offset, offset + 1, draw(st.integers(-1, 4))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60, quick=20), deadline=None
)
@given(st.data())
def test_of_any_segment_exactly_the_hidden_records_are_left_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Also with the epochs of its batches, some below those of the list."""
    log, there, end = data.draw(segments())
    erased = ErasedOffsets.of(data.draw(st.composite(lambda draw: list(runs(draw, end)))()))
    made, copy = stored(tmp_path_factory.mktemp("made"), log)
    epoch_at = {
        offset: header.leader_epoch
        for header in headers(log)
        for offset in range(header.base_offset, header.last_offset + 1)
    }
    gone = {offset for offset in there if erased.hides(offset, epoch_at[offset])}
    found = rewrite(made, copy, erased)
    if not gone:
        assert found is None
        return
    assert found is not None
    assert offsets(found[0]) == sorted(there - gone)
    assert [h.is_control for h in headers(found[0])] == [h.is_control for h in headers(log)]
    assert found[3][0] == len(gone)
