"""Which types of Avro match, as "Schema Resolution" of the specification 1.12 defines it, and units of time."""

from typing import Final

from ts_reader.schemas.avro.nodes import Node

# The values that a reader's type accepts from a writer's type, in addition to its own.
PROMOTIONS: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def identical(writer: Node, reader: Node) -> bool:
    """Return whether two types are one primitive type, or have one full name."""
    return writer.kind == reader.kind and writer.name == reader.name


def same_type(writer: Node, reader: Node) -> bool:
    """Return whether a branch of a reader's union is the type that the writer used, without a promotion."""
    if writer.kind != reader.kind:
        return False
    return not writer.name or same_name(writer, reader)


def same_name(writer: Node, reader: Node) -> bool:
    """Return whether two named types match: by the name without its namespace, or by an alias of the reader's."""
    aliases = {alias.rpartition(".")[2] for alias in reader.aliases}
    return writer.short_name == reader.short_name or writer.short_name in aliases


def promotable(writer: Node, reader: Node) -> bool:
    """Return whether a reader's type accepts the values of a writer's type by a promotion."""
    return writer.kind in PROMOTIONS.get(reader.kind, ())


def unit_factor(writer: Node, reader: Node) -> tuple[int, int]:
    """Return what a number of the writer's is multiplied with, and then divided by, for the reader's unit of time.

    The specification leaves open what a change of the unit means. Both are the same moment here.
    """
    units = [_PER_SECOND.get(node.logical.rpartition("-")[2]) for node in (writer, reader)]
    if units[0] is None or units[1] is None or units[0] == units[1]:
        return 1, 1
    return max(units[1] // units[0], 1), max(units[0] // units[1], 1)
