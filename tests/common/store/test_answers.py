"""Values in a server's response: what is returned, and what no store sends."""

from dataclasses import replace

import pytest

from ts_common.store.answers import checked, class_of, parse_json, parse_xml, size_of, text_by_name, text_of
from ts_common.store.contract import ObjectInfo

HALF = "\ud800"  # of a surrogate pair, which UTF-8 cannot represent
INFO = ObjectInfo("t-0/a", 7, '"e"', 1.5)


def test_json_of_a_response_is_returned_as_values() -> None:
    """Escapes are read, and two halves of a surrogate pair are one character."""
    assert parse_json(b'{"a\\u00e9": [1, 2.5, null, true], "b": "\\ud83d\\ude00"}') == {
        "a\u00e9": [1, 2.5, None, True],
        "b": "\U0001f600",
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"\xff", b"[" * 100_000, b'{"size": NaN}', b"[1e999]", b'["\\ud800"]', b'{"\\uD800": 1}'],
    ids=["nothing", "a page", "not UTF-8", "levels", "NaN", "infinity", "half a pair", "half a pair as a name"],
)
def test_json_that_no_store_sends_is_rejected(body: bytes) -> None:
    """Each is the error that a driver translates, whatever the parser raises."""
    with pytest.raises(ValueError, match=r"the response|surrogates"):
        parse_json(body)


def test_the_root_of_xml_is_returned() -> None:
    """Predefined entities are text."""
    root = parse_xml("<List><Name>a&amp;b</Name></List>")
    assert (root.tag, root.findtext("Name")) == ("List", "a&b")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<!DOCTYPE x [<!ENTITY a "aa">]><x>&a;</x>', "document type"),
        ("<a><b></a>", "mismatched tag"),
        ("", "no element"),
        ("<a>&unknown;</a>", "undefined entity"),
    ],
)
def test_xml_that_no_store_sends_is_rejected(text: str, problem: str) -> None:
    """A document type is rejected before the parser can expand its entities."""
    with pytest.raises(ValueError, match=problem):
        parse_xml(text)


@pytest.mark.parametrize(("digits", "size"), [("0", 0), ("007", 7), ("9223372036854775807", (1 << 63) - 1)])
def test_digits_are_a_size(digits: str, size: int) -> None:
    """Up to the largest signed number of 64 bits."""
    assert size_of(digits) == size


@pytest.mark.parametrize(
    "digits", ["", "-1", "+1", " 1", "1e3", "1_0", "*", "\u0663", "9223372036854775808", "1" * 5000]
)
def test_other_texts_are_no_size(digits: str) -> None:
    """Signs, blanks, digits of other scripts, and numbers beyond 64 bits."""
    with pytest.raises(ValueError, match="is not a number of bytes"):
        size_of(digits)


@pytest.mark.parametrize("value", [5, None, b"a", ["a"], HALF])
def test_only_a_text_that_utf_8_can_represent_is_a_text(value: object) -> None:
    """It may be part of a key, of a request or of a log line later."""
    with pytest.raises(ValueError, match=r"is not a text|surrogates"):
        text_of(value)
    assert text_of("a\u00e9") == "a\u00e9"


def test_a_class_is_one_text_for_all_objects_of_it() -> None:
    """A plan keeps the class of each of a million segments."""
    found = [class_of("".join(("DEEP_", "ARCHIVE"))) for _ in range(2)]
    assert found == ["DEEP_ARCHIVE"] * 2
    assert found[0] is found[1]


@pytest.mark.parametrize("value", [None, "STANDARD", "", "a class", "\x1b[2J", "C" * 65, 7])
def test_a_missing_or_unknown_class_is_the_default_class(value: object) -> None:
    """A strange text does not fail a listing."""
    assert class_of(value) is None


def test_properties_within_the_contract_are_returned() -> None:
    """The largest size, and a time before 1970."""
    for info in (INFO, replace(INFO, size=(1 << 63) - 1, modified=-1.0)):
        assert checked(info) is info


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": 5},
        {"key": HALF},
        {"etag": None},
        {"etag": ""},
        {"etag": "a\r\nb: c"},
        {"etag": "\u00e9"},
        {"size": -1},
        {"size": 1 << 63},
        {"modified": float("inf")},
        {"modified": float("nan")},
    ],
    ids=str,
)
def test_properties_outside_the_contract_are_rejected(wrong: dict[str, object]) -> None:
    """An ETag is sent back in a header, a size is compared with offsets, and a time with the clock."""
    with pytest.raises(ValueError, match=r"."):
        checked(replace(INFO, **wrong))  # type: ignore[arg-type]  # other types are the point


@pytest.mark.parametrize("value", [None, [], "a", {"a": 5}, {"a": None}, {"a": HALF}, {HALF: "a"}], ids=ascii)
def test_only_texts_by_their_names_are_metadata(value: object) -> None:
    """Other JSON in its place is rejected."""
    with pytest.raises(ValueError, match=r"is not a JSON object|is not a text|surrogates"):
        text_by_name(value)
    assert text_by_name({"ts-end": "5"}) == {"ts-end": "5"}
