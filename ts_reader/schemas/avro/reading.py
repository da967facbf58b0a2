"""Values of a writer's schema, read by fastavro, in the form that resolution expects.

fastavro gets a schema that is equal on the wire, and whose values are exact:

- Logical types are left out, so that times are numbers, and decimals bytes.
- Each type of a union of several becomes a record of one field, named as the member of the Arrow struct. A record has
  no bytes of its own, so the value is read as before; and as `{"int": 1}` it has the name of its branch.
- The whole schema becomes a record of one field, which fastavro parses only once.

`check_shape` and `check_value` run before it: fastavro bounds neither the items of an array nor the depth of its stack.
"""

import io
from collections.abc import Callable
from typing import Any, Final

import fastavro

from ts_common.wording import counted
from ts_reader.schemas.avro.arrow_types import members, not_null
from ts_reader.schemas.avro.nodes import PRIMITIVES, Node
from ts_reader.schemas.avro.shapes import cells_of_shape, check_shape
from ts_reader.schemas.avro.skimming import check_value
from ts_reader.schemas.limits import MAX_CELLS

_ROOT: Final = "v"


def reader_of(node: Node) -> Callable[[bytes], Any]:
    """Return a function from the bytes of a value to its raw value; it raises `ValueError`.

    Args:
        node: the writer's schema.

    Raises:
        ValueError: a value of the schema could need unbounded time or memory.
    """
    recursive = check_shape(node)
    own, densest = (0, 0) if recursive else cells_of_shape(node)
    root = {"type": "record", "name": "ts_root", "fields": [{"name": _ROOT, "type": _Rewriter().rewritten(node)}]}
    try:
        schema = fastavro.parse_schema(root)
    except Exception as error:
        # The library has checks of its own, and may raise any exception.
        raise ValueError(f"not a schema of Avro: {type(error).__name__}: {error}") from error

    def read(data: bytes) -> Any:
        if recursive or own + densest * len(data) > MAX_CELLS:
            check_value(node, data)
        stream = io.BytesIO(data)
        try:
            value: Any = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:
            # For bytes of another format, the library may raise any exception.
            raise ValueError(f"not of the writer's Avro schema: {type(error).__name__}: {error}") from error
        if left := len(data) - stream.tell():
            raise ValueError(f"not of the writer's Avro schema: {counted(left, 'byte')} left over")
        return value[_ROOT]

    return read


class _Rewriter:
    """Rewrites one schema; names are replaced by numbers, which no schema can make ambiguous."""

    def __init__(self) -> None:
        self._names: dict[Node, str] = {}
        self._count = 0

    def rewritten(self, node: Node) -> Any:
        if node in self._names:
            return self._names[node]
        match node.kind:
            case "array":
                return {"type": "array", "items": self.rewritten(node.inner)}
            case "map":
                return {"type": "map", "values": self.rewritten(node.inner)}
            case "union":
                return self._union(node)
            case kind if kind in PRIMITIVES:
                return kind
        name = self._names[node] = self._name()
        match node.kind:
            case "fixed":
                return {"type": "fixed", "name": name, "size": node.size}
            case "enum":
                return {"type": "enum", "name": name, "symbols": list(node.symbols)}
        fields = [{"name": field.name, "type": self.rewritten(field.node)} for field in node.fields]
        return {"type": "record", "name": name, "fields": fields}

    def _union(self, union: Node) -> list[Any]:
        branches = not_null(union)
        if len(branches) < 2:
            return [self.rewritten(branch) for branch in union.branches]
        names = {branch: name for name, branch in members(branches)}
        return [
            "null"
            if branch.kind == "null"
            else {
                "type": "record",
                "name": self._name(),
                "fields": [{"name": names[branch], "type": self.rewritten(branch)}],
            }
            for branch in union.branches
        ]

    def _name(self) -> str:
        self._count += 1
        return f"ts_{self._count}"
