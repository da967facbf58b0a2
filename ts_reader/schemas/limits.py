"""Limits of schemas and values: other programs write both, and each of them may be hostile.

A schema beyond a limit is `CorruptData`. A value beyond a limit is a refused row.
"""

from typing import Final

MAX_SCHEMA_BYTES: Final = 2 << 20  # of one schema's text; registries allow 1 MB by default
MAX_BUNDLE_BYTES: Final = 8 << 20  # of a schema and all that it refers to
MAX_REFERENCES: Final = 500  # schemas that one schema refers to, directly or not
MAX_JSON_DEPTH: Final = 128  # brackets of a schema's text; a record in a record has three
MAX_JSON_VALUE_DEPTH: Final = 512  # of a JSON value that `json` reads; orjson reads 1,024 levels, and writes 254
MAX_DEPTH: Final = 48  # types inside of types; also levels of a value of a recursive type
MAX_COLUMNS: Final = 10_000  # fields of an Arrow type, at all levels
MAX_BRANCHES: Final = 1_000  # of one union
MAX_DEFAULT_BYTES: Final = 32 << 20  # of the schema's defaults that are put into one value
# The limit of one key or value; an option can set another one. A value of many small items, such as an array of empty
# arrays, needs 100 times its bytes while it is Python objects; one of records up to `MAX_CELLS`.
MAX_VALUE_BYTES: Final = 16 << 20
MAX_JSON_BYTES: Final = 64 << 20  # of one JSON text that is only checked
MAX_UNKNOWN_IDS: Final = 1_000  # schema ids that a codec looks up in vain
# Cells of one value: the columns of its type at all levels, for each item of a list again, even for one without bytes.
# A cell is about 64 bytes of Python objects and 8 bytes of Arrow, so that this is 256 MiB, and then 32 MiB.
MAX_CELLS: Final = 1 << 22
STRUCT_CELLS: Final = 2  # of a struct, in addition to its fields: a `dict` of one field is as large as three cells
CELLS_AT_ONCE: Final = 1 << 20  # of rows that are Python objects at the same time: 64 MiB
MAX_COLUMN_CELLS: Final = 1 << 28  # of all rows that are decoded at once: 2 GiB of Arrow
DEFAULT_BYTES: Final = 8  # that a default counts in addition to its JSON; so a value has up to `MAX_CELLS` of them
# Microseconds of a moment, before and after 1970. The few that 64 bits have beyond it are infinities of DuckDB, or not
# a time of NumPy.
MAX_TIME: Final = 9_223_372_022_400_000_000
ROWS_AT_ONCE: Final = 4_096  # rows that are Python objects at the same time
BYTES_AT_ONCE: Final = 1 << 20  # encoded bytes of these rows
REASON_CHARACTERS: Final = 300
