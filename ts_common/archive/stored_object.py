"""`StoredObject`: a JSON object of the store, whose fields are those of a dataclass.

::

    @dataclass(frozen=True, slots=True)
    class Gap(StoredObject, expected="a gap record", most=GAP_BYTES, version=None):
        start: Annotated[int, "from"]
        time: int
        broker: BrokerId

The class describes the format: JSON has the fields in the order of the class. A field's name is its attribute's in
camel case, or the text in `Annotated`. Its type is the kind of its values:

==============================  ====================================================================================
`int`, `str`, `bool`            a whole number from 0 to 2**63 - 1, a text of at most 1024 characters, a boolean
`float`                         a number, whole or not
`X | None`                      as X, or null
a `StrEnum`                     one of its values
a `TopicPartition`              a text, `<topic>-<partition>`
`tuple[X, ...]`                 an array
`tuple[X, Y]`                   an array of two
another dataclass               an array with one value for each attribute
`Mapping[X, Y]`                 an object, sorted by X
a `StoredObject`                an object
`Annotated[X, FieldKind(...)]`       as the kind describes it; see `between` and `limited`
==============================  ====================================================================================

Readers ignore unknown fields, unless the class `knows_all`. A field is required unless `Annotated` has a `Presence`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum, StrEnum, auto
from functools import cache
from json import dumps
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, get_args, get_origin, get_type_hints

from ts_common.archive.small_objects import get_small
from ts_common.errors import NewerFormat, ObjectNotFound
from ts_common.format_version import VERSION, check_version
from ts_common.json_objects import (
    MAX_INT32,
    MAX_INT64,
    MAX_UINT32,
    boolean,
    decoding,
    number,
    parse_fields,
    rows,
    shown,
    text,
    whole_number,
)
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectStore

_CAPITAL: Final = re.compile(r"_([a-z])")


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class FieldKind:
    """How the values of a field are stored.

    Attributes:
        decode: returns the value of a parsed JSON value; raises an error that `decoding` translates.
        encode: returns a JSON value.
    """

    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any] = _same


class Presence(Enum):
    """When an object has a field, other than always. A reader uses the attribute's default, or None, without it."""

    MAY_LACK = auto()  # always written; earlier releases did not
    IF_SET = auto()  # written unless it has its default
    GIVEN = auto()  # never: the reader has the value from the object's key


def between(least: int = 0, most: int = MAX_INT64) -> FieldKind:
    """Return the kind of a whole number from `least` to `most`."""
    return FieldKind(lambda value: whole_number(value, least, most))


def limited(most: int, pattern: str = ".*") -> FieldKind:
    """Return the kind of a text of at most `most` characters that a regular expression matches."""
    form = re.compile(pattern, re.ASCII | re.DOTALL)

    def decode(value: object) -> str:
        found = text(value, most)
        if not form.fullmatch(found):
            raise ValueError(f"{shown(found)} is not of the form {pattern}")
        return found

    return FieldKind(decode)


def topic_name(name: object) -> str:
    """Return the name of a topic.

    Raises:
        ValueError: Kafka does not accept it.
    """
    found = text(name)
    if not is_topic_name(found):
        raise ValueError(f"{shown(name)} is no legal name of a topic")
    return found


def partition_number(name: object) -> int:
    """Return the number of a partition, from the name of a field.

    Raises:
        ValueError: it is not one, or has another form.
    """
    if type(name) is not str or not name.isascii() or not name.isdigit() or str(int(name[:11])) != name:
        raise ValueError(f"{shown(name)} is not the number of a partition")
    return whole_number(int(name), 0, MAX_INT32)


TopicName = Annotated[str, FieldKind(topic_name)]
PartitionKey = Annotated[int, FieldKind(partition_number, str)]
BrokerId = Annotated[int, between(-1, MAX_INT32)]
Epoch = Annotated[int, between(-1, MAX_INT32)]
PartitionNumber = Annotated[int, between(0, MAX_INT32)]
Crc32c = Annotated[int, between(0, MAX_UINT32)]


@dataclass(frozen=True, slots=True)
class _Form:
    """The arguments of `StoredObject.__init_subclass__`."""

    expected: str = ""
    most: int = 0
    version: int | None = None
    known: int = VERSION
    way_out: str = ""
    end: str = ""
    knows_all: bool = False


class _Member(NamedTuple):
    attribute: str
    name: str
    kind: FieldKind
    presence: Presence | None
    default: Any


class StoredObject:
    """The base of dataclasses that are stored as JSON objects; the module's docstring has the format."""

    __slots__ = ()
    _form: ClassVar[_Form] = _Form()

    def __init_subclass__(
        cls,
        expected: str = "",
        most: int = 0,
        version: int | None = VERSION,
        known: int = VERSION,
        way_out: str = "",
        end: str = "\n",
        knows_all: bool = False,
    ) -> None:
        """Describe the whole object; a part of one has no arguments.

        Args:
            expected: the kind of object, with an article, for messages.
            most: largest size in bytes.
            version: that is written; None to write none.
            known: latest version that this release reads.
            way_out: as in `decoding`.
            end: what is after the JSON text.
            knows_all: whether an unknown field is refused as an unknown version is, because the next writer would drop
                it.
        """
        if expected:  # a dataclass with slots is made twice, and the second time without arguments
            cls._form = _Form(expected, most, version, known, way_out, end, knows_all)

    @classmethod
    def decode(cls, data: bytes, key: str, **given: object) -> Self:
        """Parse an object.

        Args:
            key: its key, for messages.
            given: attributes that the key determines; the object must have the same.

        Raises:
            CorruptData: the content is damaged, or contradicts `given`.
            NewerFormat: a later release wrote it.
        """
        form = cls._form
        content = parse_fields(data, key, form.expected, form.most, known=form.known, way_out=form.way_out)
        try:
            with decoding(key, form.expected, data, form.way_out):
                return cls.from_fields(content, **given)
        except NewerFormat as error:  # of a part, which does not have the key
            raise NewerFormat(f"{key}: {error}") from error

    @classmethod
    def read(cls, store: ObjectStore, key: str, **given: object) -> Self | None:
        """Return an object; None if it does not exist. It raises as `read_with_etag`."""
        found = cls.read_with_etag(store, key, **given)
        return None if found is None else found[0]

    @classmethod
    def read_with_etag(cls, store: ObjectStore, key: str, **given: object) -> tuple[Self, str] | None:
        """Return an object and its ETag; None if it does not exist.

        Raises:
            CorruptData, NewerFormat: as `decode`.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        try:
            data, info = get_small(store, key, cls._form.most)
        except ObjectNotFound:
            return None
        return cls.decode(data, key, **given), info.etag

    @classmethod
    def from_fields(cls, content: Mapping[str, Any], **given: object) -> Self:
        """Return the object of parsed JSON; it raises an error that `decoding` translates."""
        if type(content) is not dict:
            raise ValueError(f"{shown(content)} is not an object")
        if cls._form.version is not None:
            check_version(content, cls._form.expected, cls._form.known)
        unknown = content.keys() - {"version", *(member.name for member in _members(cls))}
        if cls._form.knows_all and unknown:
            raise NewerFormat(
                f"{cls._form.expected} of a later release: it has {', '.join(sorted(map(shown, unknown)))}; "
                "upgrade this one; the object is kept"
            )
        values: dict[str, Any] = {}
        for attribute, name, kind, presence, default in _members(cls):
            if presence is Presence.GIVEN:
                values[attribute] = given[attribute]
            elif presence is None or name in content:
                values[attribute] = kind.decode(content[name])
            else:
                values[attribute] = default
        found = cls(**values)
        for attribute, value in given.items():
            if getattr(found, attribute) != value:
                raise ValueError(f"{attribute} {getattr(found, attribute)!r}; {value!r} is expected")
        found.check()
        return found

    def check(self) -> None:
        """Check what no field shows alone, of an object that was read.

        Raises:
            ValueError: the fields contradict each other.
        """

    def fields(self) -> dict[str, Any]:
        """Return the JSON values."""
        form = self._form
        found: dict[str, Any] = {} if form.version is None else {"version": form.version}
        for attribute, name, kind, presence, default in _members(type(self)):
            value = getattr(self, attribute)
            if presence is Presence.GIVEN or (presence is Presence.IF_SET and value == default):
                continue
            found[name] = kind.encode(value)
        return found

    def encode(self) -> bytes:
        """Return the content of the object: one line."""
        return json_line(self.fields(), self._form.end)


def json_line(content: object, end: str = "\n") -> bytes:
    """Return a JSON value as one line."""
    return (dumps(content, separators=(",", ":")) + end).encode()


def _described(cls: type[Any]) -> tuple[_Member, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for each in fields(cls):
        notes = getattr(hints[each.name], "__metadata__", ())
        name = next((note for note in notes if isinstance(note, str)), None)
        name = name or _CAPITAL.sub(lambda match: match[1].upper(), each.name)
        presence = next((note for note in notes if isinstance(note, Presence)), None)
        kind = FieldKind(_same) if presence is Presence.GIVEN else kind_of(hints[each.name])
        default = None if each.default is MISSING else each.default
        found.append(_Member(each.name, name, kind, presence, default))
    return tuple(found)


_members: Final[Callable[[Any], tuple[_Member, ...]]] = cache(_described)


def kind_of(hint: Any) -> FieldKind:
    """Return the kind of a type; the module's docstring lists them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _KINDS:
        return _KINDS[hint]
    if origin is Annotated:
        own = (note for note in arguments[1:] if isinstance(note, FieldKind))
        return next(own, None) or kind_of(arguments[0])
    if NoneType in arguments:
        return _optional(kind_of(next(each for each in arguments if each is not NoneType)))
    if origin is tuple:
        return _rows(arguments[0]) if arguments[-1] is ... else _row(arguments, lambda *values: values, _same)
    if origin is Mapping:
        return _mapping(*map(kind_of, arguments))
    if issubclass(hint, StrEnum):
        return FieldKind(lambda value: hint(text(value)))
    if issubclass(hint, StoredObject):
        return FieldKind(hint.from_fields, methodcaller("fields"))
    hints = get_type_hints(hint, include_extras=True)
    return _row(hints.values(), hint, attrgetter(*hints))


def _optional(kind: FieldKind) -> FieldKind:
    return FieldKind(
        lambda value: None if value is None else kind.decode(value),
        lambda value: None if value is None else kind.encode(value),
    )


def _rows(hint: Any) -> FieldKind:
    """Return the kind of an array of any number of values."""
    each = kind_of(hint)
    return FieldKind(
        lambda value: tuple([each.decode(one) for one in rows(value)]),
        lambda value: [each.encode(one) for one in value],
    )


def _row(hints: Iterable[Any], make: Callable[..., Any], values_of: Callable[[Any], Iterable[Any]]) -> FieldKind:
    """Return the kind of an array with one value for each part."""
    kinds = [kind_of(hint) for hint in hints]

    def decode(value: object) -> Any:
        found = rows(value)
        if len(found) != len(kinds):
            raise ValueError(f"{shown(value)} is not a list of {len(kinds)}")
        return make(*[kind.decode(each) for kind, each in zip(kinds, found, strict=True)])

    return FieldKind(decode, lambda value: [k.encode(each) for k, each in zip(kinds, values_of(value), strict=True)])


def _mapping(key: FieldKind, value: FieldKind) -> FieldKind:
    return FieldKind(
        lambda found: {key.decode(name): value.decode(each) for name, each in found.items()},
        lambda found: {key.encode(name): value.encode(each) for name, each in sorted(found.items())},
    )


def _partition(name: str) -> TopicPartition:
    found = TopicPartition.parse(name)
    if found is None:
        raise ValueError(f"{name!r} is not a partition")
    return found


_KINDS: Final[dict[Any, FieldKind]] = {
    int: FieldKind(whole_number),
    str: FieldKind(text),
    bool: FieldKind(boolean),
    float: FieldKind(number),
    TopicPartition: FieldKind(_partition, str),
}
