"""The base of stored objects: bytes by declaration, and damage in every kind of field."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest

from ts_common.archive.stored_object import Presence, StoredObject, between, limited
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store


class _Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class _Row:
    offset: int
    note: str | None


@dataclass(frozen=True, slots=True)
class _Part(StoredObject):
    low: Annotated[int, "from"]
    later: Annotated[int | None, Presence.IF_SET] = None


@dataclass(frozen=True, slots=True)
class _Closed(StoredObject, expected="a closed one", most=1000, knows_all=True):
    low: Annotated[int, "from"]


@dataclass(frozen=True, slots=True)
class _Whole(StoredObject, expected="a whole", most=1000, way_out="; delete it"):
    name: Annotated[str, Presence.GIVEN]
    set_by: Annotated[str, limited(5, "[a-z]+")]
    is_new: bool
    colour: _Colour
    rows: tuple[_Row, ...]
    two: tuple[int, Annotated[int, between(-1, 9)]]
    ends: Mapping[TopicPartition, int]
    parts: tuple[_Part, ...]
    lacked: Annotated[int | None, Presence.MAY_LACK] = None
    times: Annotated[int, Presence.IF_SET] = 7

    def check(self) -> None:
        if self.times == 13:
            raise ValueError("13 is not a number of times")


WHOLE = _Whole(
    name="n",
    set_by="me",
    is_new=True,
    colour=_Colour.RED,
    rows=(_Row(1, "a"), _Row(2, None)),
    two=(5, -1),
    ends={TopicPartition("b", 0): 2, TopicPartition("a", 10): 1},
    parts=(_Part(1), _Part(2, 3)),
    lacked=4,
    times=8,
)
TEXT = (
    b'{"version":1,"setBy":"me","isNew":true,"colour":"red","rows":[[1,"a"],[2,null]],"two":[5,-1],'
    b'"ends":{"a-10":1,"b-0":2},"parts":[{"from":1},{"from":2,"later":3}],"lacked":4,"times":8}\n'
)


def test_the_types_of_a_class_are_its_format() -> None:
    """The fields have its order, and unknown ones are ignored."""
    assert WHOLE.encode() == TEXT
    assert _Whole.decode(TEXT, "k", name="n") == WHOLE
    assert _Whole.decode(TEXT.replace(b"{", b'{"more":[1],', 1), "k", name="n") == WHOLE


def test_an_object_that_is_carried_over_refuses_unknown_fields() -> None:
    """The next writer would drop them; the message names each, and the way out."""
    assert _Closed.decode(b'{"version":1,"from":5}', "k") == _Closed(5)
    with pytest.raises(NewerFormat, match=r"k: a closed one of a later release: it has 'a', 'low'; upgrade this one"):
        _Closed.decode(b'{"version":1,"low":5,"from":5,"a":1}', "k")
    with pytest.raises(NewerFormat, match="version 2"):
        _Closed.decode(b'{"version":2,"from":5,"a":1}', "k")


def test_a_field_may_be_absent_only_as_its_presence_allows() -> None:
    """Any other field is required, also if the attribute has a default."""
    plain = replace(WHOLE, lacked=None, times=7)
    assert plain.encode() == TEXT.replace(b'"lacked":4,"times":8', b'"lacked":null')
    assert _Whole.decode(TEXT.replace(b',"lacked":4,"times":8', b""), "k", name="n") == plain
    with pytest.raises(CorruptData, match=r"k: not a whole: no field 'two'.*; delete it"):
        _Whole.decode(TEXT.replace(b'"two"', b'"too"'), "k", name="n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"me"', b'"long name"'),
        (b'"me"', b'"A"'),
        (b"true", b"1"),
        (b'"red"', b'"blue"'),
        (b'"red"', b"[]"),
        (b'[[1,"a"],[2,null]]', b"{}"),
        (b'[1,"a"]', b"[1]"),
        (b'[1,"a"]', b'[1,"a",1]'),
        (b'[1,"a"]', b'"1a"'),
        (b'[1,"a"]', b'[1,"\\ud800"]'),
        (b'[1,"a"]', b"[1,5]"),
        (b"[5,-1]", b"[5,-2]"),
        (b"[5,-1]", b"[5,10]"),
        (b"[5,-1]", b"[5,true]"),
        (b"[5,-1]", b"[9223372036854775808,0]"),
        (b"[5,-1]", b"[1e999,0]"),
        (b'{"a-10":1,"b-0":2}', b"[]"),
        (b"a-10", b"a-010"),
        (b"a-10", b"../a-10"),
        (b'{"from":1}', b"[1]"),
        (b'{"from":1}', b'"from"'),
        (b'{"from":1}', b'{"from":null}'),
        (b'"times":8', b'"times":13'),
        (b'"times":8', b'"times":null'),
        (b'"version":1', b'"version":0'),
        (b"{", b"["),
    ],
)
def test_any_other_value_is_corrupt_data_with_the_key(old: bytes, new: bytes) -> None:
    """No value is converted, and no error of another class is raised."""
    assert old in TEXT
    with pytest.raises(CorruptData, match=r"some/key: not a whole: .*; delete it"):
        _Whole.decode(TEXT.replace(old, new, 1), "some/key", name="n")


def test_what_the_key_has_is_compared_or_used(tmp_path: Path) -> None:
    """An object under the key of another one is damage; a later version is not."""
    with open_store(tmp_path.as_uri()) as store:
        assert _Whole.read(store, "k", name="n") is None
        info = store.put("k", TEXT)
        assert _Whole.read_with_etag(store, "k", name="m", set_by="me") == (replace(WHOLE, name="m"), info.etag)
        with pytest.raises(CorruptData, match="set_by 'me'; 'you' is expected"):
            _Whole.read(store, "k", name="n", set_by="you")
        store.put("k", TEXT.replace(b'"version":1', b'"version":2'))
        with pytest.raises(NewerFormat, match="version 2"):
            _Whole.read(store, "k", name="n")
        store.put("k", bytes(1001))
        with pytest.raises(CorruptData, match="1001 bytes; at most 1000"):
            _Whole.read(store, "k", name="n")
