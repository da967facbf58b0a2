"""Opening a codec by its name, which `ts_reader.schemas.choice` lists."""

from collections.abc import Callable, Mapping
from typing import Final

from ts_common.config.plugins import load_class
from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.suggestions import nearest
from ts_reader.schemas.choice import FRAMED, LANGUAGES, NAMES
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.plain import IntegerCodec, JsonCodec, LongCodec, Utf8Codec
from ts_reader.schemas.reader_schema import find_reader, parse_options
from ts_reader.schemas.schema_codec import SchemaCodec
from ts_reader.schemas.schema_source import SchemaSource

_PLAIN: Final[Mapping[str, Callable[[str, Part, Mapping[str, str]], Codec]]] = {
    "utf8": Utf8Codec,
    "json": JsonCodec,
    "int": IntegerCodec,
    "long": LongCodec,
}


def open_codec(
    name: str, topic: str, part: Part, source: SchemaSource | None = None, options: Mapping[str, str] | None = None
) -> Codec:
    """Return a codec for the keys or the values of a topic.

    Args:
        name: of a built-in codec, or `module:Class`.
        source: of schemas; None if the codec needs none, or its schema is a file. With a file and no source, framed
            values are read with the file's schema, whatever id they have.

    Raises:
        ConfigurationError: the name or an option is wrong, or no schema is found; with all problems.
        CorruptData: the reader's schema is wrong, or beyond a limit.
        StoreUnavailable, AccessDenied: from the source of schemas.
    """
    given = options or {}
    where = f"codec of {topic} ({part})"
    if name in _PLAIN:
        return _PLAIN[name](topic, part, given)
    if name in FRAMED or name in LANGUAGES:
        chosen = parse_options(given, where)
        kind = FRAMED[name] if name in FRAMED else LANGUAGES[name]
        reader = find_reader(topic, part, source, chosen, kind)
        return SchemaCodec(
            topic,
            part,
            reader,
            source,
            framed=name in FRAMED,
            message=chosen.message,
            cuts=chosen.nanoseconds is not None,
            max_value_bytes=chosen.max_value_bytes,
        )
    if ":" not in name:
        problem = f"{name!r}: unknown codec{nearest(name, NAMES)}; expected {', '.join(NAMES)} or module:Class"
        raise ConfigurationError(where, [problem])
    return _open_class(name, topic, part, given, where)


def _open_class(name: str, topic: str, part: Part, options: Mapping[str, str], where: str) -> Codec:
    """Return an instance of the user's class."""
    # mypy rejects an abstract class here; the loaded one is concrete, and its constructor is documented.
    found: type[Codec] = load_class(name, Codec, where)  # type: ignore[type-abstract]
    try:
        return found(topic, part, options)  # type: ignore[call-arg]
    except TieredStorageError:
        raise
    except Exception as error:
        # The class is the user's code, so any exception is a problem of the configuration.
        raise ConfigurationError(where, [f"{name}: {type(error).__name__}: {error}"]) from error
