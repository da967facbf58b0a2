"""`SchemaSource`: schemas by id, by subject and version, and by GUID.

Two classes implement it: `ts_reader.schemas.registry.Registry` over HTTP, and
`ts_reader.schemas.archived.ArchivedSchemas` over the archived topic `_schemas`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from ts_common.errors import CorruptData
from ts_common.json_objects import MAX_INT32, parse_json, rows, shown, text, whole_number
from ts_reader.schemas.limits import MAX_JSON_DEPTH, MAX_REFERENCES, MAX_SCHEMA_BYTES


class SchemaType(StrEnum):
    """The languages of schemas, as the registry names them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to.

    Attributes:
        name: in the text: an import of Protobuf, a `$ref` of JSON Schema, a full name of Avro.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry, or of a file.

    Attributes:
        id: in the registry; None for a schema of a file, and where the registry does not return it.
        subject: that it was found by; None if it was found by id.
        version: of the subject; None as above.
        where: its place, for messages.
    """

    kind: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    subject: str | None = None
    version: int | None = None
    where: str = ""

    def __str__(self) -> str:
        number = "" if self.id is None else f"schema id {self.id}"
        subject = "" if self.subject is None else f"subject {self.subject!r} version {self.version}"
        return " ".join(filter(None, [f"{self.where}:" if self.where else "", number or subject or "schema"]))


class SchemaSource(ABC):
    """Schemas of one registry. Every method is safe to call from any thread, and a source can be pickled."""

    @abstractmethod
    def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """Return the schema of an id, even if all its subjects were deleted.

        Args:
            schema_id: as in the frame of a value.
            subject: whose context the id belongs to (`:.context:subject`); None for the default context.

        Raises:
            ObjectNotFound: no schema has the id.
            StoreUnavailable, AccessDenied, CorruptData: of the source.
        """

    @abstractmethod
    def by_guid(self, guid: UUID) -> RegisteredSchema:
        """Return the schema of a GUID, as in the header of a record; raise as `schema`."""

    @abstractmethod
    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return one version of a subject, even if it was deleted.

        Raises:
            ObjectNotFound: there is no such subject or version.
            StoreUnavailable, AccessDenied, CorruptData: of the source.
        """

    @abstractmethod
    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject that was not deleted; raise as `version`."""

    @abstractmethod
    def subjects(self) -> list[str]:
        """Return the subjects that have a version that was not deleted, sorted.

        Raises:
            StoreUnavailable, AccessDenied, CorruptData: of the source.
        """


def schema_of(fields: dict[str, object], where: str, schema_id: int | None = None) -> RegisteredSchema:
    """Return the schema that a JSON object of a registry has: a response, or a value of `_schemas`.

    Args:
        where: its place, for messages.
        schema_id: of the schema, if the object does not have it.

    Raises:
        ValueError: a field is missing or wrong.
        CorruptData: the schema is of an unknown language.
    """
    named = text(fields.get("schemaType") or SchemaType.AVRO.value)
    if named not in set(SchemaType):
        raise CorruptData(f"{where}: the schema's type is {shown(named)}; expected {', '.join(SchemaType)}")
    references = rows(fields.get("references") or [])
    if len(references) > MAX_REFERENCES:
        raise ValueError(f"{len(references)} references; at most {MAX_REFERENCES} are expected")
    number, subject, version = (fields.get(name) for name in ("id", "subject", "version"))
    return RegisteredSchema(
        SchemaType(named),
        text(fields["schema"], MAX_SCHEMA_BYTES),
        tuple(
            Reference(text(each["name"]), text(each["subject"]), whole_number(each["version"], 1, MAX_INT32))
            for each in references
        ),
        schema_id if number is None else whole_number(number, 0, MAX_INT32),
        None if subject is None else text(subject),
        None if version is None else whole_number(version, 1, MAX_INT32),
        where,
    )


def parse_schema_text(schema: RegisteredSchema) -> Any:
    """Return the JSON that a schema's text is.

    Raises:
        CorruptData: it is not JSON, or is nested deeper than `MAX_JSON_DEPTH`.
    """
    encoded = schema.text.encode("utf-8", "surrogatepass")  # halves of pairs are an error of the parser
    return parse_json(encoded, str(schema), 4 * MAX_SCHEMA_BYTES, MAX_JSON_DEPTH)
