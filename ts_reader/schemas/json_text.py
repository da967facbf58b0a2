"""The JSON of a schema's text."""

from typing import Any

from ts_common.json_objects import parse_json
from ts_reader.schemas.limits import MAX_JSON_DEPTH, MAX_SCHEMA_BYTES
from ts_reader.schemas.source import RegisteredSchema


def parse_schema_text(schema: RegisteredSchema) -> Any:
    """Return the JSON that a schema's text is.

    Raises:
        CorruptData: it is not JSON, or is nested deeper than `MAX_JSON_DEPTH`.
    """
    encoded = schema.text.encode("utf-8", "surrogatepass")  # halves of pairs are an error of the parser
    return parse_json(encoded, str(schema), 4 * MAX_SCHEMA_BYTES, MAX_JSON_DEPTH)
