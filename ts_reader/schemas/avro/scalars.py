"""Resolutions of types without other types inside of them: numbers, texts, bytes, and their logical types.

Types of a writer and a reader match as "Schema Resolution" of the specification 1.12 defines it.
"""

import struct
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

from ts_common.wording import counted
from ts_reader.schemas.avro.arrow_types import MAX_DIGITS
from ts_reader.schemas.avro.nodes import Node
from ts_reader.schemas.limits import MAX_TIME

# The values that a reader's type accepts from a writer's type, in addition to its own.
PROMOTIONS: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
Resolution = Callable[[Any], Any] | None
_DAY: Final = 86_400
# Of logical types whose Arrow types have values that are no times: a day has 24 hours, and the rest is as `MAX_TIME`.
_RANGES: Final = {
    "date": (2 - (1 << 31), (1 << 31) - 2),
    "time-millis": (0, _DAY * 10**3 - 1),
    "time-micros": (0, _DAY * 10**6 - 1),
    **{
        f"{local}timestamp-{unit}": (-most, most)
        for local in ("", "local-")
        for unit, most in (("millis", MAX_TIME // 1000), ("micros", MAX_TIME), ("nanos", (1 << 63) - 2))
    },
}
_ANY_PRECISION: Final = Context(prec=999_999)


def identical(writer: Node, reader: Node) -> bool:
    """Return whether two types are one primitive type, or have one full name."""
    return writer.kind == reader.kind and writer.name == reader.name


def same_type(writer: Node, reader: Node) -> bool:
    """Return whether a branch of a reader's union is the type that the writer used, without a promotion."""
    if writer.kind != reader.kind:
        return False
    return not writer.name or same_name(writer, reader)


def same_name(writer: Node, reader: Node) -> bool:
    """Return whether two named types match: by the name without its namespace, or by an alias of the reader's."""
    aliases = {alias.rpartition(".")[2] for alias in reader.aliases}
    return writer.short_name == reader.short_name or writer.short_name in aliases


def promotable(writer: Node, reader: Node) -> bool:
    """Return whether a reader's type accepts the values of a writer's type by a promotion."""
    return writer.kind in PROMOTIONS.get(reader.kind, ())


def unit_factor(writer: Node, reader: Node) -> tuple[int, int]:
    """Return what a number of the writer's is multiplied with, and then divided by, for the reader's unit of time.

    The specification leaves open what a change of the unit means. Both are the same moment here.
    """
    units = [_PER_SECOND.get(node.logical.rpartition("-")[2]) for node in (writer, reader)]
    if units[0] is None or units[1] is None or units[0] == units[1]:
        return 1, 1
    return max(units[1] // units[0], 1), max(units[0] // units[1], 1)


def scalar(writer: Node, reader: Node) -> Resolution:
    """Return the resolution of two types without other types inside of them; None if a value is as it was."""
    number = _number(writer, reader)
    if reader.logical not in _RANGES:
        return number
    least, most = _RANGES[reader.logical]

    def bounded(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"{value} is not a {reader.logical}")
        return value

    return bounded if number is None else lambda value: bounded(number(value))


def _number(writer: Node, reader: Node) -> Resolution:
    match reader.logical:
        case "decimal" if writer.kind in {"bytes", "fixed"}:
            return _decimal(writer if writer.logical == "decimal" else reader, reader)
        case "uuid" if writer.kind == "fixed":
            return lambda value: str(uuid.UUID(bytes=value))
        case "duration":
            return lambda value: {
                unit: int.from_bytes(value[start : start + 4], "little")
                for unit, start in (("months", 0), ("days", 4), ("milliseconds", 8))
            }
    multiplied, divided = unit_factor(writer, reader)
    if multiplied * divided != 1:
        return _in_units(multiplied, divided)
    return None if writer.kind == reader.kind else _promotion(writer.kind, reader.kind)


def _promotion(writer: str, reader: str) -> Resolution:
    match reader:
        case "float" | "double" if writer != "float":
            return _floating(reader)
        case "string":
            return lambda value: value.decode("utf-8")
        case "bytes":
            return lambda value: value.encode()
        case _:
            return None


def _in_units(multiplied: int, divided: int) -> Callable[[int], int]:
    def number(value: int) -> int:
        found, rest = divmod(value * multiplied, divided)
        if rest:
            raise ValueError(f"{value} has a part of the reader's unit of time")
        return found

    return number


def _floating(kind: str) -> Callable[[int], float]:
    def number(value: int) -> float:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0] if kind == "float" else float(value)
        if found != value:
            raise ValueError(f"no {kind} is {value}")
        return found

    return number


def _decimal(written: Node, reader: Node) -> Resolution:
    scale, as_text = written.scale, reader.precision > MAX_DIGITS

    def number(value: bytes) -> Decimal | str:
        if len(value) > 1 << 10:
            raise ValueError(f"a decimal of {counted(len(value), 'byte')}")
        found = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _ANY_PRECISION)
        return str(found) if as_text else found

    return number
