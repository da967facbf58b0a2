"""Shapes of a writer's schema that would need unbounded time, memory or stack to read, and the depth of values."""

from typing import Final

from ts_common.schemas.avro.nodes import Node
from ts_common.schemas.limits import MAX_DEPTH

_FIXED_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def check_shape(root: Node) -> bool:
    """Return whether a schema is recursive: whether a type contains itself.

    Raises:
        ValueError: an array has items without bytes, so that ten bytes are a billion items; a record contains itself
            in each of its values; or types are nested deeper than `MAX_DEPTH`.
    """
    depths: dict[Node, int] = {}
    recursive = [False]
    depth = _depth(root, depths, recursive)
    if depth > MAX_DEPTH:
        raise ValueError(f"types are nested {depth} levels deep; at most {MAX_DEPTH} are read")
    known: dict[Node, bool] = {}
    for node in depths:
        if not _has_bytes(node.inner if node.kind == "array" else node, known, ()) and node.kind == "array":
            raise ValueError("an array has items without bytes, so that a short value is any number of items")
    return recursive[0]


def _children(node: Node) -> list[Node]:
    return [field.node for field in node.fields] if node.kind == "record" else node.branches


def _depth(node: Node, depths: dict[Node, int], recursive: list[bool]) -> int:
    """Return the levels of types below a node, without those of a type in itself; `depths` receives all nodes."""
    # Iterative: a chain of declared types can be as long as the text.
    stack = [(node, iter(_children(node)), [0])]
    unfinished = {node}
    while True:
        current, children, deepest = stack[-1]
        child = next(children, None)
        if child is None:
            depths[current] = depth = deepest[0] + 1
            unfinished.discard(current)
            stack.pop()
            if not stack:
                return depth
            stack[-1][2][0] = max(stack[-1][2][0], depth)
        elif child in unfinished:
            recursive[0] = True
        elif child in depths:
            deepest[0] = max(deepest[0], depths[child])
        else:
            unfinished.add(child)
            stack.append((child, iter(_children(child)), [0]))


def _has_bytes(node: Node, known: dict[Node, bool], path: tuple[Node, ...]) -> bool:
    """Return whether each value of a type has at least one byte."""
    if node in path:
        raise ValueError(f"each value of {node.name} contains another one, without an end")
    if node not in known:
        match node.kind:
            case "record":
                inside = (*path, node)
                fields = [_has_bytes(field.node, known, inside) for field in node.fields]  # all, to check all
                known[node] = any(fields)
            case "fixed":
                known[node] = node.size > 0
            case kind:
                known[node] = kind != "null"
    return known[node]


def check_depth(node: Node, data: bytes) -> None:
    """Check the depth of a value of a recursive schema, before a compiled reader recurses over it.

    Raises:
        ValueError: values are nested deeper than `MAX_DEPTH`, or the bytes end early.
    """
    try:
        _skip(node, data, 0, 0)
    except IndexError:
        raise ValueError("the bytes end in the middle of the value") from None


def _skip(node: Node, data: bytes, position: int, depth: int) -> int:
    """Return the position after a value."""
    if depth > 2 * MAX_DEPTH:  # a value has a union or a field between two levels of types
        raise ValueError(f"values are nested more than {2 * MAX_DEPTH} levels deep")
    match node.kind:
        case "record":
            for field in node.fields:
                position = _skip(field.node, data, position, depth + 1)
            return position
        case "union":
            index, position = _long(data, position)
            if not 0 <= index < len(node.branches):
                raise ValueError(f"branch {index} of a union of {len(node.branches)}")
            return _skip(node.branches[index], data, position, depth + 1)
        case "array" | "map":
            return _skip_blocks(node, data, position, depth)
        case "bytes" | "string":
            size, position = _long(data, position)
            return _onward(data, position, size)
        case "int" | "long" | "enum":
            return _long(data, position)[1]
        case _:
            return _onward(data, position, _FIXED_SIZES.get(node.kind, node.size))


def _skip_blocks(node: Node, data: bytes, position: int, depth: int) -> int:
    while True:
        count, position = _long(data, position)
        if count == 0:
            return position
        if count < 0:
            count, (_, position) = -count, _long(data, position)
        for _ in range(count):
            if node.kind == "map":
                size, position = _long(data, position)
                position = _onward(data, position, size)
            position = _skip(node.inner, data, position, depth + 1)


def _onward(data: bytes, position: int, size: int) -> int:
    if not 0 <= size <= len(data) - position:
        raise ValueError(f"{size} bytes at position {position} of {len(data)}")
    return position + size


def _long(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
