"""Shapes of a writer's schema that would need unbounded time, memory or stack to read."""

from typing import Final

from ts_reader.schemas.avro.nodes import Node
from ts_reader.schemas.limits import MAX_DEPTH, STRUCT_CELLS

_LEAST_SIZES: Final = {"null": 0, "float": 4, "double": 8}  # of others 1, for a number, a size or an end


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


def cells_of_shape(root: Node) -> tuple[int, int]:
    """Return the most cells of a value in Python: without items of arrays and maps, and of these for each of its bytes.

    Args:
        root: its type, which is not recursive.
    """
    known: dict[Node, tuple[int, int]] = {}
    own, _ = _cells(root, known)
    densest = max((_per_byte(node.inner, known) for node in known if node.kind in {"array", "map"}), default=0)
    return own, densest


def _per_byte(item: Node, known: dict[Node, tuple[int, int]]) -> int:
    """Return the cells of an item, or of a type of its union, for each of its bytes; rounded up."""
    branches = item.branches if item.kind == "union" else [item]
    union = item.kind == "union"
    found = [known[branch] for branch in branches]
    return max(-(-(cells + STRUCT_CELLS * union) // max(least + union, 1)) for cells, least in found)


def _cells(node: Node, known: dict[Node, tuple[int, int]]) -> tuple[int, int]:
    """Return the most cells of a value without items of arrays and maps, and the least bytes; `known` has all types."""
    if node in known:
        return known[node]
    inside = [_cells(child, known) for child in _children(node)]
    match node.kind:
        case "record":
            result = STRUCT_CELLS + sum(cells for cells, _ in inside), sum(least for _, least in inside)
        case "union":
            result = STRUCT_CELLS + max(cells for cells, _ in inside), 1 + min(least for _, least in inside)
        case kind:
            result = 1, node.size if kind == "fixed" else _LEAST_SIZES.get(kind, 1)
    known[node] = result
    return result


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
