"""Codecs: the names, the promises of the contract, frames, and wrong options."""

import concurrent.futures
import pickle
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.reader.schemas.sources import Schemas, decoded, framed
from ts_common.errors import ConfigurationError, CorruptData, ObjectNotFound, StoreUnavailable
from ts_reader.schemas import choice
from ts_reader.schemas.choice import NAMES
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.framing import message_indexes
from ts_reader.schemas.limits import MAX_UNKNOWN_IDS
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.schema_source import Reference, RegisteredSchema, SchemaType

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VALUE = Part.VALUE


@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        ("utf8", pa.string(), {b"": "", b"\xc3\xa4": "\u00e4", b"\xff": None}),
        ("json", pa.string(), {b'{"a": 1.0}': '{"a": 1.0}', b"{": None, b"NaN": None, b'"\\ud800"': None, b"": None}),
        ("int", pa.int32(), {b"\xff\xff\xff\xfe": -2, b"\1": None, b"12345": None}),
        ("long", pa.int64(), {b"\0\0\0\0\0\0\1\0": 256, b"\1\1\1\1": None}),
    ],
)
def test_codecs_without_a_schema(name: str, kind: pa.DataType, rows: dict[bytes, Any]) -> None:
    """Null is null; what does not decode is refused with a reason of one line."""
    codec = open_codec(name, "t", VALUE)
    assert codec.arrow_type == kind
    found, refused = decoded(codec, None, *rows)
    assert found == [None, *rows.values()]
    assert [reason is None for reason in refused] == [True, *(row is not None for row in rows.values())]
    assert all(reason is None or reason.isprintable() for reason in refused)


def test_a_class_by_its_dotted_path_is_a_codec() -> None:
    """It is called with topic, part and options."""
    path = "tests.reader.schemas.reversed_codec:Reversed"
    codec: Any = open_codec(path, "t", Part.KEY, options={"word": "x"})
    assert codec.about == ("t", Part.KEY, "x")
    assert decoded(codec, b"abc", b"", None) == ([b"cba", b"", None], [None, "empty", None])


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("utf9", {}, "did you mean utf8"),
        ("utf8", {"subject": "x"}, "subject: a codec without a schema has no options"),
        ("avro", {"subjet": "x"}, "subjet: unknown option; did you mean subject"),
        ("avro", {"version": "x"}, "version=x: a number"),
        ("avro", {"schema.id": "99999999999"}, "a number"),
        ("avro", {"subject": "x", "schema.id": "1"}, "give one of"),
        ("avro", {"schema.id": "1", "version": "1"}, "give one of"),
        ("avro", {}, "neither a registry"),
        ("avro", {"schema.file": "nowhere.avsc"}, "cannot be read"),
        ("registry", {"schema.file": "schema.txt"}, "a name that ends in .avsc, .proto, .json"),
        ("tests.reader.schemas.reversed_codec:Reversed", {}, "KeyError"),
        ("tests.reader.schemas.reversed_codec:Silent", {}, "TypeError"),
        ("tests.reader.schemas.reversed_codec:NoCodec", {}, "not a subclass"),
        ("tests.reader.schemas.nowhere:X", {}, "cannot load"),
    ],
)
def test_a_wrong_name_or_option_is_a_problem_of_the_configuration(
    name: str, options: dict[str, str], reason: str
) -> None:
    """Never a traceback."""
    with pytest.raises(ConfigurationError) as error:
        open_codec(name, "t", VALUE, options=options)
    assert reason in str(error.value)


def test_each_name_is_documented() -> None:
    """In the table of the module."""
    assert [name for name in NAMES if f"`{name}`" not in (choice.__doc__ or "")] == []


def test_the_reader_s_schema_is_the_one_that_the_options_name() -> None:
    """By default the newest of TopicNameStrategy; else a subject, a version, an id or a file."""
    schemas = Schemas()
    for subject, kind in (("t-value", "int"), ("t-value", "long"), ("t-key", "string"), ("other", "double")):
        schemas.add(subject, kind)
    expected: list[tuple[dict[str, str], pa.DataType]] = [
        ({}, pa.int64()),
        ({"version": "1"}, pa.int32()),
        ({"subject": "other"}, pa.float64()),
        ({"schema.id": "3"}, pa.string()),
    ]
    for options, kind in expected:
        assert open_codec("registry", "t", VALUE, schemas, options).arrow_type == kind
    assert open_codec("registry", "t", Part.KEY, schemas).arrow_type == pa.string()
    with pytest.raises(ConfigurationError, match="is AVRO; expected PROTOBUF"):
        open_codec("protobuf-framed", "t", VALUE, schemas)


@pytest.mark.parametrize(
    ("name", "text", "data", "row"),
    [
        ("s.avsc", '"string"', b"\2x", "x"),
        ("s.proto", 'syntax="proto3"; message M { int32 a=1; }', b"\x08\x05", {"a": 5}),
        ("s.json", '{"properties": {"a": {"type": "integer"}}}', b'{"a": 5}', {"a": 5}),
    ],
)
def test_a_schema_can_be_a_file(tmp_path: Path, name: str, text: str, data: bytes, row: Any) -> None:
    """Without a source it is the schema of all values, with a frame of any id or without a frame."""
    path = tmp_path / name
    path.write_text(text)
    language = {"s.avsc": "avro", "s.proto": "protobuf", "s.json": "json-schema"}[name]
    options = {"schema.file": str(path)}
    assert decoded(open_codec(language, "t", VALUE, options=options), data) == ([row], [None])
    payload = b"\0" + data if name == "s.proto" else data
    for codec in ("registry", f"{language}-framed"):
        found = decoded(open_codec(codec, "t", VALUE, options=options), framed(1, payload), framed(9, payload), data)
        assert found[0][:2] == [row, row]
        assert "not in a registry's frame" in (found[1][2] or "")


def test_a_file_that_is_no_schema_is_corrupt(tmp_path: Path) -> None:
    """No text, or too large."""
    path = tmp_path / "s.avsc"
    for content in (b"\xff", b" " * (3 << 20), b"{}", b"null"):
        path.write_bytes(content)
        with pytest.raises(CorruptData, match=r"s\.avsc"):
            open_codec("avro", "t", VALUE, options={"schema.file": str(path)})


def test_a_schema_is_fetched_once_whatever_the_batches_and_threads() -> None:
    """Equal bytes decode to equal rows everywhere."""
    schemas = Schemas()
    old, new = schemas.add("t-value", "int"), schemas.add("t-value", "long")
    codec = open_codec("registry", "t", VALUE, schemas)
    values = [framed(old, b"\2"), framed(new, b"\4"), framed(77, b"\4"), None] * 5000
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: decoded(codec, *values), range(8)))
    assert all(result == results[0] for result in results)
    assert results[0][0][:4] == [1, 2, None, None]
    assert sorted(schemas.lookups) == [old, 77]


def test_a_pickled_codec_keeps_its_type() -> None:
    """Also after another version was registered; a new codec has the new type."""
    schemas = Schemas()
    number = schemas.add("t-value", "int")
    saved = pickle.dumps(open_codec("registry", "t", VALUE, schemas))
    schemas.add("t-value", "long")
    copy: Codec = pickle.loads(saved)
    assert copy.arrow_type == pa.int32()
    assert decoded(copy, framed(number, b"\2")) == ([1], [None])
    assert repr(copy) == "SchemaCodec('t', 'value', 'memory: schema id 1')"
    assert open_codec("registry", "t", VALUE, schemas).arrow_type == pa.int64()


def test_the_schema_can_be_in_a_header() -> None:
    """By GUID or id, in the last header of the part's name; else it is in the value. Protobuf's indexes are with it."""
    schemas = Schemas()
    number = schemas.add("t-value", 'syntax="proto3"; message A {} message B { int32 x=1; }', SchemaType.PROTOBUF)
    codec = open_codec("registry", "t", VALUE, schemas, {"message": "B"})
    guid, path, data = b"\1" + UUID(int=number).bytes, b"\x02\x02", b"\x08\x05"
    rows: list[tuple[bytes, list[dict[str, Any]] | None]] = [
        (data, [{"key": "__value_schema_id", "value": guid + path}]),
        (data, [{"key": "__value_schema_id", "value": b"bad"}, {"key": "__value_schema_id", "value": guid + path}]),
        (data, [{"key": "__value_schema_id", "value": framed(number, path)}]),
        (framed(number, path + data), [{"key": "__key_schema_id", "value": guid}]),
        (framed(number, path + data), None),
        (data, [{"key": "__value_schema_id", "value": b"\2bad"}]),
        (data, [{"key": "__value_schema_id", "value": guid}]),
    ]
    column, headers = (pa.array([row[n] for row in rows], kind) for n, kind in ((0, pa.binary()), (1, HEADERS)))
    result = codec.decode(column, headers)
    assert result.column.to_pylist() == [{"x": 5}] * 5 + [None, None]
    assert result.refused.to_pylist()[5:] == [
        "the header of the schema id has neither a zero byte and an id nor a one and a GUID",
        "the message indexes of Protobuf are cut off",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"\0rest", ((0,), 1)), (b"\2\4", ((2,), 2)), (b"\4\2\6", ((1, 3), 3)), (b"\2\x80\2", ((128,), 3))],
)
def test_message_indexes_are_zigzag_varints(data: bytes, expected: tuple[tuple[int, ...], int]) -> None:
    """A single zero is the first message."""
    assert message_indexes(data) == expected


@pytest.mark.parametrize("data", [b"", b"\x80", b"\4\2", b"\1", b"\xff\xff\xff\xff\x0f", b"\xff" * 9])
def test_wrong_message_indexes_are_refused(data: bytes) -> None:
    """Cut off, negative, too many, too long."""
    with pytest.raises(ValueError, match="message ind"):
        message_indexes(data)


def test_a_value_of_a_wrong_id_or_language_is_refused() -> None:
    """The codec looks a wrong id up once."""
    schemas = Schemas()
    good, other = schemas.add("t-value", "string"), schemas.add("json", {}, SchemaType.JSON)
    wrong = schemas.add("broken", "{", raw=True)
    codec = open_codec("registry", "t", VALUE, schemas, {"schema.id": str(good)})
    values = [framed(good, b"\2x"), framed(other, b"{}"), framed(wrong, b""), framed(55, b""), b"", b"\1\0\0\0\1x"]
    rows, refused = decoded(codec, *values)
    assert rows == ["x", None, None, None, None, None]
    for reason, expected in zip(
        refused[1:], ("is JSON; expected AVRO", "not JSON", "schema id 55", "frame", "frame"), strict=True
    ):
        assert expected in (reason or "")


def test_a_topic_without_frames_ends_the_codec() -> None:
    """Numbers of eight bytes look like frames of many ids; the codec does not request each."""
    schemas = Schemas()
    schemas.add("t-value", "string")
    codec = open_codec("registry", "t", VALUE, schemas)
    values = [(number << 8).to_bytes(8, "big") for number in range(1 << 20, (1 << 20) + (200 << 16), 1 << 16)]
    assert decoded(codec, *values)[0] == [None] * len(values)
    many = [framed(number, b"") for number in range(1000, 1000 + MAX_UNKNOWN_IDS + 1)]
    with pytest.raises(CorruptData, match="choose another codec or registry"):
        decoded(codec, *many)
    assert len(schemas.lookups) <= MAX_UNKNOWN_IDS + 1


def test_an_unreachable_registry_refuses_no_row() -> None:
    """The batch can be decoded later."""

    class Down(Schemas):
        down = True

        def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
            if self.down:
                raise StoreUnavailable("down")
            return super().schema(schema_id, subject)

    schemas = Down()
    old, _ = schemas.add("t-value", "int"), schemas.add("t-value", "long")
    codec = open_codec("registry", "t", VALUE, schemas)
    with pytest.raises(StoreUnavailable):
        decoded(codec, framed(old, b"\2"))
    schemas.down = False
    assert decoded(codec, framed(old, b"\2")) == ([1], [None])


def test_references_are_bounded() -> None:
    """A circle, a missing one, too many, and too much text are errors of the schema."""
    schemas = Schemas()
    schemas.add("circle", "int", references=[Reference("a", "circle", 1)])
    schemas.add("missing", "int", references=[Reference("a", "nowhere", 1)])
    for number in range(600):
        schemas.add(f"many{number}", "int", references=[Reference(f"n{number + 1}", f"many{number + 1}", 1)])
    for number in range(10):
        schemas.add(f"large{number}", '"int"' + " " * (1 << 20), raw=True)
    schemas.add("large", "int", references=[Reference(f"n{number}", f"large{number}", 1) for number in range(10)])
    schemas.add("wide", "int", references=[Reference(f"n{number}", f"flat{number}", 1) for number in range(600)])
    for number in range(600):
        schemas.add(f"flat{number}", "int")
    for subject, reason in (
        ("circle", "lead back"),
        ("missing", "has no schema"),
        ("many0", "lead back"),
        ("large", "characters with its references"),
        ("wide", "after 500 others"),
    ):
        with pytest.raises(CorruptData, match=reason):
            open_codec("registry", "t", VALUE, schemas, {"subject": subject})


def test_a_missing_schema_of_the_source_is_not_found() -> None:
    """The double of the tests keeps the contract."""
    with pytest.raises(ObjectNotFound):
        Schemas().latest("nowhere")
