"""The one schema that a codec reads with: which one it is, and its format."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ts_common.errors import ConfigurationError, CorruptData, ObjectNotFound
from ts_common.json_objects import MAX_INT32
from ts_common.suggestions import nearest
from ts_reader.schemas.bundle import Bundle, load_bundle
from ts_reader.schemas.contract import Part
from ts_reader.schemas.formats import AvroFormat, Format
from ts_reader.schemas.limits import MAX_SCHEMA_BYTES, MAX_VALUE_BYTES
from ts_reader.schemas.schema_source import RegisteredSchema, SchemaSource, SchemaType

_TYPES = {".avsc": SchemaType.AVRO, ".proto": SchemaType.PROTOBUF, ".json": SchemaType.JSON}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Options of a codec with a schema; as texts, their names have `.` for `_`.

    Attributes:
        subject: of the reader's schema; None for `<topic>-key` or `<topic>-value`, as TopicNameStrategy has it.
        version: of the subject; None for the newest that was not deleted.
        schema_id: of the reader's schema, instead of subject and version.
        schema_file: file of the reader's schema, instead of these: `.avsc`, `.proto` or `.json` (JSON Schema).
        message: of Protobuf, by its name; None for the first one of the schema.
        nanoseconds: of Protobuf: `cut` leaves out what times have below a microsecond; None refuses such values.
        max_value_bytes: a larger value is refused: of many small items, it needs 100 times its bytes.
    """

    subject: str | None = None
    version: int | None = None
    schema_id: int | None = None
    schema_file: Path | None = None
    message: str | None = None
    nanoseconds: str | None = None
    max_value_bytes: int = MAX_VALUE_BYTES


def parse_options(options: Mapping[str, str], where: str) -> ReaderOptions:
    """Return the options of a codec.

    Raises:
        ConfigurationError: with all problems.
    """
    problems: list[str] = []
    known = {field.name.replace("_", "."): field.name for field in fields(ReaderOptions)}
    given: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            problems.append(f"{name}: unknown option{nearest(name, known)}")
            continue
        try:
            given[known[name]] = _value(name, value)
        except ValueError as error:
            problems.append(f"{name}={value}: {error}")
    several = [name for name in ("subject", "schema.id", "schema.file") if name in options]
    if len(several) > 1 or ("version" in options and several and several != ["subject"]):
        problems.append("give one of subject, schema.id and schema.file; version needs a subject or the default one")
    if problems:
        raise ConfigurationError(where, problems)
    return ReaderOptions(**given)


def _value(name: str, text: str) -> Any:
    """Return the value of an option.

    Raises:
        ValueError: the text is no such value; with what is expected.
    """
    if name in {"version", "schema.id", "max.value.bytes"}:
        if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > MAX_INT32:
            raise ValueError(f"a number from 0 to {MAX_INT32} is expected")
        return int(text)
    if name == "nanoseconds" and text != "cut":
        raise ValueError("cut is expected; without the option, such values are refused")
    return Path(text) if name == "schema.file" else text


def find_reader(
    topic: str, part: Part, source: SchemaSource | None, options: ReaderOptions, kind: SchemaType | None
) -> Bundle:
    """Return the reader's schema of a topic.

    Args:
        source: of schemas; None if the schema is a file.
        kind: its language; None for any.

    Raises:
        ConfigurationError: the options name no schema, or one of another language; it has the ways out.
        CorruptData, StoreUnavailable, AccessDenied: of the source or the file.
    """
    where = f"schema of {topic} ({part})"
    if options.schema_file is not None:
        schema = _from_file(options.schema_file, kind, where)
    elif source is None:
        raise ConfigurationError(where, ["neither a registry nor the topic _schemas nor a file has been given"])
    else:
        try:
            schema = _from_source(f"{topic}-{part}", source, options)
        except ObjectNotFound as error:
            way_out = "name the subject, the id or the file of a schema"
            raise ConfigurationError(where, [f"{error}; {way_out}"]) from error
    if kind is not None and schema.kind is not kind:
        raise ConfigurationError(where, [f"{schema} is {schema.kind}; expected {kind}"])
    return load_bundle(schema, source)


def open_format(bundle: Bundle, message: str | None, *, cuts: bool) -> Format:
    """Return the format of a reader's schema.

    Args:
        message: of Protobuf, by its name; None for the first one of the schema.
        cuts: whether nanoseconds of Protobuf are cut.

    Raises:
        CorruptData: the schema is wrong, or beyond a limit.
    """
    match bundle.schema.kind:
        case SchemaType.AVRO:
            return AvroFormat(bundle)
        case SchemaType.PROTOBUF:
            # Loaded only for schemas of Protobuf: its library takes 0.1 s.
            from ts_reader.schemas.protobuf.format import ProtobufFormat  # noqa: PLC0415

            return ProtobufFormat(bundle, message, cuts=cuts)
        case SchemaType.JSON:
            from ts_reader.schemas.json_schema.columns import JsonSchemaFormat  # noqa: PLC0415

            return JsonSchemaFormat(bundle)


def _from_source(default: str, source: SchemaSource, options: ReaderOptions) -> RegisteredSchema:
    if options.schema_id is not None:
        return source.schema(options.schema_id)
    subject = options.subject or default
    return source.latest(subject) if options.version is None else source.version(subject, options.version)


def _from_file(path: Path, kind: SchemaType | None, where: str) -> RegisteredSchema:
    found = kind or _TYPES.get(path.suffix)
    if found is None:
        raise ConfigurationError(where, [f"{path}: a name that ends in {', '.join(_TYPES)} is expected"])
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
        if len(data) > MAX_SCHEMA_BYTES:
            raise CorruptData(f"{path}: more than {MAX_SCHEMA_BYTES} bytes")
        return RegisteredSchema(found, data.decode("utf-8"), where=str(path))
    except OSError as error:
        raise ConfigurationError(where, [f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise CorruptData(f"{path}: not text in UTF-8: {error}") from error
