"""Salvage of a damaged segment: each batch that it accepts is one of the undamaged segment, at its offsets."""

import io
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.log_format.build import batch, message, record
from tests.reader.decode.sources import Bytes
from ts_common.log_format.framing import ATTRIBUTES_POSITION, BatchHeader, Buffer, batch_crc, parse_header
from ts_common.log_format.scan import scan_segment
from ts_reader.decode import batch_boundaries as boundaries
from ts_reader.decode.batch_boundaries import Claim
from ts_reader.decode.salvage import Salvage, salvage_segment

Shown = tuple[int, int, bytes]


def plain(base: int, count: int, value: bytes = b"v", epoch: int = 0) -> bytes:
    return batch(base, [record(delta, b"%d" % (base + delta), value) for delta in range(count)], epoch=epoch)


def claim(log: bytes, body: bytes, end: int, anchors: frozenset[int] = frozenset()) -> Claim:
    """Return the claim by the metadata of `log`, for an object whose content is now `body`."""
    scan = scan_segment(io.BytesIO(log), len(log))
    dense = scan.record_count == end and not scan.corrupt_batches
    return Claim(
        len(body), 0, end, scan.crc32c, scan.epochs, scan.record_count, dense, bool(scan.corrupt_batches), anchors
    )


def shown(body: bytes, walked: Salvage) -> list[Shown]:
    """Return (base offset, last offset, checksummed bytes) of each accepted batch."""
    found = []
    for stretch in walked.stretches:
        position = stretch.start
        while position < stretch.end:
            header = parse_header(body[position:], 0, len(body) - position)
            assert isinstance(header, BatchHeader)
            behind = position + header.size_in_bytes
            found.append((header.base_offset, header.last_offset, body[position + ATTRIBUTES_POSITION : behind]))
            position = behind
        assert position == stretch.end
    return found


def check(log: bytes, body: bytes, end: int, anchors: frozenset[int] = frozenset()) -> tuple[set[Shown], Salvage]:
    """Check that accepted batches are true and unique, and that the others are reported; return the others."""
    whole = set(shown(log, salvage_segment(Bytes(log), claim(log, log, end))))
    walked = salvage_segment(Bytes(body), claim(log, body, end, anchors))
    found = shown(body, walked)
    assert set(found) <= whole
    assert all(before[1] < after[0] for before, after in pairwise(found))
    told = {offset for damage in walked.damages for offset in range(damage.start, damage.end)}
    assert told.isdisjoint(offset for base, last, _ in found for offset in range(base, last + 1))
    lost = whole - set(found)
    assert {offset for base, last, _ in lost for offset in range(base, last + 1)} <= told
    return lost, walked


DENSE = [plain(base, 10) for base in range(0, 50, 10)]
SPARSE = [plain(0, 10), plain(10, 5), plain(20, 5), plain(32, 8), plain(40, 5)]  # compaction left offsets out


@pytest.mark.parametrize("position", range(61))
def test_r04_any_bit_of_a_header_costs_that_batch(position: int) -> None:
    """Where every offset has its record: base offset, length and epoch too, which the batch's CRC leaves out."""
    log, begin = b"".join(DENSE), len(b"".join(DENSE[:2]))
    for bit in range(8):
        body = bytearray(log)
        body[begin + position] ^= 1 << bit
        lost, walked = check(log, bytes(body), 50)
        assert {base for base, _, _ in lost} == {20}
        assert [(damage.position, damage.start, damage.end) for damage in walked.damages] == [(begin, 20, 30)]


@pytest.mark.parametrize("position", range(61))
def test_r04_a_base_offset_that_may_be_wrong_is_not_shown(position: int) -> None:
    """If offsets are missing, a changed one may fit. Then no batch is accepted, so that no row gets another offset."""
    log, begin = b"".join(SPARSE), len(b"".join(SPARSE[:2]))
    for bit in range(8):
        body = bytearray(log)
        body[begin + position] ^= 1 << bit
        lost, _ = check(log, bytes(body), 45)
        assert 20 in {base for base, _, _ in lost}
        assert len(lost) in {1, 2, 5}
        if position > 8:
            assert len(lost) <= 2


@pytest.mark.parametrize("length", [0, 1, -1, 13, 10_000, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("number", range(5))
def test_r04_a_length_that_cannot_be_costs_that_batch(length: int, number: int) -> None:
    """The next batch is found by its CRC, its offsets, and where it leads."""
    log, begin = b"".join(DENSE), len(b"".join(DENSE[:number]))
    body = log[: begin + 8] + length.to_bytes(4, "big", signed=True) + log[begin + 12 :]
    lost, _ = check(log, body, 50)
    assert {base for base, _, _ in lost} == {number * 10}


@pytest.mark.parametrize("cut", range(1, len(b"".join(DENSE)), 7))
def test_r04_a_truncated_object_loses_its_end(cut: int) -> None:
    """Also where it ends between two batches."""
    log = b"".join(DENSE)
    lost, walked = check(log, log[:cut], 50)
    assert len(lost) == sum(len(b"".join(DENSE[: number + 1])) > cut for number in range(5))
    assert walked.damages[-1].end == 50


@pytest.mark.parametrize("number", range(5))
def test_r04_batches_that_are_cut_out_are_reported(number: int) -> None:
    """The batch after them has the expected offset."""
    body = b"".join(DENSE[:number] + DENSE[number + 1 :])
    lost, _ = check(b"".join(DENSE), body, 50)
    assert {base for base, _, _ in lost} == {number * 10}


def test_r04_a_copy_cut_between_batches_is_known_by_its_count() -> None:
    """Compaction removed offsets, so only the number of records shows that batches are missing."""
    log = b"".join(SPARSE)
    lost, _ = check(log, b"".join(SPARSE[:3]), 50)
    assert {base for base, _, _ in lost} == {32, 40}


def test_r04_what_a_value_holds_is_no_batch() -> None:
    """Its offsets fit, its CRC is right; but its length leads nowhere, and the real batch behind it does."""
    inside = plain(11, 2) + plain(13, 1)
    parts = [plain(0, 10), plain(10, 10, inside), plain(20, 10)]
    log, begin = b"".join(parts), len(parts[0])
    body = log[: begin + 8] + bytes(4) + log[begin + 12 :]
    lost, _ = check(log, body, 30)
    assert {base for base, _, _ in lost} == {10}


def test_r04_bytes_with_a_wrong_crc_are_no_batch() -> None:
    """Although they fit, and lead to where a batch really begins, behind one that is whole."""
    behind = plain(20, 10)
    value = plain(11, 1)[:61]
    damaged = plain(10, 10, value)
    at = damaged.rindex(value)
    length = (len(damaged) - at + len(behind) - 12).to_bytes(4, "big")
    parts = [plain(0, 10), damaged[:at] + value[:8] + length + value[12:] + damaged[at + 61 :], behind, plain(30, 10)]
    body = bytearray(b"".join(parts))
    body[len(parts[0]) + 8] ^= 0x40
    log = b"".join([parts[0], plain(10, 10, value), behind, parts[3]])
    walked = salvage_segment(Bytes(bytes(body)), claim(log, bytes(body), 40))
    assert [base for base, _, _ in shown(bytes(body), walked)] == [0, 20, 30]


def test_r04_an_index_locates_the_batches_between_two_damaged_headers() -> None:
    """Without an index, lengths between two damaged headers lead to no confirmed batch."""
    log = b"".join(DENSE)
    body = bytearray(log)
    for number in (1, 4):
        begin = len(b"".join(DENSE[:number]))
        body[begin : begin + 61] = b"\xff" * 61
    lost, _ = check(log, bytes(body), 50)
    assert {base for base, _, _ in lost} == {10, 20, 30, 40}
    lost, _ = check(log, bytes(body), 50, frozenset({len(b"".join(DENSE[:2]))}))
    assert {base for base, _, _ in lost} == {10, 40}


def test_a_segment_that_was_damaged_when_it_was_shipped_shows_the_rest() -> None:
    """Its own CRC is right, so its other batches are what they were."""
    log = bytearray(b"".join(SPARSE))
    log[-1] ^= 1
    log[len(SPARSE[0]) + 70] ^= 1
    walked = salvage_segment(Bytes(bytes(log)), claim(bytes(log), bytes(log), 45))
    assert [base for base, _, _ in shown(bytes(log), walked)] == [0, 20, 32]
    assert [(damage.start, damage.end) for damage in walked.damages] == [(10, 20), (40, 45)]


def test_messages_of_old_formats_are_found_again() -> None:
    """Magic 0 and 1, in one segment with batches."""
    parts = [*(message(0, n, b"v%d" % n) for n in range(4)), *(message(1, n, b"w") for n in range(4, 8)), plain(8, 4)]
    log = b"".join(parts)
    for number in range(len(parts)):
        begin = len(b"".join(parts[:number]))
        for changed in (begin + 8, begin + 20):
            body = bytearray(log)
            body[changed] ^= 0x20
            lost, _ = check(log, bytes(body), 12)
            assert len(lost) == 1


def test_looking_for_batches_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes made to look like a hundred thousand beginnings are given up, with what is behind them."""
    head = plain(20, 1)[:61]
    fake = head[:8] + (1 << 16).to_bytes(4, "big") + head[12:]
    log = plain(0, 10) + plain(10, 10, fake * 24_000) + plain(20, 10)
    body = bytearray(log)
    body[len(plain(0, 10)) + 8] ^= 0x40
    checked = 0

    def counted(magic: int, data: Buffer, previous: int = 0) -> int:
        nonlocal checked
        checked += len(data)
        return batch_crc(magic, data, previous)

    monkeypatch.setattr(boundaries, "batch_crc", counted)
    (damage,) = salvage_segment(Bytes(bytes(body)), claim(log, bytes(body), 30)).damages
    assert (damage.start, damage.end) == (10, 30)
    assert checked < 2 * (9 * len(log) + (64 << 20)) + (2 << 20)


def test_r04_a_base_offset_that_nothing_confirms_is_not_accepted() -> None:
    """The damage reaches from one batch into the base offset of the next one, which is the last."""
    parts = [plain(0, 3), plain(3, 3)]
    log = b"".join(parts)
    body = log[: len(parts[0]) - 20] + bytes(28) + log[len(parts[0]) + 8 :]
    lost, walked = check(log, body, 6)
    assert {base for base, _, _ in lost} == {0, 3}
    assert [(damage.start, damage.end) for damage in walked.damages] == [(0, 6)]


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(["flip", "flips", "noise", "zeros", "cut", "drop", "insert", "length"]))
def test_r04_whatever_is_damaged_nothing_false_is_shown(seed: int, kind: str) -> None:
    """Segments of any shape, with values that hold batches of the same offsets; damage of any kind."""
    draw = random.Random(seed)
    parts, end, compacted = [], 0, draw.random() < 0.5
    for _ in range(draw.randrange(1, 12)):
        end += draw.choice([0, 0, 1, 5, 8]) if compacted else 0
        inside = plain(end + draw.randrange(20), 3)
        value = draw.choice([b"", bytes(draw.randrange(100)), inside, draw.randbytes(50)])
        parts.append(plain(end, draw.randrange(1, 8), value))
        header = parse_header(parts[-1], 0, len(parts[-1]))
        assert isinstance(header, BatchHeader)
        end = header.last_offset + 1
    log, begins = b"".join(parts), [len(b"".join(parts[:number])) for number in range(len(parts))]
    body = bytearray(log)
    at, count = draw.randrange(len(body)), draw.choice([1, 8, 61, 300])
    if kind in {"flip", "flips"}:
        for place in (at, draw.randrange(len(body)))[: len(kind) - 3]:
            # In a compacted segment a second damage, in a base offset, is not seen: docs/spark.md, "Corrupt objects".
            is_unseen = compacted and kind == "flips" and any(begin <= place < begin + 8 for begin in begins)
            body[place + 8 * is_unseen] ^= 1 << draw.randrange(8)
    elif kind == "length":
        begin = draw.choice(begins)
        body[begin + 8 : begin + 12] = draw.randbytes(4)
    else:
        tail = {"noise": draw.randbytes(count), "zeros": bytes(count), "insert": draw.randbytes(count) + body[at:]}
        body[at : None if kind in {"cut", "insert"} else at + count] = tail.get(kind, b"")
    anchors = frozenset(draw.sample(begins, draw.randrange(len(begins))))
    check(log, bytes(body), end, draw.choice([frozenset(), anchors]))
