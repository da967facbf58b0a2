"""Values of a writer's schema as values of the reader's: Avro's schema resolution, compiled once for two schemas.

A resolution is a function from a raw value (`ts_reader.schemas.avro.reading`) to a value for Arrow, or None where both
are equal; so values of the reader's own schema often pass untouched. The names of records, enums and fixed decide
only in unions, as in Avro's Java library. A mismatch inside of a value is an error of the rows that have it.
"""

import json
import threading
from collections.abc import Callable
from typing import Any, Final

from ts_reader.schemas.avro.arrow_types import members, not_null
from ts_reader.schemas.avro.defaults import raw_default
from ts_reader.schemas.avro.nodes import Field, Node
from ts_reader.schemas.avro.scalars import Resolution, identical, promotable, same_type, scalar
from ts_reader.schemas.limits import DEFAULT_BYTES, MAX_DEFAULT_BYTES
from ts_reader.schemas.rows import jsonable

_NULL: Final = Node("null")
_MAX_PAIRS: Final = 100_000  # of types that are compiled for two schemas


class Defaults(threading.local):
    """Bytes of defaults that the value of this thread may still receive: an array has one for each item."""

    left = MAX_DEFAULT_BYTES

    def spend(self, size: int) -> None:
        """Count a default; raise `ValueError` beyond the limit."""
        self.left -= size
        if self.left < 0:
            raise ValueError(f"defaults of the schema make the value larger than {MAX_DEFAULT_BYTES} bytes")


class Resolver:
    """Compiles resolutions; one for each pair of schemas."""

    def __init__(self) -> None:
        self.defaults = Defaults()
        self._count = [0]
        self._inner: dict[tuple[Node, Node], list[Resolution]] = {}  # of types inside of themselves

    def resolve(self, writer: Node, reader: Node, path: tuple[Node, ...] = ()) -> Resolution:
        """Return the resolution of two types.

        Args:
            reader: the type that is expected.
            path: the reader's types around it; a type inside of itself becomes JSON.

        Raises:
            ValueError: no value of the writer's type is one of the reader's.
        """
        self._count[0] += 1
        if self._count[0] > _MAX_PAIRS:
            raise ValueError(f"more than {_MAX_PAIRS} pairs of types")
        if reader in path:
            resolution = self._whole(writer, reader)
            return lambda value: json.dumps(jsonable(value if resolution is None else resolution(value)))
        return self._tree(writer, reader, (*path, reader))

    def _whole(self, writer: Node, reader: Node) -> Resolution:
        """Return the resolution of a recursive type, without JSON inside of it."""
        key = (writer, reader)
        if key not in self._inner:
            cell: list[Resolution] = []
            self._inner[key] = cell
            try:
                cell.append(_Whole(self).tree(writer, reader))
            except ValueError:
                del self._inner[key]
                raise
        cell = self._inner[key]
        return cell[0] if cell else lambda value: value if cell[0] is None else cell[0](value)

    def _tree(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> Resolution:
        if writer.kind == "union":
            return self._from_union(writer, reader, path)
        if reader.kind == "union":
            return self._to_union(writer, reader, path)
        if writer.kind != reader.kind and not promotable(writer, reader):
            raise ValueError(f"the writer's {writer.short_name} is not the reader's {reader.short_name}")
        return self._same_kind(writer, reader, path)

    def _same_kind(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> Resolution:
        """Return the resolution of two types that are no unions, and of one kind or promotable."""
        match reader.kind:
            case "record":
                return self._record(writer, reader, path)
            case "array":
                item = self.resolve(writer.inner, reader.inner, path)
                return None if item is None else lambda value: [item(each) for each in value]
            case "map":
                inner = self.resolve(writer.inner, reader.inner, path)
                return None if inner is None else lambda value: {name: inner(each) for name, each in value.items()}
            case "enum":
                return _enum(writer, reader)
            case "fixed" if writer.size != reader.size:
                raise ValueError(f"a fixed of {writer.size} bytes is not one of {reader.size}")
            case _:
                return scalar(writer, reader)

    def _from_union(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> Resolution:
        branches = not_null(writer)
        has_null = len(branches) < len(writer.branches)
        null = self._or_mismatch(_NULL, reader, path) if has_null else None
        if len(branches) == 0:
            return null
        if len(branches) == 1:
            only = self._or_mismatch(branches[0], reader, path)
            if only is None and null is None:
                return None
            return lambda value: _applied(null if value is None else only, value)
        if reader.kind != "union" or len(not_null(reader)) < 2:
            return self._from_several(branches, null, reader, path)
        moved = {name: self._member_or_mismatch(branch, reader, path) for name, branch in members(branches)}
        if null is None and all(name == other and inner is None for name, (other, inner) in moved.items()):
            return None

        def chosen(value: Any) -> Any:
            if value is None:
                return _applied(null, None)
            ((name, inner),) = value.items()
            other, resolution = moved[name]
            return {other: _applied(resolution, inner)}

        return chosen

    def _from_several(self, branches: list[Node], null: Resolution, reader: Node, path: tuple[Node, ...]) -> Resolution:
        """Return the resolution of a union of several types to a type that is no such union."""
        only = not_null(reader)[0] if reader.kind == "union" and not_null(reader) else reader
        resolutions = {
            name: self._or_mismatch(branch, reader, path)
            if same_type(branch, only) or promotable(branch, only)
            else _refusal(f"the writer's {branch.short_name} is not the reader's {only.short_name}")
            for name, branch in members(branches)
        }

        def inside(value: Any) -> Any:
            if value is None:
                return _applied(null, None)
            ((name, inner),) = value.items()
            return _applied(resolutions[name], inner)

        return inside

    def _to_union(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> Resolution:
        branches = not_null(reader)
        if writer.kind == "null":
            if len(branches) == len(reader.branches):
                raise ValueError("null is not a type of the reader's union")
            return None
        if len(branches) == 1:
            return self.resolve(writer, branches[0], path)
        name, inner = self._member(writer, reader, path)
        return lambda value: {name: _applied(inner, value)}

    def _member(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> tuple[str, Resolution]:
        """Return the member of a reader's union that a writer's type becomes, and its resolution."""
        named = members(not_null(reader))
        for matches in (identical, same_type, promotable):
            for name, branch in named:
                if matches(writer, branch):
                    return name, self.resolve(writer, branch, path)
        raise ValueError(f"the writer's {writer.short_name} is not a type of the reader's union")

    def _member_or_mismatch(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> tuple[str, Resolution]:
        try:
            return self._member(writer, reader, path)
        except ValueError as error:
            return "", _refusal(str(error))

    def _or_mismatch(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> Resolution:
        """Return the resolution of a branch, which need not occur in values; a mismatch is an error of those."""
        try:
            return self._tree(writer, reader, path)
        except ValueError as error:
            return _refusal(str(error))

    def _record(self, writer: Node, reader: Node, path: tuple[Node, ...]) -> Resolution:
        if not reader.fields:
            return lambda _: True
        names = [field.name for field in reader.fields]
        changed, constants = self._changes(writer, reader, path)
        has_more = False
        if self._keeps_absent():
            constants = [each for each in constants if each[1] is not None]
        else:
            has_more = len(writer.fields) > len(reader.fields)
        if constants or has_more or any(name != source for name, source, _ in changed):
            return self._rebuilt(names, changed, constants)
        return None if not changed else _fields([(name, inner) for name, _, inner in changed if inner is not None])

    def _changes(
        self, writer: Node, reader: Node, path: tuple[Node, ...]
    ) -> tuple[list[tuple[str, str, Resolution]], list[tuple[str, Any, int]]]:
        """Return the fields that are not as they were, and those that the writer lacks; see `_rebuilt`."""
        changed: list[tuple[str, str, Resolution]] = []
        constants: list[tuple[str, Any, int]] = []
        for field, source in zip(reader.fields, _sources(writer, reader), strict=True):
            if source is None:
                constants.append((field.name, *self._default(reader, field, path)))
                continue
            inner = self.resolve(source.node, field.node, path)
            if inner is not None or source.name != field.name:
                changed.append((field.name, source.name, inner))
        return changed, constants

    def _rebuilt(
        self, names: list[str], changed: list[tuple[str, str, Resolution]], constants: list[tuple[str, Any, int]]
    ) -> Resolution:
        """Return the resolution of a record to a new one with these fields.

        Args:
            names: of the reader's fields.
            changed: name, the writer's name and resolution of each field that is not as it was.
            constants: name, value and bytes of each field that the writer lacks.
        """
        fixed = {name: constant for name, constant, _ in constants}
        cost = sum(size for _, _, size in constants)

        def converted(value: dict[str, Any]) -> dict[str, Any]:
            if cost:
                self.defaults.spend(cost)
            result = {name: value[name] for name in names if name in value}
            for name, source, inner in changed:
                result[name] = _applied(inner, value[source])
            result.update(fixed)
            return result

        return converted

    def _keeps_absent(self) -> bool:
        """Return whether an absent field is null, as in Arrow; and an unknown one ignored."""
        return True

    def _default(self, record: Node, field: Field, path: tuple[Node, ...]) -> tuple[Any, int]:
        if not field.has_default:
            raise ValueError(f"{record.short_name}.{field.name} is not in the writer's schema, and has no default")
        raw = raw_default(field.node, field.default)
        resolution = self.resolve(field.node, field.node, path)
        return _applied(resolution, raw), len(field.name) + len(json.dumps(field.default)) + DEFAULT_BYTES


class _Whole(Resolver):
    """Resolves all levels of a recursive type into one value, for its JSON."""

    def __init__(self, outer: Resolver) -> None:
        super().__init__()
        self.defaults = outer.defaults
        self._count = outer._count
        self._inner = outer._inner

    def tree(self, writer: Node, reader: Node) -> Resolution:
        return self._tree(writer, reader, ())

    def resolve(self, writer: Node, reader: Node, path: tuple[Node, ...] = ()) -> Resolution:  # noqa: ARG002
        self._count[0] += 1
        if self._count[0] > _MAX_PAIRS:
            raise ValueError(f"more than {_MAX_PAIRS} pairs of types")
        return self._whole(writer, reader)

    def _keeps_absent(self) -> bool:
        return False


def _sources(writer: Node, reader: Node) -> list[Field | None]:
    """Return the writer's field of each of the reader's fields; None where the writer has none."""
    written = {field.name: field for field in writer.fields}
    return [
        next((written[name] for name in (field.name, *field.aliases) if name in written), None)
        for field in reader.fields
    ]


def _refusal(reason: str) -> Callable[[Any], Any]:
    def refuse(_: Any) -> Any:
        raise ValueError(reason)

    return refuse


def _applied(resolution: Resolution, value: Any) -> Any:
    return value if resolution is None else resolution(value)


def _fields(changed: list[tuple[str, Callable[[Any], Any]]]) -> Resolution:
    """Return the resolution of a record with fields that change; Arrow ignores those of the writer alone."""

    def converted(value: dict[str, Any]) -> dict[str, Any]:
        result = value.copy()  # a second field of the reader may have the same source
        for name, inner in changed:
            result[name] = inner(value[name])
        return result

    return converted


def _enum(writer: Node, reader: Node) -> Resolution:
    known = frozenset(reader.symbols)
    if known.issuperset(writer.symbols):
        return None

    def symbol(value: str) -> str:
        if value in known:
            return value
        if reader.default is None:
            raise ValueError(f"{value!r} is not a symbol of the reader's {reader.short_name}, which has no default")
        return reader.default

    return symbol
