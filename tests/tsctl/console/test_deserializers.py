"""Values are printed as Kafka's deserializers and `toString` have them."""

import struct

import pytest

from tsctl.console.deserializers import deserializer_of

PACKAGE = "org.apache.kafka.common.serialization."
EXPECTED: list[tuple[str, bytes, str]] = [
    ("String", "é".encode() + b"\xff", "é\ufffd"),
    ("Bytes", b"a \\\x00\x7f\xfe", "a \\x5C\\x00\\x7F\\xFE"),
    ("Short", b"\xff\xfe", "-2"),
    ("Integer", b"null", "1853189228"),
    ("Long", struct.pack(">q", -(1 << 63)), str(-(1 << 63))),
    ("Boolean", b"\x01", "true"),
    ("UUID", b"1-2-3-4-FFFFFFFFFFFFF", "00000001-0002-0003-0004-ffffffffffff"),
    *(
        (kind, struct.pack(form, number), text)
        for kind, form in (("Double", ">d"), ("Float", ">f"))
        for number, text in (
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-100.0, "-100.0"),
            (0.001, "0.001"),
            (0.25, "0.25"),
            (9.5e-4, "9.5E-4"),
            (1e7, "1.0E7"),
            (9999999.0, "9999999.0"),
            (1.5e30, "1.5E30"),
            (float("inf"), "Infinity"),
            (float("nan"), "NaN"),
        )
    ),
    ("Double", struct.pack(">d", 123456.789), "123456.789"),
    ("Double", struct.pack(">d", 5e-324), "4.9E-324"),
    ("Double", struct.pack(">d", 1.7976931348623157e308), "1.7976931348623157E308"),
    ("Float", struct.pack(">f", 16777216.0), "1.6777216E7"),
    ("Float", b"\x7f\x7f\xff\xff", "3.4028235E38"),
    ("Float", b"\x00\x00\x00\x01", "1.4E-45"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), EXPECTED)
def test_the_text_is_that_of_java(kind: str, value: bytes, expected: str) -> None:
    """Java 17 runs the tool in `tests/consumer/test_console.py`; it prints these as here."""
    problems: list[str] = []
    text = deserializer_of("--key-deserializer", f"{PACKAGE}{kind}Deserializer", problems)(value).decode()
    assert (text, problems) == (expected, [])


@pytest.mark.parametrize(
    ("kind", "value"),
    [("Short", b""), ("Integer", b"12345"), ("Long", b"1"), ("Float", b""), ("Boolean", b"\x02"), ("UUID", b"1-2-3-4")],
)
def test_other_bytes_are_refused(kind: str, value: bytes) -> None:
    """As Kafka's deserializers raise."""
    with pytest.raises(ValueError, match=r"bytes?; \w+ has \d|is no"):
        deserializer_of("--key-deserializer", f"{PACKAGE}{kind}Deserializer", [])(value)
