"""The shape of a request's bytes, checked before kio parses them.

kio allocates memory for as many elements as an array's count names. A frame of 19 bytes can name four billion, and the
allocation then ends the process. kio also raises an error at a tagged field of a later release, which Kafka ignores
(KIP-482). So each count is compared with the bytes that follow, and such fields are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin

MOST_ELEMENTS: Final = 40_000  # of all arrays of a request; each costs about a thousand bytes until it is answered
_FIXED: Final = {
    "int8": 1,
    "bool": 1,
    "int16": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "uuid": 16,
}
_LENGTHS: Final = {"string": 2, "bytes": 4, "records": 4}  # bytes of a length, where it is no varint
_LONGEST_VARINT: Final = 5


@dataclass(frozen=True, slots=True)
class _Skip:
    """Fields of a fixed size.

    Attributes:
        size: bytes of all.
    """

    size: int


@dataclass(frozen=True, slots=True)
class _Text:
    """A string or bytes.

    Attributes:
        length: bytes of its length; 0 for a varint.
    """

    length: int


@dataclass(frozen=True, slots=True)
class _Array:
    """An array.

    Attributes:
        is_compact: whether its count is a varint.
        can_be_null: whether it may be absent.
    """

    elements: "tuple[_Step, ...]"
    is_compact: bool
    can_be_null: bool


@dataclass(frozen=True, slots=True)
class _Tags:
    """Tagged fields.

    Attributes:
        known: the tags of this version, and the steps through the value of each.
    """

    known: "Mapping[int, tuple[_Step, ...]]"


_Step = _Skip | _Text | _Array | _Tags


def checked(frame: bytes, schema: Any) -> bytes:
    """Return a frame that kio can parse: without the tagged fields that its schema does not have.

    Args:
        frame: header and body of a request.
        schema: kio's, of the request.

    Raises:
        ValueError: a count or a length exceeds what the frame has, an array is absent that must not be, or the arrays
            have more elements than a request may have.
    """
    walk = _Walk(frame)
    walk.through(_steps_of(schema.__header_schema__))
    walk.through(_steps_of(schema))
    return walk.without_unknown()


class _Walk:
    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0
        self._left = MOST_ELEMENTS
        self._replaced: list[tuple[int, int, bytes]] = []  # start and end of tagged fields, and what is kept

    def through(self, steps: tuple[_Step, ...]) -> None:
        """Pass the fields of an entity."""
        for step in steps:
            if isinstance(step, _Skip):
                self._pass(step.size)
            elif isinstance(step, _Text):
                self._text(step)
            elif isinstance(step, _Array):
                self._array(step)
            else:
                self._tags(step)

    def without_unknown(self) -> bytes:
        if not self._replaced:
            return self._frame
        parts, end = [], 0
        for start, behind, kept in self._replaced:
            parts += [self._frame[end:start], kept]
            end = behind
        return b"".join([*parts, self._frame[end:]])

    def _pass(self, size: int) -> None:
        self._at += size
        if self._at > len(self._frame):
            raise ValueError(f"a field ends at byte {self._at} of {len(self._frame)}")

    def _varint(self) -> int:
        found = 0
        for number, byte in enumerate(self._frame[self._at : self._at + _LONGEST_VARINT]):
            found |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                self._at += number + 1
                return found
        raise ValueError(f"a varint at byte {self._at} does not end")

    def _number(self, size: int) -> int:
        start = self._at
        self._pass(size)
        return int.from_bytes(self._frame[start : self._at], "big", signed=True)

    def _text(self, step: _Text) -> None:
        size = self._number(step.length) if step.length else self._varint() - 1
        self._pass(max(size, 0))  # kio refuses null where it is not allowed, and another negative length

    def _array(self, step: _Array) -> None:
        count = self._varint() - 1 if step.is_compact else self._number(4)
        if count < 0:
            if count == -1 and step.can_be_null:
                return
            raise ValueError(f"an array of {count} elements at byte {self._at}")
        if count > len(self._frame) - self._at:
            raise ValueError(f"an array of {count} elements at byte {self._at} of {len(self._frame)}")
        self._left -= count
        if self._left < 0:
            raise ValueError(f"its arrays have more than {MOST_ELEMENTS} elements: use several requests")
        first = step.elements[0]
        if len(step.elements) == 1 and isinstance(first, _Skip):
            self._pass(count * first.size)
            return
        for _ in range(count):
            self.through(step.elements)

    def _tags(self, step: _Tags) -> None:
        frame, start = self._frame, self._at
        if self._at < len(frame) and not frame[self._at]:  # nearly every section is empty
            self._at += 1
            return
        kept = []
        count = self._varint()
        for _ in range(count):
            field = self._at
            tag, size = self._varint(), self._varint()
            value = self._at
            self._pass(size)
            if tag in step.known:
                self._at = value
                self.through(step.known[tag])
                if self._at != value + size:
                    raise ValueError(f"the tagged field {tag} has another size than {size}")
                kept.append(frame[field : self._at])
        if len(kept) != count:
            self._replaced.append((start, self._at, b"".join([_encoded(len(kept)), *kept])))


def _encoded(value: int) -> bytes:
    """Return a varint."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


@cache
def _steps_of(schema: Any) -> tuple[_Step, ...]:
    """Return the steps through an entity of kio.

    Raises:
        TypeError: it has a field that no served request has.
    """
    steps: list[_Step] = []
    known: dict[int, tuple[_Step, ...]] = {}
    is_header = schema.__name__ == "RequestHeader"
    for field in fields(schema):
        tag = field.metadata.get("tag")
        # The client's name has the early form in every version, so that each broker can read it.
        is_compact = schema.__flexible__ and not (is_header and field.name == "client_id")
        if tag is not None:
            kind: Any = field.type
            is_entity = hasattr(kind, "__type__")
            known[int(tag)] = _steps_of(kind) if is_entity else (_step_of(field, is_compact=is_compact),)
            continue
        step = _step_of(field, is_compact=is_compact)
        if isinstance(step, _Skip) and steps and isinstance(steps[-1], _Skip):
            steps[-1] = _Skip(steps[-1].size + step.size)
        else:
            steps.append(step)
    if schema.__flexible__:
        steps.append(_Tags(known))
    return tuple(steps)


def _step_of(field: Any, *, is_compact: bool) -> _Step:
    kind = field.type
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    arrays = [get_args(each)[0] for each in options if get_origin(each) is tuple]
    name = field.metadata.get("kafka_type")
    if not arrays:
        return _primitive(name, is_compact=is_compact)
    nested = arrays[0]
    inner = _steps_of(nested) if hasattr(nested, "__type__") else (_primitive(name, is_compact=is_compact),)
    return _Array(inner, is_compact, len(options) > 1)


def _primitive(name: Any, *, is_compact: bool) -> _Step:
    if name in _FIXED:
        return _Skip(_FIXED[name])
    if name not in _LENGTHS:
        raise TypeError(f"a field of the type {name!r}")
    return _Text(0 if is_compact else _LENGTHS[name])
