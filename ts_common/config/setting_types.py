"""What the description of a setting says of its values, in words for the reference page."""

import re
from enum import StrEnum
from types import NoneType
from typing import get_args

from pydantic import JsonValue
from pydantic.fields import FieldInfo

UNIT = "unit"  # of a number, in `json_schema_extra`


def extra_of(info: FieldInfo) -> dict[str, JsonValue]:
    """What a description says beside pydantic's own words."""
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def type_of(info: FieldInfo) -> str:
    """What a value has to be, for the reference page: by the annotation and its bounds, with the unit."""
    kinds = [kind for kind in (get_args(info.annotation) or (info.annotation,)) if kind is not NoneType]
    kind = kinds[0]
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return " or ".join(kind)
    if info.annotation == tuple[re.Pattern[str], ...]:
        return "patterns"
    if info.annotation == tuple[str, ...]:
        return "host names"
    if kind not in {int, float}:
        return "text"
    bounds = {name: value for each in info.metadata for name, value in _bounds(each)}
    text = "whole number" if kind is int else "number"
    for name, words in (("ge", "from"), ("gt", "above"), ("le", "to")):
        if name in bounds:
            text += f" {words} {bounds[name]}"
    unit = extra_of(info).get(UNIT)
    return f"{text}, {unit}" if unit else text


def _bounds(constraint: object) -> list[tuple[str, object]]:
    return [(name, getattr(constraint, name)) for name in ("ge", "gt", "le") if hasattr(constraint, name)]
