import json
import tracemalloc
import zlib

import pytest
from awscrt.checksums import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import examples
from ts_common.archive.object_keys import MAX_PACK, ClusterKeys, pack_name, pack_number
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_pack import (
    BLOCK_BYTES,
    HEAD_BYTES,
    INDEX_BYTES,
    MAX_BLOCK_ROWS,
    MOST_ABORTED,
    PackHead,
    decode_block,
    decode_head,
    encode_pack,
)
from ts_common.errors import CorruptData, NewerFormat

HEAD = PackHead("1", 7, "5f0c1d2e", 1)
NAME = pack_name(7)
ENTRY = TailEntry(
    "t-0", 5, 100, 110, "", 0, 61, 7, ((4, 100), (5, 105)), 110, (Aborted(9, 90, 108),), 10, 1_700_000_000_000
)
OFFSETS = st.integers(0, 2**63 - 1)


@st.composite
def entries(draw: st.DrawFn) -> TailEntry:
    start = draw(st.integers(0, 2**62))
    end = start + draw(st.integers(1, 100))
    firsts = sorted(draw(st.sets(st.integers(start, end - 1), max_size=3)))
    markers = st.builds(
        lambda first, more: Aborted(3, first, min(first + more, end - 1)), st.integers(0, end - 1), OFFSETS
    )
    return TailEntry(
        draw(st.sampled_from(("t-0", "t-1", "u~x-0"))),
        draw(st.integers(0, 2**31 - 1)),
        start,
        end,
        draw(st.sampled_from(("", "packs/fffffffffff9", "merged/5-1a2b3c4d"))),
        draw(st.integers(0, 2**40)),
        draw(st.integers(1, 2**40)),
        draw(st.integers(0, 2**32 - 1)),
        tuple((draw(st.integers(-1, 2**31 - 1)), first) for first in firsts),
        draw(st.integers(0, end)),
        draw(st.none() | st.lists(markers, max_size=3).map(tuple)),
        draw(st.none() | st.integers(0, end - start)),
        draw(st.none() | st.integers(-1, 2**60)),
    )


def read(data: bytes) -> list[TailEntry]:
    """Return all rows of a pack, as a reader does."""
    head = decode_head(data[:HEAD_BYTES], "k")
    found, position = list[TailEntry](), head.start
    for block in head.blocks:
        found += decode_block(data[position : position + block.length], head, block, NAME, "k")
        position += block.length
    assert position == head.data_start
    return found


@settings(max_examples=examples(100, quick=30))
@given(st.lists(entries(), max_size=4))
def test_a_pack_reads_back(index: list[TailEntry]) -> None:
    """Rows of the object itself have its name, and positions in it; the batches follow the index."""
    data = encode_pack(HEAD, index, [b"batches"])
    start = decode_head(data, "k").data_start
    assert data[start:] == b"batches"
    own = [each._replace(object=NAME, position=each.position + start) if not each.object else each for each in index]
    assert sorted(read(data), key=repr) == sorted(own, key=repr)


@settings(max_examples=examples(100, quick=30))
@given(st.lists(entries(), min_size=1, max_size=6))
def test_a_block_has_the_documented_layout(index: list[TailEntry]) -> None:
    """Packs are kept for ever, so their bytes never change, however they are made: here number by number."""
    data = encode_pack(HEAD, index, [])
    head = decode_head(data, "k")
    rows = sorted(index, key=lambda row: (row.directory, row.start, row.end, row.epoch))
    directories = [*dict.fromkeys(row.directory for row in rows)]
    objects = [*dict.fromkeys(row.object for row in rows)]
    table, pairs, aborted, last_time = list[tuple[int, ...]](), list[int](), list[int](), 0
    for at, row in enumerate(rows):
        before = [other for other in rows[:at] if other.directory == row.directory]
        neighbours = [other for other in rows[:at] if other.object == row.object]
        later = -(2**63) if row.time_max is None else row.time_max - last_time
        last_time = last_time if row.time_max is None else row.time_max
        size = row.end - row.start
        table.append(
            (
                *(directories.index(row.directory), row.epoch, row.start - (before[-1].end if before else 0), size),
                objects.index(row.object),
                row.position - (neighbours[-1].position + neighbours[-1].length if neighbours else 0),
                *(row.length, row.crc32c, row.end - row.stable, -1 if row.records is None else size - row.records),
                *(later, len(row.epochs), -1 if row.aborted is None else len(row.aborted)),
            )
        )
        pairs += [number for epoch, first in row.epochs for number in (epoch, first - row.start)]
        aborted += [number for each in row.aborted or () for number in each]
    numbers = [*(number for column in zip(*table, strict=True) for number in column), *pairs, *aborted]
    named = (
        f'{{"rows":{len(rows)},"pairs":{len(pairs) // 2},"aborted":{len(aborted) // 3},'
        f'"directories":{json.dumps(directories, separators=(",", ":"))},'
        f'"objects":{json.dumps(objects, separators=(",", ":"))}}}'
    ).encode()
    each = [number.to_bytes(8, "little", signed=True) for number in numbers]
    planes = bytes(number[at] for at in range(8) for number in each)
    content = len(named).to_bytes(4, "little") + named + planes
    assert zlib.decompress(data[head.start : head.data_start]) == content


def test_any_other_bytes_are_damage() -> None:
    """One wrong byte in the header or in the index is noticed, and no other error than the project's is raised."""
    index = [ENTRY, ENTRY._replace(start=110, end=120, epochs=()), ENTRY._replace(directory="u~x-0", records=None)]
    whole = bytearray(encode_pack(HEAD, index, []))
    for at in range(len(whole)):
        for mask in (0x01, 0x20, 0x80, 0xFF):
            whole[at] ^= mask
            with pytest.raises((CorruptData, NewerFormat)):
                read(bytes(whole))
            whole[at] ^= mask
    assert len(read(bytes(whole))) == len(index)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_hostile_bytes_with_correct_checksums_are_damage(header: bytes, content: bytes) -> None:
    """An identity that can write packs can compute a CRC-32C too."""
    prefix = b"TSPK\x01" + len(header).to_bytes(4, "little") + crc32c(header).to_bytes(4, "little")
    with pytest.raises(CorruptData):
        decode_head(prefix + header, "k")
    head = decode_head(encode_pack(HEAD, [ENTRY], []), "k")
    body = zlib.compress(content)
    block = head.blocks[0]._replace(length=len(body), size=len(content), crc32c=crc32c(body))
    with pytest.raises(CorruptData):
        decode_block(body, head, block, NAME, "k")


@given(st.data())
def test_a_row_with_any_other_number_is_damage_or_bounded(data: st.DataObject) -> None:
    """The numbers of a block have no checksum but the writer's, so each is bounded by the row and the block."""
    head = decode_head(encode_pack(HEAD, [ENTRY, ENTRY._replace(start=110, end=120, epochs=())], []), "k")
    packed = encode_pack(HEAD, [ENTRY, ENTRY._replace(start=110, end=120, epochs=())], [])
    content = bytearray(zlib.decompress(packed[head.start : head.data_start]))
    names = 4 + int.from_bytes(content[:4], "little")
    number = data.draw(st.integers(0, (len(content) - names) // 8 - 1))
    value = data.draw(st.integers(-(2**63), 2**63 - 1))
    content[names + 8 * number : names + 8 * number + 8] = value.to_bytes(8, "little", signed=True)
    body = zlib.compress(content)
    block = head.blocks[0]._replace(length=len(body), size=len(content), crc32c=crc32c(body))
    try:
        found = decode_block(body, head, block, NAME, "k")
    except CorruptData:
        return
    for entry in found:
        assert 0 <= entry.start < entry.end
        assert 0 <= entry.stable <= entry.end
        assert all(entry.start <= first < entry.end for _, first in entry.epochs)
        assert all(0 <= each.first <= each.last < entry.end for each in entry.aborted or ())


@pytest.mark.parametrize("row", [ENTRY._replace(position=2**62), ENTRY._replace(length=2**62)])
def test_a_row_behind_the_end_of_any_object_is_damage(row: TailEntry) -> None:
    """A read at such a position is an error of the file system, which would end a query of all partitions."""
    data = encode_pack(HEAD, [row], ())
    with pytest.raises(CorruptData, match="is not a whole number"):
        read(data)


def test_a_block_unpacks_to_no_more_than_its_header_names() -> None:
    """A bomb is damage, and costs the memory of a block."""
    head = decode_head(encode_pack(HEAD, [ENTRY], []), "k")
    bomb = zlib.compress(bytes(64 << 20))
    block = head.blocks[0]._replace(length=len(bomb), size=BLOCK_BYTES, crc32c=crc32c(bomb))
    tracemalloc.start()
    with pytest.raises(CorruptData, match="does not unpack"):
        decode_block(bomb, head, block, NAME, "k")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * BLOCK_BYTES


@pytest.mark.parametrize(
    "blocks",
    [
        b'[["t-0",1,262145,300,1]]',
        b'[["t-0",1,61,1048577,1]]',
        b'[["t-0",1,200000,300,1],["t-1",1,200000,300,1]]',
        b'[["t-1",1,61,300,1],["t-0",1,61,300,1]]',
        b"[" + b",".join([b'["t-0",1,61,300,1]'] * 33) + b"]",
        b'[["t-0",1,61,300]]',
        b'[["t-0",1,0,300,1]]',
    ],
)
def test_a_header_names_no_more_than_an_index_may_have(blocks: bytes) -> None:
    """Its blocks are bounded before one is read: each, their sum, and their order."""
    header = b'{"log":"1","n":7,"nonce":"5f0c1d2e","time":1,"before":null,"blocks":%s}' % blocks
    prefix = b"TSPK\x01" + len(header).to_bytes(4, "little") + crc32c(header).to_bytes(4, "little")
    with pytest.raises(CorruptData):
        decode_head(prefix + header, "k")


def test_a_later_version_is_no_damage() -> None:
    """A pack of a later release is kept, and the error names what to do."""
    data = encode_pack(HEAD, [ENTRY], [])
    with pytest.raises(NewerFormat, match="upgrade"):
        decode_head(data[:4] + b"\x02" + data[5:], "k")


def test_rows_with_many_transactions_are_in_more_blocks() -> None:
    """A block of as many rows as usual would be larger than readers accept, and no pack could be put."""
    aborted = tuple(Aborted(9, n, n + 1) for n in range(0, 2 * MOST_ABORTED, 2))
    index = [
        ENTRY._replace(start=n, end=n + 100, epochs=((5, n),), stable=n, aborted=aborted, records=1)
        for n in range(3000)
    ]
    data = encode_pack(HEAD, index, [])
    assert len(decode_head(data, "k").blocks) > 2
    assert [(each.start, each.aborted) for each in read(data)] == [(each.start, aborted) for each in index]


def test_a_reader_of_one_partition_reads_the_blocks_that_can_have_it() -> None:
    """Blocks are named by their first rows; a partition can begin in the middle of one and fill several."""
    index = [
        ENTRY._replace(directory=f"{topic}-0", start=n, end=n + 1, epochs=(), stable=n, aborted=(), records=1)
        for topic, count in (("a", 10), ("b", 2 * MAX_BLOCK_ROWS), ("c", 5))
        for n in range(count)
    ]
    data = encode_pack(HEAD, index, [])
    head = decode_head(data, "k")
    assert len(head.blocks) == 3
    for directory, count in (("a-0", 10), ("b-0", 2 * MAX_BLOCK_ROWS), ("c-0", 5), ("d-0", 0), ("0-0", 0)):
        found = [
            entry
            for position, block in head.blocks_of(directory)
            for entry in decode_block(data[position : position + block.length], head, block, NAME, "k")
            if entry.directory == directory
        ]
        assert [entry.start for entry in found] == list(range(count))
    assert [len(list(head.blocks_of(directory))) for directory in ("a-0", "b-0", "c-0", "0-0")] == [1, 3, 1, 0]


def test_an_index_that_readers_reject_is_not_written() -> None:
    """The writer has to name an earlier object in `before` instead."""
    index = [
        ENTRY._replace(directory=f"topic-with-a-long-name-{n * 7919 % 99991:05d}-0", crc32c=n * 2654435761 % 2**32)
        for n in range(40_000)
    ]
    with pytest.raises(CorruptData, match="more than readers accept"):
        encode_pack(HEAD, index, [])
    assert len(encode_pack(HEAD, index[:3000], [])) < INDEX_BYTES


@given(st.integers(0, MAX_PACK))
def test_the_newest_pack_is_listed_first(number: int) -> None:
    """The name of the next one is computable, and a name reads back."""
    assert pack_number(pack_name(number)) == number
    if number < MAX_PACK:
        assert pack_name(number + 1) < pack_name(number)


@pytest.mark.parametrize(
    "name", ["", "packs/", "packs/FFFFFFFFFFF8", "packs/fffffffffff", "ffffffffffff", "merged/7-1a2b3c4d"]
)
def test_another_name_is_no_pack(name: str) -> None:
    """A listing can have objects that no agent wrote."""
    assert pack_number(name) is None


@pytest.mark.parametrize("name", ["../2/packs/ffffffffffff", "packs/../../x", "a\x00", "", "merged/1-", "merged/1-0/x"])
def test_an_index_names_no_object_that_no_agent_writes(name: str) -> None:
    """Such a name would lead out of the log, or no store would accept it."""
    head = encode_pack(PackHead("1", 7, "n", 1, name), (), ())
    with pytest.raises(CorruptData, match="is no object of a log"):
        decode_head(head, "k")
    if name:  # the object itself
        row = TailEntry("t-0", 1, 0, 1, name, 0, 1, 0, ((1, 0),), 1, (), 1, 1)
        with pytest.raises(CorruptData, match="is no object of a log"):
            read(encode_pack(PackHead("1", 7, "n", 1), [row], ()))


def test_a_log_of_packs_is_below_the_cluster() -> None:
    """An agent may delete below `tail/` only."""
    assert ClusterKeys("c", 5).tail("1.pii") + pack_name(0) == "ts-uploader~cluster~c/tail/1.pii/packs/ffffffffffff"
