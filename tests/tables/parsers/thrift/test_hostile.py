"""Bytes that no writer writes end no run, and need little time and memory."""

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.tables.parsers.made_records import parsed
from tests.tables.parsers.thrift.made_thrift import WRITERS, classes_of, encoded, made_parser, written_idl
from tests.tables.parsers.thrift.test_values import rich
from ts_reader.schemas.limits import MAX_VALUE_BYTES
from ts_tables.parsers.thrift.idl import read_struct
from ts_tables.parsers.thrift.parser import Protocol, ThriftParser

SMALL = "struct Event { 1: list<i8> bytes; 2: list<Wide> wide; 3: map<string, Wide> wides; 4: string text }\n"
WIDE = "struct Wide {" + " ".join(f"{number}: string f{number};" for number in range(1, 201)) + "}"
BOTH = [Protocol.BINARY, Protocol.COMPACT]


@pytest.fixture(scope="module")
def idl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the rich IDL."""
    return written_idl(tmp_path_factory.mktemp("idl"))


@pytest.fixture(scope="module")
def values(idl: Path) -> dict[str, bytes]:
    """The rich value, by writer."""
    event: Any = rich(classes_of(idl))
    return {writer: encoded(event, writer) for writer in ("binary", "compact")}


def parser_of(idl: Path, writer: str) -> ThriftParser:
    """Return the parser of a writer's values."""
    return ThriftParser(read_struct(idl, "Event"), WRITERS[writer][0])


@pytest.mark.parametrize("writer", ["binary", "compact"])
def test_each_begin_of_a_value_is_refused(idl: Path, values: dict[str, bytes], writer: str) -> None:
    """A value that was cut never looks like a shorter one."""
    data = values[writer]
    rows, refused = parsed(parser_of(idl, writer), [data[:end] for end in range(len(data))] + [data])
    assert [number for number, _ in rows] == [len(data)]
    assert len(refused) == len(data)


@pytest.mark.parametrize("writer", ["binary", "compact"])
def test_a_value_with_other_bytes_is_a_row_or_refused(idl: Path, values: dict[str, bytes], writer: str) -> None:
    """Whichever bytes differ."""
    chance = random.Random(writer)
    changed: list[bytes] = []
    for _ in range(3000):
        data = bytearray(values[writer])
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        changed.append(bytes(data))
    changed += [chance.randbytes(chance.randrange(40)) for _ in range(2000)]
    rows, refused = parsed(parser_of(idl, writer), changed)
    assert len(rows) + len(refused) == len(changed)
    assert rows
    assert refused


@pytest.mark.parametrize("protocol", BOTH)
def test_an_unknown_list_of_many_structs_is_refused(tmp_path: Path, protocol: Protocol) -> None:
    """Each needs a byte only, and a step to skip it."""
    (tmp_path / "a.thrift").write_text("struct Event { 1: i8 x }\n")
    count = 2_000_000
    begin = {
        Protocol.BINARY: b"\x0f\0\7\x0c" + count.to_bytes(4, "big"),
        Protocol.COMPACT: b"\x79\xfc\x80\x89\x7a",
    }[protocol]
    rows, refused = parsed(
        ThriftParser(read_struct(tmp_path / "a.thrift", "Event"), protocol), [begin + bytes(count + 1)]
    )
    assert (rows, len(refused)) == ([], 1)


MANY = {  # of the counts that 32 bits have; a list, a map, text, and the same in fields that are unknown
    Protocol.BINARY: [
        b"\x0f\0\1\3\x7f\xff\xff\xff\0",
        b"\x0f\0\1\3\xff\xff\xff\xff\0",
        b"\x0f\0\2\x0c\x7f\xff\xff\xff\0",
        b"\x0d\0\3\x0b\x0c\x7f\xff\xff\xff\0",
        b"\x0b\0\4\x7f\xff\xff\xff\0",
        b"\x0b\0\4\xff\xff\xff\xff\0",
        b"\x0f\0\7\3\x7f\xff\xff\xff\0",
        b"\x0f\0\7\x0c\x7f\xff\xff\xff\0",
        b"\x0f\0\7\0\x7f\xff\xff\xff\0",
        b"\x0d\0\7\2\2\x7f\xff\xff\xff\0",
        b"\x0e\0\7\x0f\x7f\xff\xff\xff\0",
        b"\x0b\0\7\x7f\xff\xff\xff\0",
    ],
    Protocol.COMPACT: [
        b"\x19\xf3\xff\xff\xff\xff\7\0",
        b"\x19\xf3\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0",
        b"\x29\xfc\xff\xff\xff\xff\7\0",
        b"\x3b\xff\xff\xff\xff\7\x8c\0",
        b"\x48\xff\xff\xff\xff\7\0",
        b"\x79\xf3\xff\xff\xff\xff\7\0",
        b"\x79\xf0\xff\xff\xff\xff\7\0",
        b"\x7b\xff\xff\xff\xff\7\x22\0",
        b"\x7b\xff\xff\xff\xff\7\0\0",
        b"\x78\xff\xff\xff\xff\7\0",
    ],
}


@pytest.mark.parametrize("protocol", BOTH)
def test_a_count_is_no_larger_than_the_bytes_that_follow(tmp_path: Path, protocol: Protocol) -> None:
    """Before anything is made of it."""
    parser = made_parser(tmp_path, SMALL + WIDE, protocol)
    for data in MANY[protocol]:
        rows, refused = parsed(parser, [data])
        assert rows == []
        expected = ("after its size", "left; ", "a length is", "unknown type")
        assert any(text in refused[0] for text in expected), (data, refused)


@pytest.mark.parametrize("count", [100_000, 15 << 20])
def test_structs_of_one_byte_do_not_fill_the_memory(tmp_path: Path, count: int) -> None:
    """Each would have two hundred columns."""
    parser = made_parser(tmp_path, SMALL + WIDE)
    data = b"\x0f\0\2\x0c" + count.to_bytes(4, "big") + b"\0" * count + b"\0"
    tracemalloc.start()
    try:
        rows, refused = parsed(parser, [data])
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data) + (1 << 20)
    finally:
        tracemalloc.stop()
    assert rows == []
    assert refused == {0: "wide: its items have more than 4194304 cells, with all columns of their type"}


def test_long_defaults_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Each of many structs of one byte would have the text."""
    text = f'struct Event {{ 1: list<Inner> l }}\nstruct Inner {{ 1: string s = "{"x" * 8000}" }}'
    parser = made_parser(tmp_path, text)
    few, many = (b"\x0f\0\1\x0c" + count.to_bytes(4, "big") + b"\0" * count + b"\0" for count in (4000, 4500))
    rows, refused = parsed(parser, [few, many])
    assert [len(row["l"]) for _, row in rows] == [4000]
    assert [*refused] == [1]


def test_a_value_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """With its length."""
    rows, refused = parsed(made_parser(tmp_path, SMALL + WIDE), [bytes(MAX_VALUE_BYTES + 1)])
    assert (rows, refused) == ([], {0: f"{MAX_VALUE_BYTES + 1} bytes; at most {MAX_VALUE_BYTES} are parsed"})


NESTED = {  # the field, the begin of a level, the innermost value, and the end of a level
    "structs": (Protocol.BINARY, b"\x0c\0\7", b"\x0c\0\7", b"\0", b"\0"),
    "lists": (Protocol.BINARY, b"\x0f\0\7", b"\x0f\0\0\0\1", b"\x0f\0\0\0\0", b""),
    "compact structs": (Protocol.COMPACT, b"\x7c", b"\x7c", b"\0", b"\0"),
    "compact lists": (Protocol.COMPACT, b"\x79", b"\x19", b"\x09", b""),
}


@pytest.mark.parametrize("name", NESTED)
def test_an_unknown_field_has_a_limited_number_of_levels(tmp_path: Path, name: str) -> None:
    """One that is beyond it is no error of Python."""
    protocol, field, opens, innermost, closes = NESTED[name]
    parser = made_parser(tmp_path, SMALL + WIDE, protocol)
    values = [field + opens * levels + innermost + closes * levels + b"\0" for levels in (63, 64, 65, 100_000)]
    rows, refused = parsed(parser, values)
    assert [number for number, _ in rows] == [0, 1]
    assert refused == dict.fromkeys([2, 3], "an unknown field has more than 64 levels")
