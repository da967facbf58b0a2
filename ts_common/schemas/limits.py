"""Limits of schemas and values: other programs write both, and each of them may be hostile.

A schema beyond a limit is `CorruptData`. A value beyond a limit is a refused row.
"""

from typing import Final

MAX_SCHEMA_BYTES: Final = 2 << 20  # of one schema's text; registries allow 1 MB by default
MAX_BUNDLE_BYTES: Final = 8 << 20  # of a schema and all that it refers to
MAX_REFERENCES: Final = 500  # schemas that one schema refers to, directly or not
MAX_JSON_DEPTH: Final = 128  # brackets of a schema's text; a record in a record has three
MAX_DEPTH: Final = 48  # types inside of types; also levels of a value of a recursive type
MAX_COLUMNS: Final = 10_000  # fields of an Arrow type, at all levels
MAX_BRANCHES: Final = 1_000  # of one union
MAX_DEFAULT_BYTES: Final = 32 << 20  # of the schema's defaults that are put into one value
# Of one key or value, unless an option has another limit. A value of many small items, such as an array of booleans in
# records, needs 200 times its bytes while it is Python objects.
MAX_VALUE_BYTES: Final = 16 << 20
MAX_JSON_BYTES: Final = 64 << 20  # of one JSON text that is only checked
MAX_UNKNOWN_IDS: Final = 1_000  # schema ids that a codec looks up in vain
ROWS_AT_ONCE: Final = 4_096  # rows that are Python objects at the same time
BYTES_AT_ONCE: Final = 1 << 20  # encoded bytes of these rows
REASON_CHARACTERS: Final = 300
