"""Codecs by their names, and their options as texts; `ts_reader.schemas.opening` opens them.

================================  ====================================================================
`utf8`, `json`, `int`, `long`     without a schema: `ts_reader.schemas.plain`
`registry`                        in a registry's frame; Avro, Protobuf or JSON Schema, as the reader's schema is
`avro-framed`, `protobuf-framed`, the same; the reader's schema is of this language
`json-schema-framed`
`avro`, `protobuf`, `json-schema` without a frame: the reader's schema is that of all values
`module:Class`                    a class that extends `ts_reader.schemas.contract.Codec`
================================  ====================================================================

Options of those with a schema: `ts_reader.schemas.reader_schema.ReaderOptions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ts_common.suggestions import nearest
from ts_reader.schemas.schema_source import SchemaType

PLAIN: Final = ("utf8", "json", "int", "long")
LANGUAGES: Final = {"avro": SchemaType.AVRO, "protobuf": SchemaType.PROTOBUF, "json-schema": SchemaType.JSON}
FRAMED: Final = {"registry": None, **{f"{name}-framed": kind for name, kind in LANGUAGES.items()}}
NAMES: Final = (*PLAIN, *FRAMED, *LANGUAGES)
_FILE: Final = "schema.file"


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """A codec by its name, with its options.

    Attributes:
        name: as of `open_codec`.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_source(self) -> bool:
        """Whether the codec has a schema that is not a file."""
        return self.name in {*FRAMED, *LANGUAGES} and _FILE not in self.options


def parse_codec(text: str) -> CodecChoice:
    """Return the codec that a text such as `avro,schema.file=order.avsc` names.

    Args:
        text: the name, then options, each after a comma.

    Raises:
        ValueError: the name is unknown, or an option has no value.
    """
    if not isinstance(text, str):
        raise ValueError("the name of a codec is expected")  # noqa: TRY004  (a wrong value, whatever its type)
    name, *rest = (part.strip() for part in text.split(","))
    if name not in NAMES and ":" not in name:
        raise ValueError(f"unknown codec{nearest(name, NAMES)}; expected {', '.join(NAMES)} or module:Class")
    options: dict[str, str] = {}
    for part in rest:
        option, sign, value = part.partition("=")
        if not sign or not option or not value or option in options:
            raise ValueError(f"{part!r}: an option and its value are expected, once, as in {_FILE}=order.avsc")
        options[option] = value
    return CodecChoice(name, options)
