"""An Avro schema as nodes: names resolved, logical types recognized, hostile shapes rejected.

The format is that of the Avro specification 1.12, "Schema Declaration" and "Logical Types". A logical type
that is unknown or does not fit its type is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ts_common.errors import CorruptData
from ts_common.json_objects import shown
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.limits import MAX_BRANCHES
from ts_reader.schemas.schema_source import RegisteredSchema, parse_schema_text

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
LOGICAL_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "decimal": frozenset({"bytes", "fixed"}),
    "uuid": frozenset({"string", "fixed"}),
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    "timestamp-millis": frozenset({"long"}),
    "timestamp-micros": frozenset({"long"}),
    "timestamp-nanos": frozenset({"long"}),
    "local-timestamp-millis": frozenset({"long"}),
    "local-timestamp-micros": frozenset({"long"}),
    "local-timestamp-nanos": frozenset({"long"}),
    "duration": frozenset({"fixed"}),
}


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record; `default` has a meaning if `has_default`."""

    name: str
    aliases: tuple[str, ...]
    node: "Node"
    default: Any
    has_default: bool


@dataclass(slots=True, eq=False)
class Node:
    """A type of a schema.

    Attributes:
        kind: a primitive type, `record`, `enum`, `fixed`, `array`, `map` or `union`.
        name: full name of a record, enum or fixed; else empty.
        aliases: full names.
        default: symbol of an enum; None without one.
        size: bytes of a fixed.
        branches: of a union; the items of an array and the values of a map are its only branch.
        logical: its logical type; empty without one.
        precision: of a decimal.
        scale: of a decimal.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    branches: list["Node"] = field(default_factory=list)
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def inner(self) -> "Node":
        """The items of an array, or the values of a map."""
        return self.branches[0]

    @property
    def short_name(self) -> str:
        """The name without its namespace; of a type without a name, the type."""
        return self.name.rpartition(".")[2] or self.kind


def parse_avro(bundle: Bundle) -> Node:
    """Return the nodes of a schema.

    Raises:
        CorruptData: it is not a schema of Avro.
    """
    parser = _Parser()
    for _, schema in bundle.references:
        parser.parse(schema)
    return parser.parse(bundle.schema)


class _Parser:
    """Parses schemas that share their names: a schema and those it refers to."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def parse(self, schema: RegisteredSchema) -> Node:
        declared = parse_schema_text(schema)
        try:
            return self._node(declared, "")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else f"{error}"
            raise CorruptData(f"{schema}: not a schema of Avro: {reason}") from error

    def _node(self, declared: Any, namespace: str) -> Node:
        match declared:
            case str():
                return self._by_name(declared, namespace)
            case list():
                return self._union(declared, namespace)
            case {"type": dict() | list() as inner}:  # a type in a needless object
                return self._node(inner, namespace)
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._declared(declared, namespace)
            case {"type": "array", "items": items}:
                return Node("array", branches=[self._node(items, namespace)])
            case {"type": "map", "values": values}:
                return Node("map", branches=[self._node(values, namespace)])
            case {"type": str() as name}:
                return self._by_name(name, namespace, declared)
        raise ValueError(f"{shown(declared)} is not a type")

    def _by_name(self, name: str, namespace: str, declared: Mapping[str, Any] | None = None) -> Node:
        if name in PRIMITIVES:
            return _logical(Node(name), declared or {})
        full = _full_name(name, namespace)
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise ValueError(f"the type {shown(name)} is not declared before it is used")
        return found

    def _union(self, declared: list[Any], namespace: str) -> Node:
        if len(declared) > MAX_BRANCHES:
            raise ValueError(f"a union of {len(declared)} types; at most {MAX_BRANCHES} are expected")
        branches = [self._node(each, namespace) for each in declared]
        names = [branch.name or branch.kind for branch in branches]
        if not branches or "union" in names or len(set(names)) < len(names):
            raise ValueError("a union that is empty, has a union in it, or has one type twice")
        return Node("union", branches=branches)

    def _declared(self, declared: dict[str, Any], namespace: str) -> Node:
        name = _full_name(declared["name"], declared.get("namespace", namespace) or "")
        if name in self._named or name in PRIMITIVES:
            raise ValueError(f"the type {shown(name)} is declared twice")
        inside = name.rpartition(".")[0]
        aliases = tuple(_full_name(alias, inside) for alias in declared.get("aliases") or ())
        kind = declared["type"]
        node = self._named[name] = Node("record" if kind == "error" else kind, name, aliases)
        self._complete(node, declared, inside)
        return node

    def _complete(self, node: Node, declared: dict[str, Any], inside: str) -> None:
        """Add what a declaration has to a type that may be inside of itself."""
        match node.kind:
            case "enum":
                node.symbols = tuple(_text(symbol) for symbol in declared["symbols"])
                default = declared.get("default")
                node.default = default if default in node.symbols else None
            case "fixed":
                node.size = declared["size"]
                if type(node.size) is not int or not 0 <= node.size <= 1 << 20:
                    raise ValueError(f"{node.name}: a size of {shown(node.size)}")
                _logical(node, declared)
            case _:
                node.fields += [self._field(each, inside) for each in declared["fields"]]
                if len({each.name for each in node.fields}) < len(node.fields):
                    raise ValueError(f"{node.name}: two fields have one name")

    def _field(self, declared: dict[str, Any], namespace: str) -> Field:
        # A logical type next to the type of a field belongs to no type, so it is ignored, as by libraries.
        node = self._node(declared["type"], namespace)
        aliases = tuple(_text(alias) for alias in declared.get("aliases") or ())
        return Field(_text(declared["name"]), aliases, node, declared.get("default"), "default" in declared)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{shown(value)} is not a name")
    value.encode()
    return value


def _full_name(name: Any, namespace: str) -> str:
    return _text(name) if "." in _text(name) or not namespace else f"{_text(namespace)}.{name}"


def _logical(node: Node, declared: Mapping[str, Any]) -> Node:
    logical = declared.get("logicalType")
    if not isinstance(logical, str) or node.kind not in LOGICAL_TYPES.get(logical, ()):
        return node
    size = {"uuid": 16, "duration": 12}.get(logical)
    if node.kind == "fixed" and size not in {None, node.size}:
        return node
    if logical == "decimal":
        precision, scale = declared.get("precision"), declared.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
            return node
        node.precision, node.scale = precision, scale
    node.logical = logical
    return node
