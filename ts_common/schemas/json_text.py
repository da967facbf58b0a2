"""The JSON of a schema's text, bounded in depth before anything recurses over it."""

import json
from typing import Any

from ts_common.errors import CorruptData
from ts_common.json_objects import shown
from ts_common.schemas.limits import MAX_JSON_DEPTH


def parse_schema_text(text: str, what: object) -> Any:
    """Return the JSON that a schema's text is.

    Args:
        text: of the schema.
        what: the schema, for messages.

    Raises:
        CorruptData: it is not JSON, or is nested deeper than `MAX_JSON_DEPTH`.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise CorruptData(f"{what}: nested more than {MAX_JSON_DEPTH} levels deep") from None
    except ValueError as error:
        raise CorruptData(f"{what}: not JSON: {error}; found {shown(text)}") from error
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise CorruptData(f"{what}: nested more than {MAX_JSON_DEPTH} levels deep")


def _inside(value: Any) -> list[Any]:
    match value:
        case dict():
            return list(value.values())
        case list():
            return value
        case _:
            return []
