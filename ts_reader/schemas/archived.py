"""`ArchivedSchemas`: the archived topic `_schemas`, where a Confluent registry or Karapace keeps its schemas.

Each record is a JSON key and a JSON value. This follows `SchemaRegistryKeyType`, `SchemaKey`, `SchemaValue`,
`KafkaStoreMessageHandler` and `InMemoryCache` of confluentinc/schema-registry
(core/src/main/java/io/confluent/kafka/schemaregistry/storage, commit 794611bd):

==================  ==================================================================================================
`keytype`           what the record means
==================  ==================================================================================================
`SCHEMA`, magic 1   key: subject, version; value: id, schema, schemaType (absent for Avro), references, deleted. A value
                    without bytes removes the version permanently
`DELETE_SUBJECT`    value: subject, version; deletes all versions up to this one
`CLEAR_SUBJECT`     value: subject; removes its deleted versions permanently
`CONFIG`, `MODE`,   compatibility, modes, heartbeats and so on: nothing that a reader needs
`NOOP`, `CONTEXT`,
`ASSOC`
==================  ==================================================================================================

The whole topic is read, in the order of offsets, so that what the registry deleted or compacted is still found by its
id wherever the archive has it: old values need their schemas. An id keeps its first schema, as in the registry. Ids
belong to the context of a subject (`:.context:subject`). The GUID is the MD5 of schema and references
(`Schema.getGuid`); that of a schema with rules or metadata is not computed.

An archive has closed segments only. Schemas that were registered since the last one are unknown here.
"""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import structlog

from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.json_objects import MAX_INT32, parse_json, text, whole_number
from ts_common.store.shared_stores import shared_store
from ts_reader.query.plan_query import plan_everywhere
from ts_reader.query.query import Edge, Query, Subscription
from ts_reader.query.read_split import read_split
from ts_reader.schemas.limits import MAX_SCHEMA_BYTES
from ts_reader.schemas.schema_source import RegisteredSchema, SchemaSource, schema_of

log = structlog.get_logger("schemas")

TOPIC: Final = "_schemas"
MAX_TOPIC_BYTES: Final = 512 << 20  # of the schemas that are kept
_MAX_KEY_BYTES: Final = 64 << 10
_MAX_LOGGED: Final = 5  # records that are skipped
_COLUMNS: Final = ("key", "value", "offset")
_SUBJECTS: Final = frozenset({"SCHEMA", "DELETE_SUBJECT", "CLEAR_SUBJECT"})


@dataclass(slots=True)
class _Version:
    """A version of a subject; `removed` if the registry has forgotten it."""

    schema: RegisteredSchema
    deleted: bool = False
    removed: bool = False


class ArchivedSchemas(SchemaSource):
    """The schemas of an archived registry. They are read when the first is needed, and kept; a pickled copy has them.

    Args:
        query: of the archive: location, cluster and connection; its topics and bounds are replaced.
        topic: the registry's, as its `kafkastore.topic` names it.
    """

    def __init__(self, query: Query, topic: str = TOPIC) -> None:
        self._query = replace(query, subscription=Subscription(topics=(topic,)), start=Edge.EARLIEST, end=Edge.LATEST)
        self._topic = topic
        self._lock = threading.Lock()
        self._tables: _Tables | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ArchivedSchemas({self._query.location!r}, cluster={self._query.cluster!r}, topic={self._topic!r})"

    def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """Return the schema of an id from what was read."""
        tables = self._read()
        found = tables.by_id.get((_context(subject), schema_id))
        if found is None:
            raise ObjectNotFound(f"{self._where(tables)} does not have schema id {schema_id}")
        return found

    def by_guid(self, guid: UUID) -> RegisteredSchema:
        """Return the schema of a GUID from what was read."""
        tables = self._read()
        found = tables.by_guid.get(guid)
        if found is None:
            raise ObjectNotFound(f"{self._where(tables)} does not have schema GUID {guid}")
        return found

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version from what was read, even if the registry has forgotten it."""
        tables = self._read()
        found = tables.versions.get(subject, {}).get(version)
        if found is None:
            raise ObjectNotFound(f"{self._where(tables)} does not have subject {subject!r} version {version}")
        return found.schema

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version that is neither deleted nor removed."""
        tables = self._read()
        versions = tables.versions.get(subject, {})
        present = [number for number, each in versions.items() if not each.deleted and not each.removed]
        if not present:
            raise ObjectNotFound(f"{self._where(tables)} does not have subject {subject!r}")
        return versions[max(present)].schema

    def subjects(self) -> list[str]:
        """Return the subjects with a version that is neither deleted nor removed."""
        found = self._read().versions.items()
        return sorted(
            name for name, versions in found if any(not each.deleted and not each.removed for each in versions.values())
        )

    def _where(self, tables: "_Tables") -> str:
        return f"the archived topic {self._topic}, up to offset {tables.next_offset},"

    def _read(self) -> "_Tables":
        """Return what the topic has; raise errors of the planner, the store and the segments."""
        with self._lock:
            if self._tables is None:
                tables = _Tables(self._topic)
                for key, value, offset in self._records():
                    tables.add(key, value, offset)
                if tables.skipped and not tables.by_id:
                    raise CorruptData(
                        f"topic {self._topic}: none of its records is a schema, and {tables.skipped} of them are no "
                        f"registry's; is the registry's topic {TOPIC}?"
                    )
                self._tables = tables
            return self._tables

    def _records(self) -> Iterator[tuple[bytes | None, bytes | None, int]]:
        for split in plan_everywhere(self._query).splits:
            for rows in read_split(shared_store(split.location, split.connection), split, _COLUMNS):
                yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


class _Tables:
    """What the records of the topic mean, as the registry reads them."""

    def __init__(self, topic: str) -> None:
        self.by_id: dict[tuple[str, int], RegisteredSchema] = {}
        self.by_guid: dict[UUID, RegisteredSchema] = {}
        self.versions: dict[str, dict[int, _Version]] = {}
        self.next_offset = 0
        self.skipped = 0
        self._topic = topic
        self._bytes = 0

    def add(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Apply a record; one that is not a registry's is logged and skipped, as the registry does."""
        self.next_offset = offset + 1
        what = f"{self._topic}, offset {offset}"
        try:
            fields = _fields(key, f"{what}: key", _MAX_KEY_BYTES)
            kind = fields.get("keytype")
            if kind in _SUBJECTS:
                self._apply(str(kind), fields, value, what)
        except (CorruptData, KeyError, TypeError, ValueError) as error:
            self.skipped += 1
            if self.skipped <= _MAX_LOGGED:
                log.warning("schema_record_skipped", topic=self._topic, offset=offset, reason=str(error))
        if self._bytes > MAX_TOPIC_BYTES:
            raise CorruptData(f"{what}: the schemas have more than {MAX_TOPIC_BYTES} bytes")

    def _apply(self, kind: str, key: dict[str, Any], value: bytes | None, what: str) -> None:
        if kind == "SCHEMA":
            subject, version = text(key["subject"]), whole_number(key["version"], 1, MAX_INT32)
            if value is None:
                if found := self.versions.get(subject, {}).get(version):
                    found.removed = True
                return
            self._register(subject, version, _fields(value, f"{what}: value", 2 * MAX_SCHEMA_BYTES), what)
            return
        if value is None:
            return
        fields = _fields(value, f"{what}: value", _MAX_KEY_BYTES)
        versions = self.versions.get(text(fields["subject"]), {})
        last = whole_number(fields["version"], 0, MAX_INT32) if kind == "DELETE_SUBJECT" else 0
        for number, each in versions.items():
            if kind == "CLEAR_SUBJECT":
                each.removed |= each.deleted
            elif number <= last:
                each.deleted = True

    def _register(self, subject: str, version: int, fields: dict[str, Any], what: str) -> None:
        schema = replace(schema_of(fields, what), subject=subject, version=version, where=self._topic)
        if schema.id is None:
            raise ValueError("no id")
        first = self.by_id.setdefault((_context(subject), schema.id), schema)
        if first.text != schema.text:
            raise ValueError(f"id {schema.id} belongs to another schema")
        self._bytes += len(schema.text)
        self.versions.setdefault(subject, {})[version] = _Version(schema, fields.get("deleted") is True)
        if fields.get("metadata") is None and fields.get("ruleSet") is None:
            self.by_guid.setdefault(_guid(schema), schema)


def _fields(data: bytes | None, what: str, most: int) -> dict[str, Any]:
    fields = parse_json(data or b"", what, most)
    if not isinstance(fields, dict):
        raise ValueError("not an object of JSON")  # noqa: TRY004  (the data is wrong)
    return fields


def _context(subject: str | None) -> str:
    """Return the context of a subject; empty for the default one, which is also written as `:.:`."""
    if subject is None or not subject.startswith(":."):
        return ""
    return subject[2:].partition(":")[0]


def _guid(schema: RegisteredSchema) -> UUID:
    digest = hashlib.md5(schema.text.encode(), usedforsecurity=False)
    for reference in schema.references:
        digest.update(reference.name.encode() + reference.subject.encode() + reference.version.to_bytes(4, "big"))
    return UUID(bytes=digest.digest())
