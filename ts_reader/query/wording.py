"""The names that a query's messages use: options of Spark's source, or arguments of the Python reader."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Wording:
    """How a user writes what a message names. The defaults are the arguments of the Python reader.

    Attributes:
        entropy_bits: the number of entropy bits, with the sign before its value.
        pattern: the pattern of topics, with the sign before its value.
        partitions: the choice of single partitions.
        starting_offsets: offsets of each partition to start at.
        ending_offsets: offsets of each partition to end before.
        starting_timestamps: timestamps of each partition to start at.
        ending_timestamps: timestamps of each partition to end before.
        earliest: how a partition's first offset is written.
        latest: how a partition's end is written.
        without_match: what returns no rows of a partition without a record at or after the starting timestamp.
        despite_loss: a sentence: how to read what is left, although offsets are lost.
        despite_corruption: a sentence: how to read what is intact.
        max_batch_bytes: the limit of a record batch.
        schema_source: how to name the schemas of a codec.
        despite_undecoded: a sentence: how to read the rows whose key or value does not decode.
        exact_times: how to get the time as stored, where a column cannot hold it.
        despite_unproven: a sentence: how to read what is shipped, although a cut is not proven to be complete.
    """

    entropy_bits: str = "prefix_entropy_bits="
    pattern: str = "topics="
    partitions: str = "partitions"
    starting_offsets: str = "starting_offsets"
    ending_offsets: str = "ending_offsets"
    starting_timestamps: str = "starting_timestamp"
    ending_timestamps: str = "ending_timestamp"
    earliest: str = '"earliest"'
    latest: str = '"latest"'
    without_match: str = 'starting_without_match="latest"'
    despite_loss: str = "To read what is left, pass fail_on_data_loss=False"
    despite_corruption: str = 'To read what is intact, pass mode="DROPMALFORMED"'
    max_batch_bytes: str = "max_batch_bytes"
    schema_source: str = "pass registry=... to Archive, or schema.file=... here"
    despite_undecoded: str = 'To have null and the reason instead, pass undecoded="null"'
    exact_times: str = "include_timestamp_ms=True adds the time as stored"
    despite_unproven: str = 'To read what is shipped, pass unproven="warn" to at()'


PYTHON: Final = Wording()
