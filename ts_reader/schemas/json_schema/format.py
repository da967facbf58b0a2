"""A reader's schema of JSON Schema, compiled."""

from ts_common.errors import CorruptData
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.formats import Format, Read
from ts_reader.schemas.json_schema.columns import Columns
from ts_reader.schemas.json_schema.documents import documents_of
from ts_reader.schemas.json_values import json_value


class JsonSchemaFormat(Format):
    """A reader's JSON Schema. The writer's schema need only be one, too: properties are found by name.

    Raises:
        CorruptData: the schema is not one of JSON Schema, or is too large.
    """

    def __init__(self, reader: Bundle) -> None:
        document = documents_of(reader)
        try:
            self.arrow_type, self._convert = Columns().column(document, document.root)
        except ValueError as error:
            raise CorruptData(f"{reader.schema}: {error}") from error

    def reading(self, writer: Bundle | None) -> Read:  # noqa: ARG002
        """Return a function that parses JSON, and reads the columns of the reader's schema."""
        convert = self._convert

        def value(data: bytes, _: bytes | None) -> object:
            return convert(json_value(data, exactly=True))

        return value
