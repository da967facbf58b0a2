"""IDLs: what no column can have is an error of the configuration, with the place."""

import re
import sys
from pathlib import Path

import pytest

from tests.tables.parsers.thrift.made_thrift import made_parser, written_idl
from ts_tables.parsers.thrift.idl import read_struct
from ts_tables.parsers.thrift.parser import Protocol, ThriftParser, parse_options
from ts_tables.parsers.thrift.types import Struct

CHAIN = "".join(f"struct S{number} {{ 1: S{number + 1} s }}\n" for number in range(60)) + "struct S60 { 1: i32 x }"
WIDE = "".join(f"struct S{number} {{ 1: S{number + 1} a; 2: S{number + 1} b }}\n" for number in range(40))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("struct Event {", r"event.thrift: no IDL of Thrift: Grammar error at EOF"),
        ("struct Event { 1: i32 a; 1: i32 b }", "no IDL of Thrift: '1:b' field identifier/name has already been used"),
        ("struct Event { 1: Missing a }", "no IDL of Thrift: No type found: 'Missing', at line 1"),
        ('include "missing.thrift"', "no IDL of Thrift: Couldn't include thrift missing.thrift"),
        ('include "event.thrift"', "no IDL of Thrift: Dead including on"),
        ("\0", r"no IDL of Thrift: Illegal character '\\x00'"),
        ("struct Event { 1: bool async }", "event.thrift: no field of Event can have the name async; rename it in"),
        (
            "union A { 1: bool async }\nstruct Event { 1: i32 a }",
            "has no struct 'Event'; it has A; if the name of a field is async, rename it in the IDL",
        ),
        (
            "struct Event { 1: A a }\nexception A { 1: bool async }",
            "No type found: 'A', at line 1; if the name of a field is async, rename it in the IDL",
        ),
        ("struct Event { 1: A a }\nunion A { 1: bool None }", "event.thrift: no field of A can have the name None"),
        ('struct Event { 1: i32 a = "x" }', "no IDL of Thrift: Type error for field a"),
        ("struct Event { 1: i8 a = 128 }", "Event.a: the default 128 does not fit its type"),
        ("enum Event { A }", "event.thrift has no struct 'Event'; it has none at all"),
        ("struct Event2 { 1: i32 a }", r"has no struct 'Event'; did you mean Event2\?; it has Event2"),
        ("struct Event { 1: list<Event> inner }", "Event.inner.element: struct Event contains itself"),
        (
            "struct Event { 1: A a }\nstruct A { 1: map<string, B> b }\nstruct B { 1: optional A again }",
            "Event.a.b.value.again: struct A contains itself; no column can have such values",
        ),
        ("struct Event { 1: Nothing a }\nstruct Nothing {}", "Event.a: struct Nothing has no fields"),
        ("struct Event {}", "Event: struct Event has no fields"),
        ("struct Event { 1: map<K, i32> m }\nstruct K { 1: i32 x }", "Event.m.key: keys of a map are text, numbers,"),
        ("struct Event { 1: map<binary, i32> m }", "Event.m.key: keys of a map are"),
        ("struct Event { 1: i32 a.b }", "event.thrift: no field of Event can have the name a.b; rename"),
        ("struct Event { 1: S0 s }\n" + CHAIN, "more than 48 levels"),
        ("struct Event { 1: S0 s }\n" + WIDE + "struct S40 { 1: i32 x }", "more than 10000 fields at all levels"),
        ("// " + "x" * (2 << 20), "more than 2097152 bytes"),
    ],
)
def test_what_no_column_can_have_is_named(tmp_path: Path, text: str, reason: str) -> None:
    """With the path of the field, or the line."""
    with pytest.raises(ValueError, match=reason):
        made_parser(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """As one that is missing, is a directory or is no text."""
    with pytest.raises(ValueError, match=r"missing.thrift: cannot be read: No such file"):
        read_struct(tmp_path / "missing.thrift", "Event")
    (tmp_path / "directory.thrift").mkdir()
    with pytest.raises(ValueError, match=r"directory.thrift: cannot be read: Is a directory"):
        read_struct(tmp_path / "directory.thrift", "Event")
    (tmp_path / "latin.thrift").write_bytes(b"// \xff")
    with pytest.raises(ValueError, match=r"latin.thrift: no IDL of Thrift: 'utf-8' codec"):
        read_struct(tmp_path / "latin.thrift", "Event")
    with pytest.raises(ValueError, match=r"event.idl: a name that ends in .thrift is expected"):
        read_struct(tmp_path / "event.idl", "Event")


def test_a_missing_package_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only such tables need it."""
    monkeypatch.setitem(sys.modules, "thriftpy2.parser.parser", None)
    with pytest.raises(ValueError, match=r"package thriftpy2 is not installed.*requirements/tables.txt"):
        read_struct(written_idl(tmp_path), "Event")


def test_a_struct_of_an_included_file_has_the_name_of_the_file(tmp_path: Path) -> None:
    """A union and an exception are structs too."""
    path = written_idl(tmp_path)
    assert [field.name for field in read_struct(path, "common.Point").fields] == ["x", "y"]
    assert read_struct(path, "common.Target").is_union
    assert not read_struct(path, "Failure").is_union


def test_each_idl_has_its_own_included_file(tmp_path: Path) -> None:
    """Whatever the process read before, as a file of this name in another directory, or before it changed."""
    text = 'include "inc/common.thrift"\nstruct Event { 1: common.Point p }'
    one, other = written_idl(tmp_path / "one", text), written_idl(tmp_path / "other", text)
    (tmp_path / "other/inc/common.thrift").write_text("struct Point { 1: i64 z }")

    def names(path: Path) -> list[str]:
        inner = read_struct(path, "Event").fields[0].type
        assert isinstance(inner, Struct)
        return [field.name for field in inner.fields]

    assert (names(one), names(other)) == (["x", "y"], ["z"])
    (tmp_path / "other/inc/common.thrift").write_text("struct Point { 1: i64 w }")
    assert names(other) == ["w"]


BASE = "enum K { A = 1 }\nstruct Event { 1: required i32 a; 2: optional K k = K.A; 3: list<string> l; 4: U u }\n"
UNION = "union U { 1: i32 x; 2: string y }"


@pytest.mark.parametrize(
    "change",
    [
        ("1: required", "7: required"),
        ("required i32 a", "i32 a"),
        ("i32 a", "i32 b"),
        ("i32 a", "i16 a"),
        ("A = 1", "A = 2"),
        ("A = 1", "A = 1, B = 2"),
        (" = K.A", ""),
        ("list<string>", "set<string>"),
        ("union", "struct"),
        ("2: string y", "2: string y; 3: i32 z"),
    ],
)
def test_another_struct_has_another_layout(tmp_path: Path, change: tuple[str, str]) -> None:
    """Another comment, order of declarations, name of the file or other struct has not."""
    layout = made_parser(tmp_path, BASE + UNION).layout
    same = f"# a comment\nstruct Other {{ 1: i32 a }}\n{UNION}\n{BASE}"
    assert ThriftParser(read_struct(written_idl(tmp_path, same, "same"), "Event"), Protocol.BINARY).layout == layout
    assert change[0] in BASE + UNION
    assert made_parser(tmp_path, (BASE + UNION).replace(*change)).layout != layout


def test_another_protocol_has_another_layout(tmp_path: Path) -> None:
    """The bytes mean something else."""
    one, other = (made_parser(tmp_path, BASE + UNION, protocol).layout for protocol in Protocol)
    assert one != other


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "options.idl: thrift needs one, as {idl: event.thrift, struct: Event}"),
        ({"idl": "a.thrift"}, "options.struct: thrift needs one"),
        ({"idl": "a.thrift", "struct": "A", "protocl": "x"}, "options.protocl: it is unknown; did you mean protocol?"),
        ({"idl": "a.thrift", "struct": "A", "protocol": "compac"}, "'compac' is unknown; did you mean compact?"),
        ({"idl": "a.thrift", "struct": "A", "protocol": "json"}, "'json' is unknown; accepted are binary, compact"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], reason: str) -> None:
    """With what is accepted; the file need not exist."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_options(options)
    assert parse_options({"idl": "a.thrift", "struct": "A"}).protocol is Protocol.BINARY
