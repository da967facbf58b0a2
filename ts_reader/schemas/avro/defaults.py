"""Defaults of fields: their JSON as the raw value that a writer would have written."""

from typing import Any

from ts_common.json_objects import shown
from ts_reader.schemas.avro.arrow_types import members, not_null
from ts_reader.schemas.avro.nodes import Node
from ts_reader.schemas.limits import MAX_COLUMNS, MAX_DEPTH


def raw_default(node: Node, default: Any) -> Any:
    """Return a default as a raw value, as in `ts_reader.schemas.avro.reading`.

    Args:
        node: the field's type.
        default: its JSON, as the specification describes it: bytes are text of one character each, and the default of
            a union is one of a branch.

    Raises:
        ValueError: it is not a value of the type, or is too large.
    """
    return _raw(node, default, 0, [0])


def _raw(node: Node, default: Any, depth: int, count: list[int]) -> Any:
    count[0] += 1
    if depth > MAX_DEPTH or count[0] > MAX_COLUMNS:
        raise ValueError("a default has too many values, or is nested too deeply")
    match node.kind, default:
        case "array", list():
            return [_raw(node.inner, each, depth + 1, count) for each in default]
        case "map", dict():
            return {name: _raw(node.inner, each, depth + 1, count) for name, each in default.items()}
        case "record", dict():
            return _record(node, default, depth, count)
        case "union", _:
            return _union(node, default, depth, count)
        case _:
            return _scalar(node, default)


def _scalar(node: Node, default: Any) -> Any:
    match node.kind, default:
        case ("null", None) | ("boolean", bool()) | ("string", str()):
            return default
        case (("int" | "long"), int()) if not isinstance(default, bool):
            return default
        case (("float" | "double"), int() | float()) if not isinstance(default, bool):
            return float(default)
        case (("bytes" | "fixed"), str()):
            return default.encode("latin-1")
        case "enum", str() if default in node.symbols:
            return default
    raise ValueError(f"the default {shown(default)} is not a value of {node.short_name}")


def _record(node: Node, default: dict[str, Any], depth: int, count: list[int]) -> dict[str, Any]:
    raw = {}
    for field in node.fields:
        if field.name not in default and not field.has_default:
            raise ValueError(f"the default of a {node.short_name} has no {field.name}")
        raw[field.name] = _raw(field.node, default.get(field.name, field.default), depth + 1, count)
    return raw


def _union(node: Node, default: Any, depth: int, count: list[int]) -> Any:
    """Return the default as a value of the first branch that has it; of several, with the name of the branch."""
    if default is None and len(not_null(node)) < len(node.branches):
        return None
    branches = not_null(node)
    for name, branch in members(branches):
        try:
            raw = _raw(branch, default, depth + 1, count)
        except ValueError:
            if count[0] > MAX_COLUMNS:
                raise
            continue
        return raw if len(branches) == 1 else {name: raw}
    raise ValueError(f"the default {shown(default)} is not a value of any type of its union")
