"""`Codec`: binary keys or values in, one typed column out, and a reason for each row that does not decode.

The built-in codecs have names (`ts_reader.schemas.opening`). Any other is a class that extends `Codec`, named by its
dotted path `module:Class`. It is called as `Class(topic, part, options)`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


class Part(StrEnum):
    """The part of a record that a codec decodes; also the suffix of its subject under TopicNameStrategy."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a decoded column.

    Attributes:
        column: of the codec's `arrow_type`; null where the bytes are null, are refused, or decode to null.
        refused: strings; null where the row is fine, else the reason in one line.
    """

    column: pa.Array
    refused: pa.Array


class Codec(ABC):
    """Decodes the keys or the values of one topic.

    What a codec promises:

    - `arrow_type` is fixed when the codec exists. All batches have it, in all processes that have the codec.
    - Equal bytes decode to equal rows, in any batch, order, thread and process.
    - A row that does not decode is refused with a reason; it ends nothing. Null bytes are null and are not refused.
    - There is no I/O per row. A codec may fetch each schema once.
    - One codec may be used by several threads at once.
    - It can be pickled. A copy has the same reader schema and `arrow_type`, and fetches schemas itself.
    - `decode` raises only errors of `ts_common.errors`. `StoreUnavailable` and `AccessDenied` mean that a schema could
      not be fetched: the batch can be decoded later. No row is refused because of them.
    """

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of the decoded column."""

    @property
    def uses_headers(self) -> bool:
        """Whether `decode` needs the headers of the records: a scan reads them for it."""
        return False

    @abstractmethod
    def decode(self, column: pa.Array, headers: pa.Array | None = None) -> Decoded:
        """Return the decoded column and the refused rows, both as long as `column`.

        Args:
            column: of binary: keys or values.
            headers: of the same records, `list<struct<key: string, value: binary>>`, for schema ids in headers; None
                if the scan has no headers.

        Raises:
            StoreUnavailable, AccessDenied: from the source of schemas.
            CorruptData: the topic does not have the codec's format at all.
        """
