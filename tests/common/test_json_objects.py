"""JSON in the store: damaged or hostile content is an error with the object's name, and never ends a program."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from awscrt.checksums import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.stored_objects import FIRST_LINE, KEY, OBJECTS
from ts_common.archive.commit import LogStart
from ts_common.archive.metadata_cache import CacheObject
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.restored import Restored
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.errors import CorruptData, NewerFormat
from ts_common.json_objects import MAX_DEPTH, check_depth, parse_json
from ts_common.model import TopicPartition

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))

ROW = ["00000000000000000000", 151, '"e"', 10, [[3, 0]], 10, 1009, 1000, 7, [7, "complete"], 0, 7, 7]
CACHE_OBJECT = {"of": "t-0", "segments": [ROW]}


def _cache_object(data: bytes) -> object:
    """Decode a cache object with a valid checksum, which an attacker can write too; also its rows."""
    cache_object = CacheObject(b"%08x\n%b\n" % (crc32c(data), data), KEYS, KEY)
    return cache_object.entries(), cache_object.find


DECODERS: dict[str, tuple[dict[str, Any], Callable[[bytes], Any]]] = {
    **{name: (json.loads(text), decode) for name, (text, decode) in OBJECTS.items()},
    "cache object": (CACHE_OBJECT, _cache_object),
}
# Wrong values of a field; each has ended a program once.
LIES = st.sampled_from(
    [
        *("1e999", "-1e999", "NaN", "Infinity", "1" * 400, "9223372036854775808", "-1", "-9223372036854775809", "1.5"),
        *(
            '"1"',
            "true",
            "null",
            "[]",
            "{}",
            "[[]]",
            "[5]",
            '"\\ud800"',
            '"' + "x" * 70000 + '"',
            "[" * 900 + "]" * 900,
        ),
    ]
)


def _with(value: Any, data: st.DataObject, lie: str) -> Any:
    """Return a copy of a JSON value with one wrong part."""
    if isinstance(value, dict | list) and value and data.draw(st.booleans()):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        chosen = data.draw(st.sampled_from(keys))
        pairs = [(key, _with(value[key], data, lie) if key == chosen else value[key]) for key in keys]
        return dict(pairs) if isinstance(value, dict) else [part for _, part in pairs]
    return lie


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"{" * 1000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"NaN",
        b"[]",
        b"5",
        b"\xff\xfe",
    ],
    ids=["brackets", "braces", "too deep", "NaN", "list", "number", "bytes"],
)
def test_r15_what_is_no_object_is_corrupt_data_with_the_key(name: str, data: bytes) -> None:
    """The data is nested 100,000 levels deep, has a constant of JavaScript, or is not JSON."""
    with pytest.raises(CorruptData, match=KEY):
        DECODERS[name][1](data)


@pytest.mark.parametrize("name", DECODERS)
@given(data=st.data())
def test_r15_a_lie_in_any_field_is_corrupt_data_with_the_key(name: str, data: st.DataObject) -> None:
    """A decoder returns the given values, or raises `CorruptData` or `NewerFormat`, and no other error."""
    fields, decode = DECODERS[name]
    lie = data.draw(LIES)
    written = json.dumps(_with(fields, data, "<lie>")).replace('"<lie>"', lie)
    try:
        decode(written.encode())
    except CorruptData as error:
        told = str(error)
    except NewerFormat:
        told = KEY
    else:
        told = KEY
    assert KEY in told
    assert len(told) < 2000


@pytest.mark.parametrize("name", OBJECTS)
def test_the_bytes_of_an_object_never_change(name: str) -> None:
    """What is read is written again as it was; later fields are ignored, unless a writer would drop them."""
    text, decode = OBJECTS[name]
    found = decode(text)
    assert found.encode().removeprefix(FIRST_LINE) == text
    later = text.replace(b"{", b'{"colour":[1],', 1)
    if isinstance(found, LogStart | Restored):
        with pytest.raises(NewerFormat, match="colour"):
            decode(later)
    else:
        assert decode(later) == found


@pytest.mark.parametrize("name", DECODERS)
def test_a_later_version_of_any_object_is_refused_as_that(name: str) -> None:
    """Its fields can have another meaning; a version that is no number of at least 1 is damage."""
    fields, decode = DECODERS[name]
    with pytest.raises(NewerFormat, match=f"{KEY} .*version 9"):
        decode(json.dumps({**fields, "version": 9}).encode())
    for version in (0, -1, "1", None, True):
        with pytest.raises(CorruptData, match=KEY):
            decode(json.dumps({**fields, "version": version}).encode())


def test_a_text_is_read_up_to_the_depth_and_size_that_are_allowed() -> None:
    """Brackets inside strings are not levels."""
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(deepest, KEY, len(deepest)) is not None
    assert parse_json(b'["' + b"[" * 100 + b'", "\\"[[["]', KEY, 1000) == ["[" * 100, '"[[[']
    with pytest.raises(CorruptData, match=rf"{KEY}: .* at most {len(deepest) - 1} are expected"):
        parse_json(deepest, KEY, len(deepest) - 1)


@pytest.mark.parametrize(
    ("begin", "end"),
    [(b"[", b"]"), (b'{"a]":', b"}"), (b"[", b""), (b'["[{\\"[", ', b"]")],
    ids=["lists", "objects", "no end", "brackets in texts"],
)
def test_r15_levels_have_a_bound_that_no_parser_sets(begin: bytes, end: bytes) -> None:
    """The `json` of Python 3.14 reads 10,000 levels; the bound is the same for a text that does not end."""
    for levels in (1, MAX_DEPTH, 50_000):
        text = begin * levels + b"0" + end * levels
        check_depth(text, levels)
        with pytest.raises(ValueError, match=f"nested more than {levels - 1} levels"):
            check_depth(text, levels - 1)
    with pytest.raises(CorruptData, match=f"{KEY}.* nested more than {MAX_DEPTH} levels"):
        parse_json(begin * 10_000 + b"0" + end * 10_000, KEY, 1 << 20)


def test_r15_a_text_of_quotes_that_never_ends_is_read_once() -> None:
    """A megabyte of escaped quotes with a lone backslash at its end: a search from each quote would need hours."""
    text = b'{"version":1,"x":' + b"[" * 40 + b'"' + b'\\"' * (1 << 20) + b"\\"
    with pytest.raises(CorruptData, match=KEY):
        parse_json(text, KEY, len(text))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ts-end", "9223372036854775808"),
        ("ts-end", "1_0"),
        ("ts-end", " 1"),
        ("ts-end", "1" * 5000),
        ("ts-crc32c", "-0000001"),
        ("ts-crc32c", "1ffffffff"),
        ("ts-epochs", "1:2:3"),
        ("ts-epochs", "4294967296:0"),
        ("ts-records", "-1"),
        ("ts-time-max", "1e999"),
        ("ts-txnindex", "00000007:none"),
    ],
)
def test_metadata_that_no_agent_writes_is_corrupt_data(name: str, value: str) -> None:
    """Numbers stay within their types, and have one form only."""
    healthy = {"ts-end": "10", "ts-crc32c": "00000007", "ts-epochs": "3:0", "ts-records": "10"}
    assert decode_metadata(healthy, KEY) is not None
    with pytest.raises(CorruptData, match=KEY):
        decode_metadata(healthy | {name: value}, KEY)
