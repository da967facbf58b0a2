"""The archived `_schemas`: what each record of a registry means, over several segments, with damage and deletes."""

import hashlib
import pickle
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.made_archive import MadeArchive
from tests.reader.schemas.sources import Record, archived, decoded, framed, schema_record
from ts_common.errors import CorruptData, ObjectNotFound, QueryError
from ts_reader.query.query import Query, Subscription
from ts_reader.schemas import archived as module
from ts_reader.schemas.archived import ArchivedSchemas
from ts_reader.schemas.contract import Part
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.schema_source import Reference, SchemaType

INT, LONG, TEXT = '"int"', '"long"', '"string"'


def key(kind: str, magic: int = 0, **more: Any) -> dict[str, Any]:
    return {"keytype": kind, "magic": magic, **more}


def deleted(subject: str, version: int) -> Record:
    """A record that deletes all versions of a subject up to one."""
    return key("DELETE_SUBJECT", subject=subject), {"subject": subject, "version": version}


def forgotten(subject: str, version: int) -> Record:
    """A tombstone of a version."""
    return key("SCHEMA", 1, subject=subject, version=version), None


def test_schemas_are_found_by_id_version_and_subject(archive: MadeArchive) -> None:
    """Other records change nothing."""
    schemas = archived(
        archive,
        [
            (key("CONFIG", subject=None), {"compatibilityLevel": "NONE"}),
            schema_record("a", 1, 1, INT),
            (key("NOOP"), None),
            schema_record("a", 2, 2, LONG),
            (key("MODE", subject="a"), {"mode": "READONLY"}),
            schema_record("b", 1, 2, LONG),
            (key("CONTEXT", tenant="default", context="."), {}),
            schema_record("c", 1, 3, "{}", kind="JSON"),
            schema_record("d", 1, 4, "x", kind="PROTOBUF", references=[{"name": "n", "subject": "c", "version": 1}]),
        ],
    )
    assert schemas.subjects() == ["a", "b", "c", "d"]
    assert schemas.schema(1).text == INT
    assert schemas.latest("a").text == schemas.version("a", 2).text == schemas.schema(2).text == LONG
    assert (schemas.latest("a").id, schemas.latest("a").version, schemas.latest("a").subject) == (2, 2, "a")
    assert schemas.latest("c").kind is SchemaType.JSON
    assert schemas.latest("d").references == (Reference("n", "c", 1),)


def test_what_the_registry_deleted_is_found_by_its_id(archive: MadeArchive) -> None:
    """Old values need it; subjects and newest versions are those that were not deleted."""
    schemas = archived(
        archive,
        [
            schema_record("soft", 1, 1, INT),
            schema_record("soft", 2, 2, LONG),
            schema_record("soft", 2, 2, LONG, deleted=True),
            schema_record("gone", 1, 3, TEXT),
            deleted("gone", 1),
            schema_record("hard", 1, 4, '"bytes"'),
            deleted("hard", 1),
            forgotten("hard", 1),
            schema_record("cleared", 1, 5, '"float"'),
            deleted("cleared", 1),
            (key("CLEAR_SUBJECT", subject="cleared"), {"subject": "cleared"}),
            deleted("nowhere", 9),
            forgotten("nowhere", 9),
            schema_record("again", 1, 6, '"double"'),
            deleted("again", 1),
            schema_record("again", 2, 6, '"double"'),
            forgotten("again", 1),
        ],
    )
    assert schemas.subjects() == ["again", "soft"]
    assert [schemas.schema(number).text for number in (1, 2, 3, 4, 5, 6)] == [
        *(INT, LONG, TEXT, '"bytes"', '"float"', '"double"')
    ]
    assert schemas.latest("soft").id == 1
    assert schemas.latest("again").version == 2
    assert schemas.version("hard", 1).id == 4
    for subject in ("gone", "hard", "cleared", "nowhere"):
        with pytest.raises(ObjectNotFound, match=f"up to offset 17, does not have subject '{subject}'"):
            schemas.latest(subject)


def test_a_compacted_topic_is_read_over_its_segments(archive: MadeArchive) -> None:
    """A later segment begins after offsets that compaction removed."""
    archived(archive, [schema_record("a", 1, 1, INT)])
    schemas = archived(archive, [schema_record("a", 3, 3, LONG), deleted("b", 1)], base=1)
    assert (schemas.schema(1).text, schemas.latest("a").version) == (INT, 3)
    with pytest.raises(ObjectNotFound, match=r"_schemas, up to offset 3, does not have schema id 2"):
        schemas.schema(2)


def test_an_id_keeps_its_first_schema(archive: MadeArchive) -> None:
    """As in the registry, which ignores another one; but ids belong to a context."""
    schemas = archived(
        archive,
        [
            schema_record("a", 1, 1, INT),
            schema_record("b", 1, 1, LONG),
            schema_record(":.other:a", 1, 1, TEXT),
            schema_record(":.:plain", 1, 2, LONG),
        ],
    )
    assert schemas.schema(1).text == INT
    assert schemas.schema(1, "a").text == INT
    assert schemas.schema(1, ":.other:x").text == TEXT
    assert schemas.schema(2).text == LONG
    assert schemas.subjects() == [":.:plain", ":.other:a", "a"]


def test_records_that_are_no_registry_s_are_skipped(archive: MadeArchive) -> None:
    """As the registry skips them; the others are read."""
    good = schema_record("good", 1, 7, INT)
    broken: list[Record] = [
        (b"", {"schema": INT}),
        (b"\xff", b"x"),
        (b"[" * 10_000, None),
        (b"[]", None),
        (key("SCHEMA", 1, subject="a"), {"id": 1}),
        (key("SCHEMA", 1, subject="a", version=0), {"id": 1, "schema": INT}),
        (key("SCHEMA", 1, subject="a", version=1 << 40), {"id": 1, "schema": INT}),
        (key("SCHEMA", 1, subject=["a"], version=1), {"id": 1, "schema": INT}),
        (key("SCHEMA", 1, subject="a", version=1), b"{"),
        (key("SCHEMA", 1, subject="a", version=1), {"id": -1, "schema": INT}),
        (key("SCHEMA", 1, subject="a", version=1), {"schema": INT}),
        (key("SCHEMA", 1, subject="a", version=1), {"id": 1, "schema": {"type": "int"}}),
        (key("SCHEMA", 1, subject="a", version=1), {"id": 1, "schema": INT, "schemaType": "XML"}),
        (key("SCHEMA", 1, subject="a", version=1), {"id": 1, "schema": INT, "references": [{"name": "x"}]}),
        (key("SCHEMA", 1, subject="a", version=1), {"id": 1, "schema": "x" * (3 << 20)}),
        (key("DELETE_SUBJECT", subject="good"), {"subject": "good", "version": "1"}),
        (key("DELETE_SUBJECT", subject="good"), None),
        (key("UNKNOWN"), None),
    ]
    schemas = archived(archive, [*broken, good])
    assert schemas.subjects() == ["good"]
    assert schemas.schema(7).text == INT


def test_a_guid_is_that_of_schema_and_references(archive: MadeArchive) -> None:
    """The MD5 that the registry computes; of schemas with rules it is not computed here."""
    reference = {"name": "n", "subject": "s", "version": 3}
    schemas = archived(
        archive,
        [
            schema_record("a", 1, 1, INT),
            schema_record("b", 1, 2, LONG, references=[reference]),
            schema_record("c", 1, 3, TEXT, ruleSet={"domainRules": []}),
        ],
    )
    assert schemas.by_guid(UUID(hashlib.md5(INT.encode()).hexdigest())).id == 1
    assert schemas.by_guid(UUID(hashlib.md5(LONG.encode() + b"ns\0\0\0\3").hexdigest())).id == 2
    with pytest.raises(ObjectNotFound, match="schema GUID"):
        schemas.by_guid(UUID(hashlib.md5(TEXT.encode()).hexdigest()))


def test_a_pickled_copy_has_the_schemas(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing again."""
    schemas = archived(archive, [schema_record("t-value", 1, 1, INT), schema_record("t-value", 2, 2, LONG)])
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    copy = pickle.loads(pickle.dumps(codec))
    monkeypatch.setattr(module, "plan_everywhere", None)
    assert decoded(copy, framed(1, b"\2"), framed(2, b"\4"), framed(3, b"\4"))[0] == [1, 2, None]


def test_a_missing_or_damaged_topic_is_an_error(archive: MadeArchive) -> None:
    """The planner and the reader of segments raise it, as for any topic."""
    archived(archive, [schema_record("a", 1, 1, INT)], topic="t")
    empty = ArchivedSchemas(Query(archive.location, archive.keys.cluster, 0, Subscription()))
    with pytest.raises(QueryError, match="_schemas"):
        empty.subjects()
    damaged = archived(archive, [schema_record("a", 1, 1, INT)])
    listed = next(info for info in archive.store.list("") if "_schemas" in info.key and info.key.endswith(".log"))
    body, info = archive.store.get(listed.key)
    archive.store.put(listed.key, body[:-1] + bytes([body[-1] ^ 1]), metadata=info.metadata)
    with pytest.raises(CorruptData):
        damaged.subjects()


def test_the_schemas_that_are_kept_are_bounded(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the offset."""
    monkeypatch.setattr(module, "MAX_TOPIC_BYTES", 10)
    with pytest.raises(CorruptData, match=r"_schemas, offset 2"):
        archived(archive, [schema_record("a", n, n, INT) for n in range(1, 9)]).subjects()


def test_a_topic_that_is_no_registrys_is_named(archive: MadeArchive) -> None:
    """Few of its records are logged, whatever their number."""
    schemas = archived(archive, [(b"key", b"value")] * 100, topic="clicks")
    with capture_logs() as logs, pytest.raises(CorruptData, match=r"topic clicks: .* is the registry's topic _schemas"):
        schemas.schema(1)
    assert [entry["offset"] for entry in logs if entry["event"] == "schema_record_skipped"] == [0, 1, 2, 3, 4]
