"""Holds in the archive: what is written is read, and what cannot be read is never an absent hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.made_archive import MadeArchive
from ts_common.archive.holds import (
    LONGEST_TEXT,
    Hold,
    Removal,
    check_reason,
    is_same_identity,
    read_hold,
    read_holds,
    read_removals,
)
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, NewerFormat

HOLD = Hold(
    name="case-17",
    topics=("orders", "pay.*"),
    reason="audit 17",
    set_by="a",
    time=1_700_000_000_000,
    two_people=True,
)
TEXT = (
    b'{"version":1,"name":"case-17","topics":["orders","pay.*"],"prefix":null,"reason":"audit 17","until":null,'
    b'"setBy":"a","time":1700000000000,"twoPeople":true,"purpose":"hold"}\n'
)
KEYS = ClusterKeys("prod")
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=LONGEST_TEXT)
_REASONS = _TEXTS.filter(lambda each: bool(each.strip()))
_NUMBERS = st.integers(0, (1 << 63) - 1)
HOLDS = st.builds(
    Hold,
    name=st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", fullmatch=True),
    reason=_REASONS,
    topics=st.lists(st.sampled_from(["orders", "a.b", "x.*", "(a|b)c+", "\u00e9.?"]), max_size=5).map(tuple),
    prefix=st.sampled_from(["o", "orders-", "__"]),
    until=st.none() | _NUMBERS,
    set_by=_TEXTS,
    time=_NUMBERS,
    two_people=st.booleans(),
    purpose=_TEXTS,
)


@given(HOLDS, _REASONS, st.none() | _TEXTS, _NUMBERS)
def test_a_hold_and_its_trace_are_read_as_they_were_written(
    hold: Hold, reason: str, removed_by: str | None, time: int
) -> None:
    """Every hold that can be made can be read: an unreadable one would stop retention of all topics."""
    assert Hold.decode(hold.encode(), "k", name=hold.name) == hold
    removal = Removal(hold, removed_by, reason, time)
    assert Removal.decode(removal.encode(), "k", name=hold.name, time=time) == removal


def test_a_hold_stops_its_topics_until_its_last_millisecond() -> None:
    """Names, patterns over whole names and a prefix count; from `until` on it stops nothing, but still matches."""
    hold = replace(HOLD, prefix="log-", until=1000)
    assert [name for name in ("orders", "orders2", "pay", "repay", "log-", "log") if hold.stops(name, 999)] == [
        "orders",
        "pay",
        "log-",
    ]
    assert not hold.stops("orders", 1000)
    assert hold.matches("orders")
    assert replace(hold, until=None).stops("orders", 1 << 62)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "a/b"},
        {"name": ".a"},
        {"name": "x" * 101},
        {"name": ""},
        {"name": "a\n"},
        {"reason": " "},
        {"reason": "\ud800"},
        {"reason": "x" * (LONGEST_TEXT + 1)},
        {"topics": ()},
        {"topics": ("(",)},
        {"topics": ("",)},
        {"topics": (".*.*.*.*!",)},
        {"topics": ("(a|aa)*!",)},
        {"topics": ("(a|aa)(?#)+!",)},
        {"topics": ("(?x)(a|aa) *!",)},
        {"topics": ("(a|ab)(b|)" * 2,)},
        {"topics": ("a?a?a?a?aaaa",)},
        {"topics": ("a",) * 1001},
        {"prefix": ""},
        {"prefix": "a*"},
        {"until": -1},
        {"until": 1 << 63},
    ],
)
def test_a_hold_that_no_reader_accepts_cannot_be_made(changed: dict[str, Any]) -> None:
    """It would be written, and stop retention of all topics by being unreadable."""
    with pytest.raises(ValueError, match=r".+"):
        replace(HOLD, **changed)


_DAMAGED = [
    TEXT.replace(b'"case-17"', b'"case-18"'),
    TEXT.replace(b'"pay.*"', b'"pay("'),
    TEXT.replace(b"pay.*", b"x{99999999999999999999}"),
    TEXT.replace(b'["orders"', b'["' + b"(" * 900 + b'"'),
]


@pytest.mark.parametrize("data", _DAMAGED)
def test_damaged_bytes_end_in_an_error_that_names_the_object(data: bytes) -> None:
    """None of them is a hold of fewer topics."""
    with pytest.raises(CorruptData, match="the/key"):
        Hold.decode(data, "the/key", name="case-17")
    with pytest.raises(CorruptData, match="the/key"):
        Removal.decode(
            b'{"hold":' + data + b',"removedBy":null,"reason":"r","time":5}', "the/key", name="case-17", time=5
        )


def test_an_object_that_is_no_hold_holds_everything(tmp_path: Path) -> None:
    """Damaged holds, holds of a later release and foreign objects raise; the traces of removed holds do not."""
    archive = MadeArchive(tmp_path)
    store, key = archive.store, KEYS.hold("case-17")
    assert read_holds(store, KEYS) == ()
    store.put(key, TEXT)
    store.put(KEYS.hold("a"), replace(HOLD, name="a").encode())
    trace = Removal(replace(HOLD, name="a-5"), "b", "closed", 7)
    store.put(KEYS.removed_hold("a-5", 7), trace.encode())
    store.put(KEYS.removed_holds + "notes", b"x")
    assert read_holds(store, KEYS) == (replace(HOLD, name="a"), HOLD)
    assert read_hold(store, KEYS, "case-17") == (HOLD, store.head(key).etag)
    assert read_removals(store, KEYS, pytest.fail) == (trace,)
    store.put(key, TEXT.replace(b'"version":1', b'"version":2'))
    with pytest.raises(NewerFormat, match=key):
        read_holds(store, KEYS)
    store.delete([key])
    for foreign in (KEYS.holds + "notes.txt", KEYS.holds + "case/17.json", KEYS.hold(".x")):
        store.put(foreign, json.dumps({}).encode())
        with pytest.raises(CorruptData, match="no retention removes anything"):
            read_holds(store, KEYS)
        store.delete([foreign])
    assert read_hold(store, KEYS, "case-17") is None


@pytest.mark.parametrize("reason", ["x\ny", "x\x1b[31my", "x\x7f", "x\u2028y", "x\x85y"])
def test_a_reason_is_one_line_and_a_stored_one_of_two_lines_still_holds(reason: str) -> None:
    """Retention must read what is stored; an unreadable hold stops everything."""
    with pytest.raises(ValueError, match="one line"):
        check_reason(reason)
    stored = replace(HOLD, reason=reason)
    assert Hold.decode(stored.encode(), "k", name="case-17") == stored
    assert stored.stops("orders", 0)
    assert check_reason("Prüfung 17\u00a0b") == "Prüfung 17\u00a0b"


def test_identities_with_a_word_in_common_are_the_same() -> None:
    """An access key can be of a user, and a user can have two."""
    assert is_same_identity("AKIA1 arn:user/a", "AKIA2 arn:user/a")
    assert is_same_identity("AKIA1", "AKIA1 arn:user/a")
    assert not is_same_identity("AKIA1 arn:user/a", "AKIA3 arn:user/b")
