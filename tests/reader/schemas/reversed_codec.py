"""Codecs as a user would write them."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.schemas.contract import Codec, Decoded, Part


class Reversed(Codec):
    """Bytes in the other order; refuses empty ones."""

    def __init__(self, topic: str, part: Part, options: Mapping[str, str]) -> None:
        self.about = (topic, part, options["word"])

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def decode(self, column: pa.Array, headers: pa.Array | None = None) -> Decoded:
        del headers
        refused = pc.if_else(pc.equal(column, b""), "empty", pa.scalar(None, pa.string()))
        return Decoded(pc.binary_reverse(column), refused)


class Silent(Codec):
    """Has no `arrow_type`."""


class NoCodec:
    """Extends nothing."""
