"""The Arrow type of a JSON Schema, and JSON values for it, compiled together; drafts 4 to 2020-12.

==============================================  ==============================================================
JSON Schema                                     Arrow
==============================================  ==============================================================
`"type": "object"` with `properties`            `struct`: a column for each property; other properties are left out
`"type": "object"` without `properties`, with   `map<string, ...>`
a schema as `additionalProperties`
`"type": "array"` with one schema as `items`    `list`
`"type": "string"`, whatever its `format`       `string`
`"type": "integer"`                             `int64`; `5.0` is an integer too
`"type": "number"`                              `double`: the nearest one of a fraction
`"type": "boolean"`, `"null"`                   `bool`, `null`
`["X", "null"]`, `oneOf` or `anyOf` of X and    X; all columns can be null
null, `nullable`
`enum` or `const` without a type                `string`, if all values are strings
`$ref`                                          what it refers to
`allOf` of objects                              `struct` with the properties of all
everything else: other unions, tuples,          `string`: JSON of the value
objects without properties, `true`, a type
inside of itself, an unresolved `$ref`
==============================================  ==============================================================

Properties are found by their names; an absent one is null. A value of another type than its column's is refused. Other
keywords (`required`, `pattern`, `minimum` and so on) are not validated.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from ts_common.errors import CorruptData
from ts_common.wording import counted
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.formats import Format, Read
from ts_reader.schemas.json_schema.documents import Document, documents_of
from ts_reader.schemas.json_values import double_of, json_text, json_value
from ts_reader.schemas.limits import MAX_COLUMNS, MAX_DEPTH

Convert = Callable[[Any], Any]
Column = tuple[pa.DataType, Convert]
_UNIONS: Final = ("oneOf", "anyOf")


class Columns:
    """Compiles one schema."""

    def __init__(self) -> None:
        self._columns = 0

    def column(self, document: Document, schema: Any, path: tuple[int, ...] = ()) -> Column:
        """Return the Arrow type of a schema, and the function from a JSON value to its value.

        Args:
            document: that contains the schema.
            schema: its JSON.
            path: the schemas around it, by identity.

        Raises:
            ValueError: it has more than `MAX_COLUMNS` columns, or types nested deeper than `MAX_DEPTH`.
        """
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise ValueError(f"more than {MAX_COLUMNS} columns at all levels")
        if len(path) > MAX_DEPTH:
            raise ValueError(f"types are nested more than {MAX_DEPTH} levels deep")
        if not isinstance(schema, dict) or id(schema) in path:
            return pa.string(), _json
        inside = (*path, id(schema))
        if isinstance(reference := schema.get("$ref"), str):
            found = document.resolve(reference)
            return (pa.string(), _json) if found is None else self.column(*found, inside)
        for keyword in _UNIONS:
            if keyword in schema:
                return self._union(document, schema[keyword], inside)
        if "allOf" in schema:
            return self._all_of(document, schema, inside)
        match _type(schema):
            case "object":
                return self._object(document, schema, inside)
            case "array":
                return self._array(document, schema, inside)
            case kind:
                return _SCALARS.get(kind, (pa.string(), _json))

    def _union(self, document: Document, branches: Any, path: tuple[int, ...]) -> Column:
        others = [each for each in branches if _type(each) != "null"] if isinstance(branches, list) else []
        return self.column(document, others[0], path) if len(others) == 1 else (pa.string(), _json)

    def _all_of(self, document: Document, schema: dict[str, Any], path: tuple[int, ...]) -> Column:
        """Return a struct of the properties of all parts; JSON if a part is not a plain object."""
        parts = schema["allOf"] if isinstance(schema["allOf"], list) else [None]
        if len(parts) > MAX_COLUMNS:
            raise ValueError(f"{counted(len(parts), 'part')} of an allOf")
        properties: dict[str, tuple[Document, Any]] = {}
        for part in (*parts, {name: inner for name, inner in schema.items() if name != "allOf"}):
            place, found = _referenced(document, part)
            names = found.get("properties", {}) if isinstance(found, dict) else None
            if not isinstance(names, dict) or any(keyword in found for keyword in ("$ref", "allOf", *_UNIONS)):
                return pa.string(), _json
            properties |= {name: (place, inner) for name, inner in names.items()}
        return self._struct(properties, path)

    def _object(self, document: Document, schema: dict[str, Any], path: tuple[int, ...]) -> Column:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return self._struct({name: (document, inner) for name, inner in properties.items()}, path)
        values = schema.get("additionalProperties")
        if not isinstance(values, dict) or properties or "patternProperties" in schema:
            return pa.string(), _json
        kind, convert = self.column(document, values, path)

        def entries(value: Any) -> dict[str, Any] | None:
            if value is None:
                return None
            return {name: convert(inner) for name, inner in _expected(value, dict, "an object").items()}

        return pa.map_(pa.string(), kind), entries

    def _struct(self, properties: Mapping[str, tuple[Document, Any]], path: tuple[int, ...]) -> Column:
        if not properties:
            return pa.string(), _json
        columns = {name: self.column(*place, path) for name, place in properties.items()}
        converts = [(name, convert) for name, (_, convert) in columns.items()]

        def fields(value: Any) -> dict[str, Any] | None:
            if value is None:
                return None
            found = _expected(value, dict, "an object")
            result = {}
            for name, convert in converts:
                if name in found:
                    try:
                        result[name] = convert(found[name])
                    except ValueError as error:
                        raise ValueError(f"{name}: {error}" if ": " not in str(error) else f"{name}.{error}") from None
            return result

        return pa.struct([(name, kind) for name, (kind, _) in columns.items()]), fields

    def _array(self, document: Document, schema: dict[str, Any], path: tuple[int, ...]) -> Column:
        items = schema.get("items")
        if not isinstance(items, dict) or "prefixItems" in schema:
            return pa.string(), _json
        kind, convert = self.column(document, items, path)

        def elements(value: Any) -> list[Any] | None:
            if value is None:
                return None
            return [convert(inner) for inner in _expected(value, list, "an array")]

        return pa.list_(kind), elements


def _referenced(document: Document, schema: Any) -> tuple[Document, Any]:
    """Return what a schema refers to; itself if it refers to nothing."""
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        found = document.resolve(reference) if isinstance(reference, str) else None
        if found is None:
            break
        document, schema = found
    return document, schema


def _type(schema: Any) -> str | None:
    """Return the one type of a schema apart from null; None if it has several, or no known one."""
    if not isinstance(schema, dict):
        return None
    declared = schema.get("type")
    if isinstance(declared, list):
        others = [each for each in declared if each != "null"]
        declared = others[0] if len(others) == 1 else "null" if declared and not others else None
    if isinstance(declared, str):
        return declared
    if _has_texts_only(schema):
        return "string"
    return "object" if isinstance(schema.get("properties"), dict) and "type" not in schema else None


def _has_texts_only(schema: dict[str, Any]) -> bool:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def _json(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return json_text(value)
    except ValueError:  # it parses 1,024 levels, and writes 254
        raise ValueError("JSON that is nested too deeply") from None


def _expected(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{_shown(value)} is not {name}")  # noqa: TRY004  (the data is wrong)
    return value


def _shown(value: Any) -> str:
    try:
        return json_text(value).encode()[:60].decode("utf-8", "replace")
    except ValueError:
        return "JSON that is nested too deeply"


def _string(value: Any) -> str | None:
    if value is not None and type(value) is not str:
        raise ValueError(f"{_shown(value)} is not a string")
    return value


def _integer(value: Any) -> int | None:
    if type(value) is float and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, Decimal) and abs(value) < 1 << 63 and value == value.to_integral_value():
        return int(value)
    if value is not None and type(value) is not int:
        raise ValueError(f"{_shown(value)} is not an integer of 64 bits")
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) is bool or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{_shown(value)} is not a number")
    return double_of(value)


def _boolean(value: Any) -> bool | None:
    if value is not None and type(value) is not bool:
        raise ValueError(f"{_shown(value)} is not a boolean")
    return value


def _null(value: Any) -> None:
    if value is not None:
        raise ValueError(f"{_shown(value)} is not null")


_SCALARS: Final[Mapping[str | None, Column]] = {
    "string": (pa.string(), _string),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
    "null": (pa.null(), _null),
}


class JsonSchemaFormat(Format):
    """A reader's JSON Schema. The writer's schema need only be one, too: properties are found by name.

    Raises:
        CorruptData: the schema is not one of JSON Schema, or is too large.
    """

    def __init__(self, reader: Bundle) -> None:
        document = documents_of(reader)
        try:
            self.arrow_type, self._convert = Columns().column(document, document.root)
        except ValueError as error:
            raise CorruptData(f"{reader.schema}: {error}") from error

    def reading(self, writer: Bundle | None) -> Read:  # noqa: ARG002
        """Return a function that parses JSON, and reads the columns of the reader's schema."""
        convert = self._convert

        def value(data: bytes, _: bytes | None) -> object:
            return convert(json_value(data, exactly=True))

        return value
