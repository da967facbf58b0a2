"""Kafka's deserializers, as the console consumer prints what they return.

Sources of the formats: the classes of Kafka's `org.apache.kafka.common.serialization`, and `toString` of what each
returns.
"""

import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Final

from ts_common.wording import counted

Deserializer = Callable[[bytes], bytes]  # raises ValueError: the bytes are no such value

_PACKAGE: Final = "org.apache.kafka.common.serialization."
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7  # Java prints other numbers with an exponent
_UUID: Final = re.compile(r"([0-9a-fA-F]+)-([0-9a-fA-F]+)-([0-9a-fA-F]+)-([0-9a-fA-F]+)-([0-9a-fA-F]+)", re.ASCII)
_UUID_DIGITS: Final = (8, 4, 4, 4, 12)
_LONGEST_UUID: Final = 36
_PRINTED: Final = frozenset(range(0x20, 0x7F)) - {ord("\\")}
_LEAST_DIGITS: Final = 2
_FLOAT_DIGITS: Final = 9  # any two floats of 32 bits differ in these


def deserializer_of(option: str, name: str, problems: list[str]) -> Deserializer:
    """Return what prints the values of a deserializer.

    Args:
        option: which names it.
        name: its class.
        problems: one sentence is appended if the class is unknown.
    """
    found = _DESERIALIZERS.get(name)
    if found is None:
        known = ", ".join(_DESERIALIZERS)
        problems.append(f"{option} {name}: unknown; accepted are {known}; --json decodes with a schema registry")
        return bytes
    return found


def _number(form: str, what: str) -> Deserializer:
    one = struct.Struct(form)

    def text(value: bytes) -> bytes:
        return str(one.unpack(_sized(value, one.size, what))[0]).encode()

    return text


def _float(value: bytes) -> bytes:
    (number,) = struct.unpack(">f", _sized(value, 4, "Float"))
    for digits in range(_LEAST_DIGITS, _FLOAT_DIGITS):
        shorter = float(f"{number:.{digits}g}")
        with suppress(OverflowError):  # rounded up above the greatest
            if struct.pack(">f", shorter) == value:
                return _java_text(shorter)
    return _java_text(float(f"{number:.{_FLOAT_DIGITS}g}"))


def _double(value: bytes) -> bytes:
    (number,) = struct.unpack(">d", _sized(value, 8, "Double"))
    return _java_text(number)


def _java_text(number: float) -> bytes:
    """Return the text of `Double.toString` of Java 19 and later: the fewest digits, but two if the number has them."""
    if not isfinite(number):
        return {"nan": b"NaN", "inf": b"Infinity", "-inf": b"-Infinity"}[str(number)]
    short = f"{number:.{_LEAST_DIGITS}g}"
    mantissa, _, exponent = (short if float(short) == number else repr(number)).partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0") or "0"
    place = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits)) if number else 1
    digits = digits.rstrip("0") or "0"
    if number == 0 or _PLAIN_FROM <= abs(number) < _PLAIN_BELOW:
        before = digits[:place].ljust(place, "0") if place > 0 else "0"
        after = digits[place:] if place > 0 else "0" * -place + digits
        return f"{sign}{before}.{after or '0'}".encode()
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{place - 1}".encode()


def _boolean(value: bytes) -> bytes:
    (number,) = _sized(value, 1, "Boolean")
    if number > 1:
        raise ValueError(f"the byte {number} is no Boolean")
    return b"true" if number else b"false"


def _string(value: bytes) -> bytes:
    return value.decode("utf-8", "replace").encode()


def _uuid(value: bytes) -> bytes:
    text = value.decode("utf-8", "replace")
    parts = _UUID.fullmatch(text) if len(text) <= _LONGEST_UUID else None
    if parts is None:
        raise ValueError("it is no UUID")
    numbers = zip((int(part, 16) for part in parts.groups()), _UUID_DIGITS, strict=True)
    return "-".join(f"{number % 16**digits:0{digits}x}" for number, digits in numbers).encode()


def _bytes(value: bytes) -> bytes:
    return "".join(chr(byte) if byte in _PRINTED else f"\\x{byte:02X}" for byte in value).encode()


def _sized(value: bytes, size: int, what: str) -> bytes:
    if len(value) != size:
        raise ValueError(f"{counted(len(value), 'byte')}; {what} has {size}")
    return value


_BY_TYPE: Final[Mapping[str, Deserializer]] = {
    "String": _string,
    "ByteArray": bytes,  # Java prints its address
    "Bytes": _bytes,
    "Short": _number(">h", "Short"),
    "Integer": _number(">i", "Integer"),
    "Long": _number(">q", "Long"),
    "Float": _float,
    "Double": _double,
    "Boolean": _boolean,
    "UUID": _uuid,
}
_DESERIALIZERS: Final = {f"{_PACKAGE}{name}Deserializer": function for name, function in _BY_TYPE.items()}
