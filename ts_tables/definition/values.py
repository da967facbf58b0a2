"""The values of a tables' file: what is accepted, and how YAML's forms of it are read."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from ts_common.config.file_values import LIST, listed
from ts_common.model import is_topic_name
from ts_reader.schemas.choice import parse_codec

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}(\.[A-Za-z_][A-Za-z0-9_]{0,127})+")


class TableMode(StrEnum):
    """Which rows a table has."""

    APPEND = "append"
    CHANGES = "changes"
    LATEST = "latest"


def check_topic(value: str) -> str:
    """Return the name of a topic; raise ValueError for another text."""
    if not is_topic_name(value):
        raise ValueError(f"{value!r} is no name of a topic; `pattern` accepts a regular expression")
    return value


def check_pattern(value: str) -> str:
    """Return a regular expression; raise ValueError for another text."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from error
    return value


def check_table_name(value: str) -> str:
    """Return the name of a table; raise ValueError for another text."""
    if not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no name of a table; namespace.name is expected, of letters, digits and _")
    return value


def check_codec(value: str) -> str:
    """Return a codec with its options; raise ValueError for another text."""
    parse_codec(value)
    return value


def texts(value: Any) -> Any:
    """Return properties as texts: YAML makes numbers and booleans of some."""
    if not isinstance(value, Mapping):
        return value
    return {
        str(key): str(item).lower() if isinstance(item, bool) else item if isinstance(item, str) else str(item)
        for key, item in value.items()
    }


def spark_settings(value: Any) -> Any:
    """Return settings of Spark as texts; raise ValueError for others."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not str(key).startswith("spark.") or isinstance(item, Mapping | list):
                raise ValueError(f"{key}: a setting of Spark is expected, as spark.master: local[4]")
    return texts(value)


# What the validators above accept: properties that YAML reads as numbers or booleans.
PROPERTIES: Final = WithJsonSchema(
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
)

Names = Annotated[tuple[Annotated[str, AfterValidator(check_topic)], ...], BeforeValidator(listed), LIST]
