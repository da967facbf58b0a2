"""IDLs in files, and values that thriftpy2's own writers write."""

import itertools
from pathlib import Path
from typing import Any

from thriftpy2.parser.parser import parse
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol, TCyBinaryProtocol
from thriftpy2.transport import TCyMemoryBuffer, TMemoryBuffer

from ts_tables.parsers.thrift.idl import read_struct
from ts_tables.parsers.thrift.parser import Protocol, ThriftParser

COMMON = """
enum Kind { VIEW = 1, BUY = 5, SELL }
typedef i64 Millis
union Target { 1: string page; 2: i32 product; 3: Point place }
struct Point { 1: required double x; 2: optional double y }
"""
EVENT = """
/* An event. See http://example.org/events for all of them. */
include "inc/common.thrift"
namespace java org.example

struct Event {
  1: required string id                  # comments of three kinds
  2: optional common.Kind kind
  3: common.Millis at
  4: bool is_new, 5: bool is_old
  6: byte tiny; 7: i8 small; 8: i16 short_one; 9: i32 number;
  10: double amount
  11: binary raw
  12: list<common.Point> points
  13: set<string> tags
  14: map<string, i64> counts
  15: map<common.Kind, list<Later>> laters
  16: map<i32, string> by_number
  17: map<bool, bool> flags
  18: common.Target target
  19: list<bool> answers
  20: list<list<i16>> rows
  21: optional Failure failure
  -3: optional string negative
  400: optional i64 far
  401: i64 near
  22: Laters more
}
struct Later { 1: i32 x }
exception Failure { 1: string message; 2: map<string, Later> causes }
typedef list<Later> Laters
"""
WRITERS = {
    "binary": (Protocol.BINARY, TBinaryProtocol, TMemoryBuffer),
    "cython": (Protocol.BINARY, TCyBinaryProtocol, TCyMemoryBuffer),
    "compact": (Protocol.COMPACT, TCompactProtocol, TMemoryBuffer),
}
_NUMBERS = itertools.count()


def written_idl(directory: Path, text: str = EVENT, name: str = "event") -> Path:
    """Return the path of an IDL in a file, next to the one that it includes."""
    (directory / "inc").mkdir(parents=True, exist_ok=True)
    (directory / "inc/common.thrift").write_text(COMMON)
    path = directory / f"{name}.thrift"
    path.write_text(text)
    return path


def classes_of(path: Path) -> Any:
    """Return thriftpy2's module of an IDL."""
    name = f"test{next(_NUMBERS)}.{path.stem}_thrift"
    return parse(str(path), module_name=name, include_dirs=[])  # type: ignore[no-untyped-call]


def encoded(value: Any, writer: str) -> bytes:
    """Return the bytes of a struct of thriftpy2."""
    _, protocol, transport = WRITERS[writer]
    buffer: Any = transport()
    value.write(protocol(buffer))
    found: bytes = buffer.getvalue()
    return found


def made_parser(
    directory: Path, text: str, protocol: Protocol = Protocol.BINARY, struct: str = "Event"
) -> ThriftParser:
    """Return a parser of an IDL."""
    return ThriftParser(read_struct(written_idl(directory, text), struct), protocol)
