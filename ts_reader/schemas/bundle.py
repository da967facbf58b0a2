"""A schema with all schemas that it refers to, fetched once and bounded."""

from dataclasses import dataclass

from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.wording import counted
from ts_reader.schemas.limits import MAX_BUNDLE_BYTES, MAX_DEPTH, MAX_REFERENCES, MAX_SCHEMA_BYTES
from ts_reader.schemas.schema_source import RegisteredSchema, SchemaSource


@dataclass(frozen=True, slots=True)
class Bundle:
    """A schema and what it refers to. It can be pickled, and needs no source any more.

    Attributes:
        references: name and schema of each reference, those of references too; each after what it refers to itself.
    """

    schema: RegisteredSchema
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


def load_bundle(schema: RegisteredSchema, source: SchemaSource | None) -> Bundle:
    """Return a schema with its references.

    Args:
        source: of the references; None for a schema without any.

    Raises:
        CorruptData: a reference has no schema, refers to itself, or there are too many.
        StoreUnavailable, AccessDenied: of the source.
    """
    found: dict[str, RegisteredSchema] = {}
    _check_size(schema, len(schema.text))
    _add_references(schema, source, found, (), [len(schema.text)])
    return Bundle(schema, tuple(found.items()))


def _add_references(
    schema: RegisteredSchema,
    source: SchemaSource | None,
    found: dict[str, RegisteredSchema],
    path: tuple[tuple[str, int], ...],
    total: list[int],
) -> None:
    for reference in schema.references:
        key = (reference.subject, reference.version)
        if key in path or len(path) >= MAX_DEPTH:
            raise CorruptData(f"{schema}: its references lead back to {reference.subject!r} version {key[1]}")
        if reference.name in found:
            continue
        if source is None or len(found) >= MAX_REFERENCES:
            raise CorruptData(
                f"{schema}: it refers to {reference.name!r}, "
                + (
                    "and a schema from a file has no references"
                    if source is None
                    else f"after {counted(len(found), 'other')}"
                )
            )
        try:
            other = source.version(reference.subject, reference.version)
        except ObjectNotFound as error:
            raise CorruptData(f"{schema}: its reference {reference.name!r} has no schema: {error}") from error
        total[0] += len(other.text)
        _check_size(schema, len(other.text), total[0])
        _add_references(other, source, found, (*path, key), total)
        found[reference.name] = other


def _check_size(schema: RegisteredSchema, size: int, total: int = 0) -> None:
    if size > MAX_SCHEMA_BYTES or total > MAX_BUNDLE_BYTES:
        raise CorruptData(
            f"{schema}: {max(size, total)} characters with its references; at most {MAX_SCHEMA_BYTES} in one schema "
            f"and {MAX_BUNDLE_BYTES} in all are expected"
        )
