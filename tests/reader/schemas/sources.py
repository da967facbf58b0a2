"""Schemas for tests: a source in memory, and an archive with a topic `_schemas`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive
from ts_common.errors import ObjectNotFound
from ts_reader.query.query import Query, Subscription
from ts_reader.schemas.archived import ArchivedSchemas
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.contract import Codec
from ts_reader.schemas.schema_source import Reference, RegisteredSchema, SchemaSource, SchemaType

Record = tuple[dict[str, Any] | bytes, dict[str, Any] | bytes | None]


class Schemas(SchemaSource):
    """A source that counts how often it is used.

    Attributes:
        lookups: ids that were looked up.
    """

    def __init__(self) -> None:
        self.lookups: list[int] = []
        self._by_id: dict[int, RegisteredSchema] = {}
        self._versions: dict[str, list[RegisteredSchema]] = {}

    def add(
        self,
        subject: str,
        schema: Any,
        kind: SchemaType = SchemaType.AVRO,
        references: Sequence[Reference] = (),
        *,
        raw: bool = False,
    ) -> int:
        """Add a version, and return its id; a schema of Avro or JSON Schema becomes JSON, unless it is `raw`."""
        versions = self._versions.setdefault(subject, [])
        number = len(self._by_id) + 1
        text = schema if raw or kind is SchemaType.PROTOBUF else json.dumps(schema)
        added = RegisteredSchema(kind, text, tuple(references), number, subject, len(versions) + 1, "memory")
        versions.append(added)
        self._by_id[number] = added
        return number

    def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        del subject
        self.lookups.append(schema_id)
        if schema_id not in self._by_id:
            raise ObjectNotFound(f"memory does not have schema id {schema_id}")
        return self._by_id[schema_id]

    def by_guid(self, guid: UUID) -> RegisteredSchema:
        return self.schema(guid.int)

    def version(self, subject: str, version: int) -> RegisteredSchema:
        versions = self._versions.get(subject, [])
        if version > len(versions):
            raise ObjectNotFound(f"memory does not have subject {subject!r} version {version}")
        return versions[version - 1]

    def latest(self, subject: str) -> RegisteredSchema:
        return self.version(subject, max(len(self._versions.get(subject, [])), 1))

    def subjects(self) -> list[str]:
        return sorted(self._versions)


def bundle(kind: SchemaType, schema: Any, references: Mapping[str, Any] | None = None) -> Bundle:
    """Return a bundle; schemas that are no texts become JSON."""

    def registered(each: Any) -> RegisteredSchema:
        return RegisteredSchema(kind, each if isinstance(each, str) else json.dumps(each), id=1)

    return Bundle(registered(schema), tuple((name, registered(each)) for name, each in (references or {}).items()))


def decoded(codec: Codec, *values: bytes | None) -> tuple[list[Any], list[str | None]]:
    """Return the rows of some values, and the reasons of those that are refused."""
    result = codec.decode(pa.array(values, pa.binary()))
    assert result.column.type == codec.arrow_type
    assert len(result.column) == len(result.refused) == len(values)
    return result.column.to_pylist(), result.refused.to_pylist()


def framed(schema_id: int, payload: bytes) -> bytes:
    """Return a value in a registry's frame."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def schema_record(
    subject: str, version: int, schema_id: int, schema: str, *, kind: str = "AVRO", deleted: bool = False, **more: Any
) -> Record:
    """Return a record of `_schemas` as a registry writes it; of Avro without the language."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema, "deleted": deleted, **more}
    return key, value if kind == "AVRO" else {**value, "schemaType": kind}


def archived(
    archive: MadeArchive, records: Sequence[Record], base: int = 0, topic: str = "_schemas"
) -> ArchivedSchemas:
    """Put records into the archived topic as one segment, and return its schemas."""
    encoded = [
        record(
            delta, key if isinstance(key, bytes) else _json(key), value if isinstance(value, bytes) else _json(value)
        )
        for delta, (key, value) in enumerate(records)
    ]
    archive.put_segment(topic, base, batch(base, encoded))
    archive.commit(topic, base + len(records), highest_base=base)
    return ArchivedSchemas(Query(archive.location, archive.keys.cluster, 0, Subscription()), topic)


def _json(value: dict[str, Any] | None) -> bytes | None:
    return None if value is None else json.dumps(value).encode()
