"""The content of a sealed cache object and of `seal.json`, and content that is rejected."""

import json
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from awscrt.checksums import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.commit import Lineage
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.sealed_objects import (
    MAX_ROWS,
    SEALED_BYTES,
    SealedRow,
    SealJson,
    decode_sealed,
    encode_sealed,
    is_regular,
    parse_sealed_name,
)
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
EPOCHS = EpochHistory(((3, 0), (4, 25), (7, 60)))
CRCS = st.integers(0, (1 << 32) - 1)
TIMES = st.none() | st.integers(-1, 1 << 50)


@st.composite
def contiguous(draw: st.DrawFn) -> list[SealedRow]:
    """Return regular rows, from an offset on."""
    rows, base = [], draw(st.integers(0, 80))
    for length in draw(st.lists(st.integers(1, 40), min_size=1, max_size=8)):
        epochs = EPOCHS.from_offset(base).below(base + length).pairs
        metadata = SegmentMetadata(
            base + length,
            epochs,
            length,
            draw(TIMES),
            draw(TIMES),
            draw(CRCS),
            draw(st.none() | st.tuples(CRCS, st.sampled_from(TxnIndexState))),
            timeindex=draw(st.none() | CRCS),
            shipped=draw(st.none() | st.integers(0, 1 << 50)),
            control=draw(st.none() | st.integers(0, length)),
        )
        suffixes = draw(st.frozensets(st.sampled_from([".index", ".timeindex", ".txnindex"])))
        etag = draw(st.from_regex(r'"[0-9a-f]{2,32}"', fullmatch=True))
        rows.append(SealedRow(base, draw(st.integers(0, 1 << 40)), etag, suffixes, metadata))
        base += length
    return rows


@given(contiguous(), st.sampled_from([None, Lineage(3, 10, 12)]))
def test_a_sealed_object_returns_what_was_written(rows: list[SealedRow], lineage: Lineage | None) -> None:
    """Every field of every row is read back, with the epochs of the commit."""
    assert all(is_regular(row, EPOCHS) for row in rows)
    name, data = encode_sealed(KEYS, lineage, EPOCHS, rows)
    found = decode_sealed(data, KEYS, name)
    assert [found.row(number) for number in range(len(found))] == rows
    assert (found.start, found.end) == parse_sealed_name(name) == (rows[0].base, rows[-1].metadata.end)
    assert found.lineage == lineage
    assert found.epochs == EPOCHS.from_offset(found.start).below(found.end)


ROW = SealedRow(0, 151, '"e"', frozenset({".index"}), SegmentMetadata(10, ((3, 0),), 10, 1009, 1000, 7))
NEXT = SealedRow(10, 151, '"f"', frozenset(), SegmentMetadata(20, ((3, 10),), 10, 1009, 1000, 7))


@pytest.mark.parametrize(
    "change",
    [
        {"records": 9},
        {"records": None},
        {"corruptions": 1},
        {"replaces": "00000000000000000000"},
        {"epochs": ((4, 0),)},
        {"epochs": None},
        {"epochs": ((3, 0), (4, 5))},
        {"end": 0, "records": 0, "epochs": ()},
    ],
    ids=str,
)
def test_only_a_dense_segment_with_the_commits_epochs_is_regular(change: dict[str, object]) -> None:
    """Another copy can be needed with such a segment, or it has a dead tail."""
    assert is_regular(ROW, EPOCHS)
    assert not is_regular(replace(ROW, metadata=replace(ROW.metadata, **change)), EPOCHS)  # type: ignore[arg-type]


def test_a_segment_with_a_long_etag_is_not_regular() -> None:
    """The column has one width, and a hostile store can name any."""
    assert not is_regular(replace(ROW, etag="e" * 129), EPOCHS)


@given(st.data())
def test_one_flipped_bit_anywhere_is_noticed(data: st.DataObject) -> None:
    """The CRC-32C in the name covers the whole object."""
    name, content = encode_sealed(KEYS, None, EPOCHS, [ROW, NEXT])
    changed = bytearray(content)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptData, match="CRC-32C"):
        decode_sealed(bytes(changed), KEYS, name)


def forged(
    change: Callable[[dict[str, object], dict[str, bytes]], None], magic: bytes = b"TSSC\x01"
) -> tuple[str, bytes]:
    """Return a changed object whose name has its CRC-32C, as another identity can write it."""
    _, content = encode_sealed(KEYS, None, EPOCHS, [ROW, NEXT])
    length = int.from_bytes(content[5:9], "little")
    header, position = json.loads(content[9 : 9 + length]), 9 + length
    columns = {}
    for name, _, size in header["columns"]:
        columns[name], position = zlib.decompress(content[position : position + size]), position + size
    change(header, columns)
    packed = {name: zlib.compress(data) for name, data in columns.items()}
    header["columns"] = [
        [name, kind, len(packed[name]) if size is not None else (1 << 62)] for name, kind, size in header["columns"]
    ]
    text = json.dumps(header).encode()
    data = magic + len(text).to_bytes(4, "little") + text + b"".join(packed.values())
    return f"0-20.{crc32c(data):08x}.seal", data


def _longs(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little", signed=True) for value in values)


def _set(header: dict[str, object], **values: object) -> None:
    header.update(values)


def _change_column(header: dict[str, object], columns: dict[str, bytes], name: str, *values: int) -> None:
    """Give a column values of int64, or remove it."""
    described: list[list[object]] = header["columns"]  # type: ignore[assignment]
    header["columns"] = [
        [each, "int64" if each == name else kind, size] for each, kind, size in described if values or each != name
    ]
    if values:
        columns[name] = _longs(*values)
    else:
        del columns[name]


HOSTILE: dict[str, Callable[[dict[str, object], dict[str, bytes]], None]] = {
    "another partition": lambda header, _: _set(header, of="t-1"),
    "other offsets": lambda header, _: _set(header, to=30),
    "no rows": lambda header, _: _set(header, rows=0),
    "too many rows": lambda header, _: _set(header, rows=MAX_ROWS + 1),
    "rows that the columns lack": lambda header, _: _set(header, rows=3),
    "no number of rows": lambda header, _: _set(header, rows="2"),
    "a column beyond the object": lambda header, _: _set(header, columns=[["base", "int64", 1]]),
    "an endless column": lambda header, _: _set(header, columns=[["base", "int64", None]]),
    "an unknown type": lambda header, _: _set(header, columns=[["base", "int128", 9]]),
    "a wide text": lambda header, _: _set(header, columns=[["etag", "char4096", 9]]),
    "a thousand columns": lambda header, _: _set(header, columns=[["base", "int64", 0]] * 1000),
    "a bomb": lambda _, columns: columns.update(base=bytes(1 << 28)),
    "no column": lambda _, columns: columns.update(base=b""),
    "a hole": lambda _, columns: columns.update(base=_longs(0, 11)),
    "an overlap": lambda _, columns: columns.update(end=_longs(11, 20)),
    "compacted": lambda _, columns: columns.update(records=_longs(9, 10)),
    "an empty row": lambda _, columns: columns.update(base=_longs(0, 20), end=_longs(20, 20), records=_longs(20, 0)),
    "another first offset": lambda _, columns: columns.update(base=_longs(1, 10), records=_longs(9, 10)),
    "a negative size": lambda _, columns: columns.update(size=_longs(-1, 5)),
    "flags": lambda _, columns: columns.update(flags=b"\xff\x00"),
    "flags of another type": lambda header, columns: _change_column(header, columns, "flags", -100, 0),
    "a CRC of another type": lambda header, columns: _change_column(header, columns, "crc32c", -1, 7),
    "no shipped": lambda header, columns: _change_column(header, columns, "shipped"),
    "no txnindex": lambda header, columns: _change_column(header, columns, "txnindex"),
    "no flags": lambda header, columns: _change_column(header, columns, "flags"),
    "an ETag that is no text": lambda _, columns: columns.update(etag=b"\xff" * 6),
    "no epochs": lambda header, _: _set(header, epochs=[]),
    "epochs that fall": lambda header, _: _set(header, epochs=[[5, 0], [4, 10]]),
    "epochs of magic 0": lambda header, _: _set(header, epochs=[[-1, 0]]),
    "epochs that begin later": lambda header, _: _set(header, epochs=[[3, 5]]),
    "epochs beyond the end": lambda header, _: _set(header, epochs=[[3, 0], [4, 20]]),
    "a lineage": lambda header, _: _set(header, lineage=[1]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_forged_object_is_rejected(what: str) -> None:
    """Readers list its range; without the change the object is read."""
    name, data = forged(lambda *_: None)
    assert len(decode_sealed(data, KEYS, name)) == 2
    name, data = forged(HOSTILE[what])
    with pytest.raises(CorruptData, match=r"segment-metadata/0-20\.[0-9a-f]{8}\.seal"):
        decode_sealed(data, KEYS, name)


def test_a_later_version_and_another_kind_are_rejected() -> None:
    """The magic and the version are the first five bytes."""
    name, data = forged(lambda *_: None, b"TSSC\x02")
    with pytest.raises(NewerFormat):
        decode_sealed(data, KEYS, name)
    name, data = forged(lambda *_: None, b"TSER\x01")
    with pytest.raises(CorruptData):
        decode_sealed(data, KEYS, name)


def test_an_object_above_the_largest_size_is_rejected() -> None:
    """Its bytes are not unpacked."""
    data = b"TSSC\x01" + bytes(SEALED_BYTES)
    with pytest.raises(CorruptData):
        decode_sealed(data, KEYS, f"0-20.{crc32c(data):08x}.seal")


@given(st.binary(max_size=200))
def test_any_bytes_under_their_own_name_are_rejected(data: bytes) -> None:
    """No other error is raised."""
    for content in (data, b"TSSC\x01" + len(data).to_bytes(4, "little") + data):
        with pytest.raises(CorruptData):
            decode_sealed(content, KEYS, f"0-20.{crc32c(content):08x}.seal")


@pytest.mark.parametrize(
    "sealed",
    [
        '[[5,0,"5-0.1a2b3c4d.seal"]]',
        '[[0,5,"0-6.1a2b3c4d.seal"]]',
        '[[0,5,"../0-5.1a2b3c4d.seal"]]',
        '[[0,5,"0-5.1a2b3c4d.seal"],[4,9,"4-9.1a2b3c4d.seal"]]',
        '[[4,9,"4-9.1a2b3c4d.seal"],[0,4,"0-4.1a2b3c4d.seal"]]',
    ],
)
def test_ranges_that_no_agent_writes_are_rejected(sealed: str) -> None:
    """They fall, overlap, or name another object."""
    text = '{"version":1,"nonce":"x","lineage":null,"sealed":%s,"open":{}}'
    SealJson.decode((text % '[[0,5,"0-5.1a2b3c4d.seal"],[5,9,"5-9.1a2b3c4d.seal"]]').encode(), "k")
    with pytest.raises(CorruptData):
        SealJson.decode((text % sealed).encode(), "k")


def test_a_name_of_another_form_is_no_sealed_object() -> None:
    """Its offsets ascend, and its CRC-32C has 8 digits."""
    assert parse_sealed_name("0-5.1a2b3c4d.seal") == (0, 5)
    for name in (
        "5-5.1a2b3c4d.seal",
        "0-5.1a2b3c4.seal",
        "0-5.1A2B3C4D.seal",
        "0-5.json",
        f"0-{1 << 63}.1a2b3c4d.seal",
    ):
        assert parse_sealed_name(name) is None
