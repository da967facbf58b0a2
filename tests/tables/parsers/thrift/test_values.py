"""Values of Thrift become columns: those that thriftpy2's writers write, and no others."""

import pickle
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tables.parsers.made_records import parsed
from tests.tables.parsers.thrift.made_thrift import WRITERS, classes_of, encoded, made_parser, written_idl
from ts_tables.parsers.thrift.idl import read_struct
from ts_tables.parsers.thrift.parser import Protocol, ThriftParser

LATER = pa.struct([("x", pa.int32())])


@pytest.fixture(scope="module")
def idl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the IDL."""
    return written_idl(tmp_path_factory.mktemp("idl"))


@pytest.fixture(scope="module")
def classes(idl: Path) -> Any:
    """Its classes in thriftpy2."""
    return classes_of(idl)


@pytest.fixture(scope="module")
def parsers(idl: Path) -> dict[str, ThriftParser]:
    """Its parsers, by the name of the writer."""
    found = read_struct(idl, "Event")
    return {name: ThriftParser(found, protocol) for name, (protocol, *_) in WRITERS.items()}


def rich(classes: Any) -> Any:
    """Return an event with a value in each field."""
    common, later = classes.common, classes.Later
    return classes.Event(
        id="é",
        kind=5,
        at=-(1 << 63),
        is_new=True,
        is_old=False,
        tiny=-128,
        small=127,
        short_one=-(1 << 15),
        number=(1 << 31) - 1,
        amount=0.1,
        raw=b"\xff\0",
        points=[common.Point(x=1.0, y=float("-inf")), common.Point(x=-0.0)],
        tags={"a"},
        counts={"a": 1, "": (1 << 63) - 1},
        laters={6: [later(x=1), later()], 7: []},
        by_number={-1: "minus"},
        flags={True: False, False: True},
        target=common.Target(place=common.Point(x=2.0)),
        answers=[True, False] * 9,
        rows=[[1, -1], []],
        failure=classes.Failure(message="m", causes={"c": later(x=-1)}),
        negative="n",
        far=300,
        near=-300,
        more=[later(x=7)],
    )


RICH = {
    "id": "é",
    "kind": "BUY",
    "at": -(1 << 63),
    "is_new": True,
    "is_old": False,
    "tiny": -128,
    "small": 127,
    "short_one": -(1 << 15),
    "number": (1 << 31) - 1,
    "amount": 0.1,
    "raw": b"\xff\0",
    "points": [{"x": 1.0, "y": float("-inf")}, {"x": -0.0, "y": None}],
    "tags": ["a"],
    "counts": [("a", 1), ("", (1 << 63) - 1)],
    "laters": [("SELL", [{"x": 1}, {"x": None}]), ("7", [])],
    "by_number": [("-1", "minus")],
    "flags": [("true", False), ("false", True)],
    "target": {"page": None, "product": None, "place": {"x": 2.0, "y": None}},
    "answers": [True, False] * 9,
    "rows": [[1, -1], []],
    "failure": {"message": "m", "causes": [("c", {"x": -1})]},
    "negative": "n",
    "far": 300,
    "near": -300,
    "more": [{"x": 7}],
}


@pytest.mark.parametrize("writer", WRITERS)
def test_each_type_of_a_struct_is_a_column(parsers: dict[str, ThriftParser], classes: Any, writer: str) -> None:
    """A tombstone is a row of nulls, and so is a field without a value."""
    parser = parsers[writer]
    values = [encoded(rich(classes), writer), None, encoded(classes.Event(id="x"), writer)]
    rows, refused = parsed(parser, values)
    nothing = dict.fromkeys(RICH)
    assert rows == [(0, RICH), (1, nothing), (2, {**nothing, "id": "x"})]
    assert refused == {}
    columns = parser.columns
    assert columns.names == [*RICH]
    types = [columns.field(name).type for name in ("kind", "tiny", "at", "laters", "tags", "raw")]
    laters = pa.map_(pa.string(), pa.list_(pa.field("element", LATER)))
    tags = pa.list_(pa.field("element", pa.string()))
    assert types == [pa.string(), pa.int32(), pa.int64(), laters, tags, pa.binary()]


def test_the_two_protocols_have_other_bytes(parsers: dict[str, ThriftParser], classes: Any) -> None:
    """So the values of one are refused by the other."""
    for writer, other in (("binary", "compact"), ("compact", "binary")):
        rows, refused = parsed(parsers[other], [encoded(rich(classes), writer)])
        assert (rows, [*refused]) == ([], [0])


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Return integers of so many bits."""
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "is_new": st.booleans(),
    "is_old": st.booleans(),
    "tiny": numbers(8),
    "short_one": numbers(16),
    "number": numbers(32),
    "at": numbers(64),
    "amount": st.floats(allow_nan=False),
    "raw": st.binary(max_size=20),
    "counts": st.dictionaries(st.text(max_size=5), numbers(64), max_size=20),
    "by_number": st.dictionaries(numbers(32), st.text(max_size=5), max_size=3),
    "answers": st.lists(st.booleans(), max_size=20),
    "rows": st.lists(st.lists(numbers(16), max_size=3), max_size=20),
    "negative": st.text(max_size=5),
    "far": numbers(64),
    "near": numbers(64),
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({"id": st.text(max_size=200)}, optional=FIELDS))
@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_written_is_read(
    parsers: dict[str, ThriftParser], classes: Any, writer: str, fields: dict[str, Any]
) -> None:
    """By each writer, with any of the fields."""
    ((_, row),), refused = parsed(parsers[writer], [encoded(classes.Event(**fields), writer)])
    expected = dict(fields)
    for name in ("counts", "by_number"):
        if name in fields:
            expected[name] = [(str(key), value) for key, value in fields[name].items()]
    assert {name: value for name, value in row.items() if value is not None} == expected
    assert refused == {}


DEFAULTS = """
include "inc/common.thrift"
const string UNKNOWN = "unknown"
struct Event {
  1: bool flag = true
  2: i8 small = -128
  3: optional i64 large = 7
  4: double amount = 2
  5: string text = UNKNOWN
  6: binary raw = "ab"
  7: common.Kind kind = common.Kind.BUY
  8: Late late = 2
  9: optional list<i32> items = [1]
  10: optional string nothing
  11: Inner inner
}
enum Late { ONE = 1, TWO = 2 }
struct Inner { 1: i32 x = 3 }
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_defaults_of_single_values_are_filled_in(tmp_path: Path, writer: str) -> None:
    """As generated readers do; also in a struct that is inside, but not of a list."""
    parser = made_parser(tmp_path, DEFAULTS, WRITERS[writer][0])
    classes = classes_of(tmp_path / "event.thrift")
    event = classes.Event(**dict.fromkeys(["flag", "small", "large", "amount", "text", "raw", "kind", "late", "items"]))
    event.inner = classes.Inner(x=None)
    ((_, row),), _ = parsed(parser, [encoded(event, writer)])
    assert row == {
        "flag": True,
        "small": -128,
        "large": 7,
        "amount": 2.0,
        "text": "unknown",
        "raw": b"ab",
        "kind": "BUY",
        "late": "TWO",
        "items": None,
        "nothing": None,
        "inner": {"x": 3},
    }
    event.text, event.flag = "", False
    ((_, row),), _ = parsed(parser, [encoded(event, writer)])
    assert (row["text"], row["flag"]) == ("", False)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_member_of_a_union_has_no_default(tmp_path: Path, writer: str) -> None:
    """The union would have two members."""
    text = "union U { 1: i32 x = 5; 2: string y }\nstruct Event { 1: U u }"
    parser = made_parser(tmp_path, text, WRITERS[writer][0])
    classes = classes_of(tmp_path / "event.thrift")
    rows, _ = parsed(parser, [encoded(classes.Event(u=classes.U(x=None, y="t")), writer)])
    assert rows == [(0, {"u": {"x": None, "y": "t"}})]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_boolean_of_a_struct_is_not_that_of_what_follows(tmp_path: Path, writer: str) -> None:
    """The compact protocol has booleans of fields in the header, and others in bytes of their own."""
    text = "struct Inner { 1: bool b }\nstruct Event { 1: map<bool, Inner> m }"
    parser = made_parser(tmp_path, text, WRITERS[writer][0])
    classes = classes_of(tmp_path / "event.thrift")
    event = classes.Event(m={True: classes.Inner(b=True), False: classes.Inner(b=False)})
    rows, _ = parsed(parser, [encoded(event, writer)])
    assert rows == [(0, {"m": [("true", {"b": True}), ("false", {"b": False})]})]


SMALL = """
struct Event { 1: required string id; 2: Target target; 3: map<string, i32> counts; 4: i32 number; 5: list<bool> flags }
union Target { 1: string page; 2: i32 product }
"""
LATER_IDL = """
struct Event {
  1: required string id
  6: Other other; 7: list<Other> others; 8: map<i64, list<double>> sums; 9: bool flag; 10: set<bool> flags; 11: i16 a
  12: map<string, bool> named; 13: byte tiny; 2: Target target
}
struct Other { 1: string text; 2: bool flag; 3: list<list<i32>> rows; 20: i64 large; 21: binary raw; 22: double d }
union Target { 1: string page; 2: i32 product; 3: bool other }
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_fields_of_a_later_idl_are_skipped(tmp_path: Path, writer: str) -> None:
    """Of every type; a union whose member is unknown has no value in any other."""
    parser = made_parser(tmp_path, SMALL, WRITERS[writer][0])
    classes = classes_of(written_idl(tmp_path, LATER_IDL, "later"))
    other = classes.Other(text="t", flag=True, rows=[[1], [], [2, 3]], large=1 << 62, raw=b"r", d=1.0)
    event = classes.Event(
        id="x",
        other=other,
        others=[other, other],
        sums={1: [1.0], 2: []},
        flag=False,
        flags=[True, False],
        a=1,
        named={"n": True},
        tiny=1,
        target=classes.Target(other=True),
    )
    rows, refused = parsed(parser, [encoded(event, writer)])
    assert refused == {}
    expected = {"id": "x", "target": {"page": None, "product": None}, "counts": None, "number": None, "flags": None}
    assert rows == [(0, expected)]


# Bytes of the small IDL by hand: what writers of other languages write, and what none writes.
ID, COMPACT_ID = b"\x0b\0\1\0\0\0\1x", b"\x18\1x"


@pytest.mark.parametrize(
    ("data", "flags"),
    [
        (b"\x49\x02", []),
        (b"\x49\x21\1\0", [True, False]),
        (b"\x49\x22\1\2", [True, False]),
        (b"\x09\x0a\x31\2\0\1", [False, False, True]),
        (b"\x49\xf1\1\1", [True]),
        (b"\x49\xf0\0", []),
    ],
    ids=["empty", "type 1", "type 2", "long header", "long count", "empty of no type"],
)
def test_what_writers_of_other_languages_write_is_read(tmp_path: Path, data: bytes, flags: list[bool]) -> None:
    """Of booleans in lists of the compact protocol there are two ways."""
    parser = made_parser(tmp_path, SMALL, Protocol.COMPACT)
    rows, refused = parsed(parser, [COMPACT_ID + data + b"\0"])
    assert refused == {}
    assert rows[0][1]["flags"] == flags


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes left; 1 expected"),
        (b"\0", "id: it is missing"),
        (ID + b"\0\0", "1 byte after the struct"),
        (ID + ID + b"\0", "field 1 is there twice"),
        (b"\x0b\0\1\0\0\0\1\xff\0", "id: b'\\\\xff' is no UTF-8"),
        (b"\x0a\0\1" + b"\0" * 8 + b"\0", "id: its bytes are of type i64; the IDL has binary"),
        (ID + b"\x11\0\x09\0", "17 is no type of a field"),
        (ID + b"\x02\0\x09\2\0", "2 is no boolean"),
        (ID + b"\x0c\0\2\0\0", "target: 0 members of a union have a value; exactly one"),
        (ID + b"\x0c\0\2\x08\0\2\0\0\0\1\x0b\0\1\0\0\0\0\0\0", "target: 2 members of a union"),
        (ID + b"\x0d\0\3\x0b\x08\0\0\0\2" + b"\0\0\0\1a\0\0\0\1" * 2 + b"\0", "counts: two pairs of a map .* key 'a'"),
        (ID + b"\x0d\0\3\x0b\x0b\0\0\0\1\0\0\0\1a\0\0\0\1a\0", "counts: its bytes are of type binary; .* i32"),
        (b"\x80\1\0\1\0\0\0\1f\0\0\0\0" + ID + b"\0", "128 is no type of a field"),
    ],
)
def test_other_bytes_are_refused_with_the_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    """Also those that most readers would accept: a value has one meaning, or none."""
    rows, refused = parsed(made_parser(tmp_path, SMALL), [data])
    assert rows == []
    assert re.search(reason, refused[0])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (COMPACT_ID + b"\x35\x80\x80\x80\x80\x10\0", "number: 2147483648 is no i32"),
        (COMPACT_ID + b"\x36" + b"\xff" * 10 + b"\1\0", "number: its bytes are of type i64"),
        (COMPACT_ID + b"\x76" + b"\xff" * 9 + b"\2\0", "a number has more than 64 bits"),
        (COMPACT_ID + b"\x76" + b"\x80" * 10 + b"\0\0", "a number has more than 64 bits"),
        (COMPACT_ID + b"\x05\x80\x80\x04\2\0", "32768 is no id of a field"),
        (COMPACT_ID + b"\x10\0", "0 is no type of a field"),
        (COMPACT_ID + b"\x1f\0", "15 is no type of a field"),
        (COMPACT_ID + b"\x49\x11\3\0", "flags: 3 is no boolean"),
        (COMPACT_ID + b"\x49\x15\2\0", "flags: its bytes are of type i32; the IDL has bool"),
        (b"\x82\x21\0\1f" + COMPACT_ID + b"\0", "id: it is missing"),
    ],
)
def test_other_bytes_of_the_compact_protocol_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    """With the reason."""
    rows, refused = parsed(made_parser(tmp_path, SMALL, Protocol.COMPACT), [data])
    assert rows == []
    assert re.search(reason, refused[0])


def test_a_parser_can_be_sent_to_other_processes(parsers: dict[str, ThriftParser], classes: Any) -> None:
    """Without thriftpy2's objects, which belong to no module that another process can import."""
    for writer in WRITERS:
        data = pickle.dumps(parsers[writer])
        assert b"thriftpy2" not in data
        other = pickle.loads(data)
        rows, _ = parsed(other, [encoded(rich(classes), writer)])
        assert rows == [(0, RICH)]
        assert other.layout == parsers[writer].layout


def test_a_double_that_is_no_number_is_a_value(tmp_path: Path) -> None:
    """Each in its own bytes."""
    text = "struct Event { 1: double d }"
    for protocol, head, order in ((Protocol.BINARY, b"\4\0\1", ">d"), (Protocol.COMPACT, b"\x17", "<d")):
        data = head + struct.pack(order, float("nan")) + b"\0"
        ((_, row),), _ = parsed(made_parser(tmp_path, text, protocol), [data])
        assert str(row["d"]) == "nan"
