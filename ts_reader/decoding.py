"""The codecs of a scan's keys and values: from arguments to columns with types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ts_common.errors import ConfigurationError
from ts_common.installed import missing_package
from ts_common.model import is_topic_name
from ts_reader.execution.decoded_columns import Columns, error_column
from ts_reader.options.given import Given, Option, ValueType
from ts_reader.options.value_types import member_of
from ts_reader.query.query import Query, Undecoded
from ts_reader.schemas.choice import CodecChoice, parse_codec
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.schema_source import SchemaSource

TOPIC_PREFIX: Final = "topic:"
_CODEC: Final = ValueType(parse_codec)
_UNDECODED: Final = Option("undecoded", member_of(Undecoded), Undecoded.ERROR)
_EXPECTED: Final = (
    "the URL of a registry, a ts_reader.Registry, or topic:_schemas for the schemas that this archive has are expected"
)

CodecArgument = str | Mapping[str, str] | None
RegistryArgument = str | SchemaSource | None


@dataclass(frozen=True)
class Decoding:
    """What decodes keys and values.

    Attributes:
        choices: codecs by part and topic.
        source: of schemas; None without one.
        undecoded: what refused keys and values do.
    """

    choices: Mapping[Part, Mapping[str, CodecChoice]]
    source: SchemaSource | None = None
    undecoded: Undecoded = Undecoded.ERROR

    def further_columns(self, corrupt_column: str | None) -> list[str]:
        """Return the names of the columns that only such a scan has."""
        refused = [error_column(part) for part in self.choices] if self.undecoded is Undecoded.NULL else []
        return [*refused, *([corrupt_column] if corrupt_column else [])]

    def columns(self, names: Sequence[str], corrupt_column: str | None, way_out: str) -> Columns:
        """Open the codecs, and return the columns; `way_out` is a sentence for the error of a refused value.

        Raises:
            ConfigurationError: a codec has a wrong option or no schema, or topics have different types.
            CorruptData: a reader's schema is wrong.
            StoreUnavailable, AccessDenied: from the source of schemas.
        """
        codecs = {part: self.open(part) for part in self.choices}
        return Columns(names, corrupt_column=corrupt_column, codecs=codecs, undecoded=self.undecoded, way_out=way_out)

    def open(self, part: Part) -> dict[str, Codec]:
        """Return the codecs of a part by topic; raise as `columns`."""
        try:
            from ts_reader.schemas.opening import open_codec  # noqa: PLC0415  (languages and their libraries)

            found = {
                topic: open_codec(choice.name, topic, part, self.source, choice.options)
                for topic, choice in self.choices[part].items()
            }
        except ModuleNotFoundError as error:
            message = missing_package(error, "schemas")
            if message is None:
                raise
            raise ConfigurationError(f"codec of {part}s", [message]) from error
        types = {codec.arrow_type: topic for topic, codec in found.items()}
        if len(types) > 1:
            shown = "; ".join(f"{topic}: {arrow_type}" for arrow_type, topic in types.items())
            problem = f"the {part}s of the topics have different types ({shown[:1000]}): scan them one by one"
            raise ConfigurationError("arguments of scan", [problem])
        return found


NOTHING_DECODED: Final = Decoding({})


def decoding_of(
    key: CodecArgument,
    value: CodecArgument,
    topics: Sequence[str],
    source: SchemaSource | None,
    given: Given,
) -> Decoding:
    """Return what the arguments `key`, `value` and `undecoded` of a scan specify; their problems are in `given`.

    Args:
        key: as of `ts_reader.Archive.scan`.
        topics: of the scan; empty for a pattern.
        source: of schemas; None if the archive names none.
        given: has the other arguments, and receives problems.
    """
    choices: dict[Part, dict[str, CodecChoice]] = {}
    for part, codec in ((Part.KEY, key), (Part.VALUE, value)):
        if codec is None:
            continue
        if not topics:
            given.problems.append(f"{part}: the codecs of a pattern are unknown; name the topics")
            continue
        by_topic: Any = codec if isinstance(codec, Mapping) else dict.fromkeys(topics, codec)
        if unknown := sorted(set(by_topic) - {*topics}, key=str):
            given.problems.append(f"{part}: {unknown} are not topics of this scan")
        if missing := [topic for topic in topics if topic not in by_topic]:
            given.problems.append(f"{part}: nothing for {', '.join(missing)}")
        choices[part] = {
            topic: given.parse(part.value, text, _CODEC, CodecChoice("utf8")) for topic, text in by_topic.items()
        }
        if source is None and any(choice.needs_source for choice in choices[part].values()):
            given.problems.append(f"{part}={codec!r}: its schema is unknown: {given.wording.schema_source}")
    return Decoding(choices, source, given.read(_UNDECODED))


def source_of(registry: Any, query: Query, problems: list[str]) -> SchemaSource | None:
    """Return the schemas that `registry` of an archive names.

    Args:
        registry: as of `ts_reader.Archive`.
        query: of the archive, for the topic of schemas.
        problems: receives what is wrong.
    """
    if registry is None or isinstance(registry, SchemaSource):
        return registry
    topic = registry.removeprefix(TOPIC_PREFIX) if isinstance(registry, str) else ""
    if not isinstance(registry, str) or (topic != registry and not is_topic_name(topic)):
        problems.append(f"registry={registry!r}: {_EXPECTED}")
        return None
    if topic != registry:
        from ts_reader.schemas.archived import ArchivedSchemas  # noqa: PLC0415  (only if schemas are needed)

        return ArchivedSchemas(query, topic)
    from ts_reader.schemas.registry import Registry  # noqa: PLC0415  (an HTTP client)

    try:
        return Registry(registry)
    except ConfigurationError as error:
        problems += [f"registry: {problem}; {_EXPECTED}" for problem in error.problems]
        return None
